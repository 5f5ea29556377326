//! The time of day for completions and captured packets.

use std::time::{SystemTime, UNIX_EPOCH};

use ferroce_base::time::Time;

/// How often both clocks are read to find out how far they are apart.
const READINGS: usize = 8;

/// Converts times of a device's clock to nanoseconds since 1970.
///
/// The two clocks are compared once, when a device is opened or a capture begins. So a completion has one time of day
/// however late and often it is read, and of two completions the later one has the later time of
/// day, on all queues of the device. Like the clock of a card this one does not jump when someone
/// sets the time of the system; both clocks are slewed alike.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    /// The time of day at zero of the device's clock.
    zero_ns: u64,
}

impl WallClock {
    /// Compares the device's clock `now` with the system's.
    pub fn new(now: impl FnMut() -> Time) -> Self {
        let system = || {
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
            since_1970.map_or(0, |since| since.as_nanos() as u64) // until the year 2554
        };
        Self::compared(now, system)
    }

    /// The reading counts that took the shortest time: the thread may lose its processor between
    /// two looks at the clocks.
    fn compared(mut now: impl FnMut() -> Time, mut system: impl FnMut() -> u64) -> Self {
        let reading = |_| {
            let (before, day, after) = (now(), system(), now());
            let took = after.since(before);
            (took, day.saturating_sub(before.after(took / 2).as_nanos()))
        };
        let best = (0..READINGS).map(reading).min_by_key(|(took, _)| *took);
        Self {
            zero_ns: best.map_or(0, |(_, zero_ns)| zero_ns),
        }
    }

    /// The time of day at a time of the device's clock.
    pub fn at(self, time: Time) -> u64 {
        self.zero_ns.saturating_add(time.as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_undisturbed_reading_counts() {
        // Each look at a clock takes 10 ns, but in all readings but the fifth the thread sleeps.
        let (now, looks) = (Cell::new(1_000), Cell::new(0));
        let clock = WallClock::compared(
            || {
                let look = looks.replace(looks.get() + 1);
                let sleep = if look % 2 == 1 && look != 9 { 5_000 } else { 0 };
                now.set(now.get() + 10 + sleep);
                Time::from_nanos(now.get())
            },
            || {
                now.set(now.get() + 10);
                1_700_000_000_000_000_000 + now.get()
            },
        );
        let at = clock.at(Time::from_nanos(5));
        assert_eq!(at, 1_700_000_000_000_000_005);
    }

    /// While both clocks run, and whatever happens between two looks.
    #[test]
    fn the_time_of_day_of_a_moment_does_not_change() {
        let start = std::time::Instant::now();
        let now = || Time::from_nanos(start.elapsed().as_nanos() as u64);
        let clock = WallClock::new(now);
        let moment = now();
        let first = clock.at(moment);
        let mut last = first;
        for _ in 0..100_000 {
            assert_eq!(clock.at(moment), first);
            let next = clock.at(now());
            assert!(next >= last, "{next} after {last}");
            last = next;
        }
    }
}
