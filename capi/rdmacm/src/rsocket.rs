//! Sockets over connections (rsocket(7)): streams, with the protocol of rdma-core's on the wire.
//!
//! | module | does |
//! |---|---|
//! | `wire` | formats of what the ends tell each other |
//! | `flow` | what may be sent, and what was received: no memory, no calls |
//! | `region`, `source`, `maps` | registered memory, the program's, and its memory that the peer writes to |
//! | `link` | the queue pair and its buffers |
//! | `state`, `stream` | the socket: connecting, sending, receiving, ending |
//! | `option`, `wait`, `poll` | options, waiting for a socket, rpoll and rselect |
//!
//! Programs that are preloaded with librspreload take a socket that cannot be had for one of the
//! system's: so datagrams are those of UDP.

mod flow;
mod link;
mod maps;
mod option;
mod poll;
mod region;
mod source;
mod state;
mod stream;
mod wait;
mod wire;

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use ferroce_border::border;
use ferroce_ibverbs::error::set_errno;
use libc::{iovec, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};

use crate::process::process;
use crate::{address, resolve};
use maps::Window;
use source::Source;
use stream::Stream;

pub use option::{rfcntl, rgetsockopt, rsetsockopt};
pub use poll::{rpoll, rselect};

/// An error number of a socket.
type Errno = c_int;
type Result<T> = std::result::Result<T, Errno>;

/// Sockets by their descriptors.
#[derive(Default)]
pub(crate) struct Sockets(RwLock<HashMap<c_int, Arc<Stream>>>);

impl Sockets {
    fn get(&self, socket: c_int) -> Option<Arc<Stream>> {
        let sockets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        sockets.get(&socket).cloned()
    }

    fn all(&self) -> RwLockWriteGuard<'_, HashMap<c_int, Arc<Stream>>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(socket: c_int) -> Option<Arc<Stream>> {
    process().sockets.get(socket)
}

fn find_or_bad(socket: c_int) -> Result<Arc<Stream>> {
    find(socket).ok_or(libc::EBADF)
}

fn keep(stream: Stream) -> c_int {
    let descriptor = stream.descriptor();
    process().sockets.all().insert(descriptor, Arc::new(stream));
    descriptor
}

fn last_errno() -> Errno {
    let error = std::io::Error::last_os_error();
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Calls on a descriptor that block do so in poll(2).
fn set_nonblocking(descriptor: c_int) {
    // SAFETY: the flags of a descriptor.
    unsafe {
        let flags = libc::fcntl(descriptor, libc::F_GETFL);
        libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK);
    }
}

/// The result of a call that sockets have: -1 and `errno`, and no line about it.
fn answer<T: From<i8>>(result: Result<T>) -> T {
    result.unwrap_or_else(|errno| {
        set_errno(errno);
        T::from(-1)
    })
}

fn bytes(result: Result<usize>) -> ssize_t {
    answer(result.map(|count| isize::try_from(count).unwrap_or(isize::MAX)))
}

/// Makes a socket (rsocket(7)).
#[border(number)]
pub unsafe extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    const FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let make = || {
        if ![libc::AF_INET, libc::AF_INET6].contains(&domain) {
            return Err(libc::EAFNOSUPPORT);
        }
        if kind & !FLAGS != libc::SOCK_STREAM {
            return Err(libc::EOPNOTSUPP);
        }
        if ![0, libc::IPPROTO_TCP].contains(&protocol) {
            return Err(libc::EPROTONOSUPPORT);
        }
        let stream = Stream::new()?;
        stream.state().is_nonblocking = kind & libc::SOCK_NONBLOCK != 0;
        Ok(keep(stream))
    };
    answer(make())
}

/// # Safety
/// `addr` is null or points to a socket address of the family it names.
unsafe fn address_of(addr: *const sockaddr) -> Result<SocketAddr> {
    // SAFETY: as the caller promises.
    unsafe { address::read("addr", addr) }.map_err(|error| error.errno())
}

/// Binds it to an address (bind(2)).
#[border(number)]
pub unsafe extern "C" fn rbind(socket: c_int, addr: *const sockaddr, _len: socklen_t) -> c_int {
    // SAFETY: the program's own structure.
    let bound = find_or_bad(socket).and_then(|it| it.bind(unsafe { address_of(addr) }?));
    answer(bound.map(|()| 0))
}

