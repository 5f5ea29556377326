//! Receiving: several messages per call, each of which may hold several datagrams.

use std::fmt;
use std::io;
use std::iter::FusedIterator;
use std::mem;
use std::net::SocketAddr;
use std::ptr;

use super::Socket;
use super::address::RawAddress;
use super::control::{Control, Facts};
use super::send::{is_fatal, retry_interrupted};

/// Room for one message: whatever IP can carry.
const SLOT_BYTES: usize = 1 << 16;

impl Socket {
    /// Takes what has arrived, as many messages as `buffers` have room for, and returns how many
    /// there are now in [`RecvBuffers::messages`]; 0 if nothing has arrived.
    ///
    /// # Errors
    /// Returns an error only if the socket itself is unusable. Errors that the network reports
    /// later (a refused port, a vanished route) count as nothing received.
    #[inline]
    pub fn recv(&self, buffers: &mut RecvBuffers) -> io::Result<usize> {
        buffers.filled = 0;
        let headers = &mut buffers.headers[..buffers.room];
        let outcome = if let [only] = headers {
            buffers.slots[0].attach(&mut only.msg_hdr);
            retry_interrupted(|| {
                // SAFETY: `attach` has just pointed the header at room that lives as long as
                // `buffers`, which is borrowed for the call, and has set the lengths.
                unsafe { libc::recvmsg(self.raw(), &raw mut only.msg_hdr, 0) }
            })
            .map(|len| {
                only.msg_len = len as u32;
                1
            })
        } else {
            for (slot, header) in buffers.slots.iter_mut().zip(&mut *headers) {
                slot.attach(&mut header.msg_hdr);
            }
            retry_interrupted(|| {
                // SAFETY: as above for each header; the number of headers is passed.
                unsafe {
                    libc::recvmmsg(
                        self.raw(),
                        headers.as_mut_ptr(),
                        headers.len() as u32,
                        0,
                        ptr::null_mut(),
                    ) as isize
                }
            })
        };
        match outcome {
            Ok(count) => buffers.filled = count,
            Err(error) if is_fatal(&error) => return Err(error),
            Err(_) => {}
        }
        Ok(buffers.filled)
    }
}

/// Where arriving messages land. Made once and used for every call.
pub struct RecvBuffers {
    slots: Vec<Slot>,
    /// Parallel to `slots`; the pointers inside are set anew for every call.
    headers: Vec<libc::mmsghdr>,
    /// How many of the slots a call may fill.
    room: usize,
    /// How many of them the last call filled.
    filled: usize,
}

// SAFETY: the raw pointers in `headers` are only used during a receive call, which sets them first
// and which borrows the buffers exclusively. Everything else is plain owned data.
unsafe impl Send for RecvBuffers {}
// SAFETY: as above; a shared reference gives access to no pointer.
unsafe impl Sync for RecvBuffers {}

impl RecvBuffers {
    /// Room for `slots` messages a call (at least 1), 64 KiB each.
    ///
    /// One slot costs the least per call and keeps its bytes in the cache, which is best for
    /// coalesced batches; several save calls when many small datagrams wait.
    #[inline]
    pub fn new(slots: usize) -> Self {
        let mut buffers = Self {
            slots: Vec::new(),
            headers: Vec::new(),
            room: 0,
            filled: 0,
        };
        buffers.make_room(slots);
        buffers
    }

    /// Has the next calls take up to this number of messages (at least 1).
    #[inline]
    pub fn make_room(&mut self, slots: usize) {
        self.room = slots.max(1);
        if self.slots.len() < self.room {
            self.slots.resize_with(self.room, Slot::new);
            // SAFETY: `mmsghdr` is made of integers and pointers, for which all zeroes is a value.
            let empty = || unsafe { mem::zeroed() };
            self.headers.resize_with(self.room, empty);
        }
    }

    /// What the last [`Socket::recv`] brought, in order of arrival.
    #[inline]
    pub fn messages(&self) -> Messages<'_> {
        Messages {
            buffers: self,
            next: 0,
        }
    }
}

impl fmt::Debug for RecvBuffers {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvBuffers")
            .field("slots", &self.slots.len())
            .field("filled", &self.filled)
            .finish_non_exhaustive()
    }
}

/// What the kernel hands over in one piece: a datagram, or several of equal size (the last may be
/// shorter) from one source with one traffic class.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Who sent it.
    pub source: SocketAddr,
    /// DSCP and ECN bits of the IP header. The kernel never merges across different ones.
    pub tos: u8,
    /// Size of each datagram but the last.
    pub segment: usize,
    /// The payloads, one after the other.
    pub bytes: &'a [u8],
}

impl<'a> Message<'a> {
    /// Splits the message at the datagram boundaries.
    #[inline]
    pub fn datagrams(&self) -> Datagrams<'a> {
        Datagrams {
            rest: Some(self.bytes),
            segment: self.segment,
            index: 0,
        }
    }
}

