//! The state that the processes of a device share: a file that all of them map.
//!
//! The kernel's locks on bytes of the file show which processes are alive: they are released when
//! their owner ends, for any reason. Nothing written in the file has to be repaired afterwards.

mod asleep;
mod faults;
mod gids;
mod layout;
mod lease;
mod locks;
mod mailbox;
#[allow(unsafe_code, reason = "maps files")]
mod map;
mod open;
mod place;
mod published;
mod rings;
mod service;
mod settings;
mod words;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::time::Instant;

use ferroce_device::{DeviceState, Function, Identity};
use ferroce_os::{self as os, NotInherited};
use serde::Serialize;

pub use self::faults::{FaultError, FaultRow, FaultTable};
pub(crate) use self::layout::Layout;
pub use self::layout::Presence;
pub use self::locks::SLOT_MAX;
use self::locks::{PATIENCE, byte};
pub(crate) use self::mailbox::Asked;
pub use self::mailbox::{ATTENTION, Mailbox, Undelivered};
pub use self::place::{Asking, Place, Round};
pub use self::rings::{Peer, PeerFile, Reader, file_name};
pub use self::service::{ServiceClaim, ServiceError, ServiceScope};
use self::settings::SettingsFile;
pub use self::words::{settings_from_bytes, settings_to_bytes};
use crate::spec::DeviceSpec;

/// An opening of a device by a process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Context")
)]
pub struct Process {
    // 1 to 254: the top byte of its queue pair numbers.
    /// Its number: the process's slot on the device.
    #[serde(rename = "ctxn")]
    pub slot: u8,
    /// The process.
    pub pid: u32,
    /// Its name.
    pub comm: String,
}

/// One opening of a device's shared file.
#[derive(Debug)]
pub struct SharedFile {
    /// With the locks of this opening. A child of `fork` that kept it would keep them.
    file: Arc<NotInherited<File>>,
    path: PathBuf,
    layout: &'static Layout,
    settings: Arc<SettingsFile>,
    identity: Identity,
    function: Function,
    /// Of a VF: the file of its PF, where the card's settings are.
    card: Option<Arc<Self>>,
}

/// While it is held, no other process joins, leaves or replaces the file.
#[derive(Debug)]
pub struct Membership<'a>(&'a File);

impl Drop for Membership<'_> {
    fn drop(&mut self) {
        // If the kernel does not unlock, it does so when the file is closed.
        let _ = os::unlock(self.0, byte::MEMBERS);
    }
}

impl SharedFile {
    /// Opens the file of a device, which lies at `path`; makes it if it is not there. `card` is, for
    /// a VF, that of its PF.
    pub(crate) fn open(
        path: &Path,
        spec: &DeviceSpec,
        card: Option<&Arc<Self>>,
    ) -> io::Result<Self> {
        open::open(path, spec, card)
    }

    /// Whether a process has the device, or a VF of it, open.
    pub(crate) fn is_used(path: &Path) -> io::Result<bool> {
        open::is_used(path)
    }

    /// Removes a device's file. [`io::ErrorKind::ResourceBusy`] if a process has the device open.
    pub(crate) fn remove(path: &Path) -> io::Result<()> {
        open::remove(path)
    }

    /// The device's state, for the owner of a slot or, with slot 0, for an observer.
    pub fn state(&self, slot: u8) -> DeviceState {
        let card = self.card.as_deref().unwrap_or(self);
        let memory = self.layout.state(card.layout);
        let (function, settings) = (self.function.clone(), Arc::clone(&card.settings) as _);
        let state = DeviceState::mapped(memory, settings, function, slot, self.identity);
        state.expect("there is a slab for every slot and a block for every VF")
    }

    /// The same of the card's PF, for an observer.
    pub(crate) fn card_state(&self) -> DeviceState {
        self.card.as_deref().unwrap_or(self).state(0)
    }

    /// Keeps the file of a VF's card where it is until this `SharedFile` is dropped.
    pub fn keep_card(&self) -> io::Result<()> {
        let (Some(card), Function::Vf { index, .. }) = (&self.card, &self.function) else {
            return Ok(());
        };
        let _held = card.membership()?;
        if !open::is_still_at(&card.file, &card.path) {
            let reason = "the card of this VF has been removed just now";
            return Err(io::Error::new(io::ErrorKind::NotFound, reason));
        }
        os::lock_shared(&card.file, byte::VFS + i64::from(*index))
    }

