//! Options of sockets.

use std::ffi::{c_int, c_void};

use ferroce_abi::border;
use libc::socklen_t;

use super::flow::Sizes;
use super::result::{Result, answer};
use super::socket::{Socket, find_or_bad};
use super::state::{Phase, State};
use super::stream::Stream;
use crate::abi::{RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR};
use crate::option::rdma_set_option;

/// The level of options that only these sockets have.
const SOL_RDMA: c_int = 0x10000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;

/// Options that programs set and that change nothing here, as far as they can tell.
const KEPT: [(c_int, c_int); 12] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_MAXSEG),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::IPPROTO_IP, libc::IP_TOS),
];

/// Length of `struct tcp_info`: there are no segments to count.
const TCP_INFO_LEN: usize = 232;

const BUFFER_MIN: u32 = 16 << 10;
const BUFFER_MAX: u32 = 64 << 20;
const QUEUE_MIN: u16 = 16;
const QUEUE_MAX: u16 = 16384;
const INLINE_MAX: u16 = 512;
const MAPS_MAX: u16 = 128;

/// Sets an option (setsockopt(2)). Sizes are set before the connection is asked for or taken.
#[border(number)]
pub unsafe extern "C" fn rsetsockopt(
    socket: c_int,
    level: c_int,
    optname: c_int,
    optval: *const c_void,
    optlen: socklen_t,
) -> c_int {
    let set = find_or_bad(socket).and_then(|it| {
        if optval.is_null() {
            return Err(libc::EFAULT);
        }
        // SAFETY: `optlen` bytes, valid during the call.
        let value = unsafe { std::slice::from_raw_parts(optval.cast::<u8>(), optlen as usize) };
        match &*it {
            Socket::Stream(stream) => set(stream, level, optname, value),
            Socket::Datagram(_) => set_udp(socket, level, optname, value),
        }
    });
    answer(set.map(|()| 0))
}

/// Datagrams have the options of their socket of UDP; the queue pair has its own sizes.
fn set_udp(socket: c_int, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
    let length = value.len() as socklen_t;
    // SAFETY: bytes of that length.
    match unsafe { libc::setsockopt(socket, level, name, value.as_ptr().cast(), length) } {
        0 => Ok(()),
        _ => Err(super::result::last_errno()),
    }
}

fn set(stream: &Stream, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
    let number = || {
        let bytes = value.first_chunk().ok_or(libc::EINVAL)?;
        u32::try_from(c_int::from_ne_bytes(*bytes)).map_err(|_| libc::EINVAL)
    };
    let flag = |option| {
        let value = c_int::from(number()? != 0);
        let id = stream.id().abi();
        // SAFETY: a live object and a local variable.
        match unsafe {
            let at = (&raw const value).cast_mut().cast();
            rdma_set_option(id, RDMA_OPTION_ID, option, at, size_of::<c_int>())
        } {
            0 => Ok(()),
            _ => Err(super::result::last_errno()),
        }
    };
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => return flag(RDMA_OPTION_ID_REUSEADDR),
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => return flag(RDMA_OPTION_ID_AFONLY),
        _ => {}
    }
    let mut state = stream.state();
    if KEPT.contains(&(level, name)) {
        state.options.insert((level, name), value.to_vec());
        return Ok(());
    }
    let is_early = [Phase::Idle, Phase::Bound, Phase::Listening].contains(&state.phase);
    let mut sizes = state.sizes;
    resize(&mut sizes, level, name, number()?)?;
    match (level, is_early) {
        (_, true) => state.sizes = sizes,
        // The buffers stay as they are, as programs are used to.
        (libc::SOL_SOCKET, false) => {}
        (_, false) => return Err(libc::EINVAL),
    }
    Ok(())
}

