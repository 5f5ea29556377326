//! Switches: output queues by priority, one shared buffer, marks, and pauses.

pub(crate) mod watchdog;

use std::collections::VecDeque;

use ferroce_base::time::Span;
use ferroce_dcqcn::CongestionPoint;
use ferroce_device::Trust;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use self::watchdog::WatchdogConfig;
use crate::frame::{Ecn, Frame};

/// Number of priorities of a port (IEEE 802.1Q).
pub const PRIORITIES: usize = 8;

/// The configuration of a switch; all ports are alike.
#[derive(Clone, PartialEq, Debug)]
pub struct SwitchConfig {
    /// The buffer that all ports share, bytes, including headroom.
    pub buffer_bytes: u64,
    /// Which packets of ECN-capable flows are marked; the same for each priority.
    pub ecn: Option<CongestionPoint>,
    /// Priorities that are paused and not dropped, a bit each.
    pub lossless: u8,
    /// What one port may still send for a lossless priority after it was paused, bytes. The part of
    /// the buffer that is not headroom of any port is shared.
    pub headroom_bytes: u64,
    /// A lossless priority of an ingress port is paused when it takes more than 2^n of the free
    /// part of the shared buffer; n in -8..=3.
    pub pause_alpha_log2: i8,
    /// It is resumed when it takes this much less.
    pub resume_offset_bytes: u64,
    /// What ends storms of pauses, if something does.
    pub watchdog: Option<WatchdogConfig>,
    /// A queue of another priority drops frames that would make it take more than 2^n of the free
    /// part.
    pub drop_alpha_log2: i8,
    /// The field that gives the priority of a frame.
    pub trust: Trust,
    /// Which priority is served first.
    pub schedule: Schedule,
    /// A frame is forwarded when its first 64 bytes have arrived, if the ports' rates allow it.
    pub cuts_through: bool,
    /// How it chooses between the shortest paths to a destination.
    pub routing: Routing,
    /// From the arrival of a frame until it is in its queue; pauses act at once.
    pub latency: Span,
}

/// How a switch chooses between the shortest paths to a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Routing {
    /// By the hash of the flow, and so the same for all its packets (ECMP).
    #[default]
    Hash,
    /// By chance, for each packet.
    Random,
    /// One of the least loaded ports, by chance, for each packet of queue pairs that let packets take any path
    /// (`adaptive_routing_forced_en`); others by the hash.
    Adaptive,
}

/// Which priority of a port is served first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Schedule {
    /// The highest.
    #[default]
    Strict,
    /// In turns of this many bytes in units of 1 KiB (deficit round robin); priorities of weight 0 before
    /// all others.
    Weighted([u8; PRIORITIES]),
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self {
            buffer_bytes: 32 << 20,
            ecn: None,
            lossless: 0,
            trust: Trust::default(),
            headroom_bytes: 100 << 10,
            pause_alpha_log2: -3,
            resume_offset_bytes: 3 << 10,
            watchdog: None,
            drop_alpha_log2: 0,
            schedule: Schedule::Strict,
            cuts_through: false,
            routing: Routing::Hash,
            latency: Span::ZERO,
        }
    }
}

/// Counters of a switch.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SwitchCounters {
    /// Frames forwarded.
    pub forwarded: u64,
    /// Frames marked.
    pub marked: u64,
    /// Frames dropped because a priority without pauses had no room.
    pub dropped_full: u64,
    /// Frames dropped because a paused priority had no headroom: the headroom is too small.
    pub dropped_lossless: u64,
    /// Frames dropped because the watchdog had found a storm of pauses.
    pub dropped_storm: u64,
    /// Frames without a route.
    pub unreachable: u64,
    /// Maximum use of the buffer, bytes.
    pub buffer_max: u64,
}

impl SwitchCounters {
    /// Adds a part of what was counted from one moment to another, between which nothing was dropped.
    pub(crate) fn add(&mut self, from: &Self, to: &Self, part: impl Fn(u64) -> u64) {
        self.forwarded += part(to.forwarded - from.forwarded);
        self.marked += part(to.marked - from.marked);
    }
}

/// Why a frame is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    Full,
    NoHeadroom,
}

#[derive(Default, Debug)]
struct Queue {
    frames: VecDeque<Frame>,
    bytes: u64,
}

