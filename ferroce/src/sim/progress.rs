//! The terminal line that shows the progress of a run.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use ferroce_base::time::{Span, Time};
use ferroce_fabric::Simulation;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

const EVERY: Duration = Duration::from_millis(200);
const STEPS: u64 = 1_000;

/// Shows nothing where standard error is not a terminal. The line goes away with it.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    began: Instant,
    next: Instant,
    duration: Span,
}

impl Progress {
    pub(super) fn new(duration: Span) -> Self {
        let target = match io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let style = ProgressStyle::with_template("[{bar:30}] {percent:>3} %  {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("##.");
        let bar = ProgressBar::with_draw_target(Some(STEPS), target).with_style(style);
        let began = Instant::now();
        Self {
            bar,
            began,
            next: began + EVERY,
            duration,
        }
    }

    pub(super) fn show(&mut self, simulation: &Simulation) {
        let now = Instant::now();
        if now < self.next || self.bar.is_hidden() {
            return;
        }
        self.next = now + EVERY;
        let share = share(simulation, self.duration);
        let took = now - self.began;
        let left = match share > 0.001 {
            true => {
                let left = took.mul_f64((1.0 - share) / share);
                format!("{} left", HumanDuration(left))
            }
            false => "time left unknown".to_owned(),
        };
        let rate = simulation.events() as f64 / took.as_secs_f64() / 1e6;
        let at = simulation.now().since(Time::ZERO);
        self.bar.set_message(format!(
            "{} ms simulated, {rate:.2} M events/s, {left}",
            at.as_nanos() / 1_000_000
        ));
        self.bar.set_position((share * STEPS as f64) as u64);
    }
}

/// How much of a run is over: of its transfers, or of its time, whichever is more.
fn share(simulation: &Simulation, duration: Span) -> f64 {
    let outcomes = &simulation.player.job_outcomes;
    let all: u64 = outcomes.iter().map(|it| u64::from(it.transfers)).sum();
    let done: u64 = outcomes.iter().map(|it| u64::from(it.delivered)).sum();
    let of_transfers = done as f64 / all.max(1) as f64;
    let now = simulation.now().since(Time::ZERO);
    let of_time = now.as_nanos() as f64 / duration.as_nanos().max(1) as f64;
    of_transfers.max(of_time).min(1.0)
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
