//! The survival curve: the share of jobs that survive, and the time that the others lose, against the
//! length of an outage.

use std::fmt::Write as _;

use ferroce_sweep::Plan;
use ferroce_sweep::stats::Estimate;
use ferroce_sweep::survival::{Curve, CurvePoint, Survival};
use plotters::style::{Color, RGBColor};

use super::collect::{figure, percent};
use crate::svg::{
    CENTER_TOP, Canvas, Drawn, FAINT, INK, LEFT_BOTTOM, LEFT_CENTER, LEFT_TOP, Point, RIGHT_CENTER,
    picture as paper,
};

const SIZE: (i32, i32) = (960, 760);
/// Left and right end of both frames.
const X: (i32, i32) = (90, 930);
/// Top and bottom of each.
const SURVIVAL: (i32, i32) = (120, 380);
const LOST: (i32, i32) = (444, 646);
/// Letters of small print in a line.
const LINE: usize = 130;
/// Pixels between labels of the axis.
const APART: i32 = 52;
/// Curves are so far beside each other that their intervals can be told apart.
const BESIDE: i32 = 4;

const COLORS: [RGBColor; 8] = [
    RGBColor(0x0b, 0x4f, 0x9e),
    RGBColor(0xc0, 0x1c, 0x28),
    RGBColor(0x2e, 0x8b, 0x3a),
    RGBColor(0xb3, 0x5c, 0x00),
    RGBColor(0x7b, 0x3f, 0xa8),
    RGBColor(0x00, 0x8b, 0x8b),
    RGBColor(0x5a, 0x5a, 0x5a),
    RGBColor(0xd1, 0x4d, 0x8a),
];

/// The curves as SVG.
pub(super) fn picture(survival: &Survival, plan: &Plan) -> Result<String, String> {
    let count = survival.curves.len();
    if count > COLORS.len() {
        return Err(format!(
            "{count} curves are more than a picture can show; a sweep with {} combinations of its other \
             axes at most can be drawn",
            COLORS.len()
        ));
    }
    let axis = Axis::new(survival);
    paper(SIZE, |canvas| {
        let it = Picture {
            canvas,
            survival,
            plan,
            axis,
        };
        it.words()?;
        it.survival()?;
        it.lost()
    })
}

/// The axis that curves run along.
#[derive(Clone, Copy)]
struct Axis {
    ends: (f64, f64),
    is_log: bool,
}

impl Axis {
    fn new(survival: &Survival) -> Self {
        let points = survival.curves.iter().flat_map(|curve| &curve.points);
        let ends = points.fold((f64::MAX, f64::MIN), |(low, high), it| {
            (low.min(it.x), high.max(it.x))
        });
        Self {
            ends,
            is_log: ends.0 > 0.0 && ends.1 / ends.0 >= 20.0,
        }
    }

    fn x(&self, value: f64) -> i32 {
        let place = |value: f64| if self.is_log { value.ln() } else { value };
        let (low, high) = (place(self.ends.0), place(self.ends.1));
        let share = match high > low {
            true => (place(value) - low) / (high - low),
            false => 0.5,
        };
        // Curves stay clear of the frame.
        let (left, right) = (X.0 + 20, X.1 - 30);
        left + (share * f64::from(right - left)).round() as i32
    }
}

/// What is drawn against the axis, from bottom to top of a frame.
#[derive(Clone, Copy)]
struct Scale {
    frame: (i32, i32),
    ends: (f64, f64),
    is_log: bool,
}

impl Scale {
    fn y(&self, value: f64) -> i32 {
        let place = |value: f64| if self.is_log { value.ln() } else { value };
        let (low, high) = (place(self.ends.0), place(self.ends.1));
        let share = (place(value.max(self.ends.0)) - low) / (high - low);
        let (top, bottom) = self.frame;
        bottom - (share.clamp(0.0, 1.0) * f64::from(bottom - top)).round() as i32
    }
}

struct Picture<'c, 'a> {
    canvas: &'c Canvas<'a>,
    survival: &'c Survival,
    plan: &'c Plan,
    axis: Axis,
}

