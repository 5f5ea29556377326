//! What processes on one host announce about rings: which accept some, and which are asleep.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferroce_os::{self as os, NotInherited};

use super::layout::{Layout, Member};
use super::locks::byte;
use super::{SharedFile, mailbox, open};

/// The name of the file that the processes of a device share. By address, since that is what they
/// share, under any names.
pub fn file_name(address: IpAddr, port: u16) -> String {
    format!("{address}-{port}.state")
}

/// The file of a device on this host, for a process that sends to it.
#[derive(Debug)]
pub struct PeerFile {
    path: PathBuf,
    layout: &'static Layout,
}

impl PeerFile {
    /// The file at a path, if it is there and of this release.
    pub fn open(path: &Path) -> io::Result<Self> {
        let layout = open::existing(path)?;
        let path = path.to_owned();
        Ok(Self { path, layout })
    }

    /// The owner of a slot, as long as it takes rings; `None` if it takes none, or is dead.
    pub fn peer(&self, slot: u8) -> (Peer, bool) {
        let peer = Peer {
            member: self.layout.member(slot),
            claim: self.layout.member(slot).rings().0,
        };
        (peer, peer.member.rings().1 > 0 && self.is_alive(slot))
    }

    fn is_alive(&self, slot: u8) -> bool {
        // An open file of its own, so that locks of this process count, too.
        let file = open::open_existing(&self.path).map(NotInherited::<File>::new);
        file.is_ok_and(|file| {
            os::is_locked(&file, byte::SLOTS + i64::from(slot)).is_ok_and(|is| is)
        })
    }

    /// Sends the owner of a slot something with two descriptors.
    pub fn send(&self, slot: u8, bytes: &[u8], descriptors: [BorrowedFd<'_>; 2]) -> io::Result<()> {
        mailbox::send_once(&self.path, slot, bytes, &descriptors)?;
        self.layout.member(slot).announce();
        Ok(())
    }
}

/// A process that may read rings.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    member: &'static Member,
    /// Which of the owners that the slot has had.
    claim: u32,
}

impl Peer {
    /// Whether the slot has this owner still, as far as is known.
    #[inline]
    pub fn is_owner(&self) -> bool {
        self.member.rings().0 == self.claim
    }

    /// To be asked after something was written for it: whether it sleeps and is to be woken. Of several
    /// who ask, one is told so.
    #[inline]
    pub fn is_to_be_woken(&self) -> bool {
        self.member.asleep().is_to_be_woken()
    }
}

/// What the owner of a slot tells others.
#[derive(Clone, Debug)]
pub struct Reader {
    shared: Arc<SharedFile>,
    slot: u8,
}

impl Reader {
    /// What the process with this slot says about its rings.
    pub fn new(shared: Arc<SharedFile>, slot: u8) -> Self {
        Self { shared, slot }
    }

    fn member(&self) -> &'static Member {
        self.shared.layout.member(self.slot)
    }

    /// Where the files of other devices lie.
    pub fn directory(&self) -> Option<&Path> {
        self.shared.path.parent()
    }

    /// It takes this number of further rings.
    pub fn set_room(&self, rings: usize) {
        self.member().set_room(rings as u32);
    }

    /// It is about to sleep; then it looks once more. See [`Peer::is_to_be_woken`].
    pub fn set_asleep(&self) {
        self.member().asleep().set();
    }

    /// It is awake.
    pub fn set_awake(&self) {
        self.member().asleep().clear();
    }
}
