//! Packets waiting for the links, by priority, and which of them may leave.
//!
//! A link with a rate sends packets one at a time. Its queues have strict priorities. Each can be
//! paused, as with priority flow control (IEEE 802.1Qbb), which stops only its own packets. Links
//! without a rate have one queue together.

use std::collections::VecDeque;

use ferroce_transport::Path;

use crate::host_profile::HostProfile;
use crate::pairing::{LinkNumber, Links};
use crate::qos::Qos;

/// Queues of a link with a rate.
const PRIORITIES: usize = 8;

/// The queue pairs that wait for the links of a device.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) links: Links,
    /// They have a rate.
    has_priorities: bool,
    qos: Qos,
    ready: ReadyQueues,
    /// Queues that are paused.
    paused: Queues,
    /// The queue pair that sent last; its turn is not over if `turn_left` says so.
    turn: u32,
    /// Packets that may still leave in its turn, of `turn_packets`.
    turn_left: u32,
    turn_packets: u32,
}

/// A set of priorities, one bit for each.
type Priorities = u8;

/// A set of queues, one bit for each: those of the first link, lowest priority first, then those of
/// the second.
pub(crate) type Queues = u16;

/// The queues of a link with these priorities.
fn queues(link: LinkNumber, priorities: Priorities) -> Queues {
    Queues::from(priorities) << lowest(link)
}

/// The first of a link's queues.
fn lowest(link: LinkNumber) -> u8 {
    if link == 2 { PRIORITIES as u8 } else { 0 }
}

impl Port {
    pub(crate) fn new(host: &HostProfile, qos: Qos) -> Self {
        // What may be sent changes between two packets that do not leave at once.
        let turn_packets = match host.port_rate {
            Some(_) => 1,
            None => host.turn_packets.max(1),
        };
        Self {
            links: Links::default(),
            has_priorities: host.port_rate.is_some(),
            qos,
            ready: ReadyQueues::default(),
            paused: 0,
            turn: 0,
            turn_left: turn_packets,
            turn_packets,
        }
    }

    /// The queue of the packets of a path that belong on a link: that of their priority, at the link
    /// that carries them now.
    pub(crate) fn queue_of(&self, path: &Path, wanted: LinkNumber) -> u8 {
        match self.has_priorities() {
            true => lowest(self.links.carrying(wanted)) + self.qos.priority_of(path),
            false => 0,
        }
    }

    /// The priority of the packets of a path.
    pub(crate) fn priority_of(&self, path: &Path) -> u8 {
        self.qos.priority_of(path)
    }

    /// The priority in the VLAN tag of a packet; 0 if it has none.
    #[inline]
    pub(crate) fn pcp_of(&self, path: &Path) -> u8 {
        self.qos.pcp_of(path)
    }

    /// Whether there is more than one.
    #[inline]
    pub(crate) fn has_priorities(&self) -> bool {
        self.has_priorities
    }

    /// The queue of the highest priority of a link that is not paused, of `others` and those with
    /// waiting queue pairs.
    #[inline]
    pub(crate) fn highest(&self, link: LinkNumber, others: Queues) -> Option<u8> {
        let ready = (self.ready.waiting | others) & !self.paused & queues(link, Priorities::MAX);
        ready.checked_ilog2().map(|queue| queue as u8) // below 16
    }

    /// Pauses these priorities of a link and resumes all others.
    pub(crate) fn set_paused(&mut self, link: LinkNumber, paused: Priorities) {
        self.paused &= !queues(link, Priorities::MAX);
        self.paused |= queues(link, paused);
    }

    /// Priorities of a link that are paused.
    pub(crate) fn paused(&self, link: LinkNumber) -> Priorities {
        (self.paused >> lowest(link)) as Priorities
    }

    // Turns.

    /// The queue pair that has sent something in its turn and may go on.
    #[inline]
    pub(crate) fn in_turn(&self) -> Option<u32> {
        (self.turn_left < self.turn_packets).then_some(self.turn)
    }