impl<'a> Picture<'_, 'a> {
    fn words(&self) -> Drawn<'a> {
        let title = match self.plan.title.as_str() {
            "" => "Survival",
            title => title,
        };
        let canvas = self.canvas;
        canvas.text(title, (X.0, 18), LEFT_TOP, 20, INK)?;
        let mut x = X.0;
        let mut y = 52;
        for (at, curve) in self.survival.curves.iter().enumerate() {
            let width = 34 + 7 * curve.label.chars().count() as i32;
            if x + width > X.1 {
                (x, y) = (X.0, y + 18);
            }
            canvas.line(&[(x, y + 6), (x + 18, y + 6)], COLORS[at].stroke_width(2))?;
            canvas.circle((x + 9, y + 6), 4, COLORS[at])?;
            canvas.text(&curve.label, (x + 24, y + 6), LEFT_CENTER, 13, INK)?;
            x += width;
        }
        let mut y = SIZE.1 - 76;
        for line in self.small_print() {
            canvas.text(&line, (X.0, y), LEFT_TOP, 12, INK)?;
            y += 15;
        }
        Ok(())
    }

    fn small_print(&self) -> Vec<String> {
        let (least, most) = self.survival.runs;
        let runs = match least == most {
            true => most.to_string(),
            false => format!("{least} to {most}"),
        };
        let text = format!(
            "Assumption: {} Each point is {runs} runs with different seeds; bars are 95 % confidence \
             intervals (Wilson's for shares, Student's t for means). ferroce {}.",
            self.plan.assumption, self.plan.version
        );
        wrapped(&text)
    }

    fn survival(&self) -> Drawn<'a> {
        let scale = Scale {
            frame: SURVIVAL,
            ends: (0.0, 1.0),
            is_log: false,
        };
        let ticks = [0.0, 0.25, 0.5, 0.75, 1.0].map(|it| (it, format!("{:.0} %", it * 100.0)));
        self.frame("Jobs that survive", &scale, &ticks)?;
        self.curves(&scale, |it| it.survival)
    }

    fn lost(&self) -> Drawn<'a> {
        let points = self.survival.curves.iter().flat_map(|curve| &curve.points);
        let values = points.filter_map(|it| it.time_lost_ms);
        let values: Vec<f64> = values.map(|it| it.value).collect();
        let title = "Time lost by jobs that survive, ms";
        if values.is_empty() {
            let scale = Scale {
                frame: LOST,
                ends: (0.0, 1.0),
                is_log: false,
            };
            let why = "unknown: the sweep has no baseline = true, or no job survives";
            self.frame(title, &scale, &[])?;
            return self
                .canvas
                .text(why, (X.0 + 30, LOST.0 + 30), LEFT_TOP, 13, INK);
        }
        let most = values.iter().copied().fold(f64::MIN, f64::max);
        let positive = values.iter().copied().filter(|it| *it > 0.0);
        let least = positive.fold(f64::MAX, f64::min);
        let is_log = most > 0.0 && most / least >= 50.0;
        let ends = match is_log {
            true => (
                10_f64.powf(least.log10().floor()),
                10_f64.powf(most.log10().ceil()),
            ),
            false => (0.0, (most * 1.15).max(1e-3)),
        };
        let scale = Scale {
            frame: LOST,
            ends,
            is_log,
        };
        let step = crate::svg::round_step(ends.1 / 5.0);
        let linear = (0..=5)
            .map(|n| f64::from(n) * step)
            .filter(|it| *it <= ends.1);
        let decades = (0..12)
            .map(|n| ends.0 * 10_f64.powi(n))
            .filter(|it| *it <= ends.1 * 1.01);
        let ticks: Vec<f64> = if is_log {
            decades.collect()
        } else {
            linear.collect()
        };
        let text = |value: f64| format!("{}", (value * 1e6).round() / 1e6);
        let ticks: Vec<_> = ticks.into_iter().map(|it| (it, text(it))).collect();
        self.frame(title, &scale, &ticks)?;
        self.curves(&scale, |it| it.time_lost_ms)
    }

    /// Frame, title, both axes.
    fn frame(&self, title: &str, scale: &Scale, ticks: &[(f64, String)]) -> Drawn<'a> {
        let canvas = self.canvas;
        let (top, bottom) = scale.frame;
        canvas.text(title, (X.0, top - 8), LEFT_BOTTOM, 14, INK)?;
        for (value, label) in ticks {
            let y = scale.y(*value);
            canvas.line(&[(X.0, y), (X.1, y)], FAINT.stroke_width(1))?;
            canvas.text(label, (X.0 - 8, y), RIGHT_CENTER, 12, INK)?;
        }
        let mut labelled = i32::MIN;
        for point in self.values() {
            let x = self.axis.x(point.x);
            canvas.line(&[(x, bottom), (x, bottom + 4)], INK)?;
            if x >= labelled.saturating_add(APART) {
                canvas.text(&point.label, (x, bottom + 8), CENTER_TOP, 12, INK)?;
                labelled = x;
            }
        }
        let middle = i32::midpoint(X.0, X.1);
        let along = &self.survival.along;
        canvas.text(along, (middle, bottom + 24), CENTER_TOP, 12, INK)?;
        canvas.line(
            &[(X.0, top), (X.0, bottom), (X.1, bottom)],
            INK.stroke_width(1),
        )
    }

    /// All values of the axis, in order, each once.
    fn values(&self) -> Vec<&CurvePoint> {
        let points = self.survival.curves.iter().flat_map(|curve| &curve.points);
        let mut points: Vec<_> = points.collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        points.dedup_by(|a, b| a.x == b.x);
        points
    }

    fn curves(&self, scale: &Scale, of: impl Fn(&CurvePoint) -> Option<Estimate>) -> Drawn<'a> {
        let count = self.survival.curves.len() as i32;
        for (at, curve) in self.survival.curves.iter().enumerate() {
            let beside = (2 * at as i32 - count + 1) * BESIDE / 2;
            self.curve(scale, curve, COLORS[at], beside, &of)?;
        }
        Ok(())
    }

    fn curve(
        &self,
        scale: &Scale,
        curve: &Curve,
        color: RGBColor,
        beside: i32,
        of: impl Fn(&CurvePoint) -> Option<Estimate>,
    ) -> Drawn<'a> {
        let canvas = self.canvas;
        let mut line: Vec<Point> = Vec::new();
        for point in &curve.points {
            let Some(it) = of(point) else {
                continue;
            };
            let x = self.axis.x(point.x) + beside;
            line.push((x, scale.y(it.value)));
            if it.low.is_finite() && it.high.is_finite() {
                let ends = [(x, scale.y(it.low)), (x, scale.y(it.high))];
                canvas.line(&ends, color.mix(0.5).stroke_width(2))?;
            }
        }
        if line.len() > 1 {
            canvas.line(&line, color.stroke_width(2))?;
        }
        for at in line {
            canvas.circle(at, 4, color)?;
        }
        Ok(())
    }
}

