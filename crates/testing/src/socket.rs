//! Sockets with limited receive buffers, and hosts that are slow to empty them.

use std::collections::VecDeque;

use ferroce_base::random::Dice;
use ferroce_device::{Span, Time};

use crate::flight::Flight;

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
    /// Now and then it does nothing at all, as a thread that lost its processor.
    pub stalls: Option<Stalls>,
}

/// When and for how long a receiver does nothing: each time something up to twice as much.
#[derive(Clone, Copy, Debug)]
pub struct Stalls {
    /// How long it works, on average.
    pub works: Span,
    /// How long it does nothing then.
    pub stalls: Span,
}

impl Default for Receiver {
    fn default() -> Self {
        Self {
            buffer: 4 << 20,
            packet_ns: 500,
            stalls: None,
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
    stalls_at: Time,
    dice: Dice,
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
            stalls_at: Time::ZERO,
            dice: Dice::new(1),
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

    /// Its host takes nothing before `until`.
    pub fn stop(&mut self, until: Time) {
        self.free_at = until;
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
            self.work();
        }
        batch
    }

    /// Takes the time of a packet, and that of a stall if it is time for one.
    fn work(&mut self) {
        let packet = Span::from_nanos(self.receiver.packet_ns);
        self.free_at = self.free_at.after(packet);
        let Some(Stalls { works, stalls }) = self.receiver.stalls else {
            return;
        };
        if self.free_at >= self.stalls_at {
            self.free_at = self.free_at.after(self.draw(stalls));
            self.stalls_at = self.free_at.after(self.draw(works));
        }
    }

    fn draw(&mut self, mean: Span) -> Span {
        Span::from_nanos(self.dice.below(2 * mean.as_nanos()))
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
