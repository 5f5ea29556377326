//! The calls that send and receive.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;

use ferroce_abi::border;
use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::result::{Result, answer};
use super::socket::{Socket, address_of, find_or_bad, show};
use super::source::Source;

pub(super) fn bytes(result: Result<usize>) -> ssize_t {
    answer(result.map(|count| isize::try_from(count).unwrap_or(isize::MAX)))
}

/// Receives; answers how much, and the address of the sender.
///
/// # Safety
/// There is room for `len` bytes at `buf`.
unsafe fn receive_from(
    socket: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
) -> Result<(usize, Option<SocketAddr>)> {
    let it = find_or_bad(socket)?;
    match &*it {
        Socket::Stream(stream) => {
            // SAFETY: as the caller promises.
            let got = unsafe { stream.receive(buf.cast(), len, flags) }?;
            Ok((got, it.peer()))
        }
        Socket::Datagram(datagram) => {
            // SAFETY: as the caller promises.
            let (got, from) = unsafe { datagram.receive(buf.cast(), len, flags) }?;
            Ok((got, Some(from)))
        }
    }
}

/// # Safety
/// As [`receive_from`].
unsafe fn receive(socket: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> Result<usize> {
    // SAFETY: as the caller promises.
    unsafe { receive_from(socket, buf, len, flags) }.map(|(got, _)| got)
}

/// # Safety
/// The pieces are there, and the address if there is one.
unsafe fn send_to(
    socket: c_int,
    pieces: &[iovec],
    flags: c_int,
    to: *const sockaddr,
) -> Result<usize> {
    let source = Source::new(pieces);
    match &*find_or_bad(socket)? {
        Socket::Stream(_) if !to.is_null() => Err(libc::EISCONN),
        // SAFETY: as the caller promises.
        Socket::Stream(stream) => unsafe { stream.send(source, flags) },
        // SAFETY: as the caller promises.
        Socket::Datagram(datagram) => unsafe {
            let to = match to.is_null() {
                true => None,
                false => Some(address_of(to)?),
            };
            datagram.send(source, to, flags)
        },
    }
}

/// # Safety
/// The pieces are there.
unsafe fn send(socket: c_int, pieces: &[iovec], flags: c_int) -> Result<usize> {
    // SAFETY: as the caller promises.
    unsafe { send_to(socket, pieces, flags, std::ptr::null()) }
}

/// Receives (recv(2)).
#[border(number)]
pub unsafe extern "C" fn rrecv(
    socket: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as many bytes as the call says may be written to.
    bytes(unsafe { receive(socket, buf, len, flags) })
}

/// Receives (recvfrom(2)).
#[border(number)]
pub unsafe extern "C" fn rrecvfrom(
    socket: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    src_addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> ssize_t {
    // SAFETY: `len` bytes that may be written to, and null or variables that may be.
    unsafe {
        let got = receive_from(socket, buf, len, flags);
        bytes(got.map(|(got, from)| {
            show(from, src_addr, addrlen);
            got
        }))
    }
}

/// Receives into pieces (recvmsg(2)). There is no ancillary data.
#[border(number)]
pub unsafe extern "C" fn rrecvmsg(socket: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: null or a structure, with buffers that may be written to as it says.
    unsafe {
        if msg.is_null() {
            return answer(Err(libc::EFAULT));
        }
        (*msg).msg_controllen = 0;
        (*msg).msg_flags = 0;
        bytes(receive_pieces(
            socket,
            pieces((*msg).msg_iov, (*msg).msg_iovlen),
            flags,
        ))
    }
}

/// Receives (read(2)).
#[border(number)]
pub unsafe extern "C" fn rread(socket: c_int, buf: *mut c_void, count: size_t) -> ssize_t {
    // SAFETY: as many bytes as the call says may be written to.
    bytes(unsafe { receive(socket, buf, count, 0) })
}

/// Receives into pieces (readv(2)).
#[border(number)]
pub unsafe extern "C" fn rreadv(socket: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t {
    // SAFETY: an array of `iovcnt` elements and the buffers that they name, as the header requires.
    bytes(unsafe { receive_pieces(socket, pieces(iov, iovcnt.max(0) as usize), 0) })
}

/// # Safety
/// `count` are there, or none if the pointer is null.
unsafe fn pieces<'a>(iov: *const iovec, count: usize) -> &'a [iovec] {
    match iov.is_null() {
        true => &[],
        // SAFETY: as the caller promises.
        false => unsafe { std::slice::from_raw_parts(iov, count) },
    }
}

/// # Safety
/// There is room in the pieces.
unsafe fn receive_pieces(socket: c_int, pieces: &[iovec], flags: c_int) -> Result<usize> {
    let mut got = 0;
    for piece in pieces.iter().filter(|piece| piece.iov_len > 0) {
        // Only the first is waited for, unless all are wanted.
        let wait = got == 0 || flags & libc::MSG_WAITALL != 0;
        let flags = if wait {
            flags
        } else {
            flags | libc::MSG_DONTWAIT
        };
        // SAFETY: as the caller promises.
        match unsafe { receive(socket, piece.iov_base, piece.iov_len, flags) } {
            Ok(count) => {
                got += count;
                if count < piece.iov_len || flags & libc::MSG_PEEK != 0 {
                    break;
                }
            }
            Err(_) if got > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(got)
}

pub(super) fn piece(buf: *const c_void, len: size_t) -> [iovec; 1] {
    [iovec {
        iov_base: buf.cast_mut(),
        iov_len: len,
    }]
}

/// Sends (send(2)).
#[border(number)]
pub unsafe extern "C" fn rsend(
    socket: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as many bytes as the call says are valid for reads.
    bytes(unsafe { send(socket, &piece(buf, len), flags) })
}

/// Sends (sendto(2)); only datagrams take an address.
#[border(number)]
pub unsafe extern "C" fn rsendto(
    socket: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    dest_addr: *const sockaddr,
    _addrlen: socklen_t,
) -> ssize_t {
    // SAFETY: `len` bytes that are valid for reads, and null or a socket address.
    bytes(unsafe { send_to(socket, &piece(buf, len), flags, dest_addr) })
}

/// Sends pieces (sendmsg(2)). There is no ancillary data.
#[border(number)]
pub unsafe extern "C" fn rsendmsg(socket: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: null or a structure of the program, valid during the call.
    unsafe {
        match msg.as_ref() {
            None => answer(Err(libc::EFAULT)),
            Some(msg) if msg.msg_controllen > 0 => answer(Err(libc::EOPNOTSUPP)),
            Some(msg) => {
                let pieces = pieces(msg.msg_iov, msg.msg_iovlen);
                bytes(send_to(socket, pieces, flags, msg.msg_name.cast()))
            }
        }
    }
}

/// Sends (write(2)).
#[border(number)]
pub unsafe extern "C" fn rwrite(socket: c_int, buf: *const c_void, count: size_t) -> ssize_t {
    // SAFETY: as many bytes as the call says are valid for reads.
    bytes(unsafe { send(socket, &piece(buf, count), 0) })
}

/// Sends pieces (writev(2)).
#[border(number)]
pub unsafe extern "C" fn rwritev(socket: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t {
    // SAFETY: an array of `iovcnt` elements and the buffers that they name, as the header requires.
    bytes(unsafe { send(socket, pieces(iov, iovcnt.max(0) as usize), 0) })
}