/// The part of the buffer that an ingress port's lossless priority uses.
#[derive(Clone, Copy, Default, Debug)]
struct Account {
    shared: u64,
    headroom: u64,
}

/// A port: what waits to leave by it, and what came by it. What frames need that find nothing waiting is
/// small, so that many ports share a cache line.
#[derive(Debug)]
pub(crate) struct Port {
    /// The line that leaves it.
    pub(crate) line: u32,
    /// Priorities that have frames, a bit each.
    waiting: u8,
    /// Priorities that the other end wants no frames of and gets none of.
    paused: u8,
    /// Priorities that the other end was told not to send.
    pub(crate) pausing: u8,
    /// Priorities whose frames are dropped, because they are in a storm.
    discarding: u8,
    rest: Box<PortQueues>,
}

#[derive(Default, Debug)]
struct PortQueues {
    queues: [Queue; PRIORITIES],
    accounts: [Account; PRIORITIES],
    /// Whose turn it is, if they take turns.
    turn: usize,
    /// What each may still send, bytes.
    deficits: [u64; PRIORITIES],
    /// The longest that a queue has been, bytes.
    queue_max: u64,
    /// Priorities that the other end wants no frames of.
    unwanted: u8,
    /// Priorities that are in a storm.
    storming: u8,
    /// Frames that were dropped because they found no room on their way to its queues.
    dropped: u64,
}

impl Port {
    fn new(line: u32) -> Self {
        Self {
            line,
            waiting: 0,
            paused: 0,
            pausing: 0,
            discarding: 0,
            rest: Box::default(),
        }
    }

    /// Whether there is a frame that may leave.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.waiting & !self.paused != 0
    }

    /// Whether a priority may not send, because the other end does not want its frames.
    #[inline]
    pub(crate) fn is_paused(&self, priority: u8) -> bool {
        self.paused & 1 << priority != 0
    }

    /// Priorities that have frames which the other end does not want, and those that it wants paused.
    pub(crate) fn held(&self) -> (u8, u8) {
        (self.waiting & self.paused, self.rest.unwanted)
    }

    fn set_unwanted(&mut self, priorities: u8) {
        self.rest.unwanted = priorities;
        self.paused = priorities & !self.rest.storming;
    }

    /// Bytes that wait.
    pub(crate) fn queue_bytes(&self) -> u64 {
        self.rest.queues.iter().map(|queue| queue.bytes).sum()
    }

    /// Bytes of a priority that wait, and came by another port.
    pub(crate) fn bytes_from(&self, ingress: u16, priority: usize) -> u64 {
        let frames = self.rest.queues[priority].frames.iter();
        let came = frames.filter(|frame| frame.ingress == ingress);
        came.map(|frame| u64::from(frame.bytes)).sum()
    }

    /// The most bytes of one priority that have waited.
    pub(crate) fn queue_max(&self) -> u64 {
        self.rest.queue_max
    }

    /// Frames dropped because they found no room on their way to its queues.
    pub(crate) fn dropped(&self) -> u64 {
        self.rest.dropped
    }
}

/// A switch.
#[derive(Debug)]
pub(crate) struct Switch {
    /// That of its node in the whole network.
    pub(crate) number: u32,
    pub(crate) ports: Vec<Port>,
    pub(crate) config: SwitchConfig,
    /// Bytes of the buffer that are no port's headroom, and how many of them are taken.
    shared: u64,
    shared_used: u64,
    headroom_used: u64,
    /// Makes its choice of ways differ from those of others.
    pub(crate) salt: u32,
    pub(crate) rng: Xoshiro256PlusPlus,
    pub(crate) counters: SwitchCounters,
}

impl Switch {
    pub(crate) fn new(
        number: u32,
        lines: impl IntoIterator<Item = u32>,
        config: SwitchConfig,
        seed: u64,
    ) -> Self {
        let ports: Vec<_> = lines.into_iter().map(Port::new).collect();
        let lossless = u64::from(config.lossless.count_ones());
        let headroom = config.headroom_bytes * ports.len() as u64 * lossless;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self {
            number,
            ports,
            shared: config.buffer_bytes.saturating_sub(headroom),
            shared_used: 0,
            headroom_used: 0,
            config,
            salt: rng.next_u32(),
            rng,
            counters: SwitchCounters::default(),
        }
    }

