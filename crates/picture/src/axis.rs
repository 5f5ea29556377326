//! Axes: where values are, and which of them have a mark.

use crate::{CENTER_TOP, Canvas, Drawn, FAINT, INK, RIGHT_CENTER};

/// A linear or logarithmic axis.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// The pixels of both ends.
    pub pixels: (i32, i32),
    /// The values of both ends.
    pub values: (f64, f64),
    /// Whether equal distances are equal ratios.
    pub is_log: bool,
}

impl Scale {
    /// Equal distances are equal differences.
    pub const fn linear(pixels: (i32, i32), values: (f64, f64)) -> Self {
        let is_log = false;
        Self {
            pixels,
            values,
            is_log,
        }
    }

    /// Equal distances are equal ratios.
    pub const fn log(pixels: (i32, i32), values: (f64, f64)) -> Self {
        let is_log = true;
        Self {
            pixels,
            values,
            is_log,
        }
    }

    /// How far a value is from the first end, from 0 to 1; values beyond an end are at that end.
    pub fn share(&self, value: f64) -> f64 {
        let (low, high) = self.values;
        let share = match self.is_log {
            true => (value.max(low) / low).ln() / (high / low).ln(),
            false => (value - low) / (high - low),
        };
        share.clamp(0.0, 1.0)
    }

    /// The pixel of a value.
    #[expect(clippy::cast_possible_truncation, reason = "it is between two pixels")]
    pub fn at(&self, value: f64) -> i32 {
        let length = f64::from(self.pixels.1 - self.pixels.0);
        self.pixels.0 + (self.share(value) * length).round() as i32
    }

    /// Round values on a linear axis, at most about this number of.
    pub fn round(&self, count: f64) -> Vec<f64> {
        let (low, high) = self.values;
        let step = round_step((high - low) / count);
        let mut values = Vec::new();
        let mut n = (low / step).ceil();
        while n <= high / step + 1e-9 {
            values.push(n * step);
            n += 1.0;
        }
        values
    }
}

impl<'a> Canvas<'a> {
    /// Marks values of a vertical axis with faint lines, which `x` has the ends of, and with labels to the
    /// left of these.
    ///
    /// # Errors
    ///
    /// As for drawing.
    pub fn rows(
        &self,
        axis: &Scale,
        x: (i32, i32),
        marks: impl IntoIterator<Item = (f64, String)>,
    ) -> Drawn<'a> {
        for (value, label) in marks {
            let y = axis.at(value);
            self.line(&[(x.0, y), (x.1, y)], FAINT)?;
            self.text(&label, (x.0 - 8, y), RIGHT_CENTER, 12, INK)?;
        }
        Ok(())
    }

    /// Marks values of a horizontal axis with faint lines from top to bottom, and with labels below.
    ///
    /// # Errors
    ///
    /// As for drawing.
    pub fn columns(
        &self,
        axis: &Scale,
        (top, bottom): (i32, i32),
        marks: impl IntoIterator<Item = (f64, String)>,
    ) -> Drawn<'a> {
        for (value, label) in marks {
            let x = axis.at(value);
            self.line(&[(x, top), (x, bottom)], FAINT)?;
            self.text(&label, (x, bottom + 8), CENTER_TOP, 12, INK)?;
        }
        Ok(())
    }

    /// Draws a horizontal axis of time, with times that are round after multiplication by `factor`.
    ///
    /// # Errors
    ///
    /// As for drawing.
    pub fn time_axis(&self, axis: &Scale, y: i32, factor: f64, below: &str) -> Drawn<'a> {
        let (left, right) = axis.pixels;
        self.line(&[(left, y), (right, y)], INK)?;
        let scaled = Scale {
            values: (axis.values.0 * factor, axis.values.1 * factor),
            ..*axis
        };
        for value in scaled.round(10.0) {
            let x = axis.at(value / factor);
            self.line(&[(x, y), (x, y + 4)], INK)?;
            let label = format!("{}", (value * 1e6).round() / 1e6);
            self.text(&label, (x, y + 8), CENTER_TOP, 12, INK)?;
        }
        let middle = i32::midpoint(left, right);
        self.text(below, (middle, y + 26), CENTER_TOP, 12, INK)
    }
}

/// 1, 2 or 5 times a power of ten, at least this.
pub fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| *step >= least);
    step.unwrap_or(10.0 * power)
}

/// Powers of ten between two values, with their multiples by `steps`: for example `[1.0, 2.0, 5.0]`.
#[expect(clippy::cast_possible_truncation, reason = "exponents are small")]
pub fn decades((low, high): (f64, f64), steps: &[f64]) -> Vec<f64> {
    let powers = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let values = powers.flat_map(|n| steps.iter().map(move |step| step * 10_f64.powi(n)));
    values
        .filter(|value| (low..=high).contains(value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_values() {
        for (least, step) in [(0.9, 1.0), (1.0, 1.0), (3.0, 5.0), (70.0, 100.0)] {
            assert!((round_step(least) - step).abs() < 1e-9);
        }
        assert_eq!(
            Scale::linear((0, 9), (0.5, 8.0)).round(4.0),
            [2.0, 4.0, 6.0, 8.0]
        );
        assert_eq!(decades((6e5, 1.1e9), &[1.0]), [1e6, 1e7, 1e8, 1e9]);
        assert_eq!(decades((3.0, 30.0), &[1.0, 2.0, 5.0]), [5.0, 10.0, 20.0]);
    }

    #[test]
    fn values_are_between_the_ends() {
        let axis = Scale::log((100, 0), (1.0, 1e4));
        assert_eq!(
            [0.0, 1.0, 1e2, 1e9].map(|value| axis.at(value)),
            [100, 100, 50, 0]
        );
    }
}
