//! Memory-mapped files.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::ptr;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use ferroce_admission::LeaseTable;
use ferroce_device::{CounterSlab, ErrorLog, StateBlock, VfBlock};
use ferroce_os::List;
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// A type that may be in memory which other processes change at any time.
///
/// # Safety
/// It consists of atomics in C layout, so that any bytes at any time are a value, needs an alignment
/// of at most a page, and owns nothing.
pub(crate) unsafe trait Shareable: Sync + 'static {}

/// Files that are mapped as a `T`, each once for the process, however often it is opened: mappings are permanent.
pub(crate) struct Mappings<T: Shareable>(List<((u64, u64), &'static T)>);

impl<T: Shareable> Mappings<T> {
    pub(crate) const fn new() -> Self {
        Self(List::new())
    }

    /// The mapping of a file. A new one is made from what `open` returns, which is this file, opened once more: it
    /// keeps what it was made from, and with it that one's locks.
    pub(crate) fn of(
        &self,
        file: &File,
        open: impl FnOnce() -> io::Result<File>,
    ) -> io::Result<&'static T> {
        let metadata = file.metadata()?;
        // A mapped file keeps its number even when it is removed.
        let id = (metadata.dev(), metadata.ino());
        if let Some((_, mapped)) = self.0.iter().find(|(mapped, _)| *mapped == id) {
            return Ok(mapped);
        }
        // Two threads may both make one, which does no harm.
        let mapped = map(&open()?)?;
        self.0.push((id, mapped));
        Ok(mapped)
    }
}

/// Maps the beginning of a file as a `T`, for the rest of the process's life. The file must be as
/// large already.
///
/// A process that can write the file can truncate it and so have the kernel end this one: only for
/// files of the user's own.
fn map<T: Shareable>(file: &File) -> io::Result<&'static T> {
    let len = size_of::<T>();
    if file.metadata()?.len() < len as u64 {
        return Err(io::Error::from_raw_os_error(libc::ENODATA));
    }
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at a place of the kernel's choice touches no memory in use.
    let at = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, 0) }?;
    // SAFETY: the mapping is as long as a `T`, aligned to a page, never unmapped, and a `T` takes
    // any bytes at any time.
    Ok(unsafe { &*at.cast::<T>() })
}

/// Defines a structure in C layout all of whose fields are [`Shareable`], which makes it one, too.
macro_rules! shareable {
    (
        $(#[$about:meta])*
        $vis:vis struct $name:ident $(<const $n:ident: usize>)? {
            $($(#[$doc:meta])* $of:vis $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$about])*
        #[repr(C)]
        $vis struct $name $(<const $n: usize>)? {
            $($(#[$doc])* $of $field: $type,)*
        }

        // SAFETY: C layout, and the bounds say that each field is shareable.
        #[allow(unsafe_code, reason = "sound wherever it is used")]
        unsafe impl $(<const $n: usize>)? $crate::shared::map::Shareable for $name $(<$n>)?
        where
            $($type: $crate::shared::map::Shareable,)*
        {
        }
    };
}
pub(crate) use shareable;

// SAFETY: an atomic takes any bytes at any time.
unsafe impl Shareable for AtomicU16 {}
// SAFETY: as above.
unsafe impl Shareable for AtomicU32 {}
// SAFETY: as above.
unsafe impl Shareable for AtomicU64 {}
// SAFETY: an array has the layout of its elements.
unsafe impl<T: Shareable, const N: usize> Shareable for [T; N] {}

// SAFETY: atomics in C layout all the way down, aligned to two cache lines at most.
unsafe impl Shareable for CounterSlab {}
// SAFETY: as above.
unsafe impl Shareable for ErrorLog {}
// SAFETY: as above.
unsafe impl Shareable for LeaseTable {}
// SAFETY: as above.
unsafe impl Shareable for StateBlock {}
// SAFETY: as above.
unsafe impl Shareable for VfBlock {}
