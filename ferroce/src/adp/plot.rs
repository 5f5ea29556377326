//! `ferroce adp plot`: plots the waits of a profile.

mod svg;
mod terminal;

use std::fs;
use std::path::PathBuf;

use clap::Args;
use ferroce_adp::trace::{Event, SilentPeer, Wait};
use ferroce_adp::{PolicyKind, QpTimeouts, RetryState};
use ferroce_base::time::Span;
use ferroce_picture::decades;

use super::input::{Chosen, CommonQpArgs, DeviceArgs, PersonalityArgs, choose};
use crate::json::adp as json;
use crate::output::{Failure, Output, filled_columns};

/// Draw the ladder of timeouts against a silent peer
///
/// Each wait is drawn over the time since the first send, with the ranges, the cap and the total;
/// in the terminal, or as SVG.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub(crate) struct Plot {
    /// Profile file (TOML) or built-in profile, such as link-flap; - reads standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    personality: PersonalityArgs,
    #[command(flatten)]
    qp: CommonQpArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Write an SVG file instead
    #[arg(short, long, value_name = "FILE.svg", value_parser = svg_file)]
    output: Option<PathBuf>,
    /// Width of the terminal picture [default: the terminal's]
    #[arg(long, value_name = "COLS", value_parser = clap::value_parser!(u16).range(60..=400))]
    width: Option<u16>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

/// A file for a picture, whose name does not promise another kind of picture.
fn svg_file(name: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(name);
    match path.extension().and_then(|it| it.to_str()) {
        Some(other @ ("png" | "pdf" | "jpg" | "jpeg" | "eps" | "gif")) => Err(format!(
            "pictures are SVG, not {other}; name it {}",
            path.with_extension("svg").display()
        )),
        _ => Ok(path),
    }
}

impl Plot {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let chosen = choose(self.file.as_deref(), self.personality, self.device, None)?;
        let state = RetryState::with_draw(&chosen.policy, self.qp.qp(), 0, chosen.draw);
        let Some(ladder) = Ladder::new(&chosen, state) else {
            return Err(Failure::input(
                "timeout 0 turns the timer off, and there is no ladder to draw; give --timeout 1 \
                 to 31",
            ));
        };
        if self.json {
            to.document(&ladder.json(state.qp()))?;
        }
        match &self.output {
            None if self.json => Ok(()),
            None => {
                let width = self.width.map_or_else(filled_columns, usize::from);
                to.text(&terminal::draw(&ladder, width))
            }
            Some(path) => {
                let svg = svg::draw(&ladder).map_err(std::io::Error::other)?;
                fs::write(path, svg).map_err(|error| {
                    Failure::input(format_args!("cannot write {}: {error}", path.display()))
                })
            }
        }
    }
}

/// What there is to draw. Both axes are logarithmic, because the steps double.
#[derive(Debug)]
pub(crate) struct Ladder {
    title: String,
    subtitle: String,
    waits: Vec<Wait>,
    bands: Vec<Band>,
    cap: Span,
    total: Option<Span>,
    /// Least and greatest time since the first send.
    x: (f64, f64),
    /// Least and greatest wait.
    y: (f64, f64),
}

/// A timeout range.
#[derive(Debug)]
struct Band {
    index: usize,
    low: Span,
    high: Span,
}

/// A ladder of more steps would not be seen.
const STEPS_MAX: usize = 5_000;