/// A text in lines.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last().map_or(0, String::len);
        if line > 0 && line + 1 + word.len() > LINE {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// The same on a page of its own, with a table of the figures.
pub(super) fn page(survival: &Survival, plan: &Plan) -> Result<String, String> {
    let svg = picture(survival, plan)?;
    let mut rows = String::new();
    for curve in &survival.curves {
        for point in &curve.points {
            let cells = [
                escaped(&curve.label),
                escaped(&point.label),
                point.survival.map_or_else(String::new, percent),
                point.time_lost_ms.map_or_else(String::new, figure),
            ];
            let _ = writeln!(rows, "<tr><td>{}</td></tr>", cells.join("</td><td>"));
        }
    }
    let title = escaped(&plan.title);
    let along = escaped(&survival.along);
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>\
         body{{font-family:sans-serif;max-width:60rem;margin:2rem auto;color:#222b36}}\
         svg{{max-width:100%;height:auto}}table{{border-collapse:collapse}}\
         td,th{{padding:.2rem .8rem;border-bottom:1px solid #d9dee4;text-align:left}}</style>\n{svg}\n\
         <p>Assumption: {}</p>\n<table>\n<tr><th></th><th>{along}</th>\
         <th>survived</th><th>time lost, ms</th></tr>\n{rows}</table>\n</html>\n",
        escaped(&plan.assumption)
    ))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
