//! The end that writes.

use std::sync::atomic::Ordering;

use super::layout::{Class, DATA, HEADER, Header, Kind, between, offset, room_for, to_end};
use super::memory::Memory;
use super::sizes::{ANEW_BYTES, ASK_BYTES, CAPACITY, PACKET_BYTES_MAX, UNPUBLISHED_BYTES_MAX};

/// The end of a ring that writes.
#[derive(Debug)]
pub struct Producer {
    memory: Memory,
    /// Up to where packets are written, and up to where the consumer knows of them.
    tail: u64,
    published: u64,
    /// The position of the ring's first byte.
    start: u64,
    /// Up to where the consumer had read when it was looked at last.
    head: u64,
    /// Where the producer was when it looked whether the ring is empty.
    asked: u64,
    /// Where it was when memory was given back.
    rested: u64,
}

/// Why a packet was not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is no room for it now.
    Full,
    /// It can never be written: it is too long, or its bytes are not there.
    Never,
    /// The consumer has put nonsense where it says how far it is.
    Broken,
}

impl Producer {
    /// The end of a ring to which nothing has been written.
    pub fn new(memory: Memory) -> Self {
        Self {
            memory,
            tail: 0,
            published: 0,
            start: 0,
            head: 0,
            asked: 0,
            rested: 0,
        }
    }

    /// That of a ring in which all up to a position has been written and read.
    #[cfg(test)]
    pub(super) fn at(memory: Memory, position: u64) -> Self {
        let [tail, published, head, asked, rested] = [position; 5];
        Self {
            tail,
            published,
            head,
            asked,
            rested,
            ..Self::new(memory)
        }
    }

    /// The ring's memory.
    #[cfg(test)]
    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Writes a packet of `len` bytes, which `write` fills in; false from it takes the packet back.
    /// The consumer sees it after [`Self::publish`] at the latest.
    ///
    /// # Errors
    /// See [`Refused`].
    #[inline]
    pub fn push(
        &mut self,
        kind: Kind,
        class: Class,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<(), Refused> {
        if len > PACKET_BYTES_MAX {
            return Err(Refused::Never);
        }
        let need = room_for(len);
        self.start_again_if_empty();
        let skip = self.skip(need);
        if !self.has_room(skip + need)? {
            return Err(Refused::Full);
        }
        let at = self.tail + skip;
        let begin = DATA + offset(at - self.start);
        let region = &mut self.memory.region;
        if !region.write(begin + HEADER, len, write) {
            return Err(Refused::Never);
        }
        let header = Header::Packet { kind, class, len };
        region
            .word(begin)
            .store(header.to_word(), Ordering::Relaxed);
        if skip > 0 {
            let wrap = region.word(DATA + offset(self.tail - self.start));
            wrap.store(Header::Wrap.to_word(), Ordering::Relaxed);
        }
        self.tail = at + need;
        if self.tail - self.published >= UNPUBLISHED_BYTES_MAX {
            self.publish();
        }
        Ok(())
    }

    /// Whether there is room for a packet of that many bytes.
    ///
    /// # Errors
    /// Why not.
    pub fn fits(&mut self, len: usize) -> Result<(), Refused> {
        if len > PACKET_BYTES_MAX {
            return Err(Refused::Never);
        }
        // The most that may be left out for it.
        let need = 2 * room_for(len);
        match self.has_room(need)? {
            true => Ok(()),
            false => Err(Refused::Full),
        }
    }

    /// Bytes to leave out so that a packet is in one piece.
    #[inline]
    fn skip(&self, need: u64) -> u64 {
        let left = to_end(self.tail - self.start);
        if need > left { left } else { 0 }
    }

    /// Writes to the ring's first byte next if the consumer has taken all.
    #[inline]
    fn start_again_if_empty(&mut self) {
        if offset(self.tail - self.start) as u64 >= ANEW_BYTES && self.is_empty() {
            [self.start, self.head] = [self.tail; 2];
            // The tail that follows makes it visible.
            self.memory.start().store(self.start, Ordering::Relaxed);
        }
    }

    /// Whether the consumer has taken all. To ask costs a cache line, so it is asked now and then;
    /// when it is not, the answer is no.
    #[inline]
    fn is_empty(&mut self) -> bool {
        if self.tail - self.asked < ASK_BYTES {
            return false;
        }
        self.asked = self.tail;
        self.memory.head().load(Ordering::Acquire) == self.tail
    }

    /// Gives memory back that much traffic has needed, if all of that has been read. What quiet traffic
    /// needs is kept. Returns whether there was something.
    pub fn rest(&mut self) -> bool {
        let may_hold_more = self.tail - self.rested > ANEW_BYTES;
        let is_due = may_hold_more && self.memory.head().load(Ordering::Acquire) == self.tail;
        if is_due {
            self.rested = self.tail;
            let kept = ANEW_BYTES as usize;
            self.memory.region.give_back(DATA + kept, CAPACITY - kept);
        }
        is_due
    }

    #[inline]
    fn has_room(&mut self, need: u64) -> Result<bool, Refused> {
        let fits = |used: u64| CAPACITY as u64 - used >= need;
        if fits(self.tail - self.head) {
            return Ok(true);
        }
        // What the consumer has read is free once it has said so.
        let head = self.memory.head().load(Ordering::Acquire);
        let used = between(head, self.tail).ok_or(Refused::Broken)?;
        if used > self.tail - self.head {
            return Err(Refused::Broken); // it has gone back
        }
        self.head = head;
        Ok(fits(used))
    }

    /// Shows the consumer what is written. Whether it sleeps is for the caller to see to.
    #[inline]
    pub fn publish(&mut self) {
        if self.published != self.tail {
            self.published = self.tail;
            self.memory.tail().store(self.tail, Ordering::Release);
        }
    }

    /// Notes that a packet was lost for lack of room; the consumer counts it.
    pub fn note_dropped(&self) {
        self.memory.dropped().fetch_add(1, Ordering::Relaxed);
    }

    /// Up to where the consumer has read, when there was no room.
    pub fn head(&self) -> u64 {
        self.head
    }
}
