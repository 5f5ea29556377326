use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ferroce_transport::{Counter, Time};
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::queue::Service;
use super::{Blackout, Direction, Impairment};
use crate::state::DeviceState;

/// What travels over an impaired link.
pub(crate) trait Passenger: Clone {
    /// Whether a queue marks it.
    fn is_ecn_capable(&self) -> bool;
    /// Suffers what the link does to it.
    fn suffer(&mut self, damage: &Damage);
}

/// What the link does to a packet that arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Damage {
    /// It gets the congestion mark.
    pub(crate) ecn_mark: bool,
    /// This bit of it is flipped.
    pub(crate) corrupt_bit: Option<u32>,
}

/// When a packet comes out of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Release {
    /// At once, with this damage.
    Now(Damage),
    /// Through [`Impairer::hold`] and [`Impairer::poll`].
    Later(Later),
}

/// Where a packet waits meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Later {
    /// In the bottleneck's queue; what follows is decided when it leaves that.
    Queued { service: Service, bytes: u32 },
    /// Behind it, or there is none.
    Underway(Underway),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Underway {
    damage: Damage,
    at: Time,
    copy_at: Option<Time>,
}

/// An impaired link in one direction.
#[derive(Debug)]
pub(crate) struct Impairer<T> {
    direction: Direction,
    impairment: Impairment,
    /// Nothing is impaired: the usual case, decided with one look.
    transparent: bool,
    rng: Xoshiro256PlusPlus,
    in_burst: bool,
    /// The bottleneck's queue, as far as it is ours.
    queue: VecDeque<Queued<T>>,
    held: BinaryHeap<Reverse<Waiting<T>>>,
    next_order: u64,
    /// When the last packet that keeps its order is released.
    released: Time,
}

#[derive(Debug)]
struct Queued<T> {
    service: Service,
    bytes: u32,
    packet: T,
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

impl<T: Passenger> Impairer<T> {
    pub(crate) fn new(direction: Direction, seed: u64) -> Self {
        Self {
            direction,
            impairment: Impairment::default(),
            transparent: true,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            in_burst: false,
            queue: VecDeque::new(),
            held: BinaryHeap::new(),
            next_order: 0,
            released: Time::ZERO,
        }
    }

    /// Changes what the link does. Packets held back stay until their time, but what waits in the
    /// queue of another bottleneck than before queues up anew.
    pub(crate) fn set(&mut self, impairment: Impairment, now: Time, state: &DeviceState) {
        self.serve(now, state);
        self.transparent = impairment == Impairment::default();
        // Without bursts there would be no way out of one.
        self.in_burst &= impairment.burst.is_some();
        let differs = self.impairment.bottleneck != impairment.bottleneck;
        self.impairment = impairment;
        if differs {
            for Queued { bytes, packet, .. } in std::mem::take(&mut self.queue) {
                if let Some(later) = self.admit_or_pass(now, bytes, state) {
                    self.hold(later, packet);
                }
            }
        }
    }

    pub(crate) fn impairment(&self) -> &Impairment {
        &self.impairment
    }

    /// Whether packets just pass: nothing is impaired, and none is held that they might overtake.
    #[inline]
    pub(crate) fn is_clear(&self) -> bool {
        self.transparent && self.held.is_empty() && self.queue.is_empty()
    }

    /// When [`Self::poll`] has something.
    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        let held = self.held.peek().map(|Reverse(waiting)| waiting.at);
        let queued = self.queue.front();
        let queued = queued.map(|it| it.service.ends.after(self.impairment.delay_ns));
        [held, queued].into_iter().flatten().min()
    }

    /// A packet whose time has come.
    #[inline]
    pub(crate) fn poll(&mut self, now: Time, state: &DeviceState) -> Option<T> {
        self.serve(now, state);
        let Reverse(waiting) = self.held.peek()?;
        if waiting.at > now {
            return None;
        }
        self.held.pop().map(|Reverse(waiting)| waiting.packet)
    }