/// Listens for connections (listen(2)).
#[border(number)]
pub unsafe extern "C" fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    answer(
        find_or_bad(socket)
            .and_then(|it| it.listen(backlog))
            .map(|()| 0),
    )
}

/// Takes a connection (accept(2)).
#[border(number)]
pub unsafe extern "C" fn raccept(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    let accepted = find_or_bad(socket).and_then(|it| it.accept());
    answer(accepted.map(|stream| {
        let peer = resolve::peer(stream.id());
        // SAFETY: the program's own variables.
        unsafe { show(peer, addr, addrlen) };
        keep(stream)
    }))
}

/// Asks for a connection (connect(2)).
#[border(number)]
pub unsafe extern "C" fn rconnect(socket: c_int, addr: *const sockaddr, _len: socklen_t) -> c_int {
    // SAFETY: the program's own structure.
    let asked = find_or_bad(socket).and_then(|it| it.connect(unsafe { address_of(addr) }?));
    answer(asked.map(|()| 0))
}

/// Shuts down a half of a connection, or both (shutdown(2)).
#[border(number)]
pub unsafe extern "C" fn rshutdown(socket: c_int, how: c_int) -> c_int {
    answer(
        find_or_bad(socket)
            .and_then(|it| it.shutdown(how))
            .map(|()| 0),
    )
}

/// Closes a socket (close(2)).
#[border(number)]
pub unsafe extern "C" fn rclose(socket: c_int) -> c_int {
    let taken = process().sockets.all().remove(&socket);
    answer(taken.ok_or(libc::EBADF).map(|stream| {
        stream.close();
        0
    }))
}

