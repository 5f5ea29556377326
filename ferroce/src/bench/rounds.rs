//! All measurements in turn, and what was seen of other programs meanwhile.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferroce_bench::load::{Left, Noise};
use ferroce_bench::median;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::measure::{Bench, Figure};
use super::plan::{Cell, Plan};
use crate::output::{Failure, Output};

/// How long the machine is watched before each round and after the last.
const WATCH: Duration = Duration::from_millis(250);

/// What was measured.
#[derive(Debug)]
pub(super) struct Figures {
    /// Each cell, with its figure in each round.
    cells: Vec<(Cell, Vec<Figure>)>,
    pub(super) noise: Noise,
}

impl Figures {
    /// Measures everything once in each round.
    pub(super) fn measure(
        plan: &Plan,
        bench: &mut Bench,
        rounds: u32,
        to: &mut Output<'_>,
    ) -> Result<Self, Failure> {
        let signal = Signal::new()?;
        let first = Left::watch(WATCH);
        if let Some(reason) = first.and_then(Left::shortage) {
            to.remark(format_args!(
                "note: {reason}: this takes longer, and may end without verdicts"
            ))?;
        }
        let progress = progress(u64::from(rounds) * plan.cells.len() as u64);
        let mut cells: Vec<_> = plan.cells.iter().map(|cell| (*cell, Vec::new())).collect();
        let mut idle = vec![first];
        for _ in 0..rounds {
            for (cell, figures) in &mut cells {
                progress.set_message(format!("{}, {}", cell.0, cell.1.title()));
                let measured = bench.measure(*cell);
                // On Ctrl-C other programs end as well, which is not their failure.
                signal.check()?;
                figures.extend(measured?);
                progress.inc(1);
            }
            idle.push(Left::watch(WATCH));
        }
        progress.finish_and_clear();
        let mut figures = Self {
            cells,
            noise: Noise {
                idle: mean(idle.into_iter().flatten().map(|left| left.idle)),
                waited: 0.0,
                spread: 0.0,
            },
        };
        figures.look_at_bare_programs();
        Ok(figures)
    }

    fn look_at_bare_programs(&mut self) {
        let bare = self.cells.iter().filter(|(cell, _)| cell.1.is_bare());
        let bare: Vec<_> = bare.map(|(_, figures)| figures).collect();
        let waited = bare
            .iter()
            .flat_map(|it| it.iter().filter_map(|it| it.waited));
        let spreads = bare.iter().map(|figures| spread(figures));
        let or_none = |value: f64| if value.is_nan() { 0.0 } else { value };
        self.noise.waited = or_none(median(waited));
        self.noise.spread = or_none(median(spreads));
    }

    /// The figures of a cell in each round; none if they could not be had.
    pub(super) fn of(&self, cell: Cell) -> impl Iterator<Item = f64> {
        let found = self.cells.iter().find(|(it, _)| *it == cell);
        let figures = found.map_or(&[][..], |(_, figures)| figures);
        figures.iter().map(|figure| figure.value)
    }
}

/// How far apart figures are, as a share of their median.
fn spread(figures: &[Figure]) -> f64 {
    let values = || figures.iter().map(|figure| figure.value);
    let (least, most) = (
        values().fold(f64::MAX, f64::min),
        values().fold(0.0, f64::max),
    );
    (most - least) / median(values())
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    let sum: f64 = values.iter().sum();
    (!values.is_empty()).then(|| sum / values.len() as f64)
}

/// Shows nothing where standard error is not a terminal.
fn progress(measurements: u64) -> ProgressBar {
    let target = match io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let style = ProgressStyle::with_template("[{bar:20}] {pos} of {len}  {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("##.");
    ProgressBar::with_draw_target(Some(measurements), target).with_style(style)
}

/// A signal that ends the process once it has put its things away.
struct Signal(Arc<AtomicUsize>);

impl Signal {
    fn new() -> io::Result<Self> {
        let came = Arc::new(AtomicUsize::new(0));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            flag::register_usize(signal, Arc::clone(&came), signal as usize)?;
        }
        Ok(Self(came))
    }

    fn check(&self) -> Result<(), Failure> {
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            // As shells report a program that a signal has ended.
            signal => Err(Failure::Program(128 + signal as u8, String::new())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_are_alike_have_no_spread() {
        let figures = |values: &[f64]| -> Vec<Figure> {
            let figure = |value: &f64| Figure {
                value: *value,
                waited: None,
            };
            values.iter().map(figure).collect()
        };
        assert_eq!(spread(&figures(&[2.0, 2.0, 2.0])), 0.0);
        assert_eq!(spread(&figures(&[2.0, 1.5, 2.5])), 0.5);
        assert_eq!(mean([1.0, 2.0].into_iter()), Some(1.5));
        assert_eq!(mean([].into_iter()), None);
    }
}