    /// What becomes of the next packet, of `bytes`; `None` if it is lost.
    pub(crate) fn admit(&mut self, now: Time, bytes: u32, state: &DeviceState) -> Option<Release> {
        if self.is_lost(now, state) {
            return None;
        }
        self.serve(now, state);
        let later = self.admit_or_pass(now, bytes, state)?;
        match later {
            Later::Underway(Underway {
                damage,
                at,
                copy_at: None,
            }) if at <= now && self.held.is_empty() => Some(Release::Now(damage)),
            later => Some(Release::Later(later)),
        }
    }

    /// Keeps a packet until its time.
    pub(crate) fn hold(&mut self, later: Later, mut packet: T) {
        match later {
            Later::Queued { service, bytes } => self.queue.push_back(Queued {
                service,
                bytes,
                packet,
            }),
            Later::Underway(Underway {
                damage,
                at,
                copy_at,
            }) => {
                packet.suffer(&damage);
                if let Some(copy_at) = copy_at {
                    self.push(copy_at, packet.clone());
                }
                self.push(at, packet);
            }
        }
    }

    fn push(&mut self, at: Time, packet: T) {
        let order = self.next_order;
        self.next_order += 1;
        self.held.push(Reverse(Waiting { at, order, packet }));
    }

    /// Lets packets out of the queue whose turn has come.
    #[inline]
    fn serve(&mut self, now: Time, state: &DeviceState) {
        while self
            .queue
            .front()
            .is_some_and(|it| it.service.begins <= now)
        {
            self.serve_next(state);
        }
    }

    fn serve_next(&mut self, state: &DeviceState) {
        let (Some(queued), Some(bottleneck)) = (self.queue.pop_front(), self.impairment.bottleneck)
        else {
            return; // without a bottleneck nothing waits for one
        };
        let ends = queued.service.ends;
        let behind = state.backlog(self.direction).bytes(&bottleneck, ends);
        let marks = |red: ferroce_dcqcn::CongestionPoint| red.mark(behind, self.rng.next_u32());
        let is_marked = queued.packet.is_ecn_capable() && bottleneck.red.is_some_and(marks);
        let underway = self.send(ends, is_marked, state);
        self.hold(Later::Underway(underway), queued.packet);
    }

    /// The way through the bottleneck's queue, or past it if there is none.
    fn admit_or_pass(&mut self, now: Time, bytes: u32, state: &DeviceState) -> Option<Later> {
        let Some(bottleneck) = &self.impairment.bottleneck else {
            return Some(Later::Underway(self.send(now, false, state)));
        };
        let service = state.backlog(self.direction).join(bottleneck, now, bytes);
        if service.is_none() {
            state.count(Counter::ImpairQueueFull, 1);
        }
        service.map(|service| Later::Queued { service, bytes })
    }

    /// What happens behind the queue to a packet that has left it at `from`.
    fn send(&mut self, from: Time, is_marked: bool, state: &DeviceState) -> Underway {
        let ecn_mark = self.chance(self.impairment.ecn_mark) || is_marked;
        if ecn_mark {
            state.count(Counter::ImpairEcnMarked, 1);
        }
        let corrupt = self.chance(self.impairment.corrupt);
        let corrupt_bit = corrupt.then(|| {
            state.count(Counter::ImpairCorrupted, 1);
            self.rng.random()
        });
        let duplicate = self.chance(self.impairment.duplicate);
        let copy_at = duplicate.then(|| {
            state.count(Counter::ImpairDuplicated, 1);
            self.release_time(from, state)
        });
        let damage = Damage {
            ecn_mark,
            corrupt_bit,
        };
        Underway {
            damage,
            at: self.release_time(from, state),
            copy_at,
        }
    }

    fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.rng.random_bool(probability)
    }

    fn is_lost(&mut self, now: Time, state: &DeviceState) -> bool {
        let dark = |b: &Blackout| now >= b.from && now.since(b.from) < b.length_ns;
        if self.impairment.blackouts.iter().any(dark) {
            state.count(Counter::ImpairBlackout, 1);
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
        let full = self.held.len() + self.queue.len() >= Impairment::HELD_MAX;
        let lost = self.in_burst || self.chance(self.impairment.loss) || full;
        if lost {
            state.count(Counter::ImpairLost, 1);
        }
        lost
    }

    fn release_time(&mut self, from: Time, state: &DeviceState) -> Time {
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
        let in_order = from.after(delay_ns).after(jitter).max(self.released);
        if self.chance(reorder) {
            state.count(Counter::ImpairReordered, 1);
            return in_order.after(reorder_ns);
        }
        self.released = in_order;
        in_order
    }
}

#[cfg(test)]
mod tests {
    use ferroce_dcqcn::{CongestionPoint, Rate};

    use super::super::{Bottleneck, BurstLoss};
    use super::*;
    use crate::device::Personality;

    impl Passenger for u32 {
        fn is_ecn_capable(&self) -> bool {
            true
        }

        fn suffer(&mut self, damage: &Damage) {
            *self |= Self::from(damage.ecn_mark) << 31;
            *self |= Self::from(damage.corrupt_bit.is_some()) << 30;
        }
    }

    const BYTES: u32 = 1_000;

    /// A link and the state of its device.
    struct Link {
        link: Impairer<u32>,
        state: DeviceState,
    }

    impl Link {
        fn new(impairment: Impairment) -> Self {
            let mut link = Self {
                link: Impairer::new(Direction::Egress, 7),
                state: DeviceState::new(Personality::default()),
            };
            link.set(Time::ZERO, impairment);
            link
        }

        fn set(&mut self, now: Time, impairment: Impairment) {
            self.link.set(impairment, now, &self.state);
        }

        /// Puts a packet on the link; returns it if it passes at once.
        fn put(&mut self, now: Time, mut packet: u32) -> Option<u32> {
            match self.link.admit(now, BYTES, &self.state)? {
                Release::Now(damage) => {
                    packet.suffer(&damage);
                    return Some(packet);
                }
                Release::Later(later) => self.link.hold(later, packet),
            }
            None
        }

        fn poll(&mut self, now: Time) -> Option<u32> {
            self.link.poll(now, &self.state)
        }
    }

