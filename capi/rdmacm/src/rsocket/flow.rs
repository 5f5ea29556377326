//! The protocol of rsocket(7): what may be sent, and what was received but not yet read.
//!
//! Data is written into the peer's receive buffer, which the peer offers one half at a time, and is
//! announced by a number that accompanies the write. Each such message uses one of the peer's
//! posted receives, so the peer also announces how many messages it can take.
//!
//! This module has no memory and makes no calls: [`link`](super::link) carries out its decisions,
//! and the tests do so with two ends on a network of their own.

use std::collections::VecDeque;

use super::wire::{Hello, Mapping, Message, OFFERS, Target};

/// Most bytes of one message.
const MESSAGE_MAX: u32 = 64 << 10;
/// Send buffers with less room than this wait for more, so that messages do not become ever smaller.
const ROOM_MIN: u32 = 2 << 10;
/// Sends kept back for what is not data.
const CONTROLS: u16 = 4;
/// Receive requests beyond those that data takes: more controls than this cannot arrive while the
/// program looks away, because the peer has nothing left to read and to answer. Without them the peer
/// would have to try again, after the long time that connections wait.
const CONTROL_RECEIVES: u16 = 8;

/// Sizes of a stream's queues and buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sizes {
    pub(super) send_buffer: u32,
    pub(super) recv_buffer: u32,
    pub(super) send_queue: u16,
    pub(super) recv_queue: u16,
    pub(super) inline: u16,
    pub(super) maps: u16,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            send_buffer: 2 << 20,
            recv_buffer: 2 << 20,
            send_queue: 384,
            recv_queue: 384,
            inline: 64,
            maps: 0,
        }
    }
}

impl Sizes {
    /// Receive requests that are posted.
    pub(super) fn receives(&self) -> u16 {
        self.recv_queue + CONTROL_RECEIVES
    }
}

/// Parts of a ring of bytes: up to two, of which the second begins at its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Parts {
    pub(super) offset: u32,
    pub(super) first: u32,
    pub(super) second: u32,
}

impl Parts {
    fn of(offset: u32, length: u32, size: u32) -> Self {
        let first = length.min(size - offset);
        Self {
            offset,
            first,
            second: length - first,
        }
    }

    fn end(self, size: u32) -> u32 {
        match self.second {
            0 => (self.offset + self.first) % size,
            second => second,
        }
    }

    pub(super) fn length(self) -> u32 {
        self.first + self.second
    }
}

/// A place in the peer's memory: address and key.
pub(super) type Place = (u64, u32);

/// What the peer is to be told: which messages it may send, and from where on it may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Credit {
    pub(super) limit: u16,
    pub(super) offer: Option<Offer>,
}

/// A half of the receive buffer for the peer, and where it wants to hear of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Offer {
    pub(super) offset: u32,
    pub(super) length: u32,
    pub(super) to: Place,
}

/// How the peer ended what it sends, or the link itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// It sends no more.
    Shutdown,
    /// It neither sends nor takes anything.
    Disconnected,
    /// The link does not work any more, or the peer has sent what it may not.
    Broken,
}

#[derive(Debug)]
pub(super) struct Flow {
    sizes: Sizes,
    peer: Peer,
    /// Requests that the send queue takes for data, and for the rest.
    data_slots: u16,
    control_slots: u16,
    send_free: u32,
    send_next: u32,
    /// Messages sent, and how many may be, modulo 2^16.
    sent: u16,
    send_limit: u16,
    /// What is left of the memory that the peer has offered, and in which place it offers more.
    target: Target,
    offer_place: usize,
    /// Messages that arrived and were not read, and the bytes in them.
    messages: VecDeque<u32>,
    unread: u32,
    recv_next: u32,
    /// Bytes that were read since their half was offered, and the half to be offered next.
    recv_free: u32,
    offer_next: u32,
    /// Messages read, and at which count the peer is to be told, modulo 2^16.
    read: u16,
    tell_at: u16,
}