    fn share(&self, alpha_log2: i8) -> u64 {
        share_of(self.shared - self.shared_used, alpha_log2)
    }

    /// Whether a frame may leave by a port at once, if the line is free: nothing waits there.
    #[inline]
    pub(crate) fn passes(&mut self, egress: u16, priority: u8) -> bool {
        let port = &self.ports[usize::from(egress)];
        let passes = port.waiting == 0 && !port.is_paused(priority);
        self.counters.forwarded += u64::from(passes);
        passes
    }

    /// Puts a frame into a port's queue. The second value says that its ingress port is to be told
    /// which priorities to pause.
    pub(crate) fn enqueue(&mut self, egress: u16, frame: Frame) -> Result<bool, Refused> {
        let priority = usize::from(frame.priority);
        let bit = 1 << frame.priority;
        let pauses = match self.config.lossless & bit {
            0 => self.admit(egress, &frame).map(|()| false),
            _ => self.admit_lossless(&frame),
        };
        let pauses = match pauses {
            Ok(pauses) => pauses,
            Err(refused) => {
                self.ports[usize::from(egress)].rest.dropped += 1;
                match refused {
                    Refused::Full => self.counters.dropped_full += 1,
                    Refused::NoHeadroom => self.counters.dropped_lossless += 1,
                }
                return Err(refused);
            }
        };
        let port = &mut self.ports[usize::from(egress)];
        let rest = &mut *port.rest;
        let queue = &mut rest.queues[priority];
        queue.bytes += u64::from(frame.bytes);
        rest.queue_max = rest.queue_max.max(queue.bytes);
        queue.frames.push_back(frame);
        port.waiting |= bit;
        let used = self.shared_used + self.headroom_used;
        self.counters.buffer_max = self.counters.buffer_max.max(used);
        Ok(pauses)
    }

    fn admit(&mut self, egress: u16, frame: &Frame) -> Result<(), Refused> {
        let queue = &self.ports[usize::from(egress)].rest.queues[usize::from(frame.priority)];
        let bytes = u64::from(frame.bytes);
        let fits = self.shared_used + bytes <= self.shared
            && queue.bytes + bytes <= self.share(self.config.drop_alpha_log2);
        if !fits {
            return Err(Refused::Full);
        }
        self.shared_used += bytes;
        Ok(())
    }

    fn admit_lossless(&mut self, frame: &Frame) -> Result<bool, Refused> {
        let bytes = u64::from(frame.bytes);
        let limit = self.share(self.config.pause_alpha_log2);
        let has_room = self.shared_used + bytes <= self.shared;
        let port = &mut self.ports[usize::from(frame.ingress)];
        let account = &mut port.rest.accounts[usize::from(frame.priority)];
        let bit = 1 << frame.priority;
        let is_pausing = port.pausing & bit != 0;
        if !is_pausing && has_room {
            account.shared += bytes;
            self.shared_used += bytes;
            let pauses = account.shared > limit;
            port.pausing |= if pauses { bit } else { 0 };
            return Ok(pauses);
        }
        if account.headroom + bytes > self.config.headroom_bytes {
            return Err(Refused::NoHeadroom);
        }
        account.headroom += bytes;
        self.headroom_used += bytes;
        port.pausing |= bit;
        Ok(!is_pausing)
    }

    /// Takes the frame that leaves a port next, marked or not. The second value says that its ingress
    /// port may be told that it need not pause that priority any more.
    pub(crate) fn dequeue(&mut self, egress: u16) -> Option<(Frame, bool)> {
        let port = &mut self.ports[usize::from(egress)];
        let priority = next_priority(port, self.config.schedule)?;
        let queue = &mut port.rest.queues[priority];
        let mut frame = queue.frames.pop_front()?;
        queue.bytes -= u64::from(frame.bytes);
        if queue.frames.is_empty() {
            port.waiting &= !(1 << priority);
        }
        if let Some(red) = &self.config.ecn
            && frame.ecn == Ecn::Capable
            && queue.bytes > red.kmin().into()
            && red.mark(queue.bytes, self.rng.next_u32())
        {
            frame.ecn = Ecn::Marked;
            self.counters.marked += 1;
        }
        self.counters.forwarded += 1;
        let resumes = self.release(&frame);
        Some((frame, resumes))
    }

