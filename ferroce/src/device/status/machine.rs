//! Whether the machine is too busy for reliable times: load, steal, and how late a sleeping thread
//! wakes.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// A nap; the window is made of these.
const NAP: Duration = Duration::from_millis(10);

/// The machine during a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Machine {
    pub(super) cores: usize,
    /// The mean of a minute, if the kernel says.
    pub(super) load: Option<f64>,
    /// The share of time that the hypervisor took, if the kernel says.
    pub(super) steal: Option<f64>,
    /// By how much the latest of the naps ended too late.
    pub(super) late: Duration,
}

impl Machine {
    /// Lets a window pass in naps, each by `nap`, and looks at the machine meanwhile; `None` if `nap`
    /// has ended that.
    pub(super) fn watch(window: Duration, nap: impl Fn(Duration) -> bool) -> Option<Self> {
        let (began, ticks) = (Instant::now(), Ticks::now());
        let mut late = Duration::ZERO;
        loop {
            let left = window.saturating_sub(began.elapsed());
            if left.is_zero() {
                break;
            }
            let (asleep, time) = (Instant::now(), left.min(NAP));
            if !nap(time) {
                return None;
            }
            late = late.max(asleep.elapsed().saturating_sub(time));
        }
        let load = fs::read_to_string("/proc/loadavg").ok();
        let load = load.and_then(|text| text.split(' ').next()?.parse().ok());
        Some(Self {
            cores: thread::available_parallelism().map_or(1, usize::from),
            load,
            steal: ticks
                .zip(Ticks::now())
                .and_then(|(then, now)| now.stolen_since(then)),
            late,
        })
    }
}

/// Of all processors since the start.
#[derive(Clone, Copy)]
struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line: cpu user nice system idle iowait irq softirq steal, and guests, whose time is
    /// in that of user and nice.
    fn parse(text: &str) -> Option<Self> {
        let rest = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks = rest.split_whitespace().take(8).map(str::parse);
        let ticks: Vec<u64> = ticks.collect::<Result<_, _>>().ok()?;
        Some(Self {
            all: ticks.iter().fold(0, |sum, it| sum.saturating_add(*it)),
            stolen: *ticks.get(7)?,
        })
    }

    fn stolen_since(self, then: Self) -> Option<f64> {
        let all = self.all.checked_sub(then.all).filter(|all| *all > 0)?;
        Some(self.stolen.saturating_sub(then.stolen) as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_a_share_of_all_ticks() {
        let then = Ticks::parse("cpu  10 0 10 60 0 0 10 10 5 5\ncpu0 1\n").unwrap();
        let now = Ticks::parse("cpu  10 0 10 150 0 0 10 20 5 5\n").unwrap();
        assert_eq!((then.all, then.stolen), (100, 10));
        assert_eq!(now.stolen_since(then), Some(0.1));
        assert_eq!(then.stolen_since(then), None, "no tick has passed");
        assert!(Ticks::parse("cpu  1 2 3\n").is_none() && Ticks::parse("").is_none());
    }

    #[test]
    fn a_nap_that_is_interrupted_ends_the_watch() {
        assert!(Machine::watch(Duration::from_secs(60), |_| false).is_none());
        let late = Duration::from_millis(3);
        let machine = Machine::watch(NAP, |time| {
            thread::sleep(time + late);
            true
        });
        assert!(machine.unwrap().late >= late);
    }
}
