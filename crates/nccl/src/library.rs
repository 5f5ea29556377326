//! A loaded library.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use thiserror::Error;

use crate::symbols::{SymbolError, find};
use crate::table::{Interface, Log, Table, Version};

const VERSION: &str = "ncclGetVersion";
const TABLE: &str = "ncclNetIb";
/// `ncclDebugLog(ncclDebugLogLevel, unsigned long, const char*, int, const char*, ...)`.
const LOG: &str = "_Z12ncclDebugLog17ncclDebugLogLevelmPKciS1_z";

/// A library that cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file is not NCCL's, or not for this machine.
    #[error(transparent)]
    Symbols(#[from] SymbolError),
    /// The dynamic linker refuses the file.
    #[error("the dynamic linker refuses it: {0}")]
    Linker(String),
    /// The interface of this release is not known.
    #[error("it is NCCL {0}, whose network interface is not known; known is {known}", known = Version::KNOWN)]
    UnknownVersion(Version),
}

/// A loaded library. It stays loaded until the process ends: its threads do not end before.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    version: Version,
    interface: Interface,
    pub(crate) table: *const Table,
    pub(crate) log: Log,
}

impl Library {
    /// Loads a library.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is not a library of NCCL for this machine, of a release that is
    /// known.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let places = find(path, &[VERSION, TABLE, LOG])?;
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| LoadError::Linker("its path has a zero in it".to_owned()))?;
        // SAFETY: the name ends with a zero. What the library does when it is loaded is what the user
        // wants it to do.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(LoadError::Linker(linker_error()));
        }
        // SAFETY: a handle of `dlopen` and a C string.
        let get_version = unsafe { libc::dlsym(handle, c"ncclGetVersion".as_ptr()) };
        if get_version.is_null() {
            return Err(SymbolError::NoSymbol(VERSION.to_owned()).into());
        }
        let at = |place: u64| {
            let from_known = place.wrapping_sub(places[0]) as usize;
            get_version.cast::<u8>().wrapping_add(from_known)
        };
        let mut number: c_int = 0;
        // SAFETY: the function has this type in all releases.
        let code = unsafe {
            let get_version = std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut c_int) -> c_int,
            >(get_version);
            get_version(&raw mut number)
        };
        let version = Version::of_number(u32::try_from(number).unwrap_or(0));
        let interface = version.interface().filter(|_| code == 0);
        let interface = interface.ok_or(LoadError::UnknownVersion(version))?;
        Ok(Self {
            version,
            interface,
            table: at(places[1]).cast_const().cast(),
            // SAFETY: the mangled name says that the function has this type.
            log: unsafe { std::mem::transmute::<*mut u8, Log>(at(places[2])) },
        })
    }

    /// The version of NCCL.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The version of the interface of its transports.
    #[must_use]
    pub const fn interface(&self) -> Interface {
        self.interface
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

/// Ends the process without the destructors of libraries. After a port has recovered, a thread of NCCL's
/// waits on a condition variable that its destructors destroy, so an ordinary exit may hang.
pub fn leave(code: i32) -> ! {
    // SAFETY: takes a number and does not return.
    unsafe { libc::_exit(code) }
}
