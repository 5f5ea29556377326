//! One direction of an impaired link.

mod packets;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ferroce_transport::{Counter, Span, Time};
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use self::packets::{Index, Packets};
use crate::impair::{Blackout, Direction, Impairment, Service};
use crate::state::DeviceState;

/// What an impaired link can hold.
pub(crate) trait HeldPacket: Clone {
    /// Whether a queue marks it.
    fn is_ecn_capable(&self) -> bool;
    /// Applies what the link does to it.
    fn apply_damage(&mut self, damage: &Damage);
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
    /// Through [`Active::hold`] and [`Active::poll`].
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

/// A link in one direction, which may be impaired.
#[derive(Debug)]
pub(crate) struct Impairer<T> {
    /// Made when first needed: most links never are.
    active: Option<Box<Active<T>>>,
}

/// Which direction of which link, for its random numbers and for its settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) direction: Direction,
    pub(crate) seed: u64,
}

impl<T: HeldPacket> Impairer<T> {
    /// One that lets everything pass.
    pub(crate) const fn clear() -> Self {
        Self { active: None }
    }

    /// See [`Active::set`].
    pub(crate) fn set(
        &mut self,
        origin: Origin,
        impairment: &Impairment,
        now: Time,
        state: &DeviceState,
    ) {
        if self.active.is_some() || *impairment != Impairment::default() {
            self.activate(origin).set(impairment, now, state);
        }
    }

    /// Loses all packets that come, or does so no more.
    pub(crate) fn set_dark(&mut self, origin: Origin, is_dark: bool) {
        if self.active.is_some() || is_dark {
            self.activate(origin).is_dark = is_dark;
        }
    }

    fn activate(&mut self, Origin { direction, seed }: Origin) -> &mut Active<T> {
        self.active
            .get_or_insert_with(|| Box::new(Active::new(direction, seed)))
    }

    /// Whether it loses all packets that come.
    #[inline]
    pub(crate) fn is_dark(&self) -> bool {
        self.active.as_ref().is_some_and(|it| it.is_dark)
    }

    /// Whether packets just pass: nothing is impaired, and none is held that they might overtake.
    #[inline]
    pub(crate) fn is_clear(&self) -> bool {
        self.active.as_ref().is_none_or(|it| it.is_clear())
    }

    /// Packets that wait, in the queue or behind it.
    pub(crate) fn len(&self) -> usize {
        self.active.as_ref().map_or(0, |it| it.len())
    }

    /// When [`Self::poll`] has something.
    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        self.active.as_ref()?.next()
    }

    /// A packet whose time has come.
    #[inline]
    pub(crate) fn poll(&mut self, now: Time, state: &DeviceState) -> Option<T> {
        self.active.as_mut()?.poll(now, state)
    }

    /// Decides when the next packet, of `bytes`, is released; `None` if it is lost.
    pub(crate) fn admit(&mut self, now: Time, bytes: u32, state: &DeviceState) -> Option<Release> {
        match &mut self.active {
            Some(active) => active.admit(now, bytes, state),
            None => Some(Release::Now(Damage::default())),
        }
    }

    /// Gives back the memory that its queues took and need no more.
    pub(crate) fn shrink(&mut self) {
        if let Some(active) = &mut self.active {
            active.shrink();
        }
    }

    /// Keeps a packet until its time, which [`Self::admit`] has told.
    pub(crate) fn hold(&mut self, later: Later, packet: T) {
        if let Some(active) = &mut self.active {
            active.hold(later, packet);
        }
    }
}

/// An impaired link in one direction.
#[derive(Debug)]
struct Active<T> {
    direction: Direction,
    impairment: Impairment,
    /// The port has no carrier.
    is_dark: bool,
    /// Nothing is impaired: the usual case, decided with one look.
    transparent: bool,
    rng: Xoshiro256PlusPlus,
    in_burst: bool,
    /// The bottleneck's queue, as far as it is ours.
    queue: VecDeque<Queued>,
    held: BinaryHeap<Reverse<Waiting>>,
    /// The packets that wait there.
    packets: Packets<T>,
    next_order: u64,
    /// When the last packet that keeps its order is released.
    released: Time,
}

#[derive(Debug)]
struct Queued {
    service: Service,
    bytes: u32,
    packet: Index,
}

/// By time, then in the order in which they came.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Waiting {
    at: Time,
    order: u64,
    packet: Index,
}

