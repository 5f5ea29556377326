//! Peers on this host: processes of the same user with a device of the same directory. Packets to
//! them go through rings in shared memory, see `docs/design/same-host.md`.
//!
//! A ring leads from one process to another, for one device of each. Who sends makes it, when the
//! first packet is to leave, and puts it into the other's mailbox together with one end of a pair of
//! sockets. Over that a sleeping reader is woken, and its closing tells each of the end of the other.

mod inlets;
mod line;
mod offer;
mod outlets;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use ferroce_device::{Counter, Hca, Outgoing, Time};
use ferroce_driver::Full;
use ferroce_os::{Epoll, Tap};
use ferroce_registry::{LinkSetting, PeerLinks, Reader, SharedFile};
use ferroce_wire::Flows;

pub use self::inlets::Arrived;
use self::inlets::Inlets;
pub use self::offer::Offer;
use self::outlets::{Outlets, Route};

/// Rings that a process writes, and as many that it reads, for each device.
const RINGS_MAX: usize = 64;

/// A process's rings to and from peers on this host.
#[derive(Debug)]
pub struct Near {
    own: SocketAddr,
    reader: Reader,
    inlets: Inlets,
    outlets: Outlets,
    /// Tells which ring's other end has something to say.
    lines: Arc<Epoll>,
}

/// The outcome of sending a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// It is in a ring, or lost.
    Done,
    /// It is to leave by the socket.
    NotHere,
}

impl Near {
    /// For the owner of a slot; `None` if its device is to use UDP. `watch` is told of the lines.
    pub fn new(
        shared: &Arc<SharedFile>,
        slot: u8,
        setting: LinkSetting,
        own: SocketAddr,
        watch: &Epoll,
    ) -> io::Result<Option<Self>> {
        if setting == LinkSetting::Udp {
            return Ok(None);
        }
        let lines = Arc::new(Epoll::new()?);
        watch.add(&*lines)?;
        let reader = Reader::new(Arc::clone(shared), slot);
        reader.set_room(RINGS_MAX);
        Ok(Some(Self {
            own,
            inlets: Inlets::new(Arc::clone(&lines)),
            outlets: Outlets::new(reader.clone(), own, setting, Arc::clone(&lines)),
            reader,
            lines,
        }))
    }

    /// The device's address.
    #[inline]
    pub fn own(&self) -> SocketAddr {
        self.own
    }

    /// What carries the packets to the peers of this process.
    pub fn links(&self) -> PeerLinks {
        self.outlets.links()
    }

    /// What says whether this process sleeps.
    #[inline]
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Whether this descriptor reports lines.
    pub fn is_told_of_by(&self, fd: i32) -> bool {
        self.lines.as_fd().as_raw_fd() == fd
    }

    /// Whether another process sends to this one through a ring.
    #[inline]
    pub fn has_inlets(&self) -> bool {
        !self.inlets.is_empty()
    }

    /// Whether something has arrived.
    #[inline]
    pub fn has_some(&self) -> bool {
        self.inlets.has_some()
    }

    /// Takes at most `max` packets; returns their number.
    #[inline]
    pub fn take(
        &mut self,
        max: usize,
        hca: &mut Hca,
        each: impl FnMut(&mut Hca, Arrived<'_>),
    ) -> usize {
        let taken = self.inlets.take(max, hca, each);
        if self.inlets.has_lost_one() {
            self.tell_room();
        }
        taken
    }

    /// Takes a ring that another process has made, if there is room for it.
    #[cold]
    pub fn accept(&mut self, offer: Offer) {
        self.inlets.accept(offer);
        self.tell_room();
    }

    /// Looks whose other ends are gone, and takes what woke this process; returns whether something has.
    #[cold]
    pub fn look_at_lines(&mut self) -> bool {
        // No more often than there are lines; those left over come up again.
        for _ in 0..2 * RINGS_MAX {
            let Some(fd) = self.lines.next() else { break };
            if !self.inlets.look(fd) && !self.outlets.look(fd) {
                break;
            }
        }
        if self.inlets.has_lost_one() {
            self.tell_room();
        }
        self.inlets.was_woken()
    }

    fn tell_room(&self) {
        self.reader.set_room(RINGS_MAX - self.inlets.len());
    }

    /// Puts a packet into the ring to its peer, if there is one.
    ///
    /// # Errors
    /// What is written must be shown first, or read first.
    #[inline]
    pub fn push(
        &mut self,
        hca: &mut Hca,
        packet: &Outgoing,
        flows: &mut Flows,
        tap: Option<&Tap>,
    ) -> Result<Pushed, Full> {
        let slot = (packet.headers.dest_qp.value() >> 16) as u8;
        // Queue pairs 0 and 1, and a group's.
        if packet.headers.dest_qp.value() <= 1 || packet.path.dest.is_multicast() {
            return Ok(Pushed::NotHere);
        }
        match self.outlets.route((packet.path.dest, slot)) {
            Route::Udp => Ok(Pushed::NotHere),
            Route::Nowhere => {
                hca.count(Counter::TxDropped, 1);
                Ok(Pushed::Done)
            }
            Route::Ring(index) => {
                self.outlets.push(index, hca, packet, flows, tap)?;
                Ok(Pushed::Done)
            }
        }
    }

    /// Bytes that wait for [`Self::flush`], and more than 0 if a packet waits for room.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.outlets.waiting()
    }

    /// Shows what is written to its readers, and wakes them if they sleep. False: a packet
    /// waits for room.
    #[inline]
    pub fn flush(&mut self) -> bool {
        self.outlets.flush()
    }

    /// Gives memory back that rings needed in traffic.
    pub fn rest(&mut self) {
        self.outlets.rest();
    }

    /// When a packet that waits for room is to be offered again, on the machine's clock.
    #[inline]
    pub fn deadline(&self) -> Option<Time> {
        self.outlets.retry_at()
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        self.reader.set_room(0);
    }
}
