//! The demo as a picture: when each timer expired, and how each policy recovered from the blackout.

use ferroce_picture::{
    Canvas, Color as _, DrawError, Drawn, HPos, INK, LEFT_BOTTOM, LEFT_CENTER, LEFT_TOP, RGBColor,
    Scale, VPos, decades, picture,
};

use super::figures::{Figures, Outcome};
use super::plan::{Kind, Plan};
use super::report::{self, wrap_for_picture};
use crate::output::lines::short;

const WIDTH: i32 = 1000;
/// Left and right end of all axes.
const X: (i32, i32) = (92, 906);
const LADDER_TOP: i32 = 168;
const LADDER_HEIGHT: i32 = 190;
/// From the foot of one part to the head of the next.
const GAP: i32 = 88;
const ROW_HEIGHT: i32 = 74;
const ROW_GAP: i32 = 14;
const FOOT: i32 = 56;

const DARK: RGBColor = RGBColor(0xe9, 0xea, 0xee);

/// Bars of goodput that fit the picture well.
const BARS: u64 = 110;
/// Goodput below this is nothing.
const GBPS_MIN: f64 = 0.01;

/// The picture as the text of an SVG file.
pub(crate) fn draw(plan: &Plan, profile_name: &str, runs: &[Figures]) -> Result<String, String> {
    let parts = Parts::new(plan, runs);
    let settings = report::settings(plan, profile_name);
    picture((WIDTH, parts.height()), |canvas| {
        Picture { canvas, runs }.draw(&settings, &parts)
    })
}

/// What is drawn, and over which times.
struct Parts {
    /// In seconds, from the start of the runs on.
    whole: (f64, f64),
    /// In seconds, from the start of the blackout on; and its length.
    zoom: Option<((f64, f64), f64)>,
}

impl Parts {
    fn new(plan: &Plan, runs: &[Figures]) -> Self {
        let longest = runs.iter().map(|run| run.elapsed_ns).max().unwrap_or(0);
        let whole = (0.0, (longest as f64 / 1e9).max(1e-3) * 1.02);
        let was_dark = runs.iter().any(|run| run.dark.is_some());
        let zoom = plan.blackout.filter(|_| was_dark).map(|blackout| {
            let length = blackout.length_ns as f64 / 1e9;
            let after = runs.iter().filter_map(|run| {
                let (start_ns, _) = run.dark?;
                Some(run.elapsed_ns.saturating_sub(start_ns) as f64 / 1e9)
            });
            // No further than anything happens.
            let last = after.fold(1e-3, f64::max) * 1.05;
            ((-length / 3.0, last.min(2.0 * length + 0.3)), length)
        });
        Self { whole, zoom }
    }

    fn height(&self) -> i32 {
        let ladders = if self.zoom.is_some() { 2 } else { 1 };
        let rows = Kind::ALL.len() as i32 * (ROW_HEIGHT + ROW_GAP) - ROW_GAP;
        LADDER_TOP + ladders * (LADDER_HEIGHT + GAP) + rows + FOOT
    }
}

/// A rectangle with a time axis.
#[derive(Clone)]
struct Panel {
    top: i32,
    bottom: i32,
    /// In seconds.
    axis: Scale,
    /// Times count from the blackout's start instead of the run's.
    from_dark: bool,
}

impl Panel {
    fn x(&self, time: f64) -> i32 {
        self.axis.at(time)
    }

    fn holds(&self, time: f64) -> bool {
        (self.axis.values.0..self.axis.values.1).contains(&time)
    }

    /// A logarithmic axis from bottom to top.
    fn upwards(&self, values: (f64, f64)) -> Scale {
        Scale::log((self.bottom, self.top), values)
    }

    /// A time of a run on this panel's axis, in seconds.
    fn time_of(&self, run: &Figures, at_ns: u64) -> Option<f64> {
        let origin_ns = match (self.from_dark, run.dark) {
            (false, _) => 0,
            (true, Some((start_ns, _))) => start_ns,
            (true, None) => return None,
        };
        Some((at_ns as f64 - origin_ns as f64) / 1e9)
    }
}

struct Picture<'p, 'a> {
    canvas: &'p Canvas<'a>,
    runs: &'p [Figures],
}