impl Ladder {
    /// The ladder of a QP whose peer is silent; none where the timer does not run.
    pub(crate) fn new(chosen: &Chosen, state: RetryState) -> Option<Self> {
        let policy = chosen.policy;
        let cap = state.ack_timeout(&policy)?;
        let total = state.total(&policy);
        let waits: Vec<_> = SilentPeer::new(policy, state).take(STEPS_MAX).collect();
        let bands = match &policy.kind {
            PolicyKind::Profile(profile) => profile
                .ranges()
                .enumerate()
                .map(|(index, range)| Band {
                    index,
                    low: profile.duration(range.low()),
                    high: profile.duration(range.high(policy.range_bound_exclusive)),
                })
                .collect(),
            _ => Vec::new(),
        };
        let wait = |wait: &Wait| wait.wait.filter(|&wait| wait > Span::ZERO);
        let least = waits.iter().filter_map(wait).min()?;
        let most = waits.iter().filter_map(wait).max()?;
        let lows = bands.iter().map(|band| band.low);
        // Ranges far above anything that is waited for would flatten the ladder.
        let reach = cap.min(most * 64).max(most);
        let highs = bands
            .iter()
            .map(|band| band.high)
            .filter(|&span| span <= reach);
        let bottom = lows
            .chain([least])
            .filter(|&span| span >= least / 64)
            .min()?;
        let top = highs
            .chain([most, cap])
            .filter(|&span| span <= reach)
            .max()?;
        let first = waits.first()?.at?;
        let last = waits.last()?.at?;
        let qp = state.qp();
        Some(Self {
            title: format!(
                "{}, QP timeout {}, retry count {}",
                chosen.name, qp.timeout, qp.retry_cnt
            ),
            subtitle: format!(
                "ack timeout {}, {}",
                cap,
                match (total, waits.last()?.event) {
                    (_, Event::Error) => format!("error at {}", last),
                    (Some(total), _) => format!("error at {}, beyond the picture", total),
                    (None, _) => "no error".to_owned(),
                }
            ),
            x: (float(first) / 1.8, float(last) * 1.25),
            y: (float(bottom) / 1.5, float(top) * 1.5),
            waits,
            bands,
            cap,
            total: total.filter(|&span| span > Span::ZERO),
        })
    }

    /// The same for programs.
    fn json(&self, qp: QpTimeouts) -> json::Plot {
        let range = |band: &Band| json::Range {
            range: band.index,
            low_ns: band.low.as_nanos(),
            high_ns: band.high.as_nanos(),
        };
        json::Plot {
            title: self.title.clone(),
            queue_pair: qp.into(),
            ack_timeout_ns: self.cap.as_nanos(),
            total_ns: self.total.map(Span::as_nanos),
            waits: self.waits.iter().map(Into::into).collect(),
            ranges: self.bands.iter().map(range).collect(),
        }
    }

    /// The corners of the line: from where to where each wait lasts.
    fn steps(&self) -> impl Iterator<Item = (f64, f64, f64, Event)> + '_ {
        let mut start = self.x.0;
        self.waits.iter().filter_map(move |wait| {
            let (from, to) = (start, float(wait.at?));
            start = to;
            Some((
                from,
                to,
                float(wait.wait?.max(Span::from_nanos(1))),
                wait.event,
            ))
        })
    }

    /// The bands that can be seen, cut to the picture.
    fn visible_bands(&self) -> impl Iterator<Item = (usize, f64, f64)> + '_ {
        self.bands.iter().filter_map(|band| {
            let (low, high) = (float(band.low), float(band.high));
            let is_visible = low <= self.y.1 && high >= self.y.0;
            is_visible.then_some((band.index, low.max(self.y.0), high.min(self.y.1)))
        })
    }

    /// The cap, if it can be seen. Without a profile nothing is capped.
    fn visible_cap(&self) -> Option<f64> {
        let cap = float(self.cap);
        (!self.bands.is_empty() && (self.y.0..=self.y.1).contains(&cap)).then_some(cap)
    }

    fn visible_total(&self) -> Option<f64> {
        self.total
            .map(float)
            .filter(|total| (self.x.0..=self.x.1).contains(total))
    }
}

/// Powers of ten between two values, with 2 and 5 between them where there are few.
fn ticks(ends: (f64, f64)) -> Vec<f64> {
    let tens = decades(ends, &[1.0]);
    if tens.len() >= 3 {
        tens
    } else {
        decades(ends, &[1.0, 2.0, 5.0])
    }
}

/// A picture needs no more than the 53 bits that survive.
#[expect(clippy::cast_precision_loss)]
fn float(span: Span) -> f64 {
    span.as_nanos() as f64
}
