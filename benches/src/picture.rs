//! Plots curves by message size.

use ferroce_picture::{
    CENTER_TOP, Canvas, Color as _, Drawn, INK, LEFT_CENTER, RGBColor, Scale, decades, picture,
};

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

/// The curves as SVG, both axes logarithmic.
///
/// # Errors
/// There are no points, or more curves than colours.
pub fn rates(title: &str, curves: &[Curve]) -> Result<String, String> {
    let axes = Axes::over(curves).ok_or("there is nothing to draw")?;
    if curves.len() > COLORS.len() {
        return Err(format!("more than {} curves", COLORS.len()));
    }
    picture(SIZE, |canvas| {
        canvas.text(title, (X.0, 28), LEFT_CENTER, 18, INK)?;
        axes.draw(canvas)?;
        for (place, (curve, color)) in curves.iter().zip(COLORS).enumerate() {
            let (column, row) = ((place % LEGEND.1) as i32, (place / LEGEND.1) as i32);
            let (x, y) = (X.0 + column * LEGEND.0, 54 + row * 18);
            canvas.key((x, y), color, 2, &curve.name)?;
            canvas.circle((x + 9, y), 4, color)?;
            axes.curve(canvas, curve, color)?;
        }
        Ok(())
    })
}

/// Both axes: bytes from left to right, Gb/s upwards.
struct Axes {
    bytes: Scale,
    gbps: Scale,
}

impl Axes {
    fn over(curves: &[Curve]) -> Option<Self> {
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let bytes = || points().map(|(bytes, _)| *bytes as f64);
        let gbps = || points().map(|(_, gbps)| *gbps).filter(|gbps| *gbps > 0.0);
        let (least, most) = (gbps().reduce(f64::min)?, gbps().reduce(f64::max)?);
        let ends = [least.log10().floor(), most.log10().ceil()].map(|power| 10_f64.powf(power));
        let sizes = (bytes().reduce(f64::min)?, bytes().reduce(f64::max)?);
        Some(Self {
            bytes: Scale::log(X, sizes),
            gbps: Scale::log((Y.1, Y.0), (ends[0], ends[1])),
        })
    }

    fn draw<'a>(&self, canvas: &Canvas<'a>) -> Drawn<'a> {
        let (least, most) = self.bytes.values;
        let sizes = (0..).map(|power| least as usize * (1 << power));
        let marks = sizes
            .take_while(|bytes| *bytes <= most as usize)
            .enumerate();
        // Every other one has a label, for which there is room.
        let label = |(at, bytes): (usize, usize)| match at % 2 {
            0 => (bytes as f64, size(bytes)),
            _ => (bytes as f64, String::new()),
        };
        canvas.columns(&self.bytes, Y, marks.map(label))?;
        let marks = decades(self.gbps.values, &[1.0]).into_iter();
        canvas.rows(&self.gbps, X, marks.map(|gbps| (gbps, gbps.to_string())))?;
        canvas.rectangle((X.0, Y.0), (X.1, Y.1), INK)?;
        let middle = i32::midpoint(X.0, X.1);
        canvas.text(
            "bytes of a message",
            (middle, Y.1 + 32),
            CENTER_TOP,
            13,
            INK,
        )?;
        canvas.text(
            "Gb/s of payload",
            (X.0 - 60, Y.0 - 16),
            LEFT_CENTER,
            13,
            INK,
        )
    }

    fn curve<'a>(&self, canvas: &Canvas<'a>, curve: &Curve, color: RGBColor) -> Drawn<'a> {
        let points = curve.points.iter().filter(|(_, gbps)| *gbps > 0.0);
        let place =
            |(bytes, gbps): &(usize, f64)| (self.bytes.at(*bytes as f64), self.gbps.at(*gbps));
        let points: Vec<_> = points.map(place).collect();
        canvas.line(&points, color.stroke_width(2))?;
        points
            .into_iter()
            .try_for_each(|point| canvas.circle(point, 4, color))
    }
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
