//! Memory that two processes use at the same time, and that is freed when neither uses it any more.

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::fork::forks;
use super::limit::may_write;

/// A file in memory whose length cannot be changed: neither process can take memory away from
/// under the other, which would end that with a signal. Pages come when they are first used.
pub fn fixed_memory_file(len: usize) -> io::Result<File> {
    if !may_write(len as u64) {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create(c"ferroce-ring", flags)?;
    ftruncate(&file, len as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file.into())
}

/// A mapping of such a file, for as long as the value lives. A child of `fork` does not have it.
///
/// The other process may write any of it at any time. So nothing is ever read twice: what is read
/// is copied first, and judged then.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    len: usize,
    /// The process that has it.
    forks: u64,
}

// SAFETY: it owns a mapping, which all threads of the process have.
unsafe impl Send for Region {}
// SAFETY: what takes `&self` reads and writes atomics, or copies from memory that is another
// process's to write anyway.
unsafe impl Sync for Region {}

impl Region {
    /// Maps a file of exactly this length that stays as long as it is.
    pub fn map(file: &File, len: usize) -> io::Result<Self> {
        let stays = fcntl_get_seals(file)?.contains(SealFlags::SHRINK);
        if !stays || file.metadata()?.len() != len as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory in use.
        let at = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, 0) }?;
        let start = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let region = Self {
            start,
            len,
            forks: forks(),
        };
        // SAFETY: the range is the new mapping. A child that kept it would keep the memory alive.
        unsafe { madvise(at, len, Advice::LinuxDontFork) }?;
        Ok(region)
    }

    /// The word at a multiple of 8.
    ///
    /// # Panics
    /// Beyond the end, or between words.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < self.len && self.len - offset >= 8);
        // SAFETY: inside the mapping, which lives as long as `self`; aligned, since the mapping is
        // aligned to a page; and an atomic takes any bytes at any time.
        unsafe { &*self.start.as_ptr().add(offset).cast::<AtomicU64>() }
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// Beyond the end.
    #[inline]
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        assert!(offset <= self.len && out.len() <= self.len - offset);
        // SAFETY: both are as long, and `out` is none of the mapping, which only this type hands
        // out. The other process may write meanwhile: then these are any bytes, which a copy is
        // made of once, and nothing else looks at the mapping.
        unsafe {
            let from = self.start.as_ptr().add(offset);
            ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len());
        }
    }

    /// Has bytes written. What `write` finds there is of no meaning, and so is what it finds of what it
    /// has written.
    ///
    /// # Panics
    /// Beyond the end.
    #[inline]
    pub fn write<R>(&mut self, offset: usize, len: usize, write: impl FnOnce(&mut [u8]) -> R) -> R {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: inside the mapping, and `&mut self` keeps others of this process off it meanwhile,
        // who hold no other slice of it. The other process writes here only if it is broken, and
        // then changes bytes of its own packets.
        let room = unsafe {
            let at = self.start.as_ptr().add(offset);
            std::slice::from_raw_parts_mut(at, len)
        };
        write(room)
    }

    /// Gives the memory of a range of pages back, in which only zeros are then.
    ///
    /// # Panics
    /// Beyond the end.
    pub fn give_back(&mut self, offset: usize, len: usize) {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: inside the mapping, of which nothing is borrowed, and whose bytes may change at any
        // time anyway. If the kernel does not take the memory back, it stays.
        let _ = unsafe {
            let at = self.start.as_ptr().add(offset);
            madvise(at.cast(), len, Advice::LinuxRemove)
        };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // In a child of `fork` something else may be there.
        if self.forks == forks() {
            // SAFETY: the mapping is this value's, and nothing of it is borrowed any more. If it
            // cannot be unmapped it stays, which does no harm.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::memory_file;

    #[test]
    fn memory_that_could_go_is_not_taken() {
        let fixed = fixed_memory_file(8192).unwrap();
        assert!(fixed.set_len(4096).is_err() && fixed.set_len(16384).is_err());
        assert!(Region::map(&fixed, 8192).is_ok());
        assert!(Region::map(&fixed, 4096).is_err());
        let loose = memory_file(c"loose").unwrap();
        loose.set_len(8192).unwrap();
        assert!(Region::map(&loose, 8192).is_err());
    }

    #[test]
    fn one_end_sees_what_the_other_writes() {
        let file = fixed_memory_file(4096).unwrap();
        let mut one = Region::map(&file, 4096).unwrap();
        let two = Region::map(&file, 4096).unwrap();
        one.write(4000, 96, |room| room.fill(7));
        let mut out = [0; 96];
        two.read(4000, &mut out);
        assert_eq!(out, [7; 96]);
    }
}
