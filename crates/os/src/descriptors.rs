//! Passing descriptors between processes (SCM_RIGHTS, unix(7)).

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use rustix::cmsg_space;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Descriptors in one message, at most. Of those that come beyond, the kernel keeps this process
/// free.
const MAX: usize = 2;

/// Room for them.
type Control = [MaybeUninit<u8>; cmsg_space!(ScmRights(MAX))];

const EMPTY: Control = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX))];

/// A file in memory without a name (memfd_create(2)).
pub fn memory_file(label: &CStr) -> io::Result<File> {
    Ok(memfd_create(label, MemfdFlags::CLOEXEC)?.into())
}

/// Sends bytes with at most two descriptors to where the socket is connected to.
pub fn send_with(
    socket: &UnixDatagram,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut control = EMPTY;
    let mut control = SendAncillaryBuffer::new(&mut control);
    let fits = control.push(SendAncillaryMessage::ScmRights(descriptors));
    assert!(fits, "room for two descriptors");
    let parts = [IoSlice::new(bytes)];
    sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message and the descriptors that came with it, which are closed on exec.
pub fn receive_with(socket: &UnixDatagram, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = EMPTY;
    let mut control = RecvAncillaryBuffer::new(&mut control);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let mut parts = [IoSliceMut::new(buffer)];
    let received = recvmsg(socket, &mut parts, &mut control, flags)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            descriptors.extend(some);
        }
    }
    Ok((received.bytes, descriptors))
}