    /// Gives back the room that a frame took.
    fn release(&mut self, frame: &Frame) -> bool {
        let bytes = u64::from(frame.bytes);
        let bit = 1 << frame.priority;
        if self.config.lossless & bit == 0 {
            self.shared_used -= bytes;
            return false;
        }
        let port = &mut self.ports[usize::from(frame.ingress)];
        let account = &mut port.rest.accounts[usize::from(frame.priority)];
        let from_headroom = bytes.min(account.headroom);
        account.headroom -= from_headroom;
        account.shared -= bytes - from_headroom;
        self.headroom_used -= from_headroom;
        self.shared_used -= bytes - from_headroom;
        if port.pausing & bit == 0 || account.headroom > 0 {
            return false;
        }
        let taken = account.shared;
        let limit = self.share(self.config.pause_alpha_log2);
        let resumes = taken == 0 || taken + self.config.resume_offset_bytes <= limit;
        if resumes {
            self.ports[usize::from(frame.ingress)].pausing &= !bit;
        }
        resumes
    }

    /// The other end of a port wants no frames of these priorities, and of no others.
    pub(crate) fn set_paused(&mut self, port: u16, priorities: u8) {
        self.ports[usize::from(port)].set_unwanted(priorities);
    }

    /// A priority of a port is in a storm of pauses, or no longer. It ignores them, and what comes for it is
    /// dropped if `discards`.
    pub(crate) fn set_storm(&mut self, port: u16, priority: u8, is_storm: bool, discards: bool) {
        let port = &mut self.ports[usize::from(port)];
        let bit = 1 << priority;
        port.rest.storming &= !bit;
        port.discarding &= !bit;
        port.rest.storming |= if is_storm { bit } else { 0 };
        port.discarding |= if is_storm && discards { bit } else { 0 };
        port.set_unwanted(port.rest.unwanted);
    }

    /// Whether frames of a priority that come for a port are dropped, because it is in a storm.
    #[inline]
    pub(crate) fn discards(&self, egress: u16, priority: u8) -> bool {
        self.ports[usize::from(egress)].discarding & 1 << priority != 0
    }

    /// Whether frames wait at a port that its other end does not want.
    pub(crate) fn is_held(&self, port: u16, priority: usize) -> bool {
        let port = &self.ports[usize::from(port)];
        port.waiting & port.paused & 1 << priority != 0
    }

    /// Whether a port's other end stays paused if all frames leave but those that wait for the lines that are
    /// stuck.
    pub(crate) fn keeps_pausing(
        &self,
        ingress: u16,
        priority: usize,
        is_stuck: impl Fn(u32) -> bool,
    ) -> bool {
        let stuck = || self.ports.iter().filter(|port| is_stuck(port.line));
        let left: u64 = stuck().map(|port| port.bytes_from(ingress, priority)).sum();
        let account = &self.ports[usize::from(ingress)].rest.accounts[priority];
        let leaves = (account.shared + account.headroom).saturating_sub(left);
        let headroom = account.headroom.saturating_sub(leaves);
        let shared = left - headroom;
        let all: u64 = stuck().map(Port::queue_bytes).sum();
        let free = self.shared.saturating_sub(all);
        let limit = share_of(free, self.config.pause_alpha_log2);
        headroom > 0 || shared > 0 && shared + self.config.resume_offset_bytes > limit
    }

    /// Takes all frames that wait at a port, whose line is down. The second value is a bit for each
    /// port that may be told to pause less.
    pub(crate) fn flush(&mut self, egress: u16) -> Vec<(Frame, bool)> {
        self.ports[usize::from(egress)].set_unwanted(0);
        let priorities = 0..PRIORITIES as u8;
        priorities
            .flat_map(|priority| self.flush_queue(egress, priority))
            .collect()
    }

    /// The same for one priority.
    pub(crate) fn flush_queue(&mut self, egress: u16, priority: u8) -> Vec<(Frame, bool)> {
        let port = &mut self.ports[usize::from(egress)];
        port.waiting &= !(1 << priority);
        let queue = &mut port.rest.queues[usize::from(priority)];
        queue.bytes = 0;
        let frames = std::mem::take(&mut queue.frames).into_iter();
        frames.map(|frame| (frame, self.release(&frame))).collect()
    }

