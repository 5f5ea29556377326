//! Curves of a sweep along one of its axes: the share of jobs that survive and another metric below it, or one
//! metric alone.

use std::fmt::Write as _;

use ferroce_picture::{
    CENTER_TOP, Canvas, Color as _, Drawn, INK, LEFT_BOTTOM, LEFT_CENTER, LEFT_TOP, Point,
    RGBColor, Scale, decades, escape, picture as paper,
};
use ferroce_sweep::curves::{Curve, CurvePoint, Curves};
use ferroce_sweep::stats::Estimate;
use ferroce_sweep::{Metric, Plan};

use super::collect::{figure, percent};
use crate::output::lines::wrapped;

const WIDTH: i32 = 960;
/// Left and right end of frames.
const X: (i32, i32) = (90, 930);
/// Letters of small print in a line.
const LINE: usize = 130;
/// Pixels between labels of the axis.
const APART: i32 = 52;
/// Curves are so far beside each other that their intervals can be told apart.
const BESIDE: i32 = 4;

/// What a picture shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    height: i32,
    /// Top and bottom of the frame of survival, if there is one.
    survival: Option<(i32, i32)>,
    /// The same of the metric.
    metric: (i32, i32),
}

/// Survival, and a metric below.
pub(super) const SURVIVAL: Layout = Layout {
    height: 760,
    survival: Some((120, 380)),
    metric: (444, 646),
};
/// A metric alone.
pub(super) const METRIC: Layout = Layout {
    height: 560,
    survival: None,
    metric: (120, 446),
};

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
pub(super) fn picture(curves: &Curves, plan: &Plan, layout: Layout) -> Result<String, String> {
    let count = curves.curves.len();
    if count > COLORS.len() {
        return Err(format!(
            "{count} curves are more than a picture can show; a sweep with {} combinations of its other \
             axes at most can be drawn",
            COLORS.len()
        ));
    }
    let axis = along(curves);
    paper((WIDTH, layout.height), |canvas| {
        let it = Picture {
            canvas,
            curves,
            plan,
            axis,
            layout,
        };
        it.words()?;
        it.survival()?;
        it.metric()
    })
}

/// The axis that curves run along. They stay clear of the frame.
fn along(curves: &Curves) -> Scale {
    let points = curves.curves.iter().flat_map(|curve| &curve.points);
    let (low, high) = points.fold((f64::MAX, f64::MIN), |(low, high), it| {
        (low.min(it.x), high.max(it.x))
    });
    let pixels = (X.0 + 20, X.1 - 30);
    if high <= low {
        // The only value is in the middle.
        return Scale::linear(pixels, (low - 1.0, low + 1.0));
    }
    Scale {
        pixels,
        values: (low, high),
        is_log: curves.is_measured && low > 0.0 && high / low >= 20.0,
    }
}

/// A linear axis from the bottom of a frame to its top.
fn upwards((top, bottom): (i32, i32), values: (f64, f64)) -> Scale {
    Scale::linear((bottom, top), values)
}

struct Picture<'c, 'a> {
    canvas: &'c Canvas<'a>,
    curves: &'c Curves,
    plan: &'c Plan,
    axis: Scale,
    layout: Layout,
}

