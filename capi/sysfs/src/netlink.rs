//! RDMA netlink sockets, through which programs query the kernel about devices.
//!
//! Such a socket becomes one of `NETLINK_USERSOCK`, which every kernel has and which connects
//! programs. It can therefore be bound, polled and read like the requested one, and only what is
//! sent to the kernel through it is intercepted: that is answered here, in the sending thread, with
//! messages from another socket. What does not fit into the program's receive buffer follows from a
//! thread, just as a kernel continues its lists when they are read.

use std::ffi::{c_int, c_void};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ferroce_abi::border::cross;
use ferroce_registry::Registry;
use libc::{msghdr, size_t, sockaddr, sockaddr_nl, socklen_t, ssize_t};

use crate::next::next;

/// Whether this process has opened such a socket; most never do.
static HAS_SOME: AtomicBool = AtomicBool::new(false);

/// The longest question.
const QUESTION_MAX: usize = 1 << 16;

/// The most threads that hold answers for programs that ask and do not read.
const THREADS_MAX: usize = 16;
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// How long an answer waits for the program to read what came before.
const PATIENCE_S: libc::time_t = 10;

/// # Safety
///
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    type Function = unsafe extern "C-unwind" fn(c_int, c_int, c_int) -> c_int;
    let next = next!(socket);
    let ours = domain == libc::AF_NETLINK && protocol == libc::NETLINK_RDMA;
    if ours {
        HAS_SOME.store(true, Ordering::Relaxed);
    }
    let protocol = if ours {
        libc::NETLINK_USERSOCK
    } else {
        protocol
    };
    // SAFETY: the C library's function has this type and takes any numbers.
    unsafe {
        let next: Function = mem::transmute(next);
        next(domain, kind, protocol)
    }
}

/// # Safety
///
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn send(
    file: c_int,
    data: *const c_void,
    size: size_t,
    flags: c_int,
) -> ssize_t {
    type Function = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t, c_int) -> ssize_t;
    let next = next!(send);
    // SAFETY: the C library's function has this type; the caller vouches for the arguments.
    unsafe {
        if let Some(sent) = taken(file, None, || bytes(data, size)) {
            return sent;
        }
        let next: Function = mem::transmute(next);
        next(file, data, size, flags)
    }
}

/// # Safety
///
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendto(
    file: c_int,
    data: *const c_void,
    size: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_length: socklen_t,
) -> ssize_t {
    type Function = unsafe extern "C-unwind" fn(
        c_int,
        *const c_void,
        size_t,
        c_int,
        *const sockaddr,
        socklen_t,
    ) -> ssize_t;
    let next = next!(sendto);
    // SAFETY: the C library's function has this type; the caller vouches for the arguments.
    unsafe {
        if let Some(sent) = taken(file, Some((to, to_length)), || bytes(data, size)) {
            return sent;
        }
        let next: Function = mem::transmute(next);
        next(file, data, size, flags, to, to_length)
    }
}

/// # Safety
///
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmsg(file: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    type Function = unsafe extern "C-unwind" fn(c_int, *const msghdr, c_int) -> ssize_t;
    let next = next!(sendmsg);
    // SAFETY: the C library's function has this type; the caller vouches for the arguments.
    unsafe {
        if HAS_SOME.load(Ordering::Relaxed) && !message.is_null() {
            let to = (
                (*message).msg_name.cast_const().cast(),
                (*message).msg_namelen,
            );
            if let Some(sent) = taken(file, Some(to), || gathered(message)) {
                return sent;
            }
        }
        let next: Function = mem::transmute(next);
        next(file, message, flags)
    }
}

/// Answers what a program sends to the kernel by a socket of RDMA netlink; `None` if this is something
/// else, and the C library's matter.
///
/// # Safety
///
/// `to` is null or an address of its length.
unsafe fn taken(
    file: c_int,
    to: Option<(*const sockaddr, socklen_t)>,
    question: impl FnOnce() -> Option<Vec<u8>>,
) -> Option<ssize_t> {
    if !HAS_SOME.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: as the caller promises.
    unsafe { taken_any(file, to, question) }
}

/// # Safety
///
/// As for [`taken`].
#[cold]
unsafe fn taken_any(
    file: c_int,
    to: Option<(*const sockaddr, socklen_t)>,
    question: impl FnOnce() -> Option<Vec<u8>>,
) -> Option<ssize_t> {
    // SAFETY: as the caller promises.
    let to_kernel = unsafe { to.is_none_or(|(to, length)| is_kernel(to, length)) };
    if !to_kernel || !is_ours(file) {
        return None;
    }
    let before = errno();
    let answered = cross(|| {
        let Some(question) = question() else {
            return Err(libc::EMSGSIZE);
        };
        let to = port_id(file).ok_or(libc::EBADF)?;
        let registry = Registry::open().map_err(|_| libc::EIO)?;
        tell(to, ferroce_nldev::answer(&registry, &question, to));
        Ok(question.len() as ssize_t)
    });
    match answered {
        Some(Ok(length)) => {
            set_errno(before);
            Some(length)
        }
        Some(Err(error)) => {
            set_errno(error);
            Some(-1)
        }
        None => {
            set_errno(libc::EIO);
            Some(-1)
        }
    }
}

/// # Safety
///
/// `to` is null or an address of this length.
unsafe fn is_kernel(to: *const sockaddr, length: socklen_t) -> bool {
    if to.is_null() {
        return true;
    }
    let is_whole = length as usize >= size_of::<sockaddr_nl>();
    // SAFETY: as the caller promises.
    is_whole && unsafe { to.cast::<sockaddr_nl>().read_unaligned() }.nl_pid == 0
}