/// # Safety
/// There is room for `len` bytes at `buf`.
unsafe fn receive(socket: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> Result<usize> {
    // SAFETY: as the caller promises.
    find_or_bad(socket).and_then(|it| unsafe { it.receive(buf.cast(), len, flags) })
}

/// # Safety
/// The pieces are there.
unsafe fn send(socket: c_int, pieces: &[iovec], flags: c_int) -> Result<usize> {
    // SAFETY: as the caller promises.
    find_or_bad(socket).and_then(|it| unsafe { it.send(Source::new(pieces), flags) })
}

/// Receives (recv(2)).
#[border(number)]
pub unsafe extern "C" fn rrecv(
    socket: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program's own buffer.
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
    // SAFETY: the program's own buffer and variables.
    unsafe {
        let got = receive(socket, buf, len, flags);
        if let Some(stream) = find(socket).filter(|_| got.is_ok()) {
            show(resolve::peer(stream.id()), src_addr, addrlen);
        }
        bytes(got)
    }
}

/// Receives into pieces (recvmsg(2)). There is no ancillary data.
#[border(number)]
pub unsafe extern "C" fn rrecvmsg(socket: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's own structures.
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
    // SAFETY: the program's own buffer.
    bytes(unsafe { receive(socket, buf, count, 0) })
}

/// Receives into pieces (readv(2)).
#[border(number)]
pub unsafe extern "C" fn rreadv(socket: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t {
    // SAFETY: the program's own pieces.
    bytes(unsafe { receive_pieces(socket, pieces(iov, iovcnt.max(0) as usize), 0) })
}

/// # Safety
/// So many are there, or none if the pointer is null.
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

fn piece(buf: *const c_void, len: size_t) -> [iovec; 1] {
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
    // SAFETY: the program's own buffer.
    bytes(unsafe { send(socket, &piece(buf, len), flags) })
}

/// Sends (sendto(2)); a stream takes no address.
#[border(number)]
pub unsafe extern "C" fn rsendto(
    socket: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    dest_addr: *const sockaddr,
    _addrlen: socklen_t,
) -> ssize_t {
    if !dest_addr.is_null() {
        return answer(Err(libc::EISCONN));
    }
    // SAFETY: the program's own buffer.
    bytes(unsafe { send(socket, &piece(buf, len), flags) })
}

/// Sends pieces (sendmsg(2)). There is no ancillary data.
#[border(number)]
pub unsafe extern "C" fn rsendmsg(socket: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's own structures.
    unsafe {
        match msg.as_ref() {
            None => answer(Err(libc::EFAULT)),
            Some(msg) if msg.msg_controllen > 0 => answer(Err(libc::EOPNOTSUPP)),
            Some(msg) => {
                let pieces = pieces(msg.msg_iov, msg.msg_iovlen);
                bytes(send(socket, pieces, flags))
            }
        }
    }
}

/// Sends (write(2)).
#[border(number)]
pub unsafe extern "C" fn rwrite(socket: c_int, buf: *const c_void, count: size_t) -> ssize_t {
    // SAFETY: the program's own buffer.
    bytes(unsafe { send(socket, &piece(buf, count), 0) })
}

/// Sends pieces (writev(2)).
#[border(number)]
pub unsafe extern "C" fn rwritev(socket: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t {
    // SAFETY: the program's own pieces.
    bytes(unsafe { send(socket, pieces(iov, iovcnt.max(0) as usize), 0) })
}

/// Writes an address where the program wants it, as much as there is room for.
///
/// # Safety
/// The pointers are null or lead to the program's variables.
unsafe fn show(of: Option<SocketAddr>, to: *mut sockaddr, length: *mut socklen_t) {
    let Some(of) = of.filter(|_| !to.is_null() && !length.is_null()) else {
        return;
    };
    let storage = address::storage(of);
    let size = match of {
        SocketAddr::V4(_) => size_of::<libc::sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>(),
    };
    // SAFETY: as the caller promises.
    unsafe {
        let room = (*length as usize).min(size);
        to.cast::<u8>()
            .copy_from_nonoverlapping((&raw const storage).cast(), room);
        *length = size as socklen_t;
    }
}

/// The peer's address (getpeername(2)).
#[border(number)]
pub unsafe extern "C" fn rgetpeername(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    let found = find_or_bad(socket).and_then(|it| {
        let peer = resolve::peer(it.id()).ok_or(libc::ENOTCONN)?;
        // SAFETY: the program's own variables.
        unsafe { show(Some(peer), addr, addrlen) };
        Ok(0)
    });
    answer(found)
}

/// Its own address (getsockname(2)).
#[border(number)]
pub unsafe extern "C" fn rgetsockname(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    let found = find_or_bad(socket).map(|it| {
        let own = resolve::source(it.id()).unwrap_or_else(|| resolve::anywhere(false));
        // SAFETY: the program's own variables.
        unsafe { show(Some(own), addr, addrlen) };
        0
    });
    answer(found)
}

/// Lets the peer write to memory at an offset, -1 for its own address (rsocket(7)).
#[border(number)]
pub unsafe extern "C" fn riomap(
    socket: c_int,
    buf: *mut c_void,
    len: size_t,
    prot: c_int,
    _flags: c_int,
    offset: off_t,
) -> off_t {
    let mapped = find_or_bad(socket).and_then(|it| {
        if prot & !libc::PROT_WRITE != 0 {
            return Err(libc::EINVAL);
        }
        let offset = if offset == -1 { buf as off_t } else { offset };
        it.map(Window {
            start: buf,
            length: len,
            offset: offset.cast_unsigned(),
            is_for_peer: prot & libc::PROT_WRITE != 0,
        })?;
        Ok(offset)
    });
    answer(mapped)
}

/// Takes memory back from the peer (rsocket(7)).
#[border(number)]
pub unsafe extern "C" fn riounmap(socket: c_int, buf: *mut c_void, len: size_t) -> c_int {
    answer(
        find_or_bad(socket)
            .and_then(|it| it.unmap(buf, len))
            .map(|()| 0),
    )
}

/// Writes to memory that the peer has mapped at an offset (rsocket(7)).
#[border(number)]
pub unsafe extern "C" fn riowrite(
    socket: c_int,
    buf: *const c_void,
    count: size_t,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    let pieces = piece(buf, count);
    let written = find_or_bad(socket).and_then(|it| {
        let source = Source::new(&pieces);
        // SAFETY: the program's own buffer.
        unsafe { it.write_mapped(source, offset.cast_unsigned(), flags) }
    });
    bytes(written)
}

/// Defines functions that answer -1 and `EOPNOTSUPP`. They take no arguments, which the calling
/// convention of C allows.
macro_rules! absent {
    ($($name:ident)*) => {
        $(
            /// The epoll(7) of sockets, a call of later releases, is not there: -1 and `EOPNOTSUPP`.
            #[border(number)]
            pub extern "C" fn $name() -> c_int {
                answer(Err(libc::EOPNOTSUPP))
            }
        )*
    };
}

absent! {
    repoll_create repoll_ctl repoll_wait
}
