//! The terminal line that shows the progress of a run.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::figures::Figures;
use super::plan::Kind;

/// How often the line changes.
const EVERY: Duration = Duration::from_millis(100);

/// Steps of a run that takes its time.
const SHARES: u64 = 1_000;

/// Shows nothing where standard error is no terminal. The line goes away with it.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    next: Instant,
}

impl Progress {
    /// The progress of a run under a policy, which moves `bytes` bytes.
    pub(crate) fn new(run: usize, kind: Kind, bytes: u64) -> Self {
        let prefix = format!("run {run} of {}, {kind:<8}", Kind::ALL.len());
        Self::with_prefix(prefix, bytes)
    }

    /// The progress of a run of fixed duration; see [`Self::show_share`].
    pub(crate) fn of_time() -> Self {
        Self::with_prefix("congestion".to_owned(), SHARES)
    }

    fn with_prefix(prefix: String, end: u64) -> Self {
        let target = if io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let style = ProgressStyle::with_template("{prefix} [{bar:30}] {percent:>3} %  {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("##.");
        let bar = ProgressBar::with_draw_target(Some(end), target)
            .with_style(style)
            .with_prefix(prefix);
        bar.tick();
        Self {
            bar,
            next: Instant::now(),
        }
    }

    pub(crate) fn show(&mut self, figures: &Figures) {
        if !self.is_due() {
            return;
        }
        self.bar.set_message(format!(
            "{:.1} s  {:.2} Gb/s  {} timeouts",
            figures.elapsed_ns as f64 / 1e9,
            figures.goodput_gbps(),
            figures.expiries.len()
        ));
        self.bar.set_position(figures.bytes);
    }

    /// Shows how much of the run is over, 0 to 1.
    pub(crate) fn show_share(&mut self, share: f64) {
        if self.is_due() {
            self.bar.set_position((share * SHARES as f64) as u64);
        }
    }

    fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = now >= self.next && !self.bar.is_hidden();
        if is_due {
            self.next = now + EVERY;
        }
        is_due
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