fn resize(sizes: &mut Sizes, level: c_int, name: c_int, value: u32) -> Result<()> {
    // Halves of equal size.
    let buffer = || value.clamp(BUFFER_MIN, BUFFER_MAX).next_multiple_of(2);
    let short = |min: u16, max: u16| u16::try_from(value).unwrap_or(max).clamp(min, max);
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => sizes.send_buffer = buffer(),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => sizes.recv_buffer = buffer(),
        (SOL_RDMA, RDMA_SQSIZE) => sizes.send_queue = short(QUEUE_MIN, QUEUE_MAX),
        (SOL_RDMA, RDMA_RQSIZE) => sizes.recv_queue = short(QUEUE_MIN, QUEUE_MAX),
        (SOL_RDMA, RDMA_INLINE) => sizes.inline = short(0, INLINE_MAX),
        (SOL_RDMA, RDMA_IOMAPSIZE) => sizes.maps = short(0, MAPS_MAX),
        _ => return Err(libc::ENOPROTOOPT),
    }
    Ok(())
}

/// Asks for an option (getsockopt(2)).
#[border(number)]
pub unsafe extern "C" fn rgetsockopt(
    socket: c_int,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: *mut socklen_t,
) -> c_int {
    let got = find_or_bad(socket).and_then(|it| {
        if optval.is_null() || optlen.is_null() {
            return Err(libc::EFAULT);
        }
        let Socket::Stream(stream) = &*it else {
            // SAFETY: pointers that the kernel checks.
            return match unsafe { libc::getsockopt(socket, level, optname, optval, optlen) } {
                0 => Ok(0),
                _ => Err(super::result::last_errno()),
            };
        };
        let value = get(&mut stream.state(), level, optname)?;
        // SAFETY: variables that nothing else accesses during the call.
        unsafe {
            let room = (*optlen as usize).min(value.len());
            optval
                .cast::<u8>()
                .copy_from_nonoverlapping(value.as_ptr(), room);
            *optlen = room as socklen_t;
        }
        Ok(0)
    });
    answer(got)
}

fn get(state: &mut State, level: c_int, name: c_int) -> Result<Vec<u8>> {
    let sizes = state.sizes;
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_INFO) {
        return Ok(vec![0; TCP_INFO_LEN]);
    }
    let number = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
        (libc::SOL_SOCKET, libc::SO_ERROR) => state.take_error(),
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => (state.phase == Phase::Listening).into(),
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => sizes.send_buffer.cast_signed(),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => sizes.recv_buffer.cast_signed(),
        (SOL_RDMA, RDMA_SQSIZE) => sizes.send_queue.into(),
        (SOL_RDMA, RDMA_RQSIZE) => sizes.recv_queue.into(),
        (SOL_RDMA, RDMA_INLINE) => sizes.inline.into(),
        (SOL_RDMA, RDMA_IOMAPSIZE) => sizes.maps.into(),
        _ => {
            if let Some(value) = state.options.get(&(level, name)) {
                return Ok(value.clone());
            }
            match (level, name) {
                (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => 4096,
                _ if KEPT.contains(&(level, name)) => 0,
                _ => return Err(libc::ENOPROTOOPT),
            }
        }
    };
    Ok(number.to_ne_bytes().to_vec())
}

/// Asks for the flags of a socket or sets them (fcntl(2)): whether it blocks.
#[border(number)]
pub unsafe extern "C" fn rfcntl(socket: c_int, cmd: c_int, arg: isize) -> c_int {
    let done = find_or_bad(socket).and_then(|it| {
        match cmd {
            libc::F_GETFL if it.is_nonblocking() => Ok(libc::O_RDWR | libc::O_NONBLOCK),
            libc::F_GETFL => Ok(libc::O_RDWR),
            libc::F_SETFL => {
                it.set_nonblocking(arg & libc::O_NONBLOCK as isize != 0);
                Ok(0)
            }
            // The descriptor's own.
            // SAFETY: takes a number, or nothing.
            libc::F_GETFD | libc::F_SETFD => match unsafe { libc::fcntl(socket, cmd, arg) } {
                -1 => Err(super::result::last_errno()),
                flags => Ok(flags),
            },
            _ => Err(libc::EOPNOTSUPP),
        }
    });
    answer(done)
}

impl Socket {
    fn is_nonblocking(&self) -> bool {
        match self {
            Self::Stream(stream) => stream.state().is_nonblocking,
            Self::Datagram(datagram) => datagram.is_nonblocking(),
        }
    }

    fn set_nonblocking(&self, is_set: bool) {
        match self {
            Self::Stream(stream) => stream.state().is_nonblocking = is_set,
            Self::Datagram(datagram) => datagram.set_nonblocking(is_set),
        }
    }
}
