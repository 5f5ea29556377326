//! Memory of the program that the peer may write to directly (riomap in rsocket(7)).

use std::ffi::c_void;

use ferroce_ibverbs::abi::{ibv_mr, ibv_pd};
use ferroce_ibverbs::{ibv_dereg_mr, ibv_reg_mr};

use super::region::{LOCAL_WRITE, REMOTE_WRITE};
use super::result::{Result, last_errno};
use super::wire::{Mapping, Target};

/// What a program asks to be mapped.
pub(super) struct Window {
    pub(super) start: *mut c_void,
    pub(super) length: usize,
    pub(super) offset: u64,
    /// The peer may write to it; otherwise it is only registered.
    pub(super) is_for_peer: bool,
}

/// A registration.
struct Mapped {
    mr: *mut ibv_mr,
    offset: u64,
    /// Its place in the peer's table, and whether the peer has heard of it, if it is to.
    place: Option<u16>,
    is_told: bool,
}

impl Mapped {
    /// Address, key and length.
    fn memory(&self) -> (*mut c_void, u32, usize) {
        // SAFETY: registered until this is dropped.
        let mr = unsafe { &*self.mr };
        (mr.addr, mr.rkey, mr.length)
    }

    fn is_untold(&self) -> bool {
        self.place.is_some() && !self.is_told
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: its own registration.
        unsafe { ibv_dereg_mr(self.mr) };
    }
}

/// The mapped memory of a stream.
#[derive(Default)]
pub(super) struct Maps(Vec<Mapped>);

impl Maps {
    /// Registers memory; `places` is how many the peer's table has.
    ///
    /// # Errors
    /// `ENOMEM` if the peer's table is full, or why it was not registered.
    pub(super) fn add(&mut self, pd: *mut ibv_pd, window: Window, places: u16) -> Result<()> {
        let is_free = |place: &u16| self.0.iter().all(|mapped| mapped.place != Some(*place));
        let (place, access) = match window.is_for_peer {
            true => {
                let place = (0..places).find(is_free).ok_or(libc::ENOMEM)?;
                (Some(place), LOCAL_WRITE | REMOTE_WRITE)
            }
            false => (None, LOCAL_WRITE),
        };
        // SAFETY: a live object, and the program's memory, which is looked at when it is used.
        let mr = unsafe { ibv_reg_mr(pd, window.start, window.length, access) };
        if mr.is_null() {
            return Err(last_errno());
        }
        self.0.push(Mapped {
            mr,
            offset: window.offset,
            place,
            is_told: false,
        });
        Ok(())
    }

    /// # Errors
    /// `EINVAL` if this is not mapped.
    pub(super) fn remove(&mut self, start: *mut c_void, length: usize) -> Result<()> {
        let is_it = |mapped: &Mapped| {
            let (at, _, long) = mapped.memory();
            (at, long) == (start, length)
        };
        let index = self.0.iter().position(is_it).ok_or(libc::EINVAL)?;
        self.0.remove(index);
        Ok(())
    }

    pub(super) fn has_untold(&self) -> bool {
        self.0.iter().any(Mapped::is_untold)
    }

    /// What the peer is to be told next, and in which place of its table; it has been told from now
    /// on.
    pub(super) fn next_untold(&mut self) -> Option<(u16, Mapping)> {
        let mapped = self.0.iter_mut().find(|mapped| mapped.is_untold())?;
        mapped.is_told = true;
        let (addr, key, length) = mapped.memory();
        let target = Target {
            addr: addr as u64,
            key,
            length: u32::try_from(length).unwrap_or(u32::MAX),
        };
        let offset = mapped.offset;
        Some((mapped.place?, Mapping { offset, target }))
    }
}
