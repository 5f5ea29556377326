//! The functions of the C library behind these.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The next function of a name after this library's own, found at its first use.
pub(crate) struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        let found = AtomicPtr::new(std::ptr::null_mut());
        Self { name, found }
    }

    /// Address of the function. Ends the program if the C library has none: nothing that its
    /// caller could be told would be true.
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.found.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            // SAFETY: takes no argument and does not return.
            unsafe { libc::abort() }
        }
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// Address of the C library's function of a name.
macro_rules! next {
    ($name:ident) => {{
        const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
            concat!(stringify!($name), "\0").as_bytes(),
        ) {
            Ok(name) => name,
            Err(_) => panic!("a name without a zero in it"),
        };
        static NEXT: crate::next::Next = crate::next::Next::new(NAME);
        NEXT.address()
    }};
}
pub(crate) use next;
