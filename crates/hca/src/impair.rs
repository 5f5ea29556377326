//! A bad link, on purpose.
//!
//! An [`Impairment`] describes it; one applies to what the device sends, another to what it
//! receives. All randomness comes from the device's seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ferroce_transport::{Counter, Time};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use thiserror::Error;

/// Which packets an impairment applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Those the device sends.
    Egress,
    /// Those the device receives.
    Ingress,
}

/// A time during which nothing passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blackout {
    /// First moment.
    pub from: Time,
    /// Length in nanoseconds.
    pub length_ns: u64,
}

/// Losses that come in bursts: a two-state chain that enters the lossy state with probability
/// `enter` for each packet and leaves it with probability `1 / mean_length`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BurstLoss {
    /// Probability, for each packet, that a burst begins.
    pub enter: f64,
    /// Mean number of packets lost in a burst, at least 1.
    pub mean_length: f64,
}

/// What the link does to packets in one direction. Probabilities are for each packet, 0 to 1.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Impairment {
    /// Probability of a loss.
    pub loss: f64,
    /// Bursts of losses, on top.
    pub burst: Option<BurstLoss>,
    /// Probability of a second copy.
    pub duplicate: f64,
    /// Probability that a bit is flipped.
    pub corrupt: f64,
    /// Probability of a congestion mark (CE), for packets of any ECN codepoint.
    pub ecn_mark: f64,
    /// Constant delay in nanoseconds.
    pub delay_ns: u64,
    /// Random extra delay up to this many nanoseconds. Packets keep their order.
    pub jitter_ns: u64,
    /// Probability that a packet is held back by `reorder_ns` more and later ones overtake it.
    pub reorder: f64,
    /// How long, in nanoseconds.
    pub reorder_ns: u64,
    /// Times during which nothing passes.
    pub blackouts: Vec<Blackout>,
}

/// A value that makes no sense.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[error("impairment {field} is {value}, allowed is {allowed}")]
pub struct ImpairmentError {
    /// Name of the field.
    pub field: &'static str,
    /// Value given.
    pub value: f64,
    /// What is allowed.
    pub allowed: &'static str,
}

impl Impairment {
    /// Whether all values make sense.
    pub fn check(&self) -> Result<(), ImpairmentError> {
        let burst = self.burst.unwrap_or(BurstLoss {
            enter: 0.0,
            mean_length: 1.0,
        });
        let probabilities = [
            ("loss", self.loss),
            ("burst.enter", burst.enter),
            ("duplicate", self.duplicate),
            ("corrupt", self.corrupt),
            ("ecn_mark", self.ecn_mark),
            ("reorder", self.reorder),
        ];
        for (field, value) in probabilities {
            if !(0.0..=1.0).contains(&value) {
                return Err(ImpairmentError {
                    field,
                    value,
                    allowed: "a probability, 0 to 1",
                });
            }
        }
        if !(burst.mean_length >= 1.0 && burst.mean_length.is_finite()) {
            let value = burst.mean_length;
            let allowed = "a number of packets, 1 or more";
            return Err(ImpairmentError {
                field: "burst.mean_length",
                value,
                allowed,
            });
        }
        Ok(())
    }
}

/// What the link does with a packet.
pub(crate) enum Fate<T> {
    /// It passes now.
    Pass(T),
    /// It is lost.
    Drop,
    /// It is held back and comes out of [`Impairer::poll`] later.
    Held,
}

/// What was done to a packet that was not dropped.
pub(crate) enum Damage {
    /// This bit is flipped.
    Corrupt(u32),
    /// It carries the congestion mark.
    EcnMark,
}

/// A packet the link can damage and keep.
pub(crate) trait Impairable: Clone {
    fn damage(&mut self, damage: Damage);
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
    pub(crate) fn set(&mut self, impairment: Impairment) -> Result<(), ImpairmentError> {
        impairment.check()?;
        self.transparent = impairment == Impairment::default();
        self.impairment = impairment;
        Ok(())
    }

    pub(crate) fn impairment(&self) -> &Impairment {
        &self.impairment
    }

    pub(crate) fn is_transparent(&self) -> bool {
        self.transparent
    }

    /// When [`Self::poll`] has something.
    pub(crate) fn next(&self) -> Option<Time> {
        self.held.peek().map(|Reverse(waiting)| waiting.at)
    }

    /// A packet whose time has come.
    pub(crate) fn poll(&mut self, now: Time) -> Option<T> {
        self.next().filter(|at| *at <= now)?;
        self.held.pop().map(|Reverse(waiting)| waiting.packet)
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
        let lost = self.in_burst || self.chance(self.impairment.loss);
        if lost {
            count(Counter::ImpairLost);
        }
        lost
    }
}

impl<T: Impairable> Impairer<T> {
    /// Puts a packet on the link.
    pub(crate) fn admit(
        &mut self,
        now: Time,
        mut packet: T,
        mut count: impl FnMut(Counter),
    ) -> Fate<T> {
        if self.transparent && self.held.is_empty() {
            return Fate::Pass(packet);
        }
        if self.is_lost(now, &mut count) {
            return Fate::Drop;
        }
        if self.chance(self.impairment.ecn_mark) {
            count(Counter::ImpairEcnMarked);
            packet.damage(Damage::EcnMark);
        }
        if self.chance(self.impairment.corrupt) {
            count(Counter::ImpairCorrupted);
            packet.damage(Damage::Corrupt(self.rng.random()));
        }
        if self.chance(self.impairment.duplicate) {
            count(Counter::ImpairDuplicated);
            let at = self.release_time(now, &mut count);
            self.hold(at, packet.clone());
        }
        let at = self.release_time(now, &mut count);
        if at <= now && self.held.is_empty() {
            return Fate::Pass(packet);
        }
        self.hold(at, packet);
        Fate::Held
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

    fn hold(&mut self, at: Time, packet: T) {
        let order = self.next_order;
        self.next_order += 1;
        self.held.push(Reverse(Waiting { at, order, packet }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Impairable for u32 {
        fn damage(&mut self, damage: Damage) {
            *self |= match damage {
                Damage::Corrupt(_) => 1 << 30,
                Damage::EcnMark => 1 << 31,
            };
        }
    }

    /// What comes out of 10 000 packets, one a microsecond, with the time it comes out.
    fn run(impairment: Impairment) -> Vec<(u64, u32)> {
        let mut link = Impairer::new(7);
        link.set(impairment).unwrap();
        let mut out = Vec::new();
        for n in 0..10_000u32 {
            let now = Time::from_nanos(u64::from(n) * 1000);
            while let Some(packet) = link.poll(now) {
                out.push((now.as_nanos(), packet));
            }
            if let Fate::Pass(packet) = link.admit(now, n, |_| ()) {
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
    fn nonsense_is_refused_by_name() {
        let error = Impairment {
            loss: 1.5,
            ..Impairment::default()
        }
        .check()
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "impairment loss is 1.5, allowed is a probability, 0 to 1"
        );
        assert!(
            Impairment {
                loss: f64::NAN,
                ..Impairment::default()
            }
            .check()
            .is_err()
        );
    }
}
