//! Sockets over connections and datagrams (rsocket(7)), with rdma-core's wire protocol.
//!
//! | module | purpose |
//! |---|---|
//! | `wire` | formats of the messages between the ends |
//! | `flow` | what may be sent, and what was received, without memory or calls |
//! | `region`, `source`, `maps` | registered memory, the program's, and its memory that the peer writes to |
//! | `completions`, `link` | a completion queue to sleep on; the queue pair and its buffers |
//! | `state`, `stream` | the socket: connecting, sending, receiving, ending |
//! | `datagram` | the other kind of socket |
//! | `socket`, `result` | sockets of both kinds by their descriptors; error numbers |
//! | `transfer` | the calls that send and receive |
//! | `option`, `wait`, `poll` | options, waiting for a socket, rpoll and rselect |

mod completions;
mod datagram;
mod flow;
mod link;
mod maps;
mod option;
mod poll;
mod region;
mod result;
mod socket;
mod source;
mod state;
mod stream;
mod transfer;
mod wait;
mod wire;

use std::ffi::{CStr, c_int, c_void};

use ferroce_abi::border;
use libc::{off_t, size_t, sockaddr, socklen_t, ssize_t};

use datagram::Datagram;
use maps::Window;
use result::answer;
use socket::{Socket, address_of, find_or_bad, keep, show, take};
use source::Source;
use stream::Stream;
use transfer::{bytes, piece};

pub use option::{rfcntl, rgetsockopt, rsetsockopt};
pub use poll::{rpoll, rselect};
pub use transfer::{
    rread, rreadv, rrecv, rrecvfrom, rrecvmsg, rsend, rsendmsg, rsendto, rwrite, rwritev,
};

/// Makes a socket (rsocket(7)).
#[border(number)]
pub unsafe extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    const FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let make = || {
        if ![libc::AF_INET, libc::AF_INET6].contains(&domain) {
            return Err(libc::EAFNOSUPPORT);
        }
        let flags = kind & FLAGS;
        match (kind & !FLAGS, protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {
                let stream = Stream::new()?;
                stream.state().is_nonblocking = flags & libc::SOCK_NONBLOCK != 0;
                Ok(keep(Socket::Stream(Box::new(stream))))
            }
            (libc::SOCK_DGRAM, _) if is_under_sockets() => Err(libc::EOPNOTSUPP),
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Ok(keep(Socket::Datagram(Box::new(
                Datagram::new(domain, flags)?,
            )))),
            (libc::SOCK_STREAM | libc::SOCK_DGRAM, _) => Err(libc::EPROTONOSUPPORT),
            _ => Err(libc::EOPNOTSUPP),
        }
    };
    answer(make())
}

/// Whether librspreload makes these sockets out of those of a program. It takes datagrams of the system
/// in place of those that it does not get, and must: the device's own packets are datagrams, and
/// would be made of these.
fn is_under_sockets() -> bool {
    // SAFETY: zero is a value of all fields.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: looks for a function that each process has, and for the library that it is in, whose
    // name is a string.
    unsafe {
        let accept = libc::dlsym(libc::RTLD_DEFAULT, c"accept".as_ptr());
        libc::dladdr(accept, &raw mut info) != 0
            && !info.dli_fname.is_null()
            && CStr::from_ptr(info.dli_fname)
                .to_string_lossy()
                .contains("librspreload")
    }
}

/// Binds it to an address (bind(2)).
#[border(number)]
pub unsafe extern "C" fn rbind(socket: c_int, addr: *const sockaddr, _len: socklen_t) -> c_int {
    let bound = find_or_bad(socket).and_then(|it| {
        // SAFETY: null or a socket address of the family it names, valid during the call.
        let address = unsafe { address_of(addr) }?;
        match &*it {
            Socket::Stream(stream) => stream.bind(address),
            Socket::Datagram(datagram) => datagram.bind(address),
        }
    });
    answer(bound.map(|()| 0))
}

/// Listens for connections (listen(2)).
#[border(number)]
pub unsafe extern "C" fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    answer(
        find_or_bad(socket)
            .and_then(|it| it.stream()?.listen(backlog))
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
    let accepted = find_or_bad(socket).and_then(|it| it.stream()?.accept());
    answer(accepted.map(|stream| {
        let accepted = Socket::Stream(Box::new(stream));
        // SAFETY: null or variables of the program that may be written to.
        unsafe { show(accepted.peer(), addr, addrlen) };
        keep(accepted)
    }))
}

/// Asks for a connection (connect(2)).
#[border(number)]
pub unsafe extern "C" fn rconnect(socket: c_int, addr: *const sockaddr, _len: socklen_t) -> c_int {
    let asked = find_or_bad(socket).and_then(|it| {
        // SAFETY: null or a socket address of the family it names, valid during the call.
        let address = unsafe { address_of(addr) }?;
        match &*it {
            Socket::Stream(stream) => stream.connect(address),
            Socket::Datagram(datagram) => datagram.connect(address),
        }
    });
    answer(asked.map(|()| 0))
}

/// Shuts down a half of a connection, or both (shutdown(2)).
#[border(number)]
pub unsafe extern "C" fn rshutdown(socket: c_int, how: c_int) -> c_int {
    let shut = find_or_bad(socket).and_then(|it| match &*it {
        Socket::Stream(stream) => stream.shutdown(how),
        Socket::Datagram(_) => Ok(()),
    });
    answer(shut.map(|()| 0))
}

/// Closes a socket (close(2)).
#[border(number)]
pub unsafe extern "C" fn rclose(socket: c_int) -> c_int {
    let taken = take(socket);
    answer(taken.ok_or(libc::EBADF).map(|it| {
        if let Socket::Stream(stream) = &*it {
            stream.close();
        }
        0
    }))
}

/// The peer's address (getpeername(2)).
#[border(number)]
pub unsafe extern "C" fn rgetpeername(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    let found = find_or_bad(socket).and_then(|it| {
        let peer = it.peer().ok_or(libc::ENOTCONN)?;
        // SAFETY: null or variables of the program that may be written to.
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
    let found = find_or_bad(socket).and_then(|it| {
        // SAFETY: null or variables of the program that may be written to.
        unsafe { show(Some(it.own_address()?), addr, addrlen) };
        Ok(0)
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
        it.stream()?.map(Window {
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
            .and_then(|it| it.stream()?.unmap(buf, len))
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
        // SAFETY: `count` bytes are valid for reads.
        unsafe {
            it.stream()?
                .write_mapped(source, offset.cast_unsigned(), flags)
        }
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
