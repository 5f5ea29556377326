//! The memory of a ring.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_os::{Region, fixed_memory_file};

use super::layout::{DROPPED_AT, HEAD_AT, LEN, MAGIC, MAGIC_AT, START_AT, TAIL_AT};

/// The memory of a ring, mapped. It is gone when both ends have dropped it or have died.
#[derive(Debug)]
pub struct Memory {
    pub(super) region: Region,
}

impl Memory {
    /// A new ring's, and the file with which another process maps it. Pages come as they are used.
    ///
    /// # Errors
    /// Returns an error when the process has no descriptor or no address space left.
    pub fn make() -> io::Result<(Self, File)> {
        let file = fixed_memory_file(LEN)?;
        let region = Region::map(&file, LEN)?;
        region.word(MAGIC_AT).store(MAGIC, Ordering::Release);
        Ok((Self { region }, file))
    }

    /// That of a ring that another process has made.
    ///
    /// # Errors
    /// Returns an error when it is nothing of the kind.
    pub fn of(file: OwnedFd) -> io::Result<Self> {
        let region = Region::map(&File::from(file), LEN)?;
        match region.word(MAGIC_AT).load(Ordering::Acquire) {
            MAGIC => Ok(Self { region }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    #[inline]
    pub(super) fn tail(&self) -> &AtomicU64 {
        self.region.word(TAIL_AT)
    }

    #[inline]
    pub(super) fn head(&self) -> &AtomicU64 {
        self.region.word(HEAD_AT)
    }

    #[inline]
    pub(super) fn start(&self) -> &AtomicU64 {
        self.region.word(START_AT)
    }

    #[inline]
    pub(super) fn dropped(&self) -> &AtomicU64 {
        self.region.word(DROPPED_AT)
    }

    /// Writes bytes anywhere, as a process might that has gone wrong. For tests.
    #[doc(hidden)]
    pub fn scribble(&mut self, offset: usize, bytes: &[u8]) {
        let offset = offset % LEN;
        let len = bytes.len().min(LEN - offset);
        self.region
            .write(offset, len, |room| room.copy_from_slice(&bytes[..len]));
    }
}
