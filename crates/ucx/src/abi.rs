//! The structures and functions of UCP as far as they are used here.
//!
//! Structures grow from release to release, and a mask in each says which fields the caller has set.
//! Those that the library reads are therefore as large as in the newest release that is known, with
//! room, and zero where nothing is set.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void};

pub(crate) type Pointer = *mut c_void;

/// A `ucs_status_t`, which its enumeration packs into a byte.
pub(crate) type Status = i8;
pub(crate) const OK: Status = 0;
pub(crate) const IN_PROGRESS: Status = 1;
/// A pointer to a request that is not below this, as a signed number, is a status instead.
pub(crate) const LAST_STATUS: isize = -100;

/// The version of the interface that the caller was compiled for: any from this on is the same here.
pub(crate) const API: (c_uint, c_uint) = (1, 11);

/// `ucp_params_t`.
#[repr(C)]
pub(crate) struct ContextParameters {
    pub(crate) mask: u64,
    pub(crate) features: u64,
    pub(crate) unused: [u64; 5],
    pub(crate) endpoints: usize,
    pub(crate) rest: [u64; 24],
}

impl ContextParameters {
    pub(crate) const FEATURES: u64 = 1;
    pub(crate) const ENDPOINTS: u64 = 64;
    /// Tagged messages and one-sided accesses.
    pub(crate) const TAG_AND_RMA: u64 = 1 | 2;
}

/// `ucp_worker_params_t`, in which zero stands for what is wanted here: one thread.
#[repr(C)]
pub(crate) struct WorkerParameters {
    pub(crate) mask: u64,
    pub(crate) rest: [u64; 40],
}

/// Called when an endpoint fails, with the caller's argument, the endpoint and the reason.
pub(crate) type ErrorCallback = unsafe extern "C" fn(Pointer, Pointer, Status);

/// `ucp_ep_params_t`.
#[repr(C)]
pub(crate) struct EndpointParameters {
    pub(crate) mask: u64,
    pub(crate) address: *const u8,
    pub(crate) error_mode: c_int,
    pub(crate) on_error: Option<ErrorCallback>,
    pub(crate) argument: Pointer,
    pub(crate) rest: [u64; 24],
}

impl EndpointParameters {
    /// The remote address, the error mode and the callback.
    pub(crate) const ALL: u64 = 1 | 2 | 4;
}

/// `ucp_mem_map_params_t`.
#[repr(C)]
pub(crate) struct MemoryParameters {
    pub(crate) mask: u64,
    pub(crate) address: Pointer,
    pub(crate) length: usize,
    pub(crate) rest: [u64; 16],
}

impl MemoryParameters {
    pub(crate) const ADDRESS_AND_LENGTH: u64 = 1 | 2;
}

/// `ucp_request_param_t`. Buffers are rows of bytes if it says nothing else.
#[repr(C)]
pub(crate) struct RequestParameters {
    pub(crate) mask: u32,
    pub(crate) flags: u32,
    pub(crate) rest: [u64; 24],
}

impl RequestParameters {
    pub(crate) const PLAIN: Self = Self {
        mask: 0,
        flags: 0,
        rest: [0; 24],
    };
    /// To close an endpoint at once, whatever is under way.
    pub(crate) const FORCE: Self = Self {
        mask: 16,
        flags: 1,
        rest: [0; 24],
    };
}

/// Declares the functions, and how they are looked up.
macro_rules! functions {
    ($($field:ident = $name:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Functions {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// Looks all of them up.
            pub(crate) fn of(
                library: ferroce_dynlib::Library,
            ) -> Result<Self, ferroce_dynlib::SymbolError> {
                Ok(Self {
                    // SAFETY: functions of these names have had these types since UCX 1.11.
                    $($field: unsafe {
                        std::mem::transmute::<
                            Pointer,
                            unsafe extern "C" fn($($argument),*) $(-> $result)?,
                        >(library.symbol($name)?.as_ptr())
                    },)*
                })
            }
        }
    };
}

functions! {
    status_string = c"ucs_status_string": fn(Status) -> *const c_char;
    read_config = c"ucp_config_read": fn(*const c_char, *const c_char, *mut Pointer) -> Status;
    release_config = c"ucp_config_release": fn(Pointer);
    init = c"ucp_init_version":
        fn(c_uint, c_uint, *const ContextParameters, Pointer, *mut Pointer) -> Status;
    cleanup = c"ucp_cleanup": fn(Pointer);
    create_worker = c"ucp_worker_create":
        fn(Pointer, *const WorkerParameters, *mut Pointer) -> Status;
    destroy_worker = c"ucp_worker_destroy": fn(Pointer);
    address = c"ucp_worker_get_address": fn(Pointer, *mut *mut u8, *mut usize) -> Status;
    release_address = c"ucp_worker_release_address": fn(Pointer, *mut u8);
    progress = c"ucp_worker_progress": fn(Pointer) -> c_uint;
    create_endpoint = c"ucp_ep_create":
        fn(Pointer, *const EndpointParameters, *mut Pointer) -> Status;
    close_endpoint = c"ucp_ep_close_nbx": fn(Pointer, *const RequestParameters) -> Pointer;
    flush = c"ucp_ep_flush_nbx": fn(Pointer, *const RequestParameters) -> Pointer;
    send = c"ucp_tag_send_nbx":
        fn(Pointer, *const u8, usize, u64, *const RequestParameters) -> Pointer;
    receive = c"ucp_tag_recv_nbx":
        fn(Pointer, *mut u8, usize, u64, u64, *const RequestParameters) -> Pointer;
    put = c"ucp_put_nbx":
        fn(Pointer, *const u8, usize, u64, Pointer, *const RequestParameters) -> Pointer;
    status = c"ucp_request_check_status": fn(Pointer) -> Status;
    free = c"ucp_request_free": fn(Pointer);
    map = c"ucp_mem_map": fn(Pointer, *const MemoryParameters, *mut Pointer) -> Status;
    pack_key = c"ucp_rkey_pack": fn(Pointer, Pointer, *mut *mut u8, *mut usize) -> Status;
    release_key = c"ucp_rkey_buffer_release": fn(*mut u8);
    unpack_key = c"ucp_ep_rkey_unpack": fn(Pointer, *const u8, *mut Pointer) -> Status;
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Places of fields, and the sizes of the structures in UCX 1.22.
    #[test]
    fn structures_are_as_in_the_headers() {
        assert_eq!(offset_of!(ContextParameters, features), 8);
        assert_eq!(offset_of!(ContextParameters, endpoints), 56);
        assert_eq!(offset_of!(EndpointParameters, error_mode), 16);
        assert_eq!(offset_of!(EndpointParameters, on_error), 24);
        assert_eq!(offset_of!(EndpointParameters, argument), 32);
        assert_eq!(offset_of!(MemoryParameters, length), 16);
        assert_eq!(offset_of!(RequestParameters, flags), 4);
        assert!(size_of::<ContextParameters>() >= 88);
        assert!(size_of::<WorkerParameters>() >= 200);
        assert!(size_of::<EndpointParameters>() >= 104);
        assert!(size_of::<MemoryParameters>() >= 48);
        assert!(size_of::<RequestParameters>() >= 96);
    }
}
