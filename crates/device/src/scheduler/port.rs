//! Packets waiting for the port, by priority, and which of them may leave.
//!
//! A port with a rate sends packets one at a time. Its queues have strict priorities. Each can be
//! paused, as with priority flow control (IEEE 802.1Qbb), which stops only its own packets. A port
//! without a rate has one queue.

use std::collections::VecDeque;

use ferroce_transport::Path;

use crate::host_profile::HostProfile;
use crate::qos::Qos;

/// Queues of a port with a rate.
const PRIORITIES: usize = 8;

/// The queue pairs that wait for the port of a device.
#[derive(Debug)]
pub(crate) struct Port {
    /// It has a rate.
    has_priorities: bool,
    qos: Qos,
    ready: ReadyQueues,
    /// One bit for each priority that is paused.
    paused: u8,
    /// The queue pair that sent last; its turn is not over if `turn_left` says so.
    turn: u32,
    /// Packets that may still leave in its turn, of `turn_packets`.
    turn_left: u32,
    turn_packets: u32,
}

/// A set of priorities, one bit for each.
pub(crate) type Priorities = u8;

impl Port {
    pub(crate) fn new(host: &HostProfile, qos: Qos) -> Self {
        // What may be sent changes between two packets that do not leave at once.
        let turn_packets = match host.port_rate {
            Some(_) => 1,
            None => host.turn_packets.max(1),
        };
        Self {
            has_priorities: host.port_rate.is_some(),
            qos,
            ready: ReadyQueues::default(),
            paused: 0,
            turn: 0,
            turn_left: turn_packets,
            turn_packets,
        }
    }

    /// The queue of the packets of a path: that of their priority.
    pub(crate) fn queue_of(&self, path: &Path) -> u8 {
        match self.has_priorities() {
            true => self.qos.priority_of(path),
            false => 0,
        }
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

    /// The highest priority that is not paused, of `others` and those with waiting queue pairs.
    #[inline]
    pub(crate) fn highest(&self, others: Priorities) -> Option<u8> {
        let ready = (self.ready.waiting | others) & !self.paused;
        ready.checked_ilog2().map(|priority| priority as u8) // below 8
    }

    /// Pauses these priorities and resumes all others.
    pub(crate) fn set_paused(&mut self, paused: Priorities) {
        self.paused = paused;
    }

    pub(crate) fn paused(&self) -> Priorities {
        self.paused
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

    /// The queue pair whose turn it is in this priority.
    #[inline]
    pub(crate) fn front(&self, priority: u8) -> Option<u32> {
        self.ready.queue(priority)?.front().copied()
    }

    #[inline]
    pub(crate) fn push(&mut self, priority: u8, index: u32) {
        self.ready.waiting |= 1 << priority;
        self.ready.queue_mut(priority).push_back(index);
    }

    #[inline]
    pub(crate) fn pop(&mut self, priority: u8) {
        let queue = self.ready.queue_mut(priority);
        queue.pop_front();
        if queue.is_empty() {
            self.ready.waiting &= !(1 << priority);
        }
    }

    /// Takes out a queue pair that waits in this priority.
    pub(crate) fn remove(&mut self, priority: u8, index: u32) {
        if self.in_turn() == Some(index) {
            self.end_turn();
        }
        let queue = self.ready.queue_mut(priority);
        queue.retain(|ready| *ready != index);
        if queue.is_empty() {
            self.ready.waiting &= !(1 << priority);
        }
    }

    /// Gives back the memory that its queues took.
    pub(crate) fn shrink(&mut self) {
        self.ready.shrink();
    }

    /// Checks that each of `listed` waits once, in its priority, and that no other queue pair
    /// waits.
    ///
    /// # Panics
    /// Panics if not.
    pub(crate) fn audit(&self, listed: impl Iterator<Item = (u8, u32)>) {
        let mut count = 0;
        for (priority, index) in listed {
            let queue = self.ready.queue(priority);
            let times = queue.map_or(0, |it| it.iter().filter(|other| **other == index).count());
            assert_eq!(times, 1, "queue pair {index}: {self:?}");
            count += 1;
        }
        let queues = (0..8).filter_map(|priority| Some((priority, self.ready.queue(priority)?)));
        let mut waiting = 0;
        for (priority, queue) in queues {
            count -= queue.len();
            waiting |= u8::from(!queue.is_empty()) << priority;
        }
        assert_eq!((count, waiting), (0, self.ready.waiting), "{self:?}");
        assert!(self.in_turn().is_none() || !self.has_priorities, "{self:?}");
    }
}

/// Queue pairs that may have something to send, by priority.
#[derive(Debug, Default)]
struct ReadyQueues {
    /// Those of these queues that are not empty.
    waiting: Priorities,
    /// Of priority 0.
    lowest: VecDeque<u32>,
    /// Of the others; made when first needed.
    higher: Option<Box<[VecDeque<u32>; PRIORITIES - 1]>>,
}

impl ReadyQueues {
    #[inline]
    fn queue(&self, priority: u8) -> Option<&VecDeque<u32>> {
        match priority {
            0 => Some(&self.lowest),
            higher => self.higher.as_ref()?.get(usize::from(higher) - 1),
        }
    }

    #[inline]
    fn queue_mut(&mut self, priority: u8) -> &mut VecDeque<u32> {
        match priority {
            0 => &mut self.lowest,
            higher => &mut self.higher.get_or_insert_default()[usize::from(higher) - 1],
        }
    }

    fn shrink(&mut self) {
        self.lowest.shrink_to_fit();
        if self.waiting & !1 == 0 {
            self.higher = None;
        }
    }
}
