//! A link's bottleneck: one queue that drains at a set rate.

use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_dcqcn::{CongestionPoint, Rate};
use ferroce_transport::{Span, Time};

/// A place where a link is slow, with a queue in front of it as a switch has one.
///
/// Bytes are those of packets from the BTH to the ICRC, as congestion control counts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bottleneck {
    /// The rate at which the queue drains, [`Self::RATE_MIN`] or more.
    pub rate: Rate,
    /// Bytes that the queue holds; a packet that does not fit is lost.
    pub limit_bytes: u32,
    /// Which packets are marked CE when they leave the queue. Only ECN-capable ones are.
    pub red: Option<CongestionPoint>,
}

impl Bottleneck {
    /// The lowest rate.
    pub const RATE_MIN: Rate = Rate::from_bps(1_000);
    /// What the queue holds unless something else is said: more than the windows of one device.
    pub const LIMIT_BYTES: u32 = 4_000_000;

    /// A bottleneck with the usual queue that marks nothing.
    pub const fn new(rate: Rate) -> Self {
        Self {
            rate,
            limit_bytes: Self::LIMIT_BYTES,
            red: None,
        }
    }
}

/// When a bottleneck sends a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Service {
    /// The packet leaves the queue.
    pub(crate) begins: Time,
    /// Its last bit has left.
    pub(crate) ends: Time,
}

/// When a bottleneck will have sent all that is in its queue: a [`Time`].
///
/// That is all there is to know about a queue that is served in order at one rate: its length
/// follows. So this number in shared memory makes one bottleneck of the links of all processes.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Backlog(AtomicU64);

/// Packets of other processes that may come in between the look at the limit and the reservation.
const RACE_BYTES: u64 = 1 << 20;

impl Backlog {
    /// The bottleneck's queue is empty now.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Bytes in the queue of `bottleneck`, what is being sent included.
    pub(crate) fn bytes(&self, bottleneck: &Bottleneck, at: Time) -> u64 {
        let free = Time::from_picos(self.0.load(Ordering::Relaxed));
        bytes(bottleneck, plausible(bottleneck, free, at).since(at))
    }

    /// A place at the end of the queue; `None` if it is full.
    pub(crate) fn join(&self, bottleneck: &Bottleneck, now: Time, packet: u32) -> Option<Service> {
        let length = self.bytes(bottleneck, now) + u64::from(packet);
        if length > u64::from(bottleneck.limit_bytes) {
            return None;
        }
        let takes = duration(bottleneck, packet.into());
        let mut free = self.0.load(Ordering::Relaxed);
        loop {
            let begins = plausible(bottleneck, Time::from_picos(free), now);
            let ends = begins.after(takes);
            let order = Ordering::Relaxed;
            match self
                .0
                .compare_exchange_weak(free, ends.as_picos(), order, order)
            {
                Ok(_) => return Some(Service { begins, ends }),
                Err(other) => free = other,
            }
        }
    }
}

/// The time `free`, but not before `now`; and `now` if `free` lies further ahead than the queue can
/// be long, as when the machine has been started anew and its clock with it.
fn plausible(bottleneck: &Bottleneck, free: Time, now: Time) -> Time {
    let longest = duration(bottleneck, u64::from(bottleneck.limit_bytes) + RACE_BYTES);
    if free.since(now) > longest {
        now
    } else {
        free.max(now)
    }
}

/// How long `bytes` take.
fn duration(bottleneck: &Bottleneck, bytes: u64) -> Span {
    let ps = u128::from(bytes) * 8 * PS_PER_SECOND / u128::from(bottleneck.rate.bps().max(1));
    Span::from_picos(u64::try_from(ps).unwrap_or(u64::MAX))
}

/// How many bytes are sent in that time; the inverse.
fn bytes(bottleneck: &Bottleneck, duration: Span) -> u64 {
    let bits = u128::from(duration.as_picos()) * u128::from(bottleneck.rate.bps());
    u64::try_from(bits / (8 * PS_PER_SECOND)).unwrap_or(u64::MAX)
}

