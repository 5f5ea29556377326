//! Plots curves by message size.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// What one thing reaches at each size.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Bytes of a message, and 10^9 bits of payload a second.
    pub points: Vec<(usize, f64)>,
}

const SIZE: (i32, i32) = (960, 620);
/// Left and right end of the frame, top and bottom.
const X: (i32, i32) = (80, 930);
const Y: (i32, i32) = (110, 560);
const INK: RGBColor = RGBColor(0x22, 0x2b, 0x36);
const FAINT: RGBColor = RGBColor(0xd9, 0xde, 0xe4);
const COLORS: [RGBColor; 7] = [
    RGBColor(0xc0, 0x1c, 0x28),
    RGBColor(0x0b, 0x4f, 0x9e),
    RGBColor(0x5a, 0x5a, 0x5a),
    RGBColor(0xb3, 0x5c, 0x00),
    RGBColor(0xd9, 0x9a, 0x00),
    RGBColor(0x2e, 0x8b, 0x3a),
    RGBColor(0x7b, 0x3f, 0xa8),
];
/// A column of the legend.
const LEGEND: (i32, usize) = (213, 4);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// The curves as SVG, both axes logarithmic.
///
/// # Errors
/// There are no points, or more curves than colours.
pub fn rates(title: &str, curves: &[Curve]) -> Result<String, String> {
    let axes = Axes::over(curves).ok_or("there is nothing to draw")?;
    if curves.len() > COLORS.len() {
        return Err(format!("more than {} curves", COLORS.len()));
    }
    let mut svg = String::new();
    let size = (SIZE.0.unsigned_abs(), SIZE.1.unsigned_abs());
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let drawn = area.fill(&WHITE).and_then(|()| {
        text(&area, title, (X.0, 28), HPos::Left, 18)?;
        axes.draw(&area)?;
        let curves = curves.iter().zip(COLORS).enumerate();
        curves.into_iter().try_for_each(|(place, (curve, color))| {
            legend(&area, place, &curve.name, color)?;
            axes.curve(&area, curve, color)
        })
    });
    drawn.map_err(|error| error.to_string())?;
    drop(area);
    Ok(svg)
}

/// What lies between the ends of the frame, as powers: of 2 from left to right, of 10 upwards.
struct Axes {
    bytes: (i32, i32),
    gbps: (i32, i32),
}

impl Axes {
    fn over(curves: &[Curve]) -> Option<Self> {
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let bytes = || points().map(|(bytes, _)| *bytes);
        let gbps = || points().map(|(_, gbps)| *gbps).filter(|gbps| *gbps > 0.0);
        let most = gbps().reduce(f64::max)?;
        let least = gbps().reduce(f64::min)?;
        Some(Self {
            bytes: (bytes().min()?.ilog2() as i32, bytes().max()?.ilog2() as i32),
            gbps: (least.log10().floor() as i32, most.log10().ceil() as i32),
        })
    }

    fn x(&self, bytes: usize) -> i32 {
        place((bytes as f64).log2(), self.bytes, X)
    }

    fn y(&self, gbps: f64) -> i32 {
        place(gbps.log10(), self.gbps, (Y.1, Y.0))
    }

    fn draw<'a>(&self, area: &Area<'a>) -> Drawn<'a> {
        for power in self.bytes.0..=self.bytes.1 {
            let bytes = 1_usize << power;
            let x = self.x(bytes);
            area.draw(&PathElement::new([(x, Y.0), (x, Y.1)], FAINT))?;
            if power % 2 == self.bytes.0 % 2 {
                text(area, &size(bytes), (x, Y.1 + 16), HPos::Center, 13)?;
            }
        }
        for power in self.gbps.0..=self.gbps.1 {
            let gbps = 10_f64.powi(power);
            let y = self.y(gbps);
            area.draw(&PathElement::new([(X.0, y), (X.1, y)], FAINT))?;
            text(area, &gbps.to_string(), (X.0 - 8, y), HPos::Right, 13)?;
        }
        area.draw(&Rectangle::new([(X.0, Y.0), (X.1, Y.1)], INK))?;
        let middle = i32::midpoint(X.0, X.1);
        text(
            area,
            "bytes of a message",
            (middle, Y.1 + 40),
            HPos::Center,
            13,
        )?;
        text(
            area,
            "Gb/s of payload",
            (X.0 - 60, Y.0 - 16),
            HPos::Left,
            13,
        )
    }

    fn curve<'a>(&self, area: &Area<'a>, curve: &Curve, color: RGBColor) -> Drawn<'a> {
        let points = curve.points.iter().filter(|(_, gbps)| *gbps > 0.0);
        let points: Vec<_> = points
            .map(|(bytes, gbps)| (self.x(*bytes), self.y(*gbps)))
            .collect();
        area.draw(&PathElement::new(points.clone(), color.stroke_width(2)))?;
        points
            .into_iter()
            .try_for_each(|point| area.draw(&Circle::new(point, 4, color.filled())))
    }
}

/// Where a value between two ends lies between two pixels.
fn place(value: f64, ends: (i32, i32), pixels: (i32, i32)) -> i32 {
    let length = f64::from(ends.1 - ends.0).max(1.0);
    let share = (value - f64::from(ends.0)) / length;
    pixels.0 + (share * f64::from(pixels.1 - pixels.0)).round() as i32
}

fn legend<'a>(area: &Area<'a>, place: usize, name: &str, color: RGBColor) -> Drawn<'a> {
    let (width, columns) = LEGEND;
    let (column, row) = ((place % columns) as i32, (place / columns) as i32);
    let (x, y) = (X.0 + column * width, 54 + row * 18);
    area.draw(&PathElement::new(
        [(x, y), (x + 18, y)],
        color.stroke_width(2),
    ))?;
    area.draw(&Circle::new((x + 9, y), 4, color.filled()))?;
    text(area, name, (x + 26, y), HPos::Left, 13)
}

fn text<'a>(area: &Area<'a>, text: &str, at: (i32, i32), h: HPos, size: u32) -> Drawn<'a> {
    let font = ("sans-serif", size).into_font();
    let style = font.color(&INK).pos(Pos::new(h, VPos::Center));
    area.draw(&Text::new(text.to_owned(), at, style))
}

/// A power of two in words.
fn size(bytes: usize) -> String {
    match bytes {
        ..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_curve_is_drawn_and_named() {
        let curve = |name: &str, gbps: f64| Curve {
            name: name.to_owned(),
            points: vec![(8, gbps), (4096, 10.0 * gbps), (1 << 20, 100.0 * gbps)],
        };
        let svg = rates("Rates", &[curve("one", 0.1), curve("two", 0.02)]).unwrap();
        for word in ["one", "two", "8 B", "2 KiB", "0.01", "Gb/s of payload"] {
            assert!(svg.contains(word), "{word}");
        }
        // Three points and a mark in the legend, twice.
        assert_eq!(svg.matches("<circle").count(), 8);
        assert!(rates("Nothing", &[]).is_err());
    }
}
