//! UCX, loaded.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};
use std::mem;
use std::path::Path;

use ferroce_dynlib::{OpenError, SymbolError, Version};
use thiserror::Error;

use crate::abi::{Functions, IN_PROGRESS, OK, Pointer, Status};

/// The releases whose interface is known, for messages.
const KNOWN: &str = "1.15 to 1.23";

/// Whether the interface of a release is known.
const fn is_known(version: Version) -> bool {
    matches!((version.major, version.minor), (1, 15..=23))
}

/// A library that cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file is not UCX's, or not for this machine.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The library lacks a function.
    #[error(transparent)]
    Symbols(#[from] SymbolError),
    /// The interface of this release is not known.
    #[error("it is UCX {0}, whose interface is not known; known is {KNOWN}")]
    UnknownVersion(String),
}

/// A function of the library failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{call}: {name} ({code})")]
pub struct CallError {
    /// Name of the function in UCX's interface.
    pub call: &'static str,
    /// A `ucs_status_t`.
    pub code: i32,
    /// UCX's text for it.
    pub name: String,
}

/// A loaded library.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    version: Version,
    pub(crate) functions: Functions,
}

impl Library {
    /// Loads a library, `libucp.so`. The others of the same release must be beside it.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is not UCX's library for this machine, of a release that is known.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let (library, _) = ferroce_dynlib::Library::open(path, &["ucp_get_version_string"])?;
        let get_version = library.symbol(c"ucp_get_version_string")?.as_ptr();
        // SAFETY: the function has this type in all releases, and returns a C string that stays.
        let text = text(unsafe {
            mem::transmute::<Pointer, unsafe extern "C" fn() -> *const c_char>(get_version)()
        });
        let version = Version::parse(&text).filter(|it| is_known(*it));
        let version = version.ok_or(LoadError::UnknownVersion(text))?;
        let functions = Functions::of(library)?;
        Ok(Self { version, functions })
    }

    /// The version of UCX.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    pub(crate) fn check(&self, call: &'static str, status: Status) -> Result<(), CallError> {
        match status {
            OK | IN_PROGRESS => Ok(()),
            status => Err(self.error(call, status)),
        }
    }

    pub(crate) fn error(&self, call: &'static str, status: Status) -> CallError {
        CallError {
            call,
            code: status.into(),
            // SAFETY: takes a status and returns a C string that stays.
            name: text(unsafe { (self.functions.status_string)(status) }),
        }
    }
}

fn text(string: *const c_char) -> String {
    if string.is_null() {
        return "no text".to_owned();
    }
    // SAFETY: a C string of the library.
    let string = unsafe { CStr::from_ptr(string) };
    string.to_string_lossy().into_owned()
}