/// One datagram of a [`Message`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Datagram<'a> {
    /// Place in the message. Where the message is a batch as it was sent, as on one host, this is
    /// also the IPv4 Identification. Where a card's driver put it together, the batch may have
    /// begun before the message did, so that the identifications are consecutive but begin
    /// anywhere.
    pub index: u16,
    /// UDP payload.
    pub bytes: &'a [u8],
}

/// Iterator over [`RecvBuffers::messages`].
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    buffers: &'a RecvBuffers,
    next: usize,
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    #[inline]
    fn next(&mut self) -> Option<Message<'a>> {
        while self.next < self.buffers.filled {
            let slot = &self.buffers.slots[self.next];
            let header = &self.buffers.headers[self.next];
            self.next += 1;
            // Only IP sockets send to IP sockets, so a message without a source is none.
            if let Some(source) = slot.name.decode() {
                let facts = Facts::read(&slot.control, header.msg_hdr.msg_controllen);
                let bytes = &slot.bytes[..SLOT_BYTES.min(header.msg_len as usize)];
                let segment = facts.segment.unwrap_or(bytes.len());
                return Some(Message {
                    source,
                    tos: facts.tos,
                    segment,
                    bytes,
                });
            }
        }
        None
    }
}

impl FusedIterator for Messages<'_> {}

/// Iterator over [`Message::datagrams`].
#[derive(Clone, Debug)]
pub struct Datagrams<'a> {
    /// An empty datagram is a datagram, so "nothing left" needs a value of its own.
    rest: Option<&'a [u8]>,
    segment: usize,
    index: u16,
}

impl<'a> Iterator for Datagrams<'a> {
    type Item = Datagram<'a>;

    #[inline]
    fn next(&mut self) -> Option<Datagram<'a>> {
        let rest = self.rest?;
        let (bytes, later) = rest.split_at(rest.len().min(self.segment.max(1)));
        let datagram = Datagram {
            index: self.index,
            bytes,
        };
        self.rest = if later.is_empty() { None } else { Some(later) };
        self.index = self.index.wrapping_add(1);
        Some(datagram)
    }
}

impl FusedIterator for Datagrams<'_> {}

/// Room for one message.
struct Slot {
    bytes: Box<[u8]>,
    vector: libc::iovec,
    name: RawAddress,
    control: Control,
}

impl Slot {
    #[inline]
    fn new() -> Self {
        Self {
            bytes: vec![0; SLOT_BYTES].into_boxed_slice(),
            vector: libc::iovec {
                iov_base: ptr::null_mut(),
                iov_len: 0,
            },
            name: RawAddress::EMPTY,
            control: Control::EMPTY,
        }
    }

    /// Points `header` at this slot, with all lengths at their full values.
    #[inline]
    fn attach(&mut self, header: &mut libc::msghdr) {
        self.vector.iov_base = self.bytes.as_mut_ptr().cast();
        self.vector.iov_len = self.bytes.len();
        header.msg_name = (&raw mut self.name).cast();
        header.msg_namelen = RawAddress::BYTES;
        header.msg_iov = &raw mut self.vector;
        header.msg_iovlen = 1;
        header.msg_control = self.control.as_mut_ptr();
        header.msg_controllen = Control::BYTES as _;
        header.msg_flags = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: &[u8], segment: usize) -> Message<'_> {
        Message {
            source: "127.0.0.1:1".parse().unwrap(),
            tos: 0,
            segment,
            bytes,
        }
    }

    #[test]
    fn a_message_splits_every_segment() {
        let bytes: Vec<u8> = (0..25).collect();
        let parts: Vec<_> = message(&bytes, 10).datagrams().collect();
        assert_eq!(
            parts
                .iter()
                .map(|part| part.bytes.len())
                .collect::<Vec<_>>(),
            [10, 10, 5]
        );
        assert_eq!(
            parts.iter().map(|part| part.index).collect::<Vec<_>>(),
            [0, 1, 2]
        );
        assert_eq!(message(&bytes[..20], 10).datagrams().count(), 2);
    }

    #[test]
    fn an_empty_datagram_is_one_datagram() {
        let parts: Vec<_> = message(&[], 0).datagrams().collect();
        assert_eq!(
            parts,
            [Datagram {
                index: 0,
                bytes: &[]
            }]
        );
    }

    #[test]
    fn the_longest_message_has_an_index_for_each_datagram() {
        let bytes = vec![0; SLOT_BYTES];
        let last = message(&bytes, 1).datagrams().last().unwrap();
        assert_eq!((last.index, last.bytes.len()), (u16::MAX, 1));
    }

    #[test]
    fn no_segment_size_means_one_datagram() {
        assert_eq!(message(&[1, 2, 3], 3).datagrams().count(), 1);
    }
}
