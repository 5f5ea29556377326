//! Descriptors that travel between processes (SCM_RIGHTS, unix(7)).

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

/// Descriptors in one message, at most.
const MAX: usize = 2;

/// Room for them, aligned as the kernel wants it.
#[repr(C)]
struct Control {
    align: [libc::cmsghdr; 0],
    bytes: [u8; 64],
}

impl Control {
    const EMPTY: Self = Self {
        align: [],
        bytes: [0; 64],
    };
}

/// A file in memory without a name (memfd_create(2)).
pub(crate) fn memory_file(label: &CStr) -> io::Result<File> {
    // SAFETY: the label is a string with a zero at its end.
    let fd = unsafe { libc::memfd_create(label.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else knows it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Sends bytes with two descriptors to where the socket is connected to.
pub(crate) fn send_with(
    socket: &UnixDatagram,
    bytes: &[u8],
    descriptors: [BorrowedFd<'_>; MAX],
) -> io::Result<()> {
    let raw = descriptors.map(|fd| fd.as_raw_fd());
    let size = size_of_val(&raw) as u32;
    let mut control = Control::EMPTY;
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: a structure of integers and pointers, for which all zeros is a value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    // SAFETY: these compute lengths and touch no memory.
    let (len, space) = unsafe { (libc::CMSG_LEN(size), libc::CMSG_SPACE(size)) };
    assert!(
        space as usize <= control.bytes.len(),
        "room for two descriptors"
    );
    message.msg_controllen = space as _;
    // SAFETY: the buffer is aligned and, as just asserted, large enough for a header and the
    // descriptors; the message points at `bytes` and `control`, which outlive the call.
    let sent = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = len as _;
        libc::CMSG_DATA(header)
            .cast::<[i32; MAX]>()
            .write_unaligned(raw);
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Receives a message and the descriptors that came with it, which are closed on exec.
pub(crate) fn receive_with(
    socket: &UnixDatagram,
    buffer: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = Control::EMPTY;
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: a structure of integers and pointers, for which all zeros is a value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = control.bytes.len() as _;
    // SAFETY: the message points at `buffer` and `control`, which outlive the call.
    let received = unsafe {
        libc::recvmsg(
            socket.as_raw_fd(),
            &raw mut message,
            libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT,
        )
    };
    let len = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let mut descriptors = Vec::new();
    // SAFETY: these stay within what the kernel wrote into the control buffer, whose header says
    // how long its data is; each descriptor in it is new and nobody else knows it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(header).cast::<i32>();
                for index in 0..bytes / size_of::<i32>() {
                    let fd = data.add(index).read_unaligned();
                    descriptors.push(OwnedFd::from_raw_fd(fd));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok((len, descriptors))
}