impl<'a> Picture<'_, 'a> {
    fn draw(&self, settings: &str, parts: &Parts) -> Drawn<'a> {
        self.head(settings)?;
        let mut panel = Panel {
            top: LADDER_TOP,
            bottom: LADDER_TOP + LADDER_HEIGHT,
            axis: Scale::linear(X, parts.whole),
            from_dark: false,
        };
        let caption = "Timeouts of the whole run: each mark is a timer that ran out, when and after \
                       how long it did";
        self.caption(caption, panel.top)?;
        let below = self.shade_each(&panel)?;
        self.ladder(&panel)?;
        self.time_axis(&panel, 1.0, below)?;

        let mut goodput = "Goodput, Gb/s";
        if let Some((zoom, length)) = &parts.zoom {
            panel = Panel {
                top: panel.bottom + GAP,
                bottom: panel.bottom + GAP + LADDER_HEIGHT,
                axis: Scale::linear(X, *zoom),
                from_dark: true,
            };
            self.caption(
                "The outage in detail: the ladders that the dark link makes the policies climb",
                panel.top,
            )?;
            self.shade(&panel, *length)?;
            self.ladder(&panel)?;
            self.time_axis(&panel, 1e3, "")?;
            goodput = "Recovery: goodput at the same time, Gb/s";
        }
        let mut top = panel.bottom + GAP;
        self.caption(goodput, top)?;
        for run in self.runs {
            panel.top = top;
            panel.bottom = top + ROW_HEIGHT;
            if let Some((_, length)) = parts.zoom {
                self.shade(&panel, length)?;
            }
            self.goodput(&panel, run)?;
            top = panel.bottom + ROW_GAP;
        }
        match parts.zoom {
            Some(_) => self.time_axis(&panel, 1e3, "ms since the link went dark; shaded: dark"),
            None => self.time_axis(&panel, 1.0, "seconds since the start of the run"),
        }
    }

    fn head(&self, settings: &str) -> Drawn<'a> {
        let title = "The same work on the same bad link, under three retransmission policies";
        self.canvas.text(title, (X.0, 14), LEFT_TOP, 20, INK)?;
        for (line, y) in wrap_for_picture(settings).lines().zip([44, 62]) {
            self.canvas.text(line, (X.0, y), LEFT_TOP, 13, INK)?;
        }
        let mut x = X.0;
        for run in self.runs {
            self.mark(run.policy, (x + 6, 100))?;
            let result = match run.outcome {
                Outcome::Ok => format!("{:.2} Gb/s", run.goodput_gbps()),
                Outcome::RetryExceeded => "gave up".to_owned(),
            };
            let text = format!(
                "{}: {result}, {}, {} timeouts",
                run.policy,
                short(run.elapsed_ns as f64),
                run.expiries.len()
            );
            let color = color(run.policy);
            self.canvas
                .text(&text, (x + 18, 100), LEFT_CENTER, 14, color)?;
            let again = format!(
                "{} packets sent again, {} of them spurious",
                run.retransmissions, run.spurious
            );
            self.canvas
                .text(&again, (x + 18, 118), LEFT_CENTER, 12, INK)?;
            x += (WIDTH - X.0) / Kind::ALL.len() as i32;
        }
        Ok(())
    }

    fn caption(&self, text: &str, top: i32) -> Drawn<'a> {
        self.canvas
            .text(text, (X.0, top - 14), LEFT_BOTTOM, 15, INK)
    }

    /// The dark time of every run on a panel of whole runs, and what there is to say about it.
    fn shade_each(&self, panel: &Panel) -> Result<&'static str, DrawError<'a>> {
        let spans = self.runs.iter().filter_map(|run| {
            let (from_ns, to_ns) = run.dark?;
            let x = [from_ns, to_ns].map(|ns| panel.x(ns as f64 / 1e9));
            Some((x, run.policy))
        });
        let spans: Vec<_> = spans.collect();
        let Some((first, _)) = spans.first() else {
            return Ok("seconds since the start of the run");
        };
        if spans.iter().all(|(x, _)| x[0].abs_diff(first[0]) <= 2) {
            let corners = [(first[0], panel.top), (first[1], panel.bottom)];
            self.canvas
                .rectangle(corners[0], corners[1], DARK.filled())?;
            return Ok("seconds since the start of the run; shaded: the blackout");
        }
        for (x, policy) in spans {
            let shade = color(policy).mix(0.14).filled();
            self.canvas
                .rectangle((x[0], panel.top), (x[1], panel.bottom), shade)?;
        }
        Ok("seconds since the start of the run; shaded: its blackout, in its colour")
    }

    /// The dark time, on a panel whose times count from it.
    fn shade(&self, panel: &Panel, length: f64) -> Drawn<'a> {
        let corners = [(panel.x(0.0), panel.top), (panel.x(length), panel.bottom)];
        self.canvas.rectangle(corners[0], corners[1], DARK.filled())
    }

    /// Timers that ran out: time against wait.
    fn ladder(&self, panel: &Panel) -> Drawn<'a> {
        let waits = panel.upwards(self.waits());
        let marks = decades(waits.values, &[1.0]).into_iter();
        self.canvas
            .rows(&waits, X, marks.map(|ns| (ns, short(ns))))?;
        for run in self.runs {
            for expiry in &run.expiries {
                let time = panel.time_of(run, expiry.at_ns);
                if let Some(time) = time.filter(|time| panel.holds(*time)) {
                    let at = (panel.x(time), waits.at(expiry.wait_ns as f64));
                    self.mark(run.policy, at)?;
                }
            }
        }
        Ok(())
    }

    /// The waits of all runs, with some air.
    fn waits(&self) -> (f64, f64) {
        let waits = || {
            let expiries = self.runs.iter().flat_map(|run| &run.expiries);
            expiries.map(|expiry| expiry.wait_ns.max(1) as f64)
        };
        let least = waits().fold(1e6, f64::min);
        let most = waits().fold(5e8, f64::max);
        (least / 1.6, most * 2.0)
    }

    fn goodput(&self, panel: &Panel, run: &Figures) -> Drawn<'a> {
        let rates = panel.upwards((GBPS_MIN, self.rate_max(panel)));
        let marks = decades(rates.values, &[1.0]).into_iter();
        self.canvas
            .rows(&rates, X, marks.map(|gbps| (gbps, gbps.to_string())))?;
        for (from, to, gbps) in bars(panel, run) {
            if gbps >= GBPS_MIN {
                let left = (panel.x(from), rates.at(gbps));
                let right = (panel.x(to).max(left.0 + 1), panel.bottom);
                self.canvas
                    .rectangle(left, right, color(run.policy).mix(0.75).filled())?;
            }
        }
        self.canvas
            .line(&[(X.0, panel.bottom), (X.1, panel.bottom)], INK)?;
        let color = color(run.policy);
        let beside = (X.1 + 8, i32::midpoint(panel.top, panel.bottom));
        self.canvas
            .text(run.policy.name(), beside, LEFT_CENTER, 14, color)?;
        let end = panel.time_of(run, run.elapsed_ns);
        let end = end.filter(|end| panel.holds(*end)).map(|end| panel.x(end));
        let Some(x) = end else { return Ok(()) };
        self.canvas
            .line(&[(x, panel.top), (x, panel.bottom)], color)?;
        let word = match run.outcome {
            Outcome::Ok => "done",
            Outcome::RetryExceeded => "IBV_WC_RETRY_EXC_ERR",
        };
        let (h, x) = if x > X.1 - 220 {
            (HPos::Right, x - 5)
        } else {
            (HPos::Left, x + 5)
        };
        self.canvas
            .text(word, (x, panel.bottom - 6), (h, VPos::Bottom), 12, INK)
    }

    /// The next power of ten above all bars.
    fn rate_max(&self, panel: &Panel) -> f64 {
        let rates = self.runs.iter().flat_map(|run| bars(panel, run));
        let most = rates.map(|(.., gbps)| gbps).fold(1.0, f64::max);
        10_f64.powi(most.log10().ceil() as i32)
    }

    fn time_axis(&self, panel: &Panel, scale: f64, below: &str) -> Drawn<'a> {
        self.canvas
            .time_axis(&panel.axis, panel.bottom, scale, below)
    }

    /// Each policy has its own shape, so that the picture can be read without colours.
    fn mark(&self, policy: Kind, at: (i32, i32)) -> Drawn<'a> {
        let color = color(policy);
        match policy {
            Kind::Ib => self.canvas.cross(at, 4, color.stroke_width(2)),
            Kind::Firmware => self.canvas.triangle(at, 5, color),
            Kind::Profile => self.canvas.circle(at, 3, color),
        }
    }
}

