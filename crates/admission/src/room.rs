//! Room in one receive buffer: how much of it is taken, and which queue pairs wait for more.

use std::collections::VecDeque;

use ferroce_transport::Mtu;

use crate::TURN_BYTES;

/// A packet with less payload takes about as much of the buffer as one of this size.
const PAYLOAD_MIN: u32 = 1024;
/// What the kernel adds to a packet's payload in a batch, headers included.
const OVERHEAD: u32 = 128;

/// The bytes that `packets` of one queue pair take of a receive buffer, as the kernel counts them.
///
/// The kernel rounds the buffer of a packet that arrives alone up to the next power of two, so it
/// counts double. Of a batch, only the first packet does.
pub(crate) fn cost(packets: u32, mtu: Mtu) -> u64 {
    match packets {
        0 => 0,
        _ => (u64::from(packets) + 1) * unit(mtu),
    }
}

/// How many packets cost at most `bytes`.
pub(crate) fn affordable(bytes: u64, mtu: Mtu) -> u32 {
    // Each turn makes several of these divisions; by a constant, they compile to multiplications.
    let units = match mtu {
        Mtu::Mtu256 | Mtu::Mtu512 | Mtu::Mtu1024 => bytes / unit(Mtu::Mtu1024),
        Mtu::Mtu2048 => bytes / unit(Mtu::Mtu2048),
        Mtu::Mtu4096 => bytes / unit(Mtu::Mtu4096),
    };
    u32::try_from(units.saturating_sub(1)).unwrap_or(u32::MAX)
}

#[inline]
pub(crate) const fn unit(mtu: Mtu) -> u64 {
    let payload = match mtu.bytes() {
        short if short < PAYLOAD_MIN => PAYLOAD_MIN,
        long => long,
    };
    (payload + OVERHEAD) as u64 // at most as long as a packet
}

/// How much of a buffer is taken, and which queue pairs wait for room in it.
#[derive(Debug, Default)]
pub(crate) struct Room {
    pub(crate) used: u64,
    /// How much of that is assumed to be lost: nothing came back for a long time while others
    /// waited.
    pub(crate) written_off: u64,
    /// Something came back since the last look.
    pub(crate) returned: bool,
    /// Queue pairs in the order in which they get their turn.
    pub(crate) waiting: VecDeque<u32>,
}

impl Room {
    /// Bytes that are taken.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Those of them that may come back.
    pub(crate) fn live(&self) -> u64 {
        self.used - self.written_off
    }

    /// Whether only one queue pair, which has taken `own` bytes, has anything there that may come
    /// back.
    pub(crate) fn is_alone(&self, own: u64) -> bool {
        self.live() <= own
    }

    /// Whether one more packet fits within `bound`.
    pub(crate) fn fits_one(&self, mtu: Mtu, bound: u64) -> bool {
        self.live() + cost(1, mtu) <= bound
    }

    /// Queue pairs that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whose turn it is.
    pub(crate) fn next(&self) -> Option<u32> {
        self.waiting.front().copied()
    }

    /// The bytes of `bound` that a queue pair with `own` bytes may take in all. It gets no more if
    /// others waited before it, or if what is left is too little for a turn.
    pub(crate) fn allowed(&self, index: u32, own: u64, bound: u64) -> u64 {
        let left = bound.saturating_sub(self.live());
        let worth = self.used == 0 || left >= TURN_BYTES.min(bound / 4);
        match self.next().is_none_or(|next| next == index) && worth {
            true => own + left,
            false => own,
        }
    }

    /// Updates the bytes that a queue pair has taken; tells whether a waiting one may continue.
    pub(crate) fn book(&mut self, before: u64, now: u64) -> bool {
        self.used = self.used + now - before;
        self.written_off = self.written_off.min(self.used);
        self.returned |= now < before;
        now < before && !self.waiting.is_empty()
    }

    /// Ends the turn of a queue pair, which waits again if it `wants` more; it keeps its place if
    /// it has not `took` anything. Tells whether the next queue pair has to be called. That is so
    /// if it is another one, or if everything on the wire came back while the host was interrupted
    /// in the middle of the turn, so that no later answer calls it.
    pub(crate) fn end_turn(
        &mut self,
        index: u32,
        waits: &mut bool,
        wants: bool,
        took: bool,
    ) -> bool {
        let is_next = *waits && self.next() == Some(index);
        let goes = is_next && (took || !wants);
        if goes {
            self.waiting.pop_front();
            *waits = false;
        }
        if wants && !*waits {
            self.waiting.push_back(index);
            *waits = true;
        }
        let calls = |next: u32| self.used == 0 || goes && next != index;
        self.next().is_some_and(calls)
    }

    /// Writes off what is on the wire if nothing has come back since the last check and a queue
    /// pair waits; returns the first waiting one.
    pub(crate) fn write_off(&mut self) -> Option<u32> {
        let next = self.next()?;
        let returned = std::mem::take(&mut self.returned);
        if !returned {
            self.written_off = self.used;
        }
        (!returned).then_some(next)
    }

    /// Whether a queue pair waits for something to come back.
    pub(crate) fn may_be_written_off(&self) -> bool {
        self.used > self.written_off && !self.waiting.is_empty()
    }

    /// Removes a queue pair that no longer waits.
    pub(crate) fn leave(&mut self, index: u32) {
        match self.next() == Some(index) {
            true => drop(self.waiting.pop_front()),
            false => self.waiting.retain(|waiting| *waiting != index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affordable_packets_cost_at_most_the_budget() {
        for mtu in [Mtu::Mtu256, Mtu::Mtu1024, Mtu::Mtu2048, Mtu::Mtu4096] {
            for bytes in [0, 1, 2303, 2304, 10_000, 1 << 20, u64::from(u32::MAX)] {
                let packets = affordable(bytes, mtu);
                assert!(cost(packets, mtu) <= bytes);
                assert!(cost(packets + 1, mtu) > bytes);
            }
        }
        assert_eq!(affordable(u64::MAX, Mtu::Mtu256), u32::MAX);
    }

    /// The kernel's own count (truesize) of a datagram that comes alone over loopback.
    #[test]
    fn a_single_packet_costs_what_the_kernel_counts() {
        for (mtu, truesize) in [
            (Mtu::Mtu256, 1280),
            (Mtu::Mtu512, 1280),
            (Mtu::Mtu1024, 2304),
            (Mtu::Mtu2048, 4352),
            (Mtu::Mtu4096, 8448),
        ] {
            assert!(cost(1, mtu) >= truesize, "{mtu:?}");
        }
    }

    #[test]
    fn waiting_queue_pairs_go_first() {
        let mut room = Room::default();
        let bound = 1 << 20;
        assert_eq!(room.allowed(7, 0, bound), bound);
        assert!(!room.book(0, 900_000));
        room.waiting.extend([3, 4]);
        assert_eq!(room.allowed(7, 900_000, bound), 900_000);
        assert_eq!(room.allowed(3, 0, bound), bound - 900_000);
        assert!(!room.book(0, bound - 910_000));
        assert_eq!(room.allowed(3, 0, bound), 0, "10,000 bytes are no burst");
        assert!(room.book(900_000, 0));
        room.leave(4);
        room.leave(3);
        assert_eq!((room.next(), room.waiting()), (None, 0));
        assert_eq!(room.used(), bound - 910_000);
    }
}
