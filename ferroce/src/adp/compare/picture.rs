//! The comparison as SVG: time lost and resume delay, as shares of jobs.

use ferroce_base::time::Span;
use ferroce_picture::{
    Canvas, Color as _, Drawn, INK, LEFT_BOTTOM, LEFT_CENTER, LEFT_TOP, RGBColor, Scale, decades,
    picture,
};
use ferroce_trial::figures::Job;

use super::Tried;
use super::report::{percent, short_name};
use crate::output::lines::short;

const WIDTH: i32 = 960;
/// Left and right end of both panels.
const X: (i32, i32) = (86, 930);
const PANEL: i32 = 230;
const GAP: i32 = 84;
/// Of a line of the legend.
const LINE: i32 = 18;

const COLORS: [RGBColor; 9] = [
    RGBColor(0xc8, 0x4b, 0x00),
    RGBColor(0x00, 0x86, 0x61),
    RGBColor(0x0b, 0x4f, 0x9e),
    RGBColor(0x7b, 0x3f, 0xa8),
    RGBColor(0xc0, 0x1c, 0x28),
    RGBColor(0x5a, 0x5a, 0x5a),
    RGBColor(0xb0, 0x8a, 0x00),
    RGBColor(0xd1, 0x4d, 0x8a),
    RGBColor(0x00, 0x8b, 0x8b),
];

/// The picture as the text of an SVG file.
pub(super) fn draw(title: &str, tried: &[Tried]) -> Result<String, String> {
    if tried.len() > COLORS.len() {
        return Err(format!(
            "{} policies are more than a picture can show: must be at most {}",
            tried.len(),
            COLORS.len()
        ));
    }
    let words = 48 + LINE * title.lines().count() as i32;
    let legend = words + LINE * tried.len() as i32;
    let tops = [legend + 44, legend + 44 + PANEL + GAP];
    let lost = |job: &Job| job.fate.lost / u64::from(job.outages.max(1));
    let panels = [
        Panel::new(
            "Jobs that lost no more time than this for each outage",
            tops[0],
            tried,
            lost,
        ),
        Panel::new(
            "Jobs that retransmitted so soon after the link's return, at worst",
            tops[1],
            tried,
            |job| job.fate.resumed_after,
        ),
    ];
    picture((WIDTH, tops[1] + PANEL + 60), |canvas| {
        let head = "How retransmission policies fare";
        canvas.text(head, (X.0, 14), LEFT_TOP, 20, INK)?;
        for (at, line) in (0..).zip(title.lines()) {
            canvas.text(line, (X.0, 44 + LINE * at), LEFT_TOP, 13, INK)?;
        }
        for (at, (it, color)) in (0..).zip(tried.iter().zip(COLORS)) {
            let y = words + 14 + LINE * at;
            canvas.line(&[(X.0, y), (X.0 + 22, y)], color.stroke_width(3))?;
            canvas.text(&key(it), (X.0 + 30, y), LEFT_CENTER, 13, INK)?;
        }
        panels.iter().try_for_each(|panel| panel.draw(canvas))
    })
}

/// A line of the legend.
fn key(it: &Tried) -> String {
    format!(
        "{}: {} survive; {:.1} packets sent again, {:.2} of them spurious",
        short_name(&it.name),
        percent(it.fared.survived),
        it.fared.retransmissions,
        it.fared.spurious
    )
}

/// The share of jobs against a time, curve by curve. Those that died never get there.
struct Panel {
    title: &'static str,
    top: i32,
    /// Nanoseconds.
    x: Scale,
    /// Of each policy, how many jobs there were, and the times of those that survived, in order.
    curves: Vec<(usize, Vec<f64>)>,
}

impl Panel {
    fn new(title: &'static str, top: i32, tried: &[Tried], of: impl Fn(&Job) -> Span) -> Self {
        let curve = |it: &Tried| {
            let survivors = it.jobs.iter().filter(|job| job.fate.survived);
            let times = survivors.map(|job| of(job).as_picos() as f64 / 1e3);
            let mut times: Vec<f64> = times.map(|ns| ns.max(1e3)).collect();
            times.sort_by(f64::total_cmp);
            (it.jobs.len(), times)
        };
        let curves: Vec<_> = tried.iter().map(curve).collect();
        let times = curves.iter().flat_map(|(_, times)| times);
        let (least, most) = times.fold((f64::MAX, 0.0_f64), |(low, high), ns| {
            (low.min(*ns), high.max(*ns))
        });
        let ends = match least <= most {
            true => (least / 1.3, most * 1.3),
            false => (1e6, 1e9),
        };
        Self {
            title,
            top,
            x: Scale::log(X, ends),
            curves,
        }
    }

    fn draw<'a>(&self, canvas: &Canvas<'a>) -> Drawn<'a> {
        let (top, bottom) = (self.top, self.top + PANEL);
        canvas.text(self.title, (X.0, top - 10), LEFT_BOTTOM, 15, INK)?;
        let shares = Scale::linear((bottom, top), (0.0, 1.0));
        let marks = [0.0, 0.25, 0.5, 0.75, 1.0];
        canvas.rows(
            &shares,
            X,
            marks.map(|it| (it, format!("{:.0} %", it * 100.0))),
        )?;
        let (low, high) = self.x.values;
        // On short axes doubles and fives as well.
        let steps: &[f64] = if high / low > 300.0 {
            &[1.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let marks = decades(self.x.values, steps).into_iter();
        canvas.columns(&self.x, (top, bottom), marks.map(|ns| (ns, short(ns))))?;
        canvas.line(&[(X.0, top), (X.0, bottom), (X.1, bottom)], INK)?;
        for ((jobs, times), color) in self.curves.iter().zip(COLORS) {
            let mut line = Vec::with_capacity(2 * times.len() + 1);
            for (at, ns) in times.iter().enumerate() {
                let steps = [at, at + 1].map(|at| shares.at(at as f64 / *jobs as f64));
                line.extend(steps.map(|y| (self.x.at(*ns), y)));
            }
            // It stays where it is: no job takes longer, but those that never come.
            line.extend(line.last().map(|(_, y)| (X.1, *y)));
            line.dedup();
            canvas.line(&line, color.stroke_width(2))?;
        }
        Ok(())
    }
}
