//! What all pictures are drawn with: SVG through plotters, in the same colours and letters.

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::Pos;
pub(crate) use plotters::style::text_anchor::{HPos, VPos};

/// Axes and words.
pub(crate) const INK: RGBColor = RGBColor(0x22, 0x2b, 0x36);
/// Lines that only help the eye.
pub(crate) const FAINT: RGBColor = RGBColor(0xd9, 0xde, 0xe4);

/// Where a text hangs at its point.
pub(crate) const LEFT_TOP: (HPos, VPos) = (HPos::Left, VPos::Top);
pub(crate) const LEFT_BOTTOM: (HPos, VPos) = (HPos::Left, VPos::Bottom);
pub(crate) const LEFT_CENTER: (HPos, VPos) = (HPos::Left, VPos::Center);
pub(crate) const RIGHT_CENTER: (HPos, VPos) = (HPos::Right, VPos::Center);
pub(crate) const CENTER_TOP: (HPos, VPos) = (HPos::Center, VPos::Top);

/// A pixel: from the left, from the top.
pub(crate) type Point = (i32, i32);
pub(crate) type Drawn<'a> = Result<(), DrawError<'a>>;
pub(crate) type DrawError<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

/// White paper of a size in pixels.
pub(crate) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

/// The picture that `draw` makes, as the text of an SVG file.
pub(crate) fn picture(
    size: (i32, i32),
    draw: impl for<'a> FnOnce(&Canvas<'a>) -> Drawn<'a>,
) -> Result<String, String> {
    let mut svg = String::new();
    let size = (size.0.unsigned_abs(), size.1.unsigned_abs());
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let canvas = Canvas { area };
    canvas
        .area
        .fill(&WHITE)
        .and_then(|()| draw(&canvas))
        .map_err(|error| error.to_string())?;
    drop(canvas);
    Ok(svg)
}

impl<'a> Canvas<'a> {
    pub(crate) fn line(&self, points: &[Point], style: impl Into<ShapeStyle>) -> Drawn<'a> {
        self.area.draw(&PathElement::new(points.to_vec(), style))
    }

    pub(crate) fn dashes(&self, from: Point, to: Point, color: RGBColor) -> Drawn<'a> {
        let style = color.stroke_width(2);
        self.area
            .draw(&DashedPathElement::new([from, to], 6, 4, style))
    }

    pub(crate) fn rectangle(&self, from: Point, to: Point, style: ShapeStyle) -> Drawn<'a> {
        self.area.draw(&Rectangle::new([from, to], style))
    }

    pub(crate) fn circle(&self, at: Point, radius: i32, color: RGBColor) -> Drawn<'a> {
        self.area.draw(&Circle::new(at, radius, color.filled()))
    }

    pub(crate) fn cross(&self, at: Point, size: i32, style: ShapeStyle) -> Drawn<'a> {
        self.area.draw(&Cross::new(at, size, style))
    }

    pub(crate) fn triangle(&self, at: Point, size: i32, color: RGBColor) -> Drawn<'a> {
        self.area
            .draw(&TriangleMarker::new(at, size, color.filled()))
    }

    pub(crate) fn text(
        &self,
        text: &str,
        at: Point,
        (h, v): (HPos, VPos),
        size: u32,
        color: RGBColor,
    ) -> Drawn<'a> {
        let font = ("sans-serif", size).into_font();
        let style = font.color(&color).pos(Pos::new(h, v));
        self.area.draw(&Text::new(text.to_owned(), at, style))
    }
}
