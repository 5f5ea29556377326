//! How much of the processors others use.
//!
//! The two threads of a measurement need a processor each. When others take a share of one, a rate falls by
//! up to that share, and a ratio moves either way, because one side of it is hit and not the other.

use std::fmt;
use std::fs;
use std::thread;
use std::time::Duration;

use crate::BARE_CONTENTION_MAX;

/// Processor time of the whole machine since it started, in ticks (proc_stat(5)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ticks {
    processors: u64,
    /// Used by anything on this machine.
    busy: u64,
    /// Used by other machines while this one wanted to run.
    stolen: u64,
    /// All of it.
    all: u64,
}

impl Ticks {
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let first = text.lines().next()?.strip_prefix("cpu ")?;
        let fields = first.split_ascii_whitespace().map(str::parse);
        let fields: Vec<u64> = fields.collect::<Result<_, _>>().ok()?;
        let [user, nice, system, idle, waiting, irq, softirq, stolen, ..] = fields[..] else {
            return None;
        };
        let is_processor = |line: &&str| {
            let number = line.strip_prefix("cpu");
            number.is_some_and(|it| it.starts_with(|c: char| c.is_ascii_digit()))
        };
        let busy = user + nice + system + irq + softirq;
        Some(Self {
            processors: text.lines().filter(is_processor).count() as u64,
            busy,
            stolen,
            all: busy + stolen + idle + waiting,
        })
    }
}

/// What others leave of the processors.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Left {
    /// Processors of the machine.
    pub processors: f64,
    /// How many of them are idle, on average.
    pub idle: f64,
}

impl Left {
    /// Watches the machine for a while, in which this process does nothing. `None` if it does not say.
    #[must_use]
    pub fn watch(length: Duration) -> Option<Self> {
        let before = Ticks::now()?;
        thread::sleep(length);
        Self::between(before, Ticks::now()?)
    }

    /// Why these are too few processors for a measurement, if they are.
    #[must_use]
    pub fn shortage(self) -> Option<Reason> {
        (self.idle < IDLE_MIN).then_some(Reason::Idle(self.idle))
    }

    fn between(before: Ticks, after: Ticks) -> Option<Self> {
        let passed = after.all.checked_sub(before.all).filter(|it| *it > 0)?;
        // The kernel may take time for idle that it has counted otherwise before.
        let used = (after.busy + after.stolen).saturating_sub(before.busy + before.stolen);
        let processors = after.processors as f64;
        Some(Self {
            processors,
            idle: processors * (1.0 - (used as f64 / passed as f64).min(1.0)),
        })
    }
}

/// What was seen of others in a series of measurements.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Noise {
    /// Idle processors between the measurements, on average; `None` if the system does not say.
    pub idle: Option<f64>,
    /// The share of its time that a thread of the bare programs waited for a processor; the median of all
    /// their measurements.
    pub waited: f64,
    /// The median over the bare measurements of how far apart their figures of several rounds are: the
    /// largest less the smallest, as a share of the median.
    pub spread: f64,
}

/// Measurements need this many idle processors: each of the two threads then loses at most 5 % of its time.
pub const IDLE_MIN: f64 = 1.9;
/// The largest `waited` of a quiet machine.
pub const WAITED_MAX: f64 = BARE_CONTENTION_MAX;
/// The largest `spread` of a quiet machine.
pub const SPREAD_MAX: f64 = 0.25;

/// Why a machine is too noisy for a verdict that may depend on it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reason {
    /// Others use the processors.
    Idle(f64),
    /// Threads waited for a processor.
    Waited(f64),
    /// Even the bare program has no steady figure.
    Spread(f64),
}

impl Noise {
    /// Why the machine is too noisy; of a quiet one, none.
    #[must_use]
    pub fn reasons(&self) -> Vec<Reason> {
        let idle = self.idle.filter(|idle| *idle < IDLE_MIN);
        let over = |value: f64, max: f64| (value > max).then_some(value);
        [
            idle.map(Reason::Idle),
            over(self.waited, WAITED_MAX).map(Reason::Waited),
            over(self.spread, SPREAD_MAX).map(Reason::Spread),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// By what share a ratio may be off; of a quiet machine, 0.
    #[must_use]
    pub fn error(&self) -> f64 {
        if self.reasons().is_empty() {
            return 0.0;
        }
        let taken = self.idle.map_or(0.0, |idle| (1.0 - idle / 2.0).max(0.0));
        self.spread.max(self.waited).max(taken)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle(idle) => write!(
                f,
                "other programs leave {idle:.1} idle processors, and two threads need {IDLE_MIN}"
            ),
            Self::Waited(waited) => write!(
                f,
                "threads waited for a processor {:.0} % of the time (at most {:.0} %)",
                waited * 100.0,
                WAITED_MAX * 100.0
            ),
            Self::Spread(spread) => write!(
                f,
                "the figures of the bare programs are {:.0} % apart from round to round (at most {:.0} %)",
                spread * 100.0,
                SPREAD_MAX * 100.0
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 20 30 800 7 1 2 3 50 0\n\
        cpu0 50 10 15 400 3 1 1 2 25 0\ncpu1 50 10 15 400 4 0 1 1 25 0\nintr 5 0\ncpufreq 1\n";

    #[test]
    fn ticks_of_guests_are_not_counted_twice() {
        let ticks = Ticks::parse(STAT).unwrap();
        let expected = Ticks {
            processors: 2,
            busy: 153,
            stolen: 3,
            all: 963,
        };
        assert_eq!(ticks, expected);
        assert_eq!(Ticks::parse("cpu  1 2 3\n"), None);
        assert_eq!(Ticks::parse(""), None);
    }

    #[test]
    fn stolen_time_is_not_idle() {
        let before = Ticks::parse(STAT).unwrap();
        let after = Ticks {
            busy: before.busy + 20,
            stolen: before.stolen + 5,
            all: before.all + 100,
            ..before
        };
        let left = Left::between(before, after).unwrap();
        assert_eq!((left.processors, left.idle), (2.0, 1.5));
        assert_eq!(left.shortage(), Some(Reason::Idle(1.5)));
        assert_eq!(Left::between(before, before), None, "no time has passed");
    }

    #[test]
    fn this_machine_has_processors() {
        let left = Left::watch(Duration::from_millis(100)).unwrap();
        assert!(left.processors >= 1.0 && left.idle <= left.processors);
    }

    #[test]
    fn each_kind_of_noise_has_its_reason() {
        let quiet = Noise {
            idle: Some(IDLE_MIN),
            waited: WAITED_MAX,
            spread: SPREAD_MAX,
        };
        assert_eq!((quiet.reasons(), quiet.error()), (vec![], 0.0));
        let unknown = Noise {
            idle: None,
            ..quiet
        };
        assert_eq!(unknown.reasons(), []);
        let loud = Noise {
            idle: Some(1.2),
            waited: 0.3,
            spread: 0.5,
        };
        let expected = [Reason::Idle(1.2), Reason::Waited(0.3), Reason::Spread(0.5)];
        assert_eq!(loud.reasons(), expected);
        assert_eq!(loud.error(), 0.5);
        let crowded = Noise {
            idle: Some(0.5),
            ..quiet
        };
        assert_eq!(crowded.error(), 0.75);
    }
}
