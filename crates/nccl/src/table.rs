//! The table of functions of NCCL's network transports.
//!
//! NCCL's interface for network plugins has a version of its own, and so has the table inside of the
//! library. The order of the functions is the same in all of them; some of their arguments differ.

use std::ffi::{c_char, c_int, c_ulong, c_void};

use ferroce_dynlib::Version;

/// The releases whose interface is known, for messages.
pub const KNOWN: &str = "2.20 to 2.32";

/// The version of the number that `ncclGetVersion` returns: 22707 is 2.27.7.
pub(crate) const fn version_of(number: u32) -> Version {
    Version {
        major: number / 10_000,
        minor: number / 100 % 100,
        patch: number % 100,
    }
}

/// A version of the interface between NCCL and a network transport.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Interface {
    /// Sizes are of type int; devices cannot be merged by the caller.
    V8 = 8,
    /// Sizes are of type `size_t`; `makeVDevice` merges devices.
    V9 = 9,
    /// A callback for profilers, a configuration of connections.
    V10 = 10,
    /// A context for each communicator, `finalize`.
    V11 = 11,
    /// Properties have a rail and a plane.
    V12 = 12,
}

impl Interface {
    /// The interface of a release's transports, if this crate knows it.
    #[must_use]
    pub const fn of(version: Version) -> Option<Self> {
        match (version.major, version.minor) {
            (2, 20..=23) => Some(Self::V8),
            (2, 24..=25) => Some(Self::V9),
            (2, 26..=27) => Some(Self::V10),
            (2, 28..=29) => Some(Self::V11),
            (2, 30..=32) => Some(Self::V12),
            _ => None,
        }
    }
}

pub(crate) type Code = c_int;
pub(crate) type Pointer = *mut c_void;

/// NCCL's function for log messages, printf's way. It is only passed on.
pub(crate) type Log =
    unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...);
/// The callback for profilers.
pub(crate) type Profiler = unsafe extern "C" fn(*mut Pointer, c_int, Pointer, i64, Pointer) -> Code;

/// The devices of a merged one. The first versions have room for fewer; the library reads only the
/// first `count`.
#[repr(C)]
pub(crate) struct Merged {
    pub(crate) count: c_int,
    pub(crate) devices: [c_int; 8],
}

/// The configuration of connections.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) traffic_class: c_int,
}

impl Config {
    /// The traffic class of the environment.
    pub(crate) const UNDEFINED: Self = Self { traffic_class: -1 };
}

/// The beginning of a device's properties, the same in all versions, and room for the rest.
#[repr(C)]
pub(crate) struct Properties {
    pub(crate) name: *mut c_char,
    pub(crate) pci_path: *mut c_char,
    pub(crate) guid: u64,
    pub(crate) rest: [u64; 64],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Init {
    pub(crate) v8: unsafe extern "C" fn(Log) -> Code,
    pub(crate) v10: unsafe extern "C" fn(Log, Profiler) -> Code,
    pub(crate) v11: unsafe extern "C" fn(*mut Pointer, u64, *mut Config, Log, Profiler) -> Code,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Listen {
    pub(crate) v8: unsafe extern "C" fn(c_int, Pointer, *mut Pointer) -> Code,
    pub(crate) v11: unsafe extern "C" fn(Pointer, c_int, Pointer, *mut Pointer) -> Code,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Connect {
    pub(crate) v8: unsafe extern "C" fn(c_int, Pointer, *mut Pointer, *mut Pointer) -> Code,
    pub(crate) v10:
        unsafe extern "C" fn(c_int, *mut Config, Pointer, *mut Pointer, *mut Pointer) -> Code,
    pub(crate) v11:
        unsafe extern "C" fn(Pointer, c_int, Pointer, *mut Pointer, *mut Pointer) -> Code,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Send {
    pub(crate) v8:
        unsafe extern "C" fn(Pointer, Pointer, c_int, c_int, Pointer, *mut Pointer) -> Code,
    pub(crate) v9:
        unsafe extern "C" fn(Pointer, Pointer, usize, c_int, Pointer, *mut Pointer) -> Code,
    pub(crate) v10: unsafe extern "C" fn(
        Pointer,
        Pointer,
        usize,
        c_int,
        Pointer,
        Pointer,
        *mut Pointer,
    ) -> Code,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Receive {
    pub(crate) v8: unsafe extern "C" fn(
        Pointer,
        c_int,
        *mut Pointer,
        *mut c_int,
        *mut c_int,
        *mut Pointer,
        *mut Pointer,
    ) -> Code,
    pub(crate) v9: unsafe extern "C" fn(
        Pointer,
        c_int,
        *mut Pointer,
        *mut usize,
        *mut c_int,
        *mut Pointer,
        *mut Pointer,
    ) -> Code,
    pub(crate) v10: unsafe extern "C" fn(
        Pointer,
        c_int,
        *mut Pointer,
        *mut usize,
        *mut c_int,
        *mut Pointer,
        *mut Pointer,
        *mut Pointer,
    ) -> Code,
}

/// The functions, in the order of the library.
#[repr(C)]
pub(crate) struct Table {
    pub(crate) name: *const c_char,
    pub(crate) init: Init,
    pub(crate) devices: unsafe extern "C" fn(*mut c_int) -> Code,
    pub(crate) properties: unsafe extern "C" fn(c_int, *mut Properties) -> Code,
    pub(crate) listen: Listen,
    pub(crate) connect: Connect,
    pub(crate) accept: unsafe extern "C" fn(Pointer, *mut Pointer, *mut Pointer) -> Code,
    pub(crate) register: unsafe extern "C" fn(Pointer, Pointer, usize, c_int, *mut Pointer) -> Code,
    register_dmabuf: Pointer,
    pub(crate) deregister: unsafe extern "C" fn(Pointer, Pointer) -> Code,
    pub(crate) send: Send,
    pub(crate) receive: Receive,
    flush: Pointer,
    pub(crate) test: unsafe extern "C" fn(Pointer, *mut c_int, *mut c_int) -> Code,
    pub(crate) close_sender: unsafe extern "C" fn(Pointer) -> Code,
    pub(crate) close_receiver: unsafe extern "C" fn(Pointer) -> Code,
    pub(crate) close_listener: unsafe extern "C" fn(Pointer) -> Code,
    device_memory: Pointer,
    received_by_device: Pointer,
    /// From version 9 on.
    pub(crate) merge: unsafe extern "C" fn(*mut c_int, *mut Merged) -> Code,
    /// From version 11 on.
    pub(crate) finalize: unsafe extern "C" fn(Pointer) -> Code,
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn versions_have_an_interface() {
        let interface = |text| Version::parse(text).and_then(Interface::of);
        assert_eq!(interface("2.21.5"), Some(Interface::V8));
        assert_eq!(interface("2.25.1"), Some(Interface::V9));
        assert_eq!(interface("2.27.7"), Some(Interface::V10));
        assert_eq!(interface("2.29.7"), Some(Interface::V11));
        assert_eq!(interface("2.32.3"), Some(Interface::V12));
        assert_eq!(interface("2.33.0"), None);
        assert_eq!(interface("3.0.0"), None);
        assert_eq!(version_of(22_707).to_string(), "2.27.7");
    }

    #[test]
    fn functions_are_one_word_each() {
        let word = size_of::<usize>();
        assert_eq!(offset_of!(Table, test), 13 * word);
        assert_eq!(offset_of!(Table, merge), 19 * word);
        assert_eq!(offset_of!(Table, finalize), 20 * word);
    }
}
