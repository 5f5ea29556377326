//! Deliberate loss of a port's carrier.
//!
//! A port is down during [`Outages`], of which a [`Schedule`] holds several, and during blackouts
//! that include the carrier. It is up at all other times, if the host's own interface is.

use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_transport::{Span, Time};
use thiserror::Error;

/// Outages of the same length, at regular intervals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outages {
    /// When the first begins.
    pub first: Time,
    /// How long each lasts; [`Span::NEVER`] if it does not end.
    pub length: Span,
    /// Time from the beginning of one to that of the next.
    pub every: Span,
    /// Number of outages.
    pub times: u32,
}

/// The error for an invalid value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("invalid {field}: must be {allowed}")]
pub struct ScheduleError {
    /// Name of the field.
    pub field: &'static str,
    /// The valid values.
    pub allowed: &'static str,
}

impl Outages {
    /// Creates a single outage that begins at a point in time.
    pub const fn once(first: Time, length: Span) -> Self {
        Self {
            first,
            length,
            every: Span::ZERO,
            times: 1,
        }
    }

    /// Checks whether all values are valid.
    pub fn check(&self) -> Result<(), ScheduleError> {
        let wrong = |field, allowed| Err(ScheduleError { field, allowed });
        if self.length == Span::ZERO {
            return wrong("length of an outage", "more than 0");
        }
        match self.times {
            0 => wrong("number of outages", "1 or more"),
            1 => Ok(()),
            _ if self.length >= self.every => {
                wrong("time between outages", "longer than an outage")
            }
            _ => Ok(()),
        }
    }

    /// The number of the last outage that has begun, counted from 0.
    fn begun(&self, at: Time) -> Option<u64> {
        if at < self.first {
            return None;
        }
        let last = u64::from(self.times.saturating_sub(1));
        let since = at.since(self.first).as_picos();
        let number = since.checked_div(self.every.as_picos());
        Some(number.unwrap_or(0).min(last))
    }

    fn begin(&self, number: u64) -> Time {
        self.first.after(self.every.times(number))
    }

    /// When the outage that covers a point in time is over.
    fn end(&self, at: Time) -> Option<Time> {
        let end = self.begin(self.begun(at)?).after(self.length);
        (at < end).then_some(end)
    }

    /// When the first one begins that has not begun at a point in time.
    fn next(&self, at: Time) -> Option<Time> {
        let number = self.begun(at).map_or(0, |begun| begun + 1);
        (number < u64::from(self.times)).then(|| self.begin(number))
    }
}

/// The times when a port is down.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Schedule(Vec<Outages>);

impl Schedule {
    /// The maximum number of [`Outages`].
    pub const LEN_MAX: usize = 128;

    /// Creates a schedule; overlapping outages are one outage.
    pub fn new(outages: Vec<Outages>) -> Result<Self, ScheduleError> {
        if outages.len() > Self::LEN_MAX {
            return Err(ScheduleError {
                field: "number of outages",
                allowed: "128 at most",
            });
        }
        outages.iter().try_for_each(Outages::check)?;
        Ok(Self(outages))
    }

    /// Creates a schedule that takes the port down at a point in time, without end.
    pub fn down_from(at: Time) -> Self {
        Self(vec![Outages::once(at, Span::NEVER)])
    }

    /// Returns the outages.
    pub fn outages(&self) -> &[Outages] {
        &self.0
    }
}

/// The state of a port at a point in time, and until when it lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outlook {
    /// Whether it has a carrier.
    pub is_up: bool,
    /// When to check again; `None` if the state does not change any more.
    pub until: Option<Time>,
}

impl Outlook {
    /// That of a port with these outages.
    pub(crate) fn of(outages: impl Iterator<Item = Outages> + Clone, at: Time) -> Self {
        if let Some(end) = outages.clone().filter_map(|it| it.end(at)).max() {
            let until = (end != Time::NEVER).then_some(end);
            return Self {
                is_up: false,
                until,
            };
        }
        Self {
            is_up: true,
            until: outages.filter_map(|it| it.next(at)).min(),
        }
    }
}

/// How often a port has lost its carrier, for all who share the card. Zeros are valid.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct CarrierLosses {
    /// The time up to which scheduled outages are counted, in picoseconds. The last bit says that
    /// the port was down at that time.
    until: AtomicU64,
    scheduled: AtomicU64,
    /// Losses of carrier of the host's interface.
    of_host: AtomicU64,
}

impl CarrierLosses {
    /// The most outages that one call counts; the next call continues.
    const AT_ONCE: usize = 1 << 16;
    const DOWN: u64 = 1;