    /// Gives back memory that traffic has taken.
    pub(crate) fn rest(&mut self) {
        let ports = self.ports.iter_mut();
        let queues = ports.flat_map(|port| &mut port.rest.queues);
        queues.for_each(|queue| queue.frames.shrink_to_fit());
    }

    /// The lines that leave it, by ports.
    pub(crate) fn leaving(&self) -> Vec<u32> {
        self.ports.iter().map(|port| port.line).collect()
    }

    /// Frames in the buffer.
    pub(crate) fn frames(&self) -> u64 {
        let queues = self.ports.iter().flat_map(|port| &port.rest.queues);
        queues.map(|queue| queue.frames.len() as u64).sum()
    }

    /// The same, each.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Frame> {
        let queues = self.ports.iter().flat_map(|port| &port.rest.queues);
        queues.flat_map(|queue| &queue.frames)
    }

    /// Frames that have come to it, except for those discarded with a port's queues.
    pub(crate) fn taken(&self) -> u64 {
        let it = &self.counters;
        let dropped = it.dropped_full + it.dropped_lossless + it.dropped_storm + it.unreachable;
        self.frames() + it.forwarded + dropped
    }

    /// Checks that the accounts agree with the queues.
    ///
    /// # Panics
    /// Panics if they do not.
    pub(crate) fn audit(&self) {
        let (mut lossless, mut others) = (0, 0);
        let (mut shared, mut headroom) = (0, 0);
        for port in &self.ports {
            for (priority, queue) in port.rest.queues.iter().enumerate() {
                let bytes = queue.frames.iter().map(|frame| u64::from(frame.bytes));
                assert_eq!(queue.bytes, bytes.sum::<u64>(), "bytes in a queue");
                let waits = port.waiting >> priority & 1 != 0;
                assert_eq!(waits, !queue.frames.is_empty(), "a queue's frames");
                match self.config.lossless >> priority & 1 {
                    0 => others += queue.bytes,
                    _ => lossless += queue.bytes,
                }
            }
            for account in &port.rest.accounts {
                let has_room = account.headroom <= self.config.headroom_bytes;
                assert!(has_room, "a port's headroom: {account:?}");
                shared += account.shared;
                headroom += account.headroom;
            }
        }
        assert_eq!(lossless, shared + headroom, "bytes of ingress ports");
        assert_eq!(headroom, self.headroom_used, "bytes in the headroom");
        assert_eq!(
            shared + others,
            self.shared_used,
            "bytes in the shared part"
        );
        let (used, size) = (self.shared_used + headroom, self.config.buffer_bytes);
        assert!(used <= size, "{used} bytes in a buffer of {size}");
    }
}

fn share_of(free: u64, alpha_log2: i8) -> u64 {
    match u32::try_from(alpha_log2) {
        Ok(left) => free << left,
        Err(_) => free >> alpha_log2.unsigned_abs(),
    }
}

/// Which priority of a port sends next.
fn next_priority(port: &mut Port, schedule: Schedule) -> Option<usize> {
    let ready = port.waiting & !port.paused;
    let highest = |mask: u8| (mask != 0).then(|| 7 - mask.leading_zeros() as usize);
    let weights = match schedule {
        Schedule::Strict => return highest(ready),
        Schedule::Weighted(weights) => weights,
    };
    let is_first = |priority: &usize| weights[*priority] == 0;
    let first = (0..PRIORITIES).filter(is_first);
    let first = first.fold(0, |mask, priority| mask | 1 << priority);
    if let Some(priority) = highest(ready & first) {
        return Some(priority);
    }
    if ready == 0 {
        return None;
    }
    loop {
        let priority = port.rest.turn;
        let frame = port.rest.queues[priority].frames.front();
        let bytes = frame.map_or(0, |frame| u64::from(frame.bytes));
        let is_ready = ready & 1 << priority != 0;
        if is_ready && bytes <= port.rest.deficits[priority] {
            port.rest.deficits[priority] -= bytes;
            return Some(priority);
        }
        if frame.is_none() {
            port.rest.deficits[priority] = 0;
        }
        // A weight is at least 1 KiB, so that each gets its turn after some rounds.
        port.rest.turn = (priority + 1) % PRIORITIES;
        if ready & 1 << port.rest.turn != 0 {
            port.rest.deficits[port.rest.turn] += u64::from(weights[port.rest.turn]) << 10;
        }
    }
}

#[cfg(test)]
mod tests;