    /// What comes out of 10 000 packets, one a microsecond, with the time it comes out.
    fn run(impairment: Impairment) -> Vec<(u64, u32)> {
        let mut link = Link::new(impairment);
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
        while let Some(at) = link.link.next() {
            out.extend(link.poll(at).map(|packet| (at.as_nanos(), packet)));
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
        let endless = Impairment {
            burst: Some(BurstLoss {
                enter: 1.0,
                mean_length: 1e9,
            }),
            ..Impairment::default()
        };
        let mut link = Link::new(endless);
        assert_eq!(link.put(Time::ZERO, 1), None);
        let marks = Impairment {
            ecn_mark: 1.0,
            ..Impairment::default()
        };
        link.set(Time::ZERO, marks);
        assert_eq!(link.put(Time::ZERO, 2), Some(1 << 31 | 2));
    }

    #[test]
    fn packets_do_not_overtake_those_held_when_the_link_gets_better() {
        let slow = Impairment {
            delay_ns: 500,
            ..Impairment::default()
        };
        let mut link = Link::new(slow);
        assert_eq!(link.put(Time::ZERO, 1), None);
        link.set(Time::ZERO, Impairment::default());
        assert_eq!(link.put(Time::from_nanos(100), 2), None);
        assert!(!link.link.is_clear());
        let end = Time::from_nanos(500);
        assert_eq!(link.link.next(), Some(end));
        assert_eq!([link.poll(end), link.poll(end)], [Some(1), Some(2)]);
        assert!(link.link.is_clear());
    }

    #[test]
    fn a_link_holds_so_many_packets_and_no_more() {
        let slow = Impairment {
            delay_ns: u64::MAX,
            duplicate: 1.0,
            ..Impairment::default()
        };
        let mut link = Link::new(slow);
        let lost = |link: &Link| link.state.counter(Counter::ImpairLost);
        for n in 0..Impairment::HELD_MAX as u32 / 2 {
            link.put(Time::ZERO, n);
        }
        assert_eq!(lost(&link), 0);
        link.put(Time::ZERO, 0);
        assert_eq!(lost(&link), 1);
    }

    /// One that takes `us` for each packet.
    fn bottleneck(us: u32, red: Option<CongestionPoint>) -> Impairment {
        Impairment {
            bottleneck: Some(Bottleneck {
                red,
                ..Bottleneck::new(Rate::from_mbps(BYTES * 8 / us))
            }),
            ..Impairment::default()
        }
    }

    #[test]
    fn a_bottleneck_lets_out_packets_at_its_rate_in_order() {
        // Half of the packets that come fit through; 4000 fit into the queue.
        let out = run(bottleneck(2, None));
        assert!((8_990..=9_010).contains(&out.len()), "{}", out.len());
        assert!(out.is_sorted_by_key(|(_, n)| *n));
        let late = out.last().unwrap().0;
        assert_eq!(late, out.len() as u64 * 2_000);
    }

    #[test]
    fn a_bottleneck_that_is_faster_than_what_comes_delays_by_a_packet() {
        let out = run(bottleneck(1, CongestionPoint::new(0, 0, 0).ok()));
        assert!(out.iter().all(|(at, n)| at - u64::from(*n) * 1000 == 1_000));
        assert_eq!(out.len(), 10_000, "and none is marked");
    }

    #[test]
    fn packets_are_marked_by_what_they_leave_behind() {
        let red = CongestionPoint::new(2_000, 2_000, 0).ok();
        let mut link = Link::new(bottleneck(1, red));
        for n in 0..5 {
            assert_eq!(link.put(Time::ZERO, n), None);
        }
        // The first leaves at once, with nobody behind. The sixth joins when the third has left.
        let third = Time::from_nanos(2_500);
        let mut out: Vec<_> = std::iter::from_fn(|| link.poll(third)).collect();
        link.put(third, 5);
        while let Some(at) = link.link.next() {
            out.extend(link.poll(at));
        }
        let marked = 1 << 31;
        assert_eq!(out, [0, marked | 1, 2, 3, 4, 5]);
        let marks = link.state.counter(Counter::ImpairEcnMarked);
        assert_eq!(marks, 1);
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let mut link = Link::new("rate=8Mbit,limit=3KB".parse().unwrap());
        for n in 0..5 {
            link.put(Time::ZERO, n);
        }
        assert_eq!(link.state.counter(Counter::ImpairQueueFull), 2);
        let backlog = link.state.backlog(Direction::Egress);
        let queue = link.link.impairment().bottleneck.unwrap();
        assert_eq!(backlog.bytes(&queue, Time::from_nanos(500_000)), 2_500);
    }

    #[test]
    fn what_waits_queues_up_anew_when_the_rate_changes() {
        let slow = bottleneck(8_000, None);
        let mut link = Link::new(slow);
        for n in 0..3 {
            assert_eq!(link.put(Time::ZERO, n), None);
        }
        link.state.backlog(Direction::Egress).clear();
        link.set(Time::from_nanos(1_000), bottleneck(1, None));
        // The first one is on its way already, and the others do not overtake it.
        let first = Time::from_nanos(8_000_000);
        assert_eq!(link.poll(Time::from_nanos(7_999_999)), None);
        let out: Vec<_> = std::iter::from_fn(|| link.poll(first)).collect();
        assert_eq!(out, [0, 1, 2]);
    }

    #[test]
    fn what_waits_goes_on_when_the_bottleneck_is_gone() {
        let mut link = Link::new(bottleneck(8_000, None));
        for n in 0..3 {
            assert_eq!(link.put(Time::ZERO, n), None);
        }
        link.set(Time::ZERO, Impairment::default());
        assert_eq!(link.put(Time::ZERO, 3), None, "it would overtake");
        let mut out = Vec::new();
        while let Some(at) = link.link.next() {
            assert!(at.as_nanos() <= 8_000_000);
            out.extend(link.poll(at));
        }
        assert_eq!(out, [0, 1, 2, 3]);
        assert!(link.link.is_clear());
    }
}