    /// Counts the scheduled outages that have begun since the last call in any process.
    pub(crate) fn catch_up(&self, outlook: impl Fn(Time) -> Outlook, now: Time) {
        let seen = self.until.load(Ordering::Acquire);
        let mut at = Time::from_picos(seen & !Self::DOWN);
        let (mut was_up, mut losses) = (seen & Self::DOWN == 0, 0);
        for _ in 0..Self::AT_ONCE {
            let look = outlook(at);
            losses += u64::from(was_up && !look.is_up);
            was_up = look.is_up;
            match look.until {
                Some(until) if until <= now => at = until,
                _ => {
                    at = at.max(now);
                    break;
                }
            }
        }
        let bit = if was_up { 0 } else { Self::DOWN };
        let counted = at.as_picos() & !Self::DOWN | bit;
        // The first process to get here counts them.
        let first = self
            .until
            .compare_exchange(seen, counted, Ordering::AcqRel, Ordering::Relaxed);
        if first.is_ok() {
            self.scheduled.fetch_add(losses, Ordering::Relaxed);
        }
    }

    pub(crate) fn of_host(&self) -> u64 {
        self.of_host.load(Ordering::Relaxed)
    }

    /// Records that a process has seen the host's interface lose its carrier for the `nth` time.
    /// All processes see the same losses.
    pub(crate) fn note_of_host(&self, nth: u64) {
        self.of_host.fetch_max(nth, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.scheduled.load(Ordering::Relaxed) + self.of_host()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::ZERO.after(Span::from_millis(ms))
    }

    fn flaps(first: u64, length: u64, every: u64, times: u32) -> Outages {
        Outages {
            first: ms(first),
            length: Span::from_millis(length),
            every: Span::from_millis(every),
            times,
        }
    }

    /// Each change of a schedule, found by walking from outlook to outlook.
    fn changes(outages: &[Outages], to: Time) -> Vec<(u64, bool)> {
        let look = |at| Outlook::of(outages.iter().copied(), at);
        let (mut at, mut is_up, mut found) = (Time::ZERO, true, Vec::new());
        loop {
            let now = look(at);
            if now.is_up != is_up {
                is_up = now.is_up;
                found.push((at.as_nanos() / 1_000_000, is_up));
            }
            match now.until {
                Some(next) if next <= to => at = next,
                _ => return found,
            }
        }
    }

    #[test]
    fn a_walk_finds_each_change_once() {
        let plain = changes(&[flaps(10, 2, 5, 3)], ms(100));
        let expected = [10, 12, 15, 17, 20, 22].map(|at| (at, (at % 5) != 0));
        assert_eq!(plain, expected);
        // The second ends in the first; the third touches it.
        let merged = [flaps(10, 10, 0, 1), flaps(8, 4, 0, 1), flaps(20, 5, 0, 1)];
        assert_eq!(changes(&merged, ms(100)), [(8, false), (25, true)]);
        let for_good = Schedule::down_from(ms(7));
        assert_eq!(changes(for_good.outages(), Time::NEVER), [(7, false)]);
    }

    #[test]
    fn everybody_together_counts_each_loss_once() {
        let outages = [flaps(10, 2, 5, 3)];
        let look = |at| Outlook::of(outages.into_iter(), at);
        let losses = CarrierLosses::default();
        for (now, count) in [(9, 0), (10, 1), (10, 1), (19, 2), (15, 2), (1000, 3)] {
            losses.catch_up(look, ms(now));
            assert_eq!(losses.count(), count, "at {now} ms");
        }
        losses.note_of_host(1);
        losses.note_of_host(1);
        assert_eq!(losses.count(), 4);
        // A schedule that begins at the moment up to which the last one was counted.
        let for_good = |at| Outlook::of([flaps(1000, 50, 0, 1)].into_iter(), at);
        losses.catch_up(for_good, ms(1000));
        losses.catch_up(for_good, ms(1001));
        assert_eq!(losses.count(), 5);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let complaint = |outages| Schedule::new(vec![outages]).unwrap_err().to_string();
        let zero = complaint(flaps(1, 0, 5, 1));
        assert_eq!(zero, "invalid length of an outage: must be more than 0");
        assert!(complaint(flaps(1, 1, 5, 0)).contains("1 or more"));
        assert!(complaint(flaps(1, 5, 5, 2)).contains("longer than an outage"));
        let many = Schedule::new(vec![flaps(1, 1, 5, 1); 129]).unwrap_err();
        assert!(many.to_string().contains("128 at most"));
    }
}
