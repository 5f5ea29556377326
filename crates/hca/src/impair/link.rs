use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ferroce_transport::{Counter, Time};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Blackout, Impairment};

/// What the link does to a packet that is not lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Treatment {
    /// It gets the congestion mark.
    pub(crate) ecn_mark: bool,
    /// This bit of it is flipped.
    pub(crate) corrupt_bit: Option<u32>,
    pub(crate) release: Release,
}

/// When a packet comes out of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Release {
    /// At once.
    Now,
    /// Through [`Impairer::hold`] and [`Impairer::poll`].
    Later { at: Time, copy_at: Option<Time> },
}

/// An impaired link in one direction.
#[derive(Debug)]
pub(crate) struct Impairer<T> {
    impairment: Impairment,
    /// Nothing is impaired: the usual case, decided with one look.
    transparent: bool,
    rng: Xoshiro256PlusPlus,
    in_burst: bool,
    held: BinaryHeap<Reverse<Waiting<T>>>,
    next_order: u64,
    /// When the last packet that keeps its order is released.
    released: Time,
}

#[derive(Debug)]
struct Waiting<T> {
    at: Time,
    order: u64,
    packet: T,
}

impl<T> PartialEq for Waiting<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl<T> Eq for Waiting<T> {}
impl<T> PartialOrd for Waiting<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Waiting<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl<T> Impairer<T> {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            impairment: Impairment::default(),
            transparent: true,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            in_burst: false,
            held: BinaryHeap::new(),
            next_order: 0,
            released: Time::ZERO,
        }
    }

    /// Changes what the link does. Packets held back stay until their time.
    pub(crate) fn set(&mut self, impairment: Impairment) {
        self.transparent = impairment == Impairment::default();
        // Without bursts there would be no way out of one.
        self.in_burst &= impairment.burst.is_some();
        self.impairment = impairment;
    }

    pub(crate) fn impairment(&self) -> &Impairment {
        &self.impairment
    }

    /// Whether packets just pass: nothing is impaired, and none is held that they might overtake.
    #[inline]
    pub(crate) fn is_clear(&self) -> bool {
        self.transparent && self.held.is_empty()
    }

    /// When [`Self::poll`] has something.
    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        self.held.peek().map(|Reverse(waiting)| waiting.at)
    }

    /// A packet whose time has come.
    #[inline]
    pub(crate) fn poll(&mut self, now: Time) -> Option<T> {
        self.next().filter(|at| *at <= now)?;
        self.held.pop().map(|Reverse(waiting)| waiting.packet)
    }

    /// What becomes of the next packet; `None` if it is lost.
    pub(crate) fn admit(&mut self, now: Time, mut count: impl FnMut(Counter)) -> Option<Treatment> {
        if self.is_lost(now, &mut count) {
            return None;
        }
        let ecn_mark = self.chance(self.impairment.ecn_mark);
        if ecn_mark {
            count(Counter::ImpairEcnMarked);
        }
        let corrupt = self.chance(self.impairment.corrupt);
        let corrupt_bit = corrupt.then(|| {
            count(Counter::ImpairCorrupted);
            self.rng.random()
        });
        let duplicate = self.chance(self.impairment.duplicate);
        let copy_at = duplicate.then(|| {
            count(Counter::ImpairDuplicated);
            self.release_time(now, &mut count)
        });
        let at = self.release_time(now, &mut count);
        let passes = at <= now && copy_at.is_none() && self.held.is_empty();
        let release = if passes {
            Release::Now
        } else {
            Release::Later { at, copy_at }
        };
        Some(Treatment {
            ecn_mark,
            corrupt_bit,
            release,
        })
    }

    /// Keeps a packet until it is released at `at`.
    pub(crate) fn hold(&mut self, at: Time, packet: T) {
        let order = self.next_order;
        self.next_order += 1;
        self.held.push(Reverse(Waiting { at, order, packet }));
    }

    fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.rng.random_bool(probability)
    }

    fn is_lost(&mut self, now: Time, count: &mut impl FnMut(Counter)) -> bool {
        let dark = |b: &Blackout| now >= b.from && now.since(b.from) < b.length_ns;
        if self.impairment.blackouts.iter().any(dark) {
            count(Counter::ImpairBlackout);
            return true;
        }
        if let Some(burst) = self.impairment.burst {
            let turns = if self.in_burst {
                1.0 / burst.mean_length
            } else {
                burst.enter
            };
            if self.chance(turns) {
                self.in_burst = !self.in_burst;
            }
        }
        let full = self.held.len() >= Impairment::HELD_MAX;
        let lost = self.in_burst || self.chance(self.impairment.loss) || full;
        if lost {
            count(Counter::ImpairLost);
        }
        lost
    }

    fn release_time(&mut self, now: Time, count: &mut impl FnMut(Counter)) -> Time {
        let Impairment {
            delay_ns,
            jitter_ns,
            reorder,
            reorder_ns,
            ..
        } = self.impairment;
        let jitter = if jitter_ns > 0 {
            self.rng.random_range(0..=jitter_ns)
        } else {
            0
        };
        let in_order = now.after(delay_ns).after(jitter).max(self.released);
        if self.chance(reorder) {
            count(Counter::ImpairReordered);
            return in_order.after(reorder_ns);
        }
        self.released = in_order;
        in_order
    }
}

#[cfg(test)]
mod tests {
    use super::super::BurstLoss;
    use super::*;