/// Whether a descriptor is a socket that [`socket`] has made: no other code sends to the kernel by such
/// sockets, which does not listen.
fn is_ours(file: c_int) -> bool {
    let before = errno();
    let option = |name| {
        let (mut value, mut length) = (0 as c_int, size_of::<c_int>() as socklen_t);
        // SAFETY: room for the number and its length.
        let got = unsafe {
            let value = (&raw mut value).cast();
            libc::getsockopt(file, libc::SOL_SOCKET, name, value, &raw mut length)
        };
        (got == 0).then_some(value)
    };
    let ours = option(libc::SO_DOMAIN) == Some(libc::AF_NETLINK)
        && option(libc::SO_PROTOCOL) == Some(libc::NETLINK_USERSOCK);
    set_errno(before);
    ours
}

fn netlink_address(port_id: u32) -> sockaddr_nl {
    // SAFETY: zero is a value of all fields.
    let mut address: sockaddr_nl = unsafe { mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as u16;
    address.nl_pid = port_id;
    address
}

/// The number of a program's socket; one that has none gets it now, as by its first message.
fn port_id(file: c_int) -> Option<u32> {
    const LENGTH: socklen_t = size_of::<sockaddr_nl>() as socklen_t;
    let mut address = netlink_address(0);
    let own = |address: &mut sockaddr_nl| {
        let mut length = LENGTH;
        // SAFETY: room for the address and its length.
        unsafe { libc::getsockname(file, (&raw mut *address).cast(), &raw mut length) == 0 }
    };
    if !own(&mut address) {
        return None;
    }
    if address.nl_pid == 0 {
        // SAFETY: an address of this length.
        unsafe { libc::bind(file, (&raw const address).cast(), LENGTH) };
        own(&mut address);
    }
    (address.nl_pid != 0).then_some(address.nl_pid)
}

/// The end that answers a program.
struct Answerer {
    socket: c_int,
    to: u32,
}

impl Drop for Answerer {
    fn drop(&mut self) {
        // SAFETY: its own descriptor.
        unsafe { libc::syscall(libc::SYS_close, self.socket) };
    }
}

impl Answerer {
    fn new(to: u32) -> Option<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: numbers only. Not by the function above, which the loader finds first.
        let socket = unsafe {
            libc::syscall(
                libc::SYS_socket,
                libc::AF_NETLINK,
                kind,
                libc::NETLINK_USERSOCK,
            )
        };
        let socket = c_int::try_from(socket).ok().filter(|it| *it >= 0)?;
        let patience = libc::timeval {
            tv_sec: PATIENCE_S,
            tv_usec: 0,
        };
        // SAFETY: an option of this size.
        unsafe {
            libc::setsockopt(
                socket,
                libc::SOL_SOCKET,
                libc::SO_SNDTIMEO,
                (&raw const patience).cast(),
                size_of::<libc::timeval>() as socklen_t,
            );
        }
        Some(Self { socket, to })
    }

    /// Whether the datagram is in the program's receive buffer.
    fn send(&self, datagram: &[u8], flags: c_int) -> bool {
        let address = netlink_address(self.to);
        // SAFETY: bytes and an address of these lengths.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_sendto,
                self.socket,
                datagram.as_ptr(),
                datagram.len(),
                flags,
                &raw const address,
                size_of::<sockaddr_nl>(),
            )
        };
        usize::try_from(sent) == Ok(datagram.len())
    }
}

/// Sends an answer: what fits at once, the rest by a thread.
fn tell(to: u32, datagrams: Vec<Vec<u8>>) {
    let Some(answerer) = Answerer::new(to) else {
        return;
    };
    let mut left = datagrams.into_iter().peekable();
    while let Some(datagram) = left.peek() {
        if !answerer.send(datagram, libc::MSG_DONTWAIT) {
            break;
        }
        left.next();
    }
    if left.peek().is_none() || THREADS.fetch_add(1, Ordering::Relaxed) >= THREADS_MAX {
        if left.peek().is_some() {
            THREADS.fetch_sub(1, Ordering::Relaxed);
        }
        return;
    }
    let follow = move || {
        for datagram in left {
            if !answerer.send(&datagram, 0) {
                break; // closed, or never read
            }
        }
        THREADS.fetch_sub(1, Ordering::Relaxed);
    };
    if ferroce_os::spawn("ferroce-netlink".to_owned(), follow).is_err() {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A copy of what the program sends; `None` if it is too long.
///
/// # Safety
///
/// `size` bytes are at `data`.
unsafe fn bytes(data: *const c_void, size: size_t) -> Option<Vec<u8>> {
    if size > QUESTION_MAX {
        return None;
    }
    let mut copy = vec![0; size];
    // SAFETY: as the caller promises.
    unsafe {
        copy.as_mut_ptr()
            .copy_from_nonoverlapping(data.cast(), size)
    };
    Some(copy)
}

/// The same of a message in parts.
///
/// # Safety
///
/// `message` is one for `sendmsg`.
unsafe fn gathered(message: *const msghdr) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    // SAFETY: as the caller promises.
    unsafe {
        for index in 0..(*message).msg_iovlen {
            let part = (*message).msg_iov.add(index).read();
            all.extend(bytes(part.iov_base, part.iov_len)?);
            if all.len() > QUESTION_MAX {
                return None;
            }
        }
    }
    Some(all)
}

fn errno() -> c_int {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() }
}

fn set_errno(value: c_int) {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = value }
}
