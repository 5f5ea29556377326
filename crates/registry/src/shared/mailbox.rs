//! Communication between the processes of a device: each has a datagram socket with a name in the
//! device's directory, which only the user can access.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ferroce_os::{self as os, NotInherited};
use socket2::SockRef;

use super::locks::SLOT_MAX;

/// The longest path that a socket can be bound to (unix(7)), without the zero at its end.
const PATH_MAX: usize = 107;
/// Asked for as room for what is under way to the others; the kernel may grant less.
const SEND_BUFFER_BYTES: usize = 4 << 20;

/// The frame that has a process look at the device's settings. No packet is that short.
pub const ATTENTION: &[u8] = &[0];

/// A process's own socket.
#[derive(Debug)]
pub struct Mailbox {
    socket: NotInherited<UnixDatagram>,
    names: Names,
    slot: u8,
    /// Which file its name is: after the device was removed by force it may be another's.
    inode: Option<u64>,
    /// The process that has it.
    forks: u64,
}

/// How sending failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Undelivered {
    /// The receiver has not read what it got before. Try again.
    Full,
    /// No process has the slot.
    Vacant,
}

impl Mailbox {
    /// The mailbox of the owner of a slot on the device whose shared file is at `state`.
    pub(crate) fn bind(state: &Path, slot: u8) -> io::Result<Self> {
        let names = Names::new(state)?;
        let name = names.of(slot);
        // Its last owner may have died.
        match fs::remove_file(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = UnixDatagram::bind(&name)?;
        socket.set_nonblocking(true)?;
        // Whatever is granted will do.
        let _ = SockRef::from(&socket).set_send_buffer_size(SEND_BUFFER_BYTES);
        Ok(Self {
            socket: NotInherited::new(socket),
            inode: inode(&name),
            names,
            slot,
            forks: os::forks(),
        })
    }

    /// Sends a frame to the owner of a slot.
    pub fn send(&self, slot: u8, frame: &[u8]) -> Result<(), Undelivered> {
        match self.socket.send_to(frame, self.names.of(slot)) {
            Ok(_) => Ok(()),
            Err(error) => Err(match error.raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => {
                    Undelivered::Full
                }
                _ => Undelivered::Vacant,
            }),
        }
    }

    /// The length of the next frame, which is now in `buffer`, and the descriptors that came with
    /// it; `None` if there is none.
    pub fn receive(&self, buffer: &mut [u8]) -> Option<(usize, Vec<OwnedFd>)> {
        os::receive_with(&self.socket, buffer).ok()
    }
}

/// The fate of a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    /// It is in the mailbox.
    Yes,
    /// No process has the slot.
    Vacant,
    /// There was no room in the mailbox all the time.
    Full,
}

/// Puts a question into the mailbox of the owner of a slot.
pub(super) fn ask(
    state: &Path,
    slot: u8,
    question: &[u8],
    descriptors: [BorrowedFd<'_>; 2],
    until: Instant,
) -> io::Result<Asked> {
    let names = Names::new(state)?;
    let socket = UnixDatagram::unbound()?;
    let left = until.saturating_duration_since(Instant::now());
    match left.is_zero() {
        // A timeout cannot be zero.
        true => socket.set_nonblocking(true)?,
        false => socket.set_write_timeout(Some(left))?,
    }
    let sent = socket
        .connect(names.of(slot))
        .and_then(|()| os::send_with(&socket, question, &descriptors));
    match sent {
        Ok(()) => Ok(Asked::Yes),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock => Ok(Asked::Full),
            io::ErrorKind::NotFound
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset => Ok(Asked::Vacant),
            _ => Err(error),
        },
    }
}

/// Has the owner of a slot look at the device's settings.
pub(super) fn call_attention(state: &Path, slot: u8) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to(ATTENTION, Names::new(state)?.of(slot))?;
    Ok(())
}

/// Sends a frame with descriptors to the owner of a slot, if there is room for it.
pub(super) fn send_once(
    state: &Path,
    slot: u8,
    frame: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let sender = UnixDatagram::unbound()?;
    sender.set_nonblocking(true)?;
    sender.connect(Names::new(state)?.of(slot))?;
    os::send_with(&sender, frame, descriptors)
}

/// Gives a socket of the device's port to the owner of a slot, with its index if that is known. It
/// stays open on the way.
pub(super) fn give(
    state: &Path,
    slot: u8,
    socket: BorrowedFd<'_>,
    index: Option<u8>,
) -> io::Result<()> {
    // As in probes, the last number stands for none.
    send_once(state, slot, &[index.unwrap_or(u8::MAX)], &[socket])
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        let name = self.names.of(self.slot);
        if self.forks == os::forks() && inode(&name) == self.inode {
            // Left behind it does no harm.
            let _ = fs::remove_file(name);
        }
    }
}

fn inode(name: &Path) -> Option<u64> {
    fs::symlink_metadata(name).ok().map(|it| it.ino())
}

/// Removes the names that the owners of slots have left behind.
pub(super) fn remove_all(state: &Path) {
    for slot in 1..=SLOT_MAX {
        let _ = fs::remove_file(name(state, slot));
    }
}

fn name(state: &Path, slot: u8) -> PathBuf {
    state.with_extension(slot.to_string())
}

/// The names of the mailboxes of a device.
#[derive(Debug)]
struct Names {
    /// The shared file, by a path that is short enough.
    state: PathBuf,
    /// Keeps that path good.
    _directory: Option<NotInherited<File>>,
}

impl Names {
    fn new(state: &Path) -> io::Result<Self> {
        if name(state, SLOT_MAX).as_os_str().len() <= PATH_MAX {
            return Ok(Self {
                state: state.to_owned(),
                _directory: None,
            });
        }
        let missing = || io::Error::from(io::ErrorKind::InvalidInput);
        // Its number is known from here on.
        let directory = NotInherited::new(File::open(state.parent().ok_or_else(missing)?)?);
        let mut short = PathBuf::from(format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd()));
        short.push(state.file_name().ok_or_else(missing)?);
        Ok(Self {
            state: short,
            _directory: Some(directory),
        })
    }

    fn of(&self, slot: u8) -> PathBuf {
        name(&self.state, slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_directory_is_no_obstacle() {
        let base = tempfile::tempdir().unwrap();
        let long = base.path().join("x".repeat(100)).join("y".repeat(100));
        fs::create_dir_all(&long).unwrap();
        let state = long.join("127.0.0.1-4791.state");
        let (one, two) = (Mailbox::bind(&state, 1), Mailbox::bind(&state, 2));
        let (one, two) = (one.unwrap(), two.unwrap());
        assert!(one.send(2, b"hello").is_ok());
        let mut buffer = [0; 16];
        assert_eq!(two.receive(&mut buffer).unwrap().0, 5);
        assert!(two.receive(&mut buffer).is_none());
        drop(two);
        assert!(matches!(one.send(2, b"hello"), Err(Undelivered::Vacant)));
        while one.send(1, &[0; 1000]).is_ok() {}
        assert!(matches!(one.send(1, b"hello"), Err(Undelivered::Full)));
    }
}