    /// Waits until no other process is about to join or leave.
    pub fn membership(&self) -> io::Result<Membership<'_>> {
        os::lock_when_free(&self.file, byte::MEMBERS, PATIENCE)?;
        Ok(Membership(&self.file))
    }

    /// The same if it is so now.
    pub fn try_membership(&self) -> Option<Membership<'_>> {
        let is_free = os::lock(&self.file, byte::MEMBERS).unwrap_or(false);
        is_free.then_some(Membership(&self.file))
    }

    /// Takes a slot that is free; `None` if all have owners. It is free again when this
    /// `SharedFile` is dropped.
    pub fn claim_slot(&self, held: &Membership<'_>) -> io::Result<Option<u8>> {
        for slot in self.layout.slots() {
            if self.claim_this_slot(held, slot)? {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    /// Takes this slot; false if it has an owner.
    pub fn claim_this_slot(&self, held: &Membership<'_>, slot: u8) -> io::Result<bool> {
        if !os::lock(&self.file, byte::SLOTS + i64::from(slot))? {
            return Ok(false);
        }
        let comm = std::fs::read("/proc/self/comm").unwrap_or_default();
        self.layout.member(slot).set(process::id(), &comm);
        self.layout.note_slot(slot);
        let claim = self.layout.generation();
        self.layout.member(slot).set_claim(claim);
        self.clear_services(held, slot);
        self.clear_leases(held, slot)?;
        Ok(true)
    }

    /// How many slots have been taken so far, for a process that has just taken one.
    pub fn generation(&self) -> u32 {
        self.layout.generation()
    }

    /// The mailbox of the owner of a slot.
    pub fn mailbox(&self, slot: u8) -> io::Result<Mailbox> {
        Mailbox::bind(&self.path, slot)
    }

    /// Puts a question into the mailbox of the owner of a slot.
    pub(crate) fn ask(
        &self,
        slot: u8,
        code: u8,
        answer: &impl AsFd,
        done: &impl AsFd,
        until: Instant,
    ) -> io::Result<Asked> {
        let descriptors = [answer.as_fd(), done.as_fd()];
        let asked = mailbox::ask(&self.path, slot, &[code], descriptors, until)?;
        if asked == Asked::Yes {
            self.announce(slot);
        }
        Ok(asked)
    }

    /// Whether the user has removed the device.
    pub fn is_removed(&self) -> bool {
        self.layout.is_removed()
    }

    /// Removes the device under the processes that have it open: they hear of it, and the file is
    /// theirs alone from now on.
    pub(crate) fn remove_by_force(&self) -> io::Result<()> {
        let _held = self.membership()?;
        self.layout.set_removed();
        for process in self.others()? {
            self.call_attention(process.slot);
        }
        mailbox::remove_all(&self.path);
        std::fs::remove_file(&self.path)
    }

    /// Has the owner of a slot look at the settings. One whose mailbox is full looks anyway.
    pub(crate) fn call_attention(&self, slot: u8) {
        if mailbox::call_attention(&self.path, slot).is_ok() {
            self.announce(slot);
        }
    }

    /// Gives a socket of the device's port to the owner of a slot, to keep its place.
    pub fn give(
        &self,
        _held: &Membership<'_>,
        slot: u8,
        socket: &impl AsFd,
        index: Option<u8>,
    ) -> io::Result<()> {
        mailbox::give(&self.path, slot, socket.as_fd(), index)?;
        self.announce(slot);
        Ok(())
    }

    /// How many frames the owner of a slot has been told of, modulo 2^32.
    #[inline]
    pub fn announced(&self, slot: u8) -> u32 {
        self.layout.member(slot).announced()
    }

    /// Tells the owner of a slot of a frame in its mailbox.
    pub fn announce(&self, slot: u8) {
        self.layout.member(slot).announce();
    }

    /// Whether another process has the slot. When in doubt it has.
    pub fn is_alive(&self, slot: u8) -> bool {
        os::is_locked(&self.file, byte::SLOTS + i64::from(slot)).unwrap_or(true)
    }

    /// The other processes that have the device open.
    pub fn others(&self) -> io::Result<Vec<Process>> {
        let locked = os::locked_bytes(&self.file, byte::SLOTS + 1, SLOT_MAX.into())?;
        let process = |byte: i64| {
            // Between 1 and `SLOT_MAX`, which is a u8.
            let slot = (byte - byte::SLOTS) as u8;
            let (pid, comm) = self.layout.member(slot).get();
            Process { slot, pid, comm }
        };
        Ok(locked.into_iter().map(process).collect())
    }

    /// Whether another process has the slot and shares the device's port.
    pub fn shares_port(&self, slot: u8) -> bool {
        self.layout.member(slot).presence() == Presence::In && self.is_alive(slot)
    }

    /// Notes whether the owner of a slot, which is this process, shares the device's port.
    pub fn set_presence(&self, slot: u8, presence: Presence) {
        self.layout.member(slot).set_presence(presence);
    }

    /// The slots of the other processes whose presence is one of those.
    pub fn other_slots(&self, wanted: &[Presence]) -> io::Result<Vec<u8>> {
        let locked = os::locked_bytes(&self.file, byte::SLOTS + 1, SLOT_MAX.into())?;
        // Between 1 and `SLOT_MAX`, which is a u8.
        let slots = locked.into_iter().map(|byte| (byte - byte::SLOTS) as u8);
        Ok(slots
            .filter(|slot| wanted.contains(&self.layout.member(*slot).presence()))
            .collect())
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