const PS_PER_SECOND: u128 = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Time {
        Time::from_nanos(ns)
    }

    const GIGABIT: Bottleneck = Bottleneck::new(Rate::from_mbps(1_000));

    #[test]
    fn when_the_clock_ends_everything_passes() {
        let backlog = Backlog::default();
        for now in [Time::NEVER.before(Span::from_nanos(1)), Time::NEVER] {
            for _ in 0..10_000 {
                let service = backlog.join(&GIGABIT, now, 1_000).unwrap();
                assert!(
                    service.begins <= now.after(Span::from_nanos(1)),
                    "{service:?} at {now:?}"
                );
            }
        }
    }

    #[test]
    fn packets_leave_one_after_the_other() {
        let backlog = Backlog::default();
        let times: Vec<_> = (0..3)
            .map(|_| backlog.join(&GIGABIT, at(1_000), 125).unwrap())
            .map(|service| (service.begins.as_nanos(), service.ends.as_nanos()))
            .collect();
        assert_eq!(times, [(1_000, 2_000), (2_000, 3_000), (3_000, 4_000)]);
        assert_eq!(backlog.bytes(&GIGABIT, at(1_000)), 375);
        assert_eq!(backlog.bytes(&GIGABIT, at(2_400)), 200);
        assert_eq!(backlog.bytes(&GIGABIT, at(9_000)), 0);
        let later = backlog.join(&GIGABIT, at(9_000), 125).unwrap();
        assert_eq!(later.begins, at(9_000));
    }

    #[test]
    fn the_rate_is_exact_in_the_long_run() {
        for mbps in [1, 7, 1_000, 10_000, 100_000, 400_000] {
            let bottleneck = Bottleneck {
                limit_bytes: u32::MAX,
                ..Bottleneck::new(Rate::from_mbps(mbps))
            };
            let backlog = Backlog::default();
            let mut last = 0;
            for _ in 0..10_000 {
                last = backlog
                    .join(&bottleneck, at(0), 1_052)
                    .unwrap()
                    .ends
                    .as_nanos();
            }
            let exact = 10_000.0 * 1_052.0 * 8e3 / f64::from(mbps);
            let off = (last as f64 - exact).abs() / exact;
            assert!(off < 0.002, "{mbps} Mb/s: {last} ns for {exact}");
        }
    }

    #[test]
    fn a_packet_that_does_not_fit_leaves_no_trace() {
        let bottleneck = Bottleneck {
            limit_bytes: 1_000,
            ..GIGABIT
        };
        let backlog = Backlog::default();
        assert!(backlog.join(&bottleneck, at(0), 1_000).is_some());
        assert_eq!(backlog.join(&bottleneck, at(0), 1), None);
        assert_eq!(backlog.bytes(&bottleneck, at(0)), 1_000);
        assert!(backlog.join(&bottleneck, at(8), 1).is_some());
    }

    #[test]
    fn a_time_that_no_queue_reaches_is_not_believed() {
        let backlog = Backlog(AtomicU64::new(u64::MAX));
        assert_eq!(backlog.bytes(&GIGABIT, at(5)), 0);
        assert_eq!(backlog.join(&GIGABIT, at(5), 125).unwrap().begins, at(5));
        let never = at(u64::MAX);
        assert!(backlog.join(&GIGABIT, never, u32::MAX).is_none());
        assert!(backlog.join(&GIGABIT, never, 1).is_some());
    }

    #[test]
    fn processes_share_a_queue() {
        let backlog = Backlog::default();
        let (threads, packets) = (4, 10_000);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..packets {
                        assert!(backlog.join(&GIGABIT, at(0), 10).is_some());
                    }
                });
            }
        });
        assert_eq!(backlog.bytes(&GIGABIT, at(0)), threads * packets * 10);
    }
}
