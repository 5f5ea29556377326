//! Sockets of processes that have left, which keep their positions among those that share the port.
//!
//! The kernel identifies these sockets by index. When one is closed, the last one gets its index,
//! without notice to any process. Packets for the process of that last socket then arrive at
//! another process, which forwards them until the new index is known, and packets that arrive
//! directly after that overtake them. A process that leaves therefore gives its socket to another
//! process, which keeps it, and passes on what arrives there, until no process has a later
//! position.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use ferroce_device::{Span, Time};
use ferroce_os::Epoll;
use ferroce_registry::{Presence, SharedFile};
use ferroce_sockets::Socket;

/// Places that one process keeps. Beyond that it gives the oldest up.
pub(crate) const PLACES_MAX: usize = 8;
/// Sockets of these and of those given up, which may still hold packets.
const SOCKETS_MAX: usize = 2 * PLACES_MAX;
/// How often is looked whether a place is still worth keeping; after as long, a socket that has been
/// taken out of the group has been read.
const LOOK: Span = Span::from_millis(500);

/// The places that a process keeps.
#[derive(Debug)]
pub(crate) struct KeptPlaces {
    /// Readable if something has arrived.
    watch: Arc<Epoll>,
    /// Oldest first.
    sockets: Vec<Kept>,
    look_at: Time,
}

#[derive(Debug)]
struct Kept {
    socket: Arc<Socket>,
    /// Where it is, if its last owner knew.
    index: Option<u8>,
}

impl KeptPlaces {
    /// None. What `watch` reports may be one of these later.
    pub(crate) fn new(watch: Arc<Epoll>) -> Self {
        Self {
            watch,
            sockets: Vec::new(),
            look_at: Time::ZERO,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Keeps the place of a socket, if it is one of the device's.
    pub(crate) fn keep(&mut self, socket: OwnedFd, index: Option<u8>, own: &Socket, now: Time) {
        let Some(socket) = Socket::received(socket, own) else {
            return;
        };
        if self.watch.add(&socket).is_err() {
            return;
        }
        if self.sockets.is_empty() {
            self.look_at = now.after(LOOK);
        }
        if self.places().count() == PLACES_MAX
            && let Some(oldest) = self.places().next()
        {
            oldest.give_up();
        }
        if self.sockets.len() == SOCKETS_MAX {
            self.watch.remove(&*self.sockets.remove(0).socket);
        }
        let socket = Arc::new(socket);
        self.sockets.push(Kept { socket, index });
    }

    /// The socket with this descriptor.
    pub(crate) fn socket(&self, fd: RawFd) -> Option<Arc<Socket>> {
        let mut sockets = self.sockets.iter().map(|kept| &kept.socket);
        sockets
            .find(|socket| socket.as_fd().as_raw_fd() == fd)
            .cloned()
    }

    /// When [`Self::look`] wants to be called.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Time> {
        (!self.is_empty()).then_some(self.look_at)
    }

    /// Gives up places behind which no process is any more; for the owner of a slot.
    #[cold]
    pub(crate) fn look(&mut self, now: Time, shared: &SharedFile, slot: u8) {
        if self.deadline().is_none_or(|at| at > now) {
            return;
        }
        self.look_at = now.after(LOOK);
        let watch = &self.watch;
        self.sockets.retain(|kept| {
            let stays = !kept.socket.is_out();
            if !stays {
                watch.remove(&*kept.socket);
            }
            stays
        });
        // No process joins or leaves meanwhile. There is time for it.
        let Some(held) = shared.try_membership() else {
            return;
        };
        let Ok(mut slots) = shared.other_slots(&[Presence::In]) else {
            return;
        };
        // Whatever moves, all comes to who is alone.
        let is_alone = slots.is_empty();
        slots.push(slot);
        for kept in self.places() {
            if is_alone || !shared.is_place_needed(&held, kept.index, &slots) {
                kept.give_up();
            }
        }
    }

    /// Has other processes keep the places: `give` tells whether one takes it. The rest is given up.
    pub(crate) fn give_all(&mut self, give: impl Fn(&Socket, Option<u8>) -> bool) {
        let watch = &self.watch;
        self.sockets.retain(|kept| {
            let given = !kept.socket.is_out() && give(&kept.socket, kept.index);
            match given {
                true => watch.remove(&*kept.socket),
                false => kept.give_up(),
            }
            !given
        });
    }

    /// Those that have not been given up.
    fn places(&self) -> impl Iterator<Item = &Kept> {
        self.sockets.iter().filter(|kept| !kept.socket.is_out())
    }
}

impl Kept {
    /// No further packet comes to it. What has come is read until the next look.
    fn give_up(&self) {
        // Where the kernel does not let it go, it goes when it is closed.
        let _ = self.socket.leave();
    }
}
