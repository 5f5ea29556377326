//! The terminal line that shows the progress of a drill.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use ferroce_os::Clock;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::record::Record;

const EVERY: Duration = Duration::from_millis(100);

/// Shows nothing where standard error is not a terminal. The line goes away with it.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    next: Instant,
}

impl Progress {
    /// The progress of a drill of this number of runs.
    pub(super) fn new(runs: usize) -> Self {
        let target = match io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let style = ProgressStyle::with_template("[{bar:20}] {pos} of {len} runs  {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("##.");
        let bar = ProgressBar::with_draw_target(Some(runs as u64), target).with_style(style);
        let next = Instant::now();
        Self { bar, next }
    }

    /// Shows how far a run is.
    pub(super) fn show(&mut self, run: usize, what: &str, record: &Record) {
        let now = Instant::now();
        if now < self.next || self.bar.is_hidden() {
            return;
        }
        self.next = now + EVERY;
        let since = Clock.now_ns().saturating_sub(record.began_ns);
        let happened = record.events.last().map_or("", |it| it.text.as_str());
        self.bar.set_position(run as u64);
        self.bar
            .set_message(format!("{what}: {:.1} s  {happened}", since as f64 / 1e9));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