    /// A queue pair has sent a packet; tells whether its turn is over.
    #[inline]
    pub(crate) fn count_packet(&mut self, index: u32) -> bool {
        self.turn = index;
        self.turn_left -= 1;
        self.turn_left == 0
    }

    /// Ends the turn; none has begun after it.
    #[inline]
    pub(crate) fn end_turn(&mut self) {
        self.turn_left = self.turn_packets;
    }

    // Who waits.

    /// The queue pair whose turn it is in this queue.
    #[inline]
    pub(crate) fn front(&self, queue: u8) -> Option<u32> {
        self.ready.at(queue)?.front().copied()
    }

    #[inline]
    pub(crate) fn push(&mut self, queue: u8, index: u32) {
        self.ready.waiting |= 1 << queue;
        self.ready.at_mut(queue).push_back(index);
    }

    #[inline]
    pub(crate) fn pop(&mut self, queue: u8) {
        let waiting = self.ready.at_mut(queue);
        waiting.pop_front();
        if waiting.is_empty() {
            self.ready.waiting &= !(1 << queue);
        }
    }

    /// Takes out a queue pair that waits in this queue.
    pub(crate) fn remove(&mut self, queue: u8, index: u32) {
        if self.in_turn() == Some(index) {
            self.end_turn();
        }
        let waiting = self.ready.at_mut(queue);
        waiting.retain(|ready| *ready != index);
        if waiting.is_empty() {
            self.ready.waiting &= !(1 << queue);
        }
    }

    /// Gives back the memory that its queues took.
    pub(crate) fn shrink(&mut self) {
        self.ready.shrink();
    }

    /// Checks that each of `listed` waits once, in its queue, and that no other queue pair waits.
    ///
    /// # Panics
    /// Panics if not.
    pub(crate) fn audit(&self, listed: impl Iterator<Item = (u8, u32)>) {
        let mut count = 0;
        for (queue, index) in listed {
            let waiting = self.ready.at(queue);
            let times = waiting.map_or(0, |it| it.iter().filter(|other| **other == index).count());
            assert_eq!(times, 1, "queue pair {index}: {self:?}");
            count += 1;
        }
        let queues = 0..2 * PRIORITIES as u8;
        let queues = queues.filter_map(|queue| Some((queue, self.ready.at(queue)?)));
        let mut waiting = 0;
        for (queue, of_queue) in queues {
            count -= of_queue.len();
            waiting |= Queues::from(!of_queue.is_empty()) << queue;
        }
        assert_eq!((count, waiting), (0, self.ready.waiting), "{self:?}");
        assert!(self.in_turn().is_none() || !self.has_priorities, "{self:?}");
    }
}

/// Queue pairs that may have something to send.
#[derive(Debug, Default)]
struct ReadyQueues {
    /// Those of these queues that are not empty.
    waiting: Queues,
    /// That of priority 0 of the first link.
    lowest: VecDeque<u32>,
    /// Its others; made when first needed.
    higher: Option<Box<[VecDeque<u32>; PRIORITIES - 1]>>,
    /// Those of the second link; made when first needed.
    second: Option<Box<[VecDeque<u32>; PRIORITIES]>>,
}

impl ReadyQueues {
    #[inline]
    fn at(&self, queue: u8) -> Option<&VecDeque<u32>> {
        match usize::from(queue) {
            0 => Some(&self.lowest),
            higher @ 1..PRIORITIES => self.higher.as_ref()?.get(higher - 1),
            second => self.second.as_ref()?.get(second - PRIORITIES),
        }
    }

    #[inline]
    fn at_mut(&mut self, queue: u8) -> &mut VecDeque<u32> {
        match usize::from(queue) {
            0 => &mut self.lowest,
            higher @ 1..PRIORITIES => &mut self.higher.get_or_insert_default()[higher - 1],
            second => &mut self.second.get_or_insert_default()[second - PRIORITIES],
        }
    }

    fn shrink(&mut self) {
        self.lowest.shrink_to_fit();
        if self.waiting & !1 == 0 {
            (self.higher, self.second) = (None, None);
        }
    }
}