/// What the peer has said of itself.
#[derive(Debug, Default)]
struct Peer {
    has_other_byte_order: bool,
    offers: Target,
    /// The place for the next offer.
    offer_place: u32,
    maps: u16,
}

impl Flow {
    pub(super) fn new(sizes: Sizes) -> Self {
        let half = sizes.recv_buffer / 2;
        Self {
            sizes,
            peer: Peer::default(),
            data_slots: sizes.send_queue - CONTROLS,
            control_slots: CONTROLS,
            send_free: sizes.send_buffer,
            send_next: 0,
            sent: 0,
            send_limit: 0,
            target: Target::default(),
            offer_place: 0,
            messages: VecDeque::new(),
            unread: 0,
            recv_next: 0,
            recv_free: half,
            offer_next: half,
            read: 0,
            tell_at: sizes.recv_queue / 2,
        }
    }

    /// Takes what the other end says of itself, with its first offer.
    pub(super) fn meet(&mut self, hello: &Hello) {
        self.peer = Peer {
            has_other_byte_order: hello.is_big_endian != cfg!(target_endian = "big"),
            offers: hello.offers,
            offer_place: 1 % hello.offers.length.max(1),
            maps: hello.maps,
        };
        self.send_limit = hello.limit;
        self.target = hello.buffer;
        self.offer_place = 1;
    }

    pub(super) fn peer_maps(&self) -> u16 {
        self.peer.maps
    }

    /// The place in which the peer's next offer appears, if this end needs it.
    pub(super) fn wanted_offer(&self) -> Option<usize> {
        (self.target.length == 0).then_some(self.offer_place)
    }

    /// Takes the offer from that place.
    pub(super) fn take_offer(&mut self, target: Target) {
        self.target = target;
        self.offer_place = (self.offer_place + 1) % OFFERS;
    }

    /// Whether anything can be sent that is not a control.
    pub(super) fn can_send(&self) -> bool {
        self.data_slots > 0
            && self.send_free >= ROOM_MIN
            && self.sent != self.send_limit
            && self.target.length > 0
    }

    /// Takes room for a message with at most `wanted` bytes: only if [`Flow::can_send`].
    pub(super) fn send_data(&mut self, wanted: u32) -> (Parts, Place) {
        let parts = self.reserve(wanted.min(self.target.length));
        let to = (self.target.addr, self.target.key);
        self.target.addr = self.target.addr.wrapping_add(parts.length().into());
        self.target.length -= parts.length();
        self.sent = self.sent.wrapping_add(1);
        (parts, to)
    }

    /// Takes room for an entry of the peer's table of mapped memory: only if [`Flow::can_send`].
    pub(super) fn send_mapping(&mut self, index: u16) -> (Parts, Place) {
        let parts = self.reserve(Mapping::LEN);
        self.sent = self.sent.wrapping_add(1);
        let before = u64::from(self.peer.offers.length) * u64::from(Target::LEN)
            + u64::from(index) * u64::from(Mapping::LEN);
        let Target { addr, key, .. } = self.peer.offers;
        (parts, (addr.wrapping_add(before), key))
    }

    /// Takes room for at most `wanted` bytes that the peer is not told of: only if [`Flow::can_send`].
    pub(super) fn send_silently(&mut self, wanted: u32) -> Parts {
        self.reserve(wanted)
    }

    fn reserve(&mut self, wanted: u32) -> Parts {
        let length = wanted.min(MESSAGE_MAX).min(self.send_free);
        let parts = Parts::of(self.send_next, length, self.sizes.send_buffer);
        self.send_next = parts.end(self.sizes.send_buffer);
        self.send_free -= length;
        self.data_slots -= 1;
        parts
    }

    /// A write of `length` bytes is done; they finish in their order.
    pub(super) fn data_is_done(&mut self, length: u32) {
        self.data_slots += 1;
        self.send_free += length;
    }

    pub(super) fn has_control_slot(&self) -> bool {
        self.control_slots > 0
    }

