//! The time since the last CNP.

use ferroce_base::time::{Span, Time};

use crate::sync::{AtomicU64, Ordering};

/// When the last CNP was sent: one timer for the port, or one in each flow.
///
/// The host defines what a flow is by where it keeps these timers: a queue pair has one. A datagram
/// queue pair has many senders; its device may keep one for each of a bounded number of them.
///
/// Threads and processes can share a timer. Zeros are a valid one, which has not sent a CNP yet, and
/// so is any other value. There is no lock that a process could leave behind.
///
/// The clocks of processes that share a timer may differ by multiples of [`CnpTimer::CYCLE`].
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct CnpTimer {
    /// The time in cycles, and [`SENT`] in the lowest bit.
    last: AtomicU64,
}

impl CnpTimer {
    /// The timer counts time modulo this, about ten hours. After exactly this time without a CNP, it
    /// may take the last one for a recent one, for no longer than [`CnpTimer::LEAD_MAX`] and an
    /// interval.
    pub const CYCLE: Span = Span::from_picos(1 << (u64::BITS - FRACTION_BITS));

    /// How far ahead of the present the last CNP may be. A process reads the clock once for several
    /// packets and may lose its processor before it handles them, so another process may have sent a
    /// CNP at a later time. A time further ahead does not count: it was stored before the machine was
    /// restarted, or is damaged.
    pub const LEAD_MAX: Span = Span::from_millis(100);

    /// Whether a CNP may be sent now, an interval after the last one. If so, this is the last one
    /// from now on: of several callers at the same time, one may send.
    #[inline]
    pub(super) fn take(&self, now: Time, interval: Span) -> bool {
        let mut last = self.last.load(Ordering::Relaxed);
        while is_open(last, now, interval) {
            let order = Ordering::Relaxed;
            match self.last.compare_exchange(last, sent_at(now), order, order) {
                Ok(_) => return true,
                Err(other) => last = other,
            }
        }
        false
    }
}

/// Bits below those of a time.
const FRACTION_BITS: u32 = 9;

/// A CNP has been sent.
const SENT: u64 = 1;

const fn sent_at(now: Time) -> u64 {
    now.as_picos() << FRACTION_BITS | SENT
}

#[inline]
fn is_open(last: u64, now: Time, interval: Span) -> bool {
    if last & SENT == 0 || interval == Span::ZERO {
        return true;
    }
    // The bits above those of a cycle are lost, so this is the shorter way around it.
    let elapsed_ps = sent_at(now).wrapping_sub(last).cast_signed() >> FRACTION_BITS;
    let magnitude = Span::from_picos(elapsed_ps.unsigned_abs());
    if elapsed_ps < 0 {
        magnitude > CnpTimer::LEAD_MAX
    } else {
        magnitude >= interval
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const INTERVAL: Span = Span::from_micros(4);

    fn left_behind(last: u64) -> CnpTimer {
        CnpTimer {
            last: AtomicU64::from(last),
        }
    }

    /// How long a timer keeps CNPs from being sent.
    fn silence(timer: &CnpTimer, from: Time) -> Span {
        let steps = (0..).map(|step| from.after(Span::from_micros(1) * step));
        let opens = steps.take(1_000_000).find(|at| timer.take(*at, INTERVAL));
        opens.expect("within a second").since(from)
    }

    #[test]
    fn the_first_cnp_does_not_wait() {
        for at in [Time::ZERO, Time::from_picos(1), Time::from_nanos(1 << 52)] {
            assert!(CnpTimer::default().take(at, INTERVAL), "{at:?}");
        }
    }

    #[test]
    fn the_interval_is_exact() {
        let first = Time::from_picos(1_234_567);
        let timer = CnpTimer::default();
        assert!(timer.take(first, INTERVAL));
        let next = first.after(INTERVAL);
        assert!(!timer.take(next.before(Span::from_picos(1)), INTERVAL));
        assert!(timer.take(next, INTERVAL));
        assert!(!timer.take(next, INTERVAL));
    }

    #[test]
    fn without_an_interval_an_earlier_time_sends_as_well() {
        let timer = CnpTimer::default();
        let times = [2_000, 1_000, 1_000].map(Time::from_nanos);
        assert!(times.iter().all(|at| timer.take(*at, Span::ZERO)));
    }

    #[test]
    fn a_shorter_interval_holds_at_once() {
        let timer = CnpTimer::default();
        let now = Time::from_nanos(1_000_000);
        assert!(timer.take(now, Span::from_millis(4)));
        assert!(timer.take(now.after(INTERVAL), INTERVAL));
    }

    #[test]
    fn a_process_with_an_earlier_time_sends_no_second_cnp() {
        let timer = CnpTimer::default();
        let (early, late) = (Time::from_nanos(900_000), Time::from_nanos(1_000_000));
        assert!(timer.take(late, INTERVAL));
        assert!(!timer.take(early, INTERVAL));
        assert!(!timer.take(late.after(INTERVAL).before(Span::from_picos(1)), INTERVAL));
        assert!(timer.take(late.after(INTERVAL), INTERVAL));
    }

    #[test]
    fn garbage_silences_a_port_for_a_tenth_of_a_second_at_most() {
        let now = Time::from_nanos(3_600_000_000_000);
        let most = CnpTimer::LEAD_MAX + INTERVAL;
        let around = |span: Span| [now.before(span), now.after(span)];
        let mut words = [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1].to_vec();
        words.extend((0..64).map(|bit| sent_at(now) ^ 1 << bit));
        for span in [Span::from_nanos(1), CnpTimer::LEAD_MAX, Span::from_secs(9)] {
            words.extend(around(span).map(sent_at));
        }
        for word in words {
            let silence = silence(&left_behind(word), now);
            assert!(silence <= most, "{word:#x}: {silence}");
        }
        let too_far = now.after(CnpTimer::LEAD_MAX).after(Span::from_picos(1));
        assert_eq!(silence(&left_behind(sent_at(too_far)), now), Span::ZERO);
    }

    #[test]
    fn clocks_may_differ_by_cycles() {
        let timer = CnpTimer::default();
        let now = Time::from_nanos(5_000_000);
        let elsewhere = |at: Time| at.after(CnpTimer::CYCLE * 125);
        assert!(timer.take(now, INTERVAL));
        assert!(!timer.take(elsewhere(now), INTERVAL));
        assert!(timer.take(elsewhere(now.after(INTERVAL)), INTERVAL));
        assert!(!timer.take(now.after(INTERVAL), INTERVAL));
        assert!(timer.take(now.after(INTERVAL).after(INTERVAL), INTERVAL));
    }

    #[test]
    fn threads_share_an_interval() {
        let timer = CnpTimer::default();
        let (threads, rounds) = (4, 2_000);
        let sent = std::thread::scope(|scope| {
            let run = || {
                let times = (0..rounds).map(|round| Time::from_nanos(round * 1_000));
                times.filter(|at| timer.take(*at, INTERVAL)).count()
            };
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            let sent = threads.into_iter().map(|it| it.join().unwrap());
            sent.sum::<usize>()
        });
        let most = usize::try_from(rounds / 4).unwrap();
        assert!((1..=most).contains(&sent), "{sent} of {most}");
    }
}
