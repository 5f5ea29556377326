//! The basis of all pictures: SVG through plotters, with common colours and fonts.

use std::ops::Range;

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

/// A linear axis of time, from left to right.
#[derive(Clone, Debug)]
pub(crate) struct TimeAxis {
    /// Left and right end.
    pub(crate) x: (i32, i32),
    /// In seconds.
    pub(crate) time: Range<f64>,
}

impl TimeAxis {
    /// In seconds.
    pub(crate) fn length(&self) -> f64 {
        self.time.end - self.time.start
    }

    /// Where a time is; at the ends what lies beyond them.
    pub(crate) fn x(&self, time: f64) -> i32 {
        let share = (time - self.time.start) / self.length();
        self.x.0 + (share.clamp(0.0, 1.0) * f64::from(self.x.1 - self.x.0)).round() as i32
    }

    /// Draws it, with times that are round after they were multiplied by `scale`.
    pub(crate) fn draw<'a>(
        &self,
        canvas: &Canvas<'a>,
        y: i32,
        scale: f64,
        below: &str,
    ) -> Drawn<'a> {
        canvas.line(&[(self.x.0, y), (self.x.1, y)], INK)?;
        let step = round_step(self.length() * scale / 10.0);
        let first = (self.time.start * scale / step).ceil() as i64;
        let last = (self.time.end * scale / step).floor() as i64;
        for n in first..=last {
            let value = n as f64 * step;
            let x = self.x(value / scale);
            canvas.line(&[(x, y), (x, y + 4)], INK)?;
            let label = format!("{}", (value * 1e6).round() / 1e6);
            canvas.text(&label, (x, y + 8), CENTER_TOP, 12, INK)?;
        }
        let middle = i32::midpoint(self.x.0, self.x.1);
        canvas.text(below, (middle, y + 26), CENTER_TOP, 12, INK)
    }
}

/// 1, 2 or 5 times a power of ten, at least this.
pub(crate) fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_values() {
        for (least, step) in [(0.9, 1.0), (1.0, 1.0), (3.0, 5.0), (70.0, 100.0)] {
            assert!((round_step(least) - step).abs() < 1e-9);
        }
    }
}
