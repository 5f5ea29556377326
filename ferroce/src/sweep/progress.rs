//! The progress of a worker: a moving line on a terminal, occasional lines in a log.

use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// When a log gets its first line. Each further line comes after twice the time of the previous
/// one.
const LOGGED_FIRST: Duration = Duration::from_secs(2);
/// The longest time between two lines.
const LOGGED_EVERY: Duration = Duration::from_secs(600);

/// When a log gets its next line: at first soon, and then less and less often.
#[derive(Debug)]
struct LogTimes {
    next: Duration,
}

impl LogTimes {
    fn new() -> Self {
        Self { next: LOGGED_FIRST }
    }

    /// Whether a line is due after this time.
    fn is_due(&mut self, elapsed: Duration) -> bool {
        let is_due = elapsed >= self.next;
        if is_due {
            self.next = elapsed + elapsed.min(LOGGED_EVERY);
        }
        is_due
    }
}

/// The line on a terminal is cleared when it is dropped.
///
/// It stays on the thread of the command, which holds the lock of standard error: other threads
/// would wait forever.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    log_times: LogTimes,
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
            log_times: LogTimes::new(),
        }
    }

    pub(super) fn show(&mut self, progress: ferroce_sweep::Progress) {
        let left = match progress.left() {
            Some(left) => format!("{} left", HumanDuration(left)),
            None => "time left unknown".to_owned(),
        };
        if self.bar.is_hidden() {
            if self.log_times.is_due(progress.elapsed) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_of_a_day_has_few_lines() {
        let mut times = LogTimes::new();
        let lines = |times: &mut LogTimes, seconds: std::ops::Range<u64>| {
            let looks = seconds.map(Duration::from_secs);
            looks.filter(|it| times.is_due(*it)).count()
        };
        assert_eq!(lines(&mut times, 0..2), 0);
        assert_eq!(lines(&mut times, 2..61), 5);
        assert_eq!(lines(&mut times, 61..3_600), 9);
        assert_eq!(lines(&mut times, 3_600..86_400), 6 * 23);
    }
}