fn color(policy: Kind) -> RGBColor {
    match policy {
        Kind::Ib => RGBColor(0xc8, 0x4b, 0x00),
        Kind::Firmware => RGBColor(0x00, 0x86, 0x61),
        Kind::Profile => RGBColor(0x0b, 0x4f, 0x9e),
    }
}

/// The bars of goodput of a run on a panel: from, to, Gb/s.
fn bars(panel: &Panel, run: &Figures) -> Vec<(f64, f64, f64)> {
    let window_ms = ((panel.axis.values.1 - panel.axis.values.0) * 1e3) as u64;
    let width_ms = (window_ms / BARS).max(1) as usize;
    let chunks = run.bytes_by_ms.chunks(width_ms).enumerate();
    chunks
        .filter_map(|(n, chunk)| {
            let from_ms = (n * width_ms) as u64;
            let from = panel.time_of(run, from_ms * 1_000_000)?;
            let end_ns = run
                .elapsed_ns
                .min((from_ms + chunk.len() as u64) * 1_000_000);
            let width = (end_ns as f64 / 1e9 - from_ms as f64 / 1e3).max(1e-6);
            let gbps = chunk.iter().sum::<u64>() as f64 * 8.0 / width / 1e9;
            panel.holds(from).then_some((from, from + width, gbps))
        })
        .collect()
}
