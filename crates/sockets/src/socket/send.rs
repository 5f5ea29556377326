//! Sending: one call for a batch of datagrams of equal size.

use std::io::{self, IoSlice};
use std::mem;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use super::address::RawAddress;
use super::control::Control;
use super::{PAYLOAD_BYTES_MAX, Socket, last_error};

/// The most slices the kernel takes in one message (`UIO_MAXIOV`).
const SLICES_MAX: usize = 1024;

impl Socket {
    /// Sends `buf` to `dest` as datagrams of `segment` bytes, the last of which may be shorter;
    /// a `segment` of 0, or one not below the length, makes a single datagram.
    ///
    /// All datagrams of a call share destination and traffic class. With
    /// [`segmentation`](Self::segmentation) they leave together or not at all; without, fewer than
    /// asked may leave. [`Sent`] tells how many did. The call that *discovers* that the route cannot
    /// segment sends the first datagram only, because the rest were made for other
    /// [identifications](Self::ip_id) than they would now get: make them anew.
    ///
    /// # Errors
    /// Returns [`SendError`]. Nothing was sent if there is an error.
    pub fn send(
        &self,
        dest: SocketAddr,
        tos: u8,
        buf: &[u8],
        segment: usize,
    ) -> Result<Sent, SendError> {
        self.send_slices(dest, tos, &[IoSlice::new(buf)], segment)
    }

    /// The same, gathered from slices: headers, payload and CRC need not lie together. Datagram
    /// boundaries are every `segment` bytes of the concatenation, wherever the slices end.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send_slices(
        &self,
        dest: SocketAddr,
        tos: u8,
        slices: &[IoSlice<'_>],
        segment: usize,
    ) -> Result<Sent, SendError> {
        let bytes = slices.iter().map(|slice| slice.len()).sum::<usize>();
        let segment = if segment == 0 {
            bytes
        } else {
            segment.min(bytes)
        };
        let datagrams = if bytes == 0 {
            1
        } else {
            bytes.div_ceil(segment)
        };
        if bytes > PAYLOAD_BYTES_MAX
            || datagrams > self.segments_max
            || slices.len() > SLICES_MAX
            || dest.is_ipv4() != self.address.is_ipv4()
        {
            return Err(SendError::Unsendable {
                dest,
                bytes,
                datagrams,
            });
        }
        if datagrams == 1 {
            let outcome = single(self.raw(), dest, tos, slices);
            return match outcome {
                Ok(_) => Ok(Sent { bytes, datagrams }),
                Err(error) => Err(SendError::from_kernel(error, segment)),
            };
        }
        if !self.segmentation() {
            return self.send_one_by_one(dest, tos, slices, segment, datagrams);
        }
        match segmented(self.raw(), dest, tos, slices, segment as u16) {
            Ok(_) => Ok(Sent { bytes, datagrams }),
            Err(error) if is_refusal(&error) => {
                // The kernel answers alike when it cannot segment here and when there is something
                // wrong with the destination. A datagram that passes alone tells them apart.
                let sent = self.send_one_by_one(dest, tos, slices, segment, 1)?;
                self.segmentation.store(false, Ordering::Relaxed);
                Ok(sent)
            }
            Err(error) => Err(SendError::from_kernel(error, segment)),
        }
    }