    pub(super) fn take_control_slot(&mut self) {
        self.control_slots -= 1;
    }

    pub(super) fn control_is_done(&mut self) {
        self.control_slots += 1;
    }

    /// Whether nothing that was sent is on its way.
    pub(super) fn is_sent(&self) -> bool {
        self.data_slots + self.control_slots == self.sizes.send_queue
    }

    /// Takes what the peer says. Answers what it has ended by that, if it has.
    pub(super) fn hear(&mut self, message: Message) -> Option<End> {
        match message {
            Message::Data(length) => return self.arrived(length),
            Message::Limit(limit) => self.send_limit = limit,
            // The peer counts it among those that it may send, and there is nothing in it to read.
            Message::Mapped(_) => self.read = self.read.wrapping_add(1),
            Message::Disconnect => return Some(End::Disconnected),
            Message::Shutdown => return Some(End::Shutdown),
            Message::Alive | Message::Unknown => {}
        }
        None
    }

    fn arrived(&mut self, length: u32) -> Option<End> {
        let room = self.sizes.recv_buffer - self.unread;
        let is_full = self.messages.len() >= usize::from(self.sizes.recv_queue);
        if length > room || is_full {
            return Some(End::Broken);
        }
        self.messages.push_back(length);
        self.unread += length;
        None
    }

    pub(super) fn has_data(&self) -> bool {
        !self.messages.is_empty()
    }

    /// Where the next bytes to be read are, at most `wanted`.
    pub(super) fn peek(&self, wanted: u32) -> Parts {
        let length = wanted.min(self.unread);
        Parts::of(self.recv_next, length, self.sizes.recv_buffer)
    }

    /// Bytes were read, no more than there are.
    pub(super) fn take(&mut self, length: u32) {
        let parts = Parts::of(self.recv_next, length, self.sizes.recv_buffer);
        self.recv_next = parts.end(self.sizes.recv_buffer);
        self.recv_free += length;
        self.unread -= length;
        let mut left = length;
        while let Some(first) = self.messages.front_mut() {
            if left < *first {
                *first -= left;
                break;
            }
            left -= *first;
            self.messages.pop_front();
            self.read = self.read.wrapping_add(1);
        }
    }

    /// Takes a slot for what the peer is to be told now.
    pub(super) fn credit(&mut self) -> Option<Credit> {
        let half = self.sizes.recv_buffer / 2;
        let has_half = self.recv_free >= half;
        let is_due = self.read.wrapping_sub(self.tell_at).cast_signed() >= 0;
        if !self.has_control_slot() || !(has_half || is_due) {
            return None;
        }
        self.take_control_slot();
        self.tell_at = self.read.wrapping_add(self.sizes.recv_queue / 2);
        let offer = has_half.then(|| self.offer(half));
        let limit = self.read.wrapping_add(self.sizes.recv_queue);
        Some(Credit { limit, offer })
    }

    fn offer(&mut self, half: u32) -> Offer {
        let offset = self.offer_next;
        self.recv_free -= half;
        self.offer_next = (offset + half) % (2 * half);
        let Target { addr, key, length } = self.peer.offers;
        let before = u64::from(self.peer.offer_place) * u64::from(Target::LEN);
        self.peer.offer_place = (self.peer.offer_place + 1) % length.max(1);
        Offer {
            offset,
            length: half,
            to: (addr.wrapping_add(before), key),
        }
    }

    /// What is written to the peer's tables, in its byte order.
    pub(super) fn for_peer(&self, target: Target) -> Target {
        match self.peer.has_other_byte_order {
            true => target.swapped(),
            false => target,
        }
    }

    /// As [`Flow::for_peer`].
    pub(super) fn mapping_for_peer(&self, mapping: Mapping) -> Mapping {
        match self.peer.has_other_byte_order {
            true => mapping.swapped(),
            false => mapping,
        }
    }
}

#[cfg(test)]
mod tests;
