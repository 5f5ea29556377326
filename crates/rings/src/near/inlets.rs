//! The rings that a process reads.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use ferroce_device::{Counter, Hca};
use ferroce_os::Epoll;

use super::line::Line;
use super::{Offer, RINGS_MAX};
use crate::ring::{Broken, Consumer, Entry, Memory, PACKET_BYTES_MAX};

/// The rings of all who send to this process.
#[derive(Debug)]
pub(super) struct Inlets {
    inlets: Vec<Inlet>,
    /// Whose turn it is.
    next: usize,
    /// Where a packet is looked at: in the ring it could change meanwhile.
    buffer: Box<[u8; PACKET_BYTES_MAX]>,
    lines: Arc<Epoll>,
    has_lost_one: bool,
    was_woken: bool,
}

#[derive(Debug)]
struct Inlet {
    consumer: Consumer,
    line: Line,
    source: SocketAddr,
    /// Nothing is written any more: it goes when it has been read.
    is_closed: bool,
}

/// A packet from a ring.
#[derive(Debug)]
pub struct Arrived<'a> {
    /// The sender's device.
    pub source: SocketAddr,
    /// The packet.
    pub entry: Entry<'a>,
}

impl Inlets {
    pub(super) fn new(lines: Arc<Epoll>) -> Self {
        Self {
            inlets: Vec::new(),
            next: 0,
            buffer: Box::new([0; PACKET_BYTES_MAX]),
            lines,
            has_lost_one: false,
            was_woken: false,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.inlets.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.inlets.len()
    }

    #[inline]
    pub(super) fn has_some(&self) -> bool {
        self.inlets.iter().any(|inlet| inlet.consumer.has_some())
    }

    /// Whether there are fewer than when this was asked last.
    #[inline]
    pub(super) fn has_lost_one(&mut self) -> bool {
        self.has_lost_one && std::mem::take(&mut self.has_lost_one)
    }

    /// What is not a ring, or one too many, is dropped, which its sender sees.
    pub(super) fn accept(&mut self, offer: Offer) {
        let Offer {
            source,
            memory,
            line,
        } = offer;
        if self.inlets.len() == RINGS_MAX {
            return;
        }
        let (Ok(memory), line) = (Memory::of(memory), Line::of(line)) else {
            return;
        };
        if self.lines.add(&line).is_ok() {
            self.inlets.push(Inlet {
                consumer: Consumer::new(memory),
                line,
                source,
                is_closed: false,
            });
        }
    }

    /// Whether another process has woken this one since this was asked last.
    pub(super) fn was_woken(&mut self) -> bool {
        std::mem::take(&mut self.was_woken)
    }

    /// Looks at the line with this descriptor; false if it is none of these.
    pub(super) fn look(&mut self, fd: i32) -> bool {
        let is_it = |inlet: &Inlet| inlet.line.as_fd().as_raw_fd() == fd;
        let Some(index) = self.inlets.iter().position(is_it) else {
            return false;
        };
        let inlet = &mut self.inlets[index];
        self.was_woken = true;
        if !inlet.line.is_open() {
            inlet.is_closed = true;
            // It would come up again and again.
            self.lines.remove(&inlet.line);
            if !inlet.consumer.has_some() {
                self.remove(index);
            }
        }
        true
    }

    /// Takes at most `max` packets, from each ring in turn; returns their number.
    #[inline]
    pub(super) fn take(
        &mut self,
        max: usize,
        hca: &mut Hca,
        mut each: impl FnMut(&mut Hca, Arrived<'_>),
    ) -> usize {
        let mut taken = 0;
        for _ in 0..self.inlets.len() {
            if taken >= max {
                break;
            }
            self.next = (self.next + 1) % self.inlets.len();
            let inlet = &mut self.inlets[self.next];
            if inlet.consumer.has_some() {
                taken += inlet.take(max - taken, &mut self.buffer, hca, &mut each);
            }
            if inlet.is_closed && !inlet.consumer.has_some() {
                self.remove(self.next);
                if self.inlets.is_empty() {
                    break;
                }
            }
        }
        taken
    }

    #[cold]
    fn remove(&mut self, index: usize) {
        let inlet = self.inlets.swap_remove(index);
        self.lines.remove(&inlet.line);
        self.has_lost_one = true;
    }
}

impl Inlet {
    #[inline]
    fn take(
        &mut self,
        max: usize,
        buffer: &mut [u8; PACKET_BYTES_MAX],
        hca: &mut Hca,
        each: &mut impl FnMut(&mut Hca, Arrived<'_>),
    ) -> usize {
        let source = self.source;
        let mut taken = 0;
        let mut read = || -> Result<(), Broken> {
            self.consumer.look()?;
            while taken < max
                && let Some(entry) = self.consumer.next(buffer)?
            {
                each(hca, Arrived { source, entry });
                taken += 1;
            }
            Ok(())
        };
        if read().is_err() {
            hca.count(Counter::RxMalformed, 1);
            self.give_up();
        }
        self.consumer.release();
        let dropped = self.consumer.take_dropped();
        if dropped > 0 {
            hca.count(Counter::RxRingOverflow, dropped);
        }
        taken
    }

    /// Nothing more is read from it.
    #[cold]
    fn give_up(&mut self) {
        self.is_closed = true;
        self.consumer.give_up();
    }
}
