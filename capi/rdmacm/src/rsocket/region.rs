//! Memory of a stream, registered with its device.

use std::ptr::null_mut;

use ferroce_ibverbs::abi::{ibv_mr, ibv_pd};
use ferroce_ibverbs::{ibv_dereg_mr, ibv_reg_mr};

use super::result::{Errno, last_errno};

/// `IBV_ACCESS_LOCAL_WRITE`
pub(super) const LOCAL_WRITE: i32 = 1;
/// `IBV_ACCESS_REMOTE_WRITE`
pub(super) const REMOTE_WRITE: i32 = 1 << 1;

/// Pages of the stream's own. The peer may write to them if they were made so; so nothing here makes a
/// reference to their bytes.
pub(super) struct Region {
    start: *mut u8,
    length: usize,
    mr: *mut ibv_mr,
}

impl Region {
    /// # Errors
    /// `ENOMEM`, or why it was not registered.
    pub(super) fn new(pd: *mut ibv_pd, length: usize, for_peer: bool) -> Result<Self, Errno> {
        // SAFETY: new pages wherever there is room.
        let start = unsafe {
            libc::mmap(
                null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(last_errno());
        }
        let access = match for_peer {
            true => LOCAL_WRITE | REMOTE_WRITE,
            false => LOCAL_WRITE,
        };
        let mut region = Self {
            start: start.cast(),
            length,
            mr: null_mut(),
        };
        // SAFETY: a live protection domain, and pages that stay until the region is deregistered.
        region.mr = unsafe { ibv_reg_mr(pd, start, length, access) };
        match region.mr.is_null() {
            true => Err(last_errno()),
            false => Ok(region),
        }
    }

    pub(super) fn address(&self, offset: u32) -> u64 {
        self.at(offset as usize) as u64
    }

    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: registered as long as this lives.
        unsafe { (*self.mr).lkey }
    }

    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.mr).rkey }
    }

    /// Copies bytes of the program's into it.
    ///
    /// # Safety
    /// `length` bytes are at `from`, and there is room for them.
    pub(super) unsafe fn write(&self, offset: u32, from: *const u8, length: usize) {
        debug_assert!(offset as usize + length <= self.length);
        // SAFETY: as the caller promises.
        unsafe {
            self.at(offset as usize)
                .copy_from_nonoverlapping(from, length)
        }
    }

    /// Copies bytes out of it into the program's.
    ///
    /// # Safety
    /// There is room for `length` bytes at `to`, and they are there.
    pub(super) unsafe fn read(&self, offset: u32, to: *mut u8, length: usize) {
        debug_assert!(offset as usize + length <= self.length);
        // SAFETY: as the caller promises.
        unsafe { self.at(offset as usize).copy_to_nonoverlapping(to, length) }
    }

    /// A place in it, for structures that the peer writes: they are read with volatile accesses.
    pub(super) fn place<T>(&self, index: usize) -> *mut T {
        debug_assert!(index * size_of::<T>() <= self.length);
        self.start.cast::<T>().wrapping_add(index)
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.start.wrapping_add(offset)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: its own registration and pages, and the queue pair that used them is gone.
        unsafe {
            if !self.mr.is_null() {
                ibv_dereg_mr(self.mr);
            }
            libc::munmap(self.start.cast(), self.length);
        }
    }
}