    impl Impairer<u32> {
        /// Puts a packet on the link; returns it if it passes at once.
        fn put(&mut self, now: Time, mut packet: u32) -> Option<u32> {
            let treatment = self.admit(now, |_| ())?;
            packet |= u32::from(treatment.ecn_mark) << 31;
            packet |= u32::from(treatment.corrupt_bit.is_some()) << 30;
            match treatment.release {
                Release::Now => return Some(packet),
                Release::Later { at, copy_at } => {
                    for at in copy_at.into_iter().chain([at]) {
                        self.hold(at, packet);
                    }
                }
            }
            None
        }
    }

    /// What comes out of 10 000 packets, one a microsecond, with the time it comes out.
    fn run(impairment: Impairment) -> Vec<(u64, u32)> {
        let mut link = Impairer::new(7);
        link.set(impairment);
        let mut out = Vec::new();
        for n in 0..10_000u32 {
            let now = Time::from_nanos(u64::from(n) * 1000);
            while let Some(packet) = link.poll(now) {
                out.push((now.as_nanos(), packet));
            }
            if let Some(packet) = link.put(now, n) {
                out.push((now.as_nanos(), packet));
            }
        }
        while let Some(at) = link.next() {
            out.push((at.as_nanos(), link.poll(at).unwrap()));
        }
        out
    }

    #[test]
    fn loss_and_bursts_lose_what_they_say() {
        let random = run(Impairment {
            loss: 0.1,
            ..Impairment::default()
        });
        assert!((8_800..9_200).contains(&random.len()), "{}", random.len());
        let burst = BurstLoss {
            enter: 0.001,
            mean_length: 20.0,
        };
        let bursts = run(Impairment {
            burst: Some(burst),
            ..Impairment::default()
        });
        let gaps = bursts.windows(2).filter(|w| w[1].1 - w[0].1 > 1).count();
        let lost = 10_000 - bursts.len();
        assert!(gaps > 0 && lost > 5 * gaps, "{lost} lost in {gaps} gaps");
    }

    #[test]
    fn jitter_keeps_the_order_and_reordering_does_not() {
        let steady = run(Impairment {
            delay_ns: 5_000,
            jitter_ns: 50_000,
            ..Impairment::default()
        });
        assert!(steady.is_sorted_by_key(|(_, n)| *n));
        assert!(
            steady
                .iter()
                .all(|(at, n)| at - u64::from(*n) * 1000 >= 5_000)
        );
        let mixed = run(Impairment {
            reorder: 0.01,
            reorder_ns: 20_000,
            ..Impairment::default()
        });
        assert_eq!(mixed.len(), 10_000);
        assert!(!mixed.is_sorted_by_key(|(_, n)| *n));
    }

    #[test]
    fn a_blackout_lets_nothing_through() {
        let from = Time::from_nanos(2_000_000);
        let blackouts = vec![Blackout {
            from,
            length_ns: 3_000_000,
        }];
        let out = run(Impairment {
            blackouts,
            ..Impairment::default()
        });
        assert_eq!(out.len(), 7_000);
        assert!(out.iter().all(|(_, n)| !(2_000..5_000).contains(n)));
    }

    #[test]
    fn duplicates_marks_and_corruption_reach_the_packet() {
        let twice = run(Impairment {
            duplicate: 1.0,
            ..Impairment::default()
        });
        assert_eq!(twice.len(), 20_000);
        let damaged = run(Impairment {
            corrupt: 1.0,
            ecn_mark: 1.0,
            ..Impairment::default()
        });
        assert!(damaged.iter().all(|(_, n)| n >> 30 == 3));
    }

    #[test]
    fn the_same_seed_gives_the_same_link() {
        let bad = || Impairment {
            loss: 0.1,
            reorder: 0.1,
            reorder_ns: 9_000,
            ..Impairment::default()
        };
        assert_eq!(run(bad()), run(bad()));
    }

    #[test]
    fn a_link_that_has_no_bursts_any_more_leaves_the_one_it_is_in() {
        let mut link = Impairer::new(7);
        let endless = Impairment {
            burst: Some(BurstLoss {
                enter: 1.0,
                mean_length: 1e9,
            }),
            ..Impairment::default()
        };
        link.set(endless);
        assert_eq!(link.put(Time::ZERO, 1), None);
        let marks = Impairment {
            ecn_mark: 1.0,
            ..Impairment::default()
        };
        link.set(marks);
        assert_eq!(link.put(Time::ZERO, 2), Some(1 << 31 | 2));
    }

    #[test]
    fn packets_do_not_overtake_those_held_when_the_link_gets_better() {
        let mut link = Impairer::new(7);
        let slow = Impairment {
            delay_ns: 500,
            ..Impairment::default()
        };
        link.set(slow);
        assert_eq!(link.put(Time::ZERO, 1), None);
        link.set(Impairment::default());
        assert_eq!(link.put(Time::from_nanos(100), 2), None);
        assert!(!link.is_clear());
        let end = Time::from_nanos(500);
        assert_eq!(link.next(), Some(end));
        assert_eq!([link.poll(end), link.poll(end)], [Some(1), Some(2)]);
        assert!(link.is_clear());
    }

    #[test]
    fn a_link_holds_so_many_packets_and_no_more() {
        let mut link = Impairer::new(7);
        let slow = Impairment {
            delay_ns: u64::MAX,
            duplicate: 1.0,
            ..Impairment::default()
        };
        link.set(slow);
        let mut lost = 0;
        for n in 0..Impairment::HELD_MAX as u32 {
            lost += usize::from(link.admit(Time::ZERO, |_| ()).is_none());
            link.hold(Time::from_nanos(u64::MAX), n);
        }
        assert_eq!(lost, 0);
        assert!(link.admit(Time::ZERO, |_| ()).is_none());
    }
}
