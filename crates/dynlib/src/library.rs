//! A library that is loaded.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use thiserror::Error;

use crate::symbols::{SymbolError, find};

/// A file that cannot be loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file is another library, or not for this machine.
    #[error(transparent)]
    Symbols(#[from] SymbolError),
    /// The dynamic linker refuses the file.
    #[error("the dynamic linker refuses it: {0}")]
    Linker(String),
}

/// A loaded library. It stays loaded until the process ends: its threads do not end before.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    handle: NonNull<c_void>,
}

impl Library {
    /// Loads a library that has these symbols. Returns their places in the file as well.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is not a library for this machine, or if it lacks a symbol.
    pub fn open(path: &Path, symbols: &[&str]) -> Result<(Self, Vec<u64>), OpenError> {
        let places = find(path, symbols)?;
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| OpenError::Linker("its path has a zero in it".to_owned()))?;
        // SAFETY: the name ends with a zero. What the library does when it is loaded is what the user
        // wants it to do.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        match NonNull::new(handle) {
            Some(handle) => Ok((Self { handle }, places)),
            None => Err(OpenError::Linker(linker_error())),
        }
    }

    /// Where a symbol is that the library, or one that it needs, lets others use.
    ///
    /// # Errors
    ///
    /// Returns an error if none of them does.
    pub fn symbol(&self, name: &CStr) -> Result<NonNull<c_void>, SymbolError> {
        // SAFETY: a handle of `dlopen` and a C string.
        let found = unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) };
        let missing = || SymbolError::NoSymbol(name.to_string_lossy().into_owned());
        NonNull::new(found).ok_or_else(missing)
    }
}

fn linker_error() -> String {
    // SAFETY: takes no argument; the text is valid until the next call in this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: a C string, see above.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

/// Ends the process without the destructors of libraries. Threads of a library may wait on what its
/// destructors destroy, so an ordinary exit may hang.
pub fn leave(code: i32) -> ! {
    // SAFETY: takes a number and does not return.
    unsafe { libc::_exit(code) }
}