impl<'a> Picture<'_, 'a> {
    fn words(&self) -> Drawn<'a> {
        let title = match self.plan.title.as_str() {
            "" => "Sweep",
            title => title,
        };
        let canvas = self.canvas;
        canvas.text(title, (X.0, 18), LEFT_TOP, 20, INK)?;
        let mut x = X.0;
        let mut y = 52;
        // A curve without a name is the only one.
        let named = self.curves.curves.iter().enumerate();
        for (at, curve) in named.filter(|(_, curve)| !curve.label.is_empty()) {
            let width = 34 + 7 * curve.label.chars().count() as i32;
            if x + width > X.1 {
                (x, y) = (X.0, y + 18);
            }
            canvas.line(&[(x, y + 6), (x + 18, y + 6)], COLORS[at].stroke_width(2))?;
            canvas.circle((x + 9, y + 6), 4, COLORS[at])?;
            canvas.text(&curve.label, (x + 24, y + 6), LEFT_CENTER, 13, INK)?;
            x += width;
        }
        let mut y = self.layout.height - 76;
        for line in self.small_print() {
            canvas.text(&line, (X.0, y), LEFT_TOP, 12, INK)?;
            y += 15;
        }
        Ok(())
    }

    fn small_print(&self) -> Vec<String> {
        let (least, most) = self.curves.runs;
        let runs = match least == most {
            true => most.to_string(),
            false => format!("{least} to {most}"),
        };
        let assumption = assumption(self.plan);
        let text = format!(
            "{assumption}Each point is {runs} runs with different seeds; bars are 95 % confidence \
             intervals (Wilson's for shares, Student's t for means). ferroce {}.",
            self.plan.version
        );
        wrapped(&text, LINE)
    }

    fn survival(&self) -> Drawn<'a> {
        let Some(frame) = self.layout.survival else {
            return Ok(());
        };
        let scale = upwards(frame, (0.0, 1.0));
        let ticks = [0.0, 0.25, 0.5, 0.75, 1.0].map(|it| (it, format!("{:.0} %", it * 100.0)));
        self.frame("Jobs that survive", &scale, &ticks)?;
        self.draw(&scale, |it| it.survival)
    }

    fn metric(&self) -> Drawn<'a> {
        let frame = self.layout.metric;
        let points = self.curves.curves.iter().flat_map(|curve| &curve.points);
        let values = points.filter_map(|it| it.mean);
        let values: Vec<f64> = values.map(|it| it.value).collect();
        let title = &title(self.curves);
        if values.is_empty() {
            let scale = upwards(frame, (0.0, 1.0));
            let why = "unknown: no job survives, or the sweep has no baseline = true";
            self.frame(title, &scale, &[])?;
            return self
                .canvas
                .text(why, (X.0 + 30, frame.0 + 30), LEFT_TOP, 13, INK);
        }
        let most = values.iter().copied().fold(f64::MIN, f64::max);
        let positive = values.iter().copied().filter(|it| *it > 0.0);
        let least = positive.fold(f64::MAX, f64::min);
        let is_log = most > 0.0 && most / least >= 50.0;
        let scale = match is_log {
            true => Scale {
                is_log,
                ..upwards(
                    frame,
                    (
                        10_f64.powf(least.log10().floor()),
                        10_f64.powf(most.log10().ceil()),
                    ),
                )
            },
            false => upwards(frame, (0.0, (most * 1.15).max(1e-3))),
        };
        let ticks = match is_log {
            true => decades(scale.values, &[1.0]),
            false => scale.round(5.0),
        };
        let text = |value: f64| format!("{}", (value * 1e6).round() / 1e6);
        let ticks: Vec<_> = ticks.into_iter().map(|it| (it, text(it))).collect();
        self.frame(title, &scale, &ticks)?;
        self.draw(&scale, |it| it.mean)
    }

    /// Frame, title, both axes.
    fn frame(&self, title: &str, scale: &Scale, ticks: &[(f64, String)]) -> Drawn<'a> {
        let canvas = self.canvas;
        let (bottom, top) = scale.pixels;
        canvas.text(title, (X.0, top - 8), LEFT_BOTTOM, 14, INK)?;
        canvas.rows(scale, X, ticks.iter().cloned())?;
        let mut labelled = i32::MIN;
        for point in self.values() {
            let x = self.axis.at(point.x);
            canvas.line(&[(x, bottom), (x, bottom + 4)], INK)?;
            if x >= labelled.saturating_add(APART) {
                canvas.text(&point.label, (x, bottom + 8), CENTER_TOP, 12, INK)?;
                labelled = x;
            }
        }
        let middle = i32::midpoint(X.0, X.1);
        let along = &self.curves.along;
        canvas.text(along, (middle, bottom + 24), CENTER_TOP, 12, INK)?;
        canvas.line(&[(X.0, top), (X.0, bottom), (X.1, bottom)], INK)
    }

    /// All values of the axis, in order, each once.
    fn values(&self) -> Vec<&CurvePoint> {
        let points = self.curves.curves.iter().flat_map(|curve| &curve.points);
        let mut points: Vec<_> = points.collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        points.dedup_by(|a, b| a.x == b.x);
        points
    }

    fn draw(&self, scale: &Scale, of: impl Fn(&CurvePoint) -> Option<Estimate>) -> Drawn<'a> {
        let count = self.curves.curves.len() as i32;
        for (at, curve) in self.curves.curves.iter().enumerate() {
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
            let x = self.axis.at(point.x) + beside;
            line.push((x, scale.at(it.value)));
            if it.low.is_finite() && it.high.is_finite() {
                let ends = [(x, scale.at(it.low)), (x, scale.at(it.high))];
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

/// What the lower frame shows.
fn title(curves: &Curves) -> String {
    let Metric { name, doc, .. } = curves.metric;
    let (first, rest) = doc.split_at(1);
    format!("{}{rest} ({name})", first.to_uppercase())
}

/// What the sweep assumes, if it says so, and a space.
fn assumption(plan: &Plan) -> String {
    match plan.assumption.as_str() {
        "" => String::new(),
        text => format!("Assumption: {text} "),
    }
}

/// The same on a page of its own, with a table of the figures.
pub(super) fn page(curves: &Curves, plan: &Plan, layout: Layout) -> Result<String, String> {
    let svg = picture(curves, plan, layout)?;
    let mut rows = String::new();
    for curve in &curves.curves {
        for point in &curve.points {
            let cells = [
                escape(&curve.label),
                escape(&point.label),
                point.survival.map_or_else(String::new, percent),
                point.mean.map_or_else(String::new, figure),
            ];
            let _ = writeln!(rows, "<tr><td>{}</td></tr>", cells.join("</td><td>"));
        }
    }
    let title = escape(&plan.title);
    let along = escape(&curves.along);
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>\
         body{{font-family:sans-serif;max-width:60rem;margin:2rem auto;color:#222b36}}\
         svg{{max-width:100%;height:auto}}table{{border-collapse:collapse}}\
         td,th{{padding:.2rem .8rem;border-bottom:1px solid #d9dee4;text-align:left}}</style>\n{svg}\n\
         <p>{}</p>\n<table>\n<tr><th></th><th>{along}</th>\
         <th>survived</th><th>{}</th></tr>\n{rows}</table>\n</html>\n",
        escape(&assumption(plan)),
        curves.metric.name
    ))
}