impl<T: HeldPacket> Active<T> {
    fn new(direction: Direction, seed: u64) -> Self {
        Self {
            direction,
            impairment: Impairment::default(),
            is_dark: false,
            transparent: true,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            in_burst: false,
            queue: VecDeque::new(),
            packets: Packets::default(),
            held: BinaryHeap::new(),
            next_order: 0,
            released: Time::ZERO,
        }
    }

    /// Changes what the link does. Packets held back stay until their time, but what waits in the
    /// queue of another bottleneck than before queues up anew.
    fn set(&mut self, impairment: &Impairment, now: Time, state: &DeviceState) {
        self.serve(now, state);
        self.transparent = *impairment == Impairment::default();
        // Without bursts there would be no way out of one.
        self.in_burst &= impairment.burst.is_some();
        let differs = self.impairment.bottleneck != impairment.bottleneck;
        self.impairment.clone_from(impairment);
        if differs {
            for Queued { bytes, packet, .. } in std::mem::take(&mut self.queue) {
                match self.admit_or_pass(now, bytes, state) {
                    Some(later) => self.hold_index(later, packet),
                    None => self.packets.drop(packet),
                }
            }
        }
    }

    /// Whether packets just pass: nothing is impaired, and none is held that they might overtake.
    #[inline]
    fn is_clear(&self) -> bool {
        self.transparent && !self.is_dark && self.held.is_empty() && self.queue.is_empty()
    }

    /// Packets that wait, in the queue or behind it.
    fn len(&self) -> usize {
        self.held.len() + self.queue.len()
    }

    fn shrink(&mut self) {
        self.queue.shrink_to_fit();
        self.held.shrink_to_fit();
        self.packets.shrink();
    }

    /// When [`Self::poll`] has something.
    #[inline]
    fn next(&self) -> Option<Time> {
        let held = self.held.peek().map(|Reverse(waiting)| waiting.at);
        let queued = self.queue.front();
        let queued = queued.map(|it| it.service.ends.after(self.impairment.delay));
        [held, queued].into_iter().flatten().min()
    }

    /// A packet whose time has come.
    #[inline]
    fn poll(&mut self, now: Time, state: &DeviceState) -> Option<T> {
        self.serve(now, state);
        let Reverse(waiting) = self.held.peek()?;
        if waiting.at > now {
            return None;
        }
        let Reverse(waiting) = self.held.pop()?;
        self.packets.take(waiting.packet)
    }

    /// Decides when the next packet, of `bytes`, is released; `None` if it is lost.
    fn admit(&mut self, now: Time, bytes: u32, state: &DeviceState) -> Option<Release> {
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
    fn hold(&mut self, later: Later, packet: T) {
        let packet = self.packets.put(packet);
        self.hold_index(later, packet);
    }

    fn hold_index(&mut self, later: Later, packet: Index) {
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
                if let Some(it) = self.packets.get_mut(packet) {
                    it.apply_damage(&damage);
                }
                if let Some(copy_at) = copy_at {
                    self.packets.duplicate(packet);
                    self.push(copy_at, packet);
                }
                self.push(at, packet);
            }
        }
    }

    fn push(&mut self, at: Time, packet: Index) {
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
        let is_capable = |packet: &T| packet.is_ecn_capable();
        let is_marked = self.packets.get(queued.packet).is_some_and(is_capable)
            && bottleneck.red.is_some_and(marks);
        let underway = self.send(ends, is_marked, state);
        self.hold_index(Later::Underway(underway), queued.packet);
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
        // The packet itself has its place, or has just left one.
        let has_room = self.len() + 1 < Impairment::HELD_MAX;
        let duplicate = self.chance(self.impairment.duplicate) && has_room;
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
        let dark = |b: &Blackout| now >= b.from && now.since(b.from) < b.length;
        if self.is_dark || self.impairment.blackouts.iter().any(dark) {
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
        let full = self.len() >= Impairment::HELD_MAX;
        let lost = self.in_burst || self.chance(self.impairment.loss) || full;
        if lost {
            state.count(Counter::ImpairLost, 1);
        }
        lost
    }

    fn release_time(&mut self, from: Time, state: &DeviceState) -> Time {
        let Impairment {
            delay,
            jitter,
            reorder,
            reorder_by,
            ..
        } = self.impairment;
        let jitter = if jitter > Span::ZERO {
            Span::from_picos(self.rng.random_range(0..=jitter.as_picos()))
        } else {
            Span::ZERO
        };
        let in_order = from.after(delay + jitter).max(self.released);
        if self.chance(reorder) {
            state.count(Counter::ImpairReordered, 1);
            return in_order.after(reorder_by);
        }
        self.released = in_order;
        in_order
    }
}

#[cfg(test)]
mod tests;
