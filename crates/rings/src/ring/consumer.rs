//! The end that reads, and believes nothing.

use std::sync::atomic::Ordering;

use super::layout::{Class, DATA, HEADER, Header, Kind, between, offset, room_for, to_end};
use super::memory::Memory;
use super::sizes::{PACKET_BYTES_MAX, UNRELEASED_BYTES_MAX};

/// The end of a ring that reads.
#[derive(Debug)]
pub struct Consumer {
    memory: Memory,
    /// Up to where packets are read, and up to where the producer knows of that.
    head: u64,
    released: u64,
    /// The position of the ring's first byte.
    start: u64,
    /// Up to where the producer had written when it was looked at last.
    tail: u64,
    /// Packets without room that are counted.
    dropped: u64,
    /// Nothing is read any more.
    is_given_up: bool,
}

/// A packet that has been copied out of the ring.
#[derive(PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Whether its ICRC is to be checked.
    pub kind: Kind,
    /// What gives its priority.
    pub class: Class,
    /// Its bytes, from the BTH to the ICRC.
    pub bytes: &'a mut [u8],
}

/// The producer has broken a rule: nothing in the ring means anything any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken;

impl Consumer {
    /// The end of a ring of which nothing has been read.
    pub fn new(memory: Memory) -> Self {
        Self {
            memory,
            head: 0,
            released: 0,
            start: 0,
            tail: 0,
            dropped: 0,
            is_given_up: false,
        }
    }

    /// That of a ring in which all up to a position has been written and read.
    #[cfg(test)]
    pub(super) fn at(memory: Memory, position: u64) -> Self {
        let [head, released, tail] = [position; 3];
        Self {
            head,
            released,
            tail,
            ..Self::new(memory)
        }
    }

    /// Whether there is something to read.
    #[inline]
    pub fn has_some(&self) -> bool {
        self.memory.tail().load(Ordering::Relaxed) != self.head && !self.is_given_up
    }

    /// Looks up to where the producer has written: as far goes [`Self::next`], so that who reads to
    /// the end comes to one, however fast the producer is. Returns whether there is something.
    ///
    /// # Errors
    /// The ring is of no more use.
    #[inline]
    pub fn look(&mut self) -> Result<bool, Broken> {
        if self.is_given_up {
            return Ok(false);
        }
        let tail = self.memory.tail().load(Ordering::Acquire);
        let start = self.memory.start().load(Ordering::Relaxed);
        if start != self.start {
            // The ring starts again only where all has been read.
            self.start = Some(start).filter(|at| *at == self.head).ok_or(Broken)?;
        }
        let seen = self.tail - self.head;
        let left = between(self.head, tail).filter(|left| *left >= seen);
        self.tail = self.head + left.ok_or(Broken)?;
        Ok(self.tail != self.head)
    }

    /// The next packet that the last [`Self::look`] has seen, copied into `buffer`.
    ///
    /// # Errors
    /// The ring is of no more use.
    #[inline]
    pub fn next<'a>(
        &mut self,
        buffer: &'a mut [u8; PACKET_BYTES_MAX],
    ) -> Result<Option<Entry<'a>>, Broken> {
        let mut left = self.tail - self.head;
        if left == 0 {
            return Ok(None);
        }
        let mut header = self.header()?;
        if header == Header::Wrap {
            // Never at the first byte, so there are no two in a row.
            let skip = to_end(self.head - self.start);
            if offset(self.head - self.start) == 0 || skip > left {
                return Err(Broken);
            }
            self.head += skip;
            left -= skip;
            if left == 0 {
                return Err(Broken); // no packet follows
            }
            header = self.header()?;
        }
        let Header::Packet { kind, class, len } = header else {
            return Err(Broken);
        };
        let need = room_for(len);
        if need > left.min(to_end(self.head - self.start)) {
            return Err(Broken);
        }
        let bytes = &mut buffer[..len];
        let begin = DATA + offset(self.head - self.start) + HEADER;
        self.memory.region.read(begin, bytes);
        self.head += need;
        if self.head - self.released >= UNRELEASED_BYTES_MAX {
            self.release();
        }
        Ok(Some(Entry { kind, class, bytes }))
    }

    #[inline]
    fn header(&self) -> Result<Header, Broken> {
        let word = self
            .memory
            .region
            .word(DATA + offset(self.head - self.start));
        Header::from_word(word.load(Ordering::Relaxed)).ok_or(Broken)
    }

    /// Reads nothing any more.
    pub fn give_up(&mut self) {
        self.is_given_up = true;
    }

    /// Gives the room of what has been read back to the producer.
    #[inline]
    pub fn release(&mut self) {
        if self.released != self.head {
            self.released = self.head;
            self.memory.head().store(self.head, Ordering::Release);
        }
    }

    /// Up to where it has read.
    #[cfg(test)]
    pub(super) fn position(&self) -> u64 {
        self.head
    }

    /// Packets that found no room, since the last call.
    pub fn take_dropped(&mut self) -> u64 {
        let dropped = self.memory.dropped().load(Ordering::Relaxed);
        dropped.wrapping_sub(std::mem::replace(&mut self.dropped, dropped))
    }
}
