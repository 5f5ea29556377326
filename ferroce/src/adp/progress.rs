//! The terminal line that shows the progress of a comparison or a search.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shows nothing where standard error is not a terminal. The line goes away with it.
#[derive(Debug)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn new(what: &'static str, steps: u64) -> Self {
        let target = match io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let line = "{prefix} [{bar:30}] {percent:>3} %  {eta} left  {msg}";
        let style = ProgressStyle::with_template(line)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("##.");
        let bar = ProgressBar::with_draw_target(Some(steps), target)
            .with_style(style)
            .with_prefix(what);
        bar.tick();
        Self(bar)
    }

    /// One step is over.
    pub(super) fn step(&self, message: &str) {
        self.0.set_message(message.to_owned());
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