    /// Sends the first `count` datagrams with one `sendmmsg`.
    #[cold]
    fn send_one_by_one(
        &self,
        dest: SocketAddr,
        tos: u8,
        slices: &[IoSlice<'_>],
        segment: usize,
        count: usize,
    ) -> Result<Sent, SendError> {
        let pieces = cut(slices, segment, count);
        let mut name = RawAddress::encode(dest);
        let (mut control, control_len) = outgoing(dest, tos, None);
        let mut headers: Vec<libc::mmsghdr> = pieces
            .iter()
            .map(|piece| libc::mmsghdr {
                msg_hdr: header(&mut name, piece, &mut control, control_len),
                msg_len: 0,
            })
            .collect();
        let sent = retry_interrupted(|| {
            // SAFETY: every header points at `name`, `control` and a piece, which outlive the call;
            // the kernel writes nothing but `msg_len` in `headers`, whose length is passed.
            unsafe {
                libc::sendmmsg(self.raw(), headers.as_mut_ptr(), headers.len() as u32, 0) as isize
            }
        })
        .map_err(|error| SendError::from_kernel(error, segment))?;
        let bytes = pieces[..sent]
            .iter()
            .flatten()
            .map(|slice| slice.len())
            .sum();
        Ok(Sent {
            bytes,
            datagrams: sent,
        })
    }
}

/// What left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "a batch may leave in part"]
pub struct Sent {
    /// Bytes of UDP payload.
    pub bytes: usize,
    /// Datagrams.
    pub datagrams: usize,
}

/// Why a batch did not leave.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The send buffer is full. Keep the batch and wait until the socket is writable.
    #[error("the socket's send buffer is full")]
    WouldBlock,
    /// The network lost the batch before it left the machine: no route, no buffer, a firewall.
    /// Count it and go on, as with any lost packet.
    #[error("the packet was lost on its way out: {0}")]
    Lost(#[source] io::Error),
    /// A datagram is larger than the path to the destination allows. Lost as well, but every
    /// repetition will be, too.
    #[error(
        "a datagram of {bytes} bytes does not fit the path: set a smaller path MTU on the queue \
         pair or a larger MTU on the interface"
    )]
    PathMtu {
        /// UDP payload of the datagram.
        bytes: usize,
    },
    /// No kernel could send this: too long, too many datagrams or slices, or another address
    /// family than the socket's. A mistake of the caller.
    #[error("cannot send {bytes} bytes as {datagrams} datagrams to {dest} with one call")]
    Unsendable {
        /// The destination.
        dest: SocketAddr,
        /// Length of the batch.
        bytes: usize,
        /// Datagrams in it.
        datagrams: usize,
    },
    /// The socket itself is unusable.
    #[error("the socket failed: {0}")]
    Fatal(#[source] io::Error),
}

impl SendError {
    fn from_kernel(error: io::Error, segment: usize) -> Self {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Self::WouldBlock,
            Some(libc::EMSGSIZE) => Self::PathMtu { bytes: segment },
            _ if is_fatal(&error) => Self::Fatal(error),
            _ => Self::Lost(error),
        }
    }
}

/// Sends one datagram.
#[inline]
fn single(socket: RawFd, dest: SocketAddr, tos: u8, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    transmit(socket, dest, slices, outgoing(dest, tos, None))
}

