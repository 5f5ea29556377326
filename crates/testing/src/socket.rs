//! Sockets whose receive buffers end somewhere, and hosts that take their time to empty them.

use std::collections::VecDeque;

use ferroce_hca::{Span, Time};

use crate::world::Flight;

/// Packets that a socket hands over in one call.
const BATCH: usize = 32;
/// A receiver that needs longer for a packet takes them one by one.
const BATCH_PACKET_NS: u64 = 10_000;

/// How a socket takes packets.
#[derive(Clone, Copy, Debug)]
pub struct Receiver {
    /// What the receive buffer takes, in bytes as the kernel counts them.
    pub buffer: u64,
    /// How long each packet takes.
    pub packet_ns: u64,
}

impl Default for Receiver {
    fn default() -> Self {
        Self {
            buffer: 4 << 20,
            packet_ns: 500,
        }
    }
}

/// The socket of a device.
#[derive(Debug)]
pub struct Socket {
    receiver: Receiver,
    queue: VecDeque<Flight>,
    used: u64,
    free_at: Time,
    /// Packets that found no room.
    pub drops: u64,
    /// The most bytes that its buffer has held.
    pub peak: u64,
}

impl Socket {
    /// An empty one.
    pub fn new(receiver: Receiver) -> Self {
        Self {
            receiver,
            queue: VecDeque::new(),
            used: 0,
            free_at: Time::ZERO,
            drops: 0,
            peak: 0,
        }
    }

    /// A packet has arrived.
    pub(crate) fn offer(&mut self, now: Time, flight: Flight) {
        if self.used > self.receiver.buffer {
            self.drops += 1; // as Linux has it: the last one may stick out
            return;
        }
        self.used += flight.truesize;
        self.peak = self.peak.max(self.used);
        self.free_at = self.free_at.max(now);
        self.queue.push_back(flight);
    }

    /// When its host takes packets next.
    pub(crate) fn next(&self) -> Option<Time> {
        (!self.queue.is_empty()).then_some(self.free_at)
    }

    /// Takes what one receive call brings, if its host has time.
    pub(crate) fn receive(&mut self, now: Time) -> Vec<Flight> {
        if self.free_at > now {
            return Vec::new();
        }
        let batch = match self.receiver.packet_ns {
            0..BATCH_PACKET_NS => BATCH,
            _ => 1,
        };
        let batch: Vec<_> = self.queue.drain(..batch.min(self.queue.len())).collect();
        for flight in &batch {
            self.used -= flight.truesize;
            self.free_at = self
                .free_at
                .after(Span::from_nanos(self.receiver.packet_ns));
        }
        batch
    }
}

/// What the kernel counts a packet as: one that is coalesced with the one before takes its bytes and
/// little more.
pub(crate) fn truesize(payload_len: u32, is_coalesced: bool) -> u64 {
    match is_coalesced {
        true => u64::from(payload_len) + 32,
        false => u64::from(payload_len + 420).next_power_of_two() + 256,
    }
}
