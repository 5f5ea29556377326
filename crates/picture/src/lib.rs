//! Pictures as SVG: a canvas with common colours and fonts, and axes.

#![forbid(unsafe_code)]

mod axis;

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::Pos;
pub use plotters::style::text_anchor::{HPos, VPos};
pub use plotters::style::{Color, RGBColor};

pub use self::axis::{Scale, decades, round_step};

/// Axes and words.
pub const INK: RGBColor = RGBColor(0x22, 0x2b, 0x36);
/// Lines that only help the eye.
pub const FAINT: RGBColor = RGBColor(0xd9, 0xde, 0xe4);

/// Which point of a text is at its position: the upper left corner.
pub const LEFT_TOP: Anchor = (HPos::Left, VPos::Top);
/// The lower left corner.
pub const LEFT_BOTTOM: Anchor = (HPos::Left, VPos::Bottom);
/// The middle of the left side.
pub const LEFT_CENTER: Anchor = (HPos::Left, VPos::Center);
/// The middle of the right side.
pub const RIGHT_CENTER: Anchor = (HPos::Right, VPos::Center);
/// The middle of the upper side.
pub const CENTER_TOP: Anchor = (HPos::Center, VPos::Top);

/// A point of a text.
pub type Anchor = (HPos, VPos);
/// A pixel: from the left, from the top.
pub type Point = (i32, i32);
/// Whether something could be drawn.
pub type Drawn<'a> = Result<(), DrawError<'a>>;
/// Why something could not be drawn.
pub type DrawError<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

/// White paper of a size in pixels.
#[expect(missing_debug_implementations, reason = "plotters has none")]
pub struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

/// The picture that `draw` makes, as the text of an SVG file.
///
/// # Errors
///
/// Those of `draw`.
pub fn picture(
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

/// Each of these can fail as writing to the picture can.
#[expect(clippy::missing_errors_doc, reason = "stated above for all")]
impl<'a> Canvas<'a> {
    /// A line through points.
    pub fn line(&self, points: &[Point], style: impl Into<ShapeStyle>) -> Drawn<'a> {
        self.area.draw(&PathElement::new(points.to_vec(), style))
    }

    /// A dashed line.
    pub fn dashes(&self, from: Point, to: Point, color: RGBColor) -> Drawn<'a> {
        let style = color.stroke_width(2);
        self.area
            .draw(&DashedPathElement::new([from, to], 6, 4, style))
    }

    /// A rectangle from corner to corner.
    pub fn rectangle(&self, from: Point, to: Point, style: impl Into<ShapeStyle>) -> Drawn<'a> {
        self.area.draw(&Rectangle::new([from, to], style))
    }

    /// A filled circle.
    pub fn circle(&self, at: Point, radius: i32, color: RGBColor) -> Drawn<'a> {
        self.area.draw(&Circle::new(at, radius, color.filled()))
    }

    /// A diagonal cross.
    pub fn cross(&self, at: Point, size: i32, style: ShapeStyle) -> Drawn<'a> {
        self.area.draw(&Cross::new(at, size, style))
    }

    /// A filled triangle.
    pub fn triangle(&self, at: Point, size: i32, color: RGBColor) -> Drawn<'a> {
        self.area
            .draw(&TriangleMarker::new(at, size, color.filled()))
    }

    /// A text, `at` being the position of the anchor.
    pub fn text(
        &self,
        text: &str,
        at: Point,
        (h, v): Anchor,
        size: u32,
        color: RGBColor,
    ) -> Drawn<'a> {
        let font = ("sans-serif", size).into_font();
        let style = font.color(&color).pos(Pos::new(h, v));
        self.area.draw(&Text::new(text.to_owned(), at, style))
    }

    /// A line of a legend: a stroke, and a name beside it.
    pub fn key(&self, at: Point, color: RGBColor, width: u32, name: &str) -> Drawn<'a> {
        let (x, y) = at;
        self.line(&[at, (x + 18, y)], color.stroke_width(width))?;
        self.text(name, (x + 24, y), LEFT_CENTER, 13, INK)
    }
}

/// Text as SVG and HTML have it.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            _ => escaped.push(c),
        }
    }
    escaped
}
