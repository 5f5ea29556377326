//! The line on a terminal that shows how far a run is.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::figures::Figures;
use super::plan::Kind;

/// How often the line changes.
const EVERY: Duration = Duration::from_millis(100);

/// Shows nothing where standard error is no terminal. The line goes away with it.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    next: Instant,
}

impl Progress {
    pub(crate) fn new(run: usize, kind: Kind, bytes: u64) -> Self {
        let target = if io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let style = ProgressStyle::with_template("{prefix} [{bar:30}] {percent:>3} %  {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("##.");
        let bar = ProgressBar::with_draw_target(Some(bytes), target)
            .with_style(style)
            .with_prefix(format!("run {run} of {}, {kind:<8}", Kind::ALL.len()));
        bar.tick();
        Self {
            bar,
            next: Instant::now(),
        }
    }

    pub(crate) fn show(&mut self, figures: &Figures) {
        let now = Instant::now();
        if now < self.next || self.bar.is_hidden() {
            return;
        }
        self.next = now + EVERY;
        self.bar.set_message(format!(
            "{:.1} s  {:.2} Gb/s  {} timeouts",
            figures.elapsed_ns as f64 / 1e9,
            figures.goodput_gbps(),
            figures.expiries.len()
        ));
        self.bar.set_position(figures.bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
