//! NCCL, loaded.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::path::Path;

use ferroce_dynlib::{OpenError, SymbolError, Version};
use thiserror::Error;

use crate::table::{Interface, KNOWN, Log, Table, version_of};

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
    Open(#[from] OpenError),
    /// The dynamic linker does not find a symbol that the file has.
    #[error(transparent)]
    Symbols(#[from] SymbolError),
    /// The interface of this release is not known.
    #[error("it is NCCL {0}, whose network interface is not known; known is {KNOWN}")]
    UnknownVersion(Version),
}

/// A loaded library.
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
        let (library, places) = ferroce_dynlib::Library::open(path, &[VERSION, TABLE, LOG])?;
        let get_version = library.symbol(c"ncclGetVersion")?.as_ptr();
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
        let version = version_of(u32::try_from(number).unwrap_or(0));
        let interface = Interface::of(version).filter(|_| code == 0);
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
