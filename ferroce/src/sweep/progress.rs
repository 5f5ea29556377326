//! The progress of a worker: a moving line on a terminal, occasional lines in a log.

use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// When a log gets its first line. Each further line comes after twice the time of the previous
/// one.
const LOGGED_FIRST: Duration = Duration::from_secs(2);
/// The longest time between two lines.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// The line on a terminal is cleared when it is dropped.
///
/// It stays on the thread of the command, which holds the lock of standard error: other threads
/// would wait forever.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    log_at: Duration,
}

impl Progress {
    pub(super) fn new() -> Self {
        let target = match io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let style = ProgressStyle::with_template("[{bar:30}] {pos} of {len} points  {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("##.");
        Self {
            bar: ProgressBar::with_draw_target(None, target).with_style(style),
            log_at: LOGGED_FIRST,
        }
    }

    pub(super) fn show(&mut self, progress: ferroce_sweep::Progress) {
        let left = match progress.left() {
            Some(left) => format!("{} left", HumanDuration(left)),
            None => "time left unknown".to_owned(),
        };
        if self.bar.is_hidden() {
            if progress.elapsed >= self.log_at {
                self.log_at = progress.elapsed + progress.elapsed.min(LOGGED_EVERY);
                let (done, total) = (progress.done, progress.total);
                // Standard error may be closed.
                let _ = writeln!(io::stderr(), "{done} of {total} points, {left}");
            }
            return;
        }
        self.bar.set_length(progress.total as u64);
        self.bar.set_position(progress.done as u64);
        self.bar.set_message(left);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
