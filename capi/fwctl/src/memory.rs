//! The program's memory, which may not be where the program says.

use std::{ptr, slice};

use ferroce_device::CheckedAccess;
use ferroce_fwctl::node::UserMemory;

/// The memory of this process.
pub(crate) struct OwnMemory {
    /// Reaches it with care; `None` where the system does not let a process do that.
    checked: Option<&'static dyn CheckedAccess>,
}

impl OwnMemory {
    pub(crate) fn new() -> Self {
        let checked = ferroce_runtime::own_memory().ok();
        Self { checked }
    }
}

impl UserMemory for OwnMemory {
    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        if let Some(checked) = self.checked {
            return checked.read(address, out);
        }
        if address == 0 {
            return out.is_empty();
        }
        // SAFETY: the program has asked for these bytes to be read, as many as it said are there.
        // Where they are not, it gets the signal that the kernel would have spared it.
        out.copy_from_slice(unsafe { slice::from_raw_parts(address as *const u8, out.len()) });
        true
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
        if let Some(checked) = self.checked {
            // SAFETY: the program has asked for the answer to be written here, and no code of this
            // library holds a reference to its memory.
            return unsafe { checked.write(address, bytes) };
        }
        if address == 0 {
            return bytes.is_empty();
        }
        // SAFETY: as for reading; the bytes come from elsewhere.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
        true
    }
}