/// Sends one batch for the kernel to cut.
#[inline]
pub(super) fn segmented(
    socket: RawFd,
    dest: SocketAddr,
    tos: u8,
    slices: &[IoSlice<'_>],
    segment: u16,
) -> io::Result<usize> {
    transmit(socket, dest, slices, outgoing(dest, tos, Some(segment)))
}

#[inline]
fn transmit(
    socket: RawFd,
    dest: SocketAddr,
    slices: &[IoSlice<'_>],
    (mut control, control_len): (Control, usize),
) -> io::Result<usize> {
    let mut name = RawAddress::encode(dest);
    let header = header(&mut name, slices, &mut control, control_len);
    retry_interrupted(|| {
        // SAFETY: `header` points at `name`, `slices` and `control`, which outlive the call, with
        // their lengths; the kernel only reads them.
        unsafe { libc::sendmsg(socket, &raw const header, 0) }
    })
}

/// The control messages of a call and their length. What is at its default is left out, since the
/// kernel takes time to read each.
#[inline]
fn outgoing(dest: SocketAddr, tos: u8, segment: Option<u16>) -> (Control, usize) {
    let mut control = Control::EMPTY;
    let mut len = 0;
    if let Some(segment) = segment {
        len = control.push(len, libc::SOL_UDP, libc::UDP_SEGMENT, segment);
    }
    if tos != 0 {
        let (level, kind) = if dest.is_ipv4() {
            (libc::IPPROTO_IP, libc::IP_TOS)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
        };
        len = control.push(len, level, kind, libc::c_int::from(tos));
    }
    (control, len)
}

#[inline]
fn header(
    (name, name_len): &mut (RawAddress, libc::socklen_t),
    slices: &[IoSlice<'_>],
    control: &mut Control,
    control_len: usize,
) -> libc::msghdr {
    // SAFETY: `msghdr` is made of integers and pointers, for which all zeroes is a value.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_name = (&raw mut *name).cast();
    header.msg_namelen = *name_len;
    // `IoSlice` is documented to have the layout of `iovec`; a send call does not write to it.
    header.msg_iov = slices.as_ptr().cast_mut().cast();
    header.msg_iovlen = slices.len() as _;
    if control_len > 0 {
        header.msg_control = control.as_mut_ptr();
        header.msg_controllen = control_len as _;
    }
    header
}

/// Cuts the concatenation of `slices` every `segment` bytes and returns the first `count` pieces.
fn cut<'a>(slices: &'a [IoSlice<'_>], segment: usize, count: usize) -> Vec<Vec<IoSlice<'a>>> {
    let mut pieces = vec![Vec::new()];
    let mut room = segment;
    for slice in slices {
        let mut rest: &[u8] = slice;
        while !rest.is_empty() {
            if room == 0 {
                if pieces.len() == count {
                    return pieces;
                }
                pieces.push(Vec::new());
                room = segment;
            }
            let (now, later) = rest.split_at(rest.len().min(room));
            pieces
                .last_mut()
                .expect("starts with one piece")
                .push(IoSlice::new(now));
            room -= now.len();
            rest = later;
        }
    }
    pieces
}

/// Whether the kernel refused a batch for a reason that may be the segmentation.
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EIO | libc::ENOPROTOOPT | libc::EOPNOTSUPP)
    )
}

/// Whether the socket is broken, as opposed to the network: a route may come back.
pub(super) fn is_fatal(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EBADF
                | libc::ENOTSOCK
                | libc::EFAULT
                | libc::EAFNOSUPPORT
                | libc::EOPNOTSUPP
                | libc::ENOPROTOOPT
        )
    )
}

/// Repeats a socket call that a signal cut short; anything below 0 is an error.
#[inline]
pub(super) fn retry_interrupted(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        if let Ok(count) = usize::try_from(call()) {
            return Ok(count);
        }
        let error = last_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_depend_on_slices() {
        let bytes: Vec<u8> = (0..100).collect();
        for segment in [1, 7, 30, 99, 100] {
            for step in [1, 3, 50, 100] {
                let slices: Vec<_> = bytes.chunks(step).map(IoSlice::new).collect();
                let pieces = cut(&slices, segment, usize::MAX);
                let joined: Vec<Vec<u8>> = pieces
                    .iter()
                    .map(|piece| piece.iter().flat_map(|s| s.to_vec()).collect())
                    .collect();
                let expected: Vec<Vec<u8>> = bytes.chunks(segment).map(<[u8]>::to_vec).collect();
                assert_eq!(joined, expected, "segment {segment}, slices of {step}");
                assert_eq!(cut(&slices, segment, 1).len(), 1);
            }
        }
    }

    #[test]
    fn an_empty_batch_is_one_empty_piece() {
        assert_eq!(cut(&[], 8, 1).len(), 1);
    }

    #[test]
    fn errors_are_told_apart() {
        let class = |code| SendError::from_kernel(io::Error::from_raw_os_error(code), 100);
        assert!(matches!(class(libc::EAGAIN), SendError::WouldBlock));
        assert!(matches!(
            class(libc::EMSGSIZE),
            SendError::PathMtu { bytes: 100 }
        ));
        for code in [
            libc::ENOBUFS,
            libc::ECONNREFUSED,
            libc::EHOSTUNREACH,
            libc::EPERM,
        ] {
            assert!(matches!(class(code), SendError::Lost(_)));
        }
        assert!(matches!(class(libc::EBADF), SendError::Fatal(_)));
    }
}
