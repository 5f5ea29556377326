//! Translates the path that a program asks for to the path that it gets, and back.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicPtr, Ordering};

use ferroce_abi::border::cross;

use crate::live;

/// What is looked up in the tree. The links of the first two lead into the third, which is
/// `ferroce_sysfs::PCI_ROOT`, or to virtual devices.
const PREFIXES: &[&[u8]] = &[
    b"/sys/class/infiniband",
    b"/sys/class/infiniband_verbs",
    b"/sys/devices/pci10fe:00",
    b"/sys/devices/virtual/infiniband",
    b"/sys/devices/virtual/infiniband_verbs",
    b"/dev/infiniband",
    b"/sys/kernel/debug/mlx5",
];

/// The interfaces of the system, of which only the directories `ecn` are looked up, where a device
/// has the interface.
const INTERFACES: &[u8] = b"/sys/class/net/";
const ECN: &[u8] = b"/ecn";

/// What is looked up there, too, if `FERROCE_FWCTL` is set. Without it the system's own cards are to
/// be seen.
const FWCTL_PREFIXES: &[&[u8]] = &[b"/sys/class/fwctl", b"/dev/fwctl"];

/// Room for a path; the kernel takes none that is longer.
pub(crate) const PATH_MAX: usize = libc::PATH_MAX as usize;

/// Room for the path that replaces another one. On the stack, because a program may
/// open files where it must not allocate.
pub(crate) struct Room([u8; PATH_MAX]);

impl Room {
    pub(crate) const fn new() -> Self {
        Self([0; PATH_MAX])
    }

    /// The path to use in place of `path`: in this room, or `path` itself.
    ///
    /// # Safety
    ///
    /// `path` is null or points to a string that ends with a zero and outlives the result.
    pub(crate) unsafe fn redirect(&mut self, path: *const c_char) -> *const c_char {
        if path.is_null() {
            return path;
        }
        // SAFETY: the caller vouches for the string.
        let text = unsafe { CStr::from_ptr(path) }.to_bytes();
        if !is_ours(text) {
            return path;
        }
        match root() {
            Some(root) if self.fill(root, text) && self.is_there(text) => {
                // What cannot be refreshed is as it was.
                let _ = cross(|| live::refresh(text));
                self.0.as_ptr().cast()
            }
            _ => path,
        }
    }

    /// Whether the tree has the directory of an interface's parameters, if the path is one in it;
    /// the system may have interfaces that Ferroce's devices do not.
    fn is_there(&mut self, path: &[u8]) -> bool {
        let Some(end) = ecn_end(path) else {
            return true;
        };
        // The path itself may not be there yet or any more.
        let end = self.0.len().min(root().map_or(0, <[u8]>::len) + end);
        let rest = std::mem::replace(&mut self.0[end], 0);
        let at = self.0.as_ptr();
        // SAFETY: the path ends with a zero, here for a moment.
        let found = unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, at, libc::F_OK) };
        self.0[end] = rest;
        found == 0
    }

    /// Whether the two texts and a zero at the end fit.
    fn fill(&mut self, root: &[u8], path: &[u8]) -> bool {
        let length = root.len() + path.len();
        if length >= PATH_MAX {
            return false;
        }
        self.0[..root.len()].copy_from_slice(root);
        self.0[root.len()..length].copy_from_slice(path);
        self.0[length] = 0;
        true
    }
}

/// The path as the program knows it, of one that the system found in the tree.
pub(crate) fn shown(found: &[u8]) -> &[u8] {
    root()
        .and_then(|root| found.strip_prefix(root))
        .filter(|rest| is_ours(rest))
        .unwrap_or(found)
}

fn is_ours(path: &[u8]) -> bool {
    is_below(path, PREFIXES)
        || ecn_end(path).is_some()
        || is_below(path, FWCTL_PREFIXES) && shows_fwctl()
}

/// Where the name of an interface's directory `ecn` ends in a path that is one in it.
fn ecn_end(path: &[u8]) -> Option<usize> {
    let rest = path.strip_prefix(INTERFACES)?;
    let name = rest.iter().position(|byte| *byte == b'/')?;
    let end = name + ECN.len();
    let is_in_it = rest.get(name..end) == Some(ECN) && matches!(rest.get(end), None | Some(b'/'));
    is_in_it.then_some(INTERFACES.len() + end)
}

fn is_below(path: &[u8], prefixes: &[&[u8]]) -> bool {
    prefixes.iter().any(|prefix| {
        path.strip_prefix(*prefix)
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    })
}

/// The directory that holds the tree, as a path without links; `None` if there is none.
pub(crate) fn root() -> Option<&'static [u8]> {
    static ROOT: Variable = Variable::new(c"FERROCE_SYSFS");
    ROOT.value()
}

/// Whether a library answers for the nodes of fwctl.
fn shows_fwctl() -> bool {
    static FWCTL: Variable = Variable::new(c"FERROCE_FWCTL");
    FWCTL.value().is_some()
}

/// A variable of the environment, read once: programs change their environment, and `getenv`
/// beside such a change is a race.
struct Variable {
    name: &'static CStr,
    copy: AtomicPtr<c_char>,
}

impl Variable {
    const fn new(name: &'static CStr) -> Self {
        let copy = AtomicPtr::new(std::ptr::null_mut());
        Self { name, copy }
    }

    /// Its value; `None` if it is empty or not set.
    fn value(&self) -> Option<&'static [u8]> {
        let mut value = self.copy.load(Ordering::Acquire);
        if value.is_null() {
            value = self.read();
        }
        if value.is_null() {
            return None; // no memory for the copy
        }
        // SAFETY: a string that ends with a zero and is never freed.
        let value = unsafe { CStr::from_ptr(value) }.to_bytes();
        (!value.is_empty()).then_some(value)
    }

    fn read(&self) -> *mut c_char {
        // SAFETY: the name ends with a zero; the value is only read, and copied before it is kept.
        let value = unsafe { libc::getenv(self.name.as_ptr()) };
        let value = if value.is_null() { c"".as_ptr() } else { value };
        // SAFETY: `value` is a string that ends with a zero. The copy is never freed.
        let copy = unsafe { libc::strdup(value) };
        let none = std::ptr::null_mut();
        let exchange = self
            .copy
            .compare_exchange(none, copy, Ordering::AcqRel, Ordering::Acquire);
        match exchange {
            Ok(_) => copy,
            Err(first) => {
                // SAFETY: the copy is ours alone; another thread's stays.
                unsafe { libc::free(copy.cast()) };
                first
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_are_ours() {
        for ours in [
            "/sys/class/infiniband",
            "/sys/class/infiniband/",
            "/sys/class/infiniband/fr0/ports/1/state",
            "/sys/class/infiniband_verbs/uverbs0",
            "/sys/devices/pci10fe:00/10fe:00:00.0/vendor",
            "/dev/infiniband/uverbs0",
            "/sys/class/net/lo/ecn",
            "/sys/class/net/lo/ecn/roce_np/enable/3",
            "/sys/kernel/debug/mlx5/10fe:00:00.0/cc_params",
        ] {
            assert!(is_ours(ours.as_bytes()), "{ours}");
        }
        for other in [
            "",
            "/",
            "/sys/class",
            "/sys/class/infiniband_mad",
            "/dev/infinibandx",
            "/sys/class/net",
            "/sys/class/net/lo",
            "/sys/class/net/lo/ecnx",
            "/sys/class/net/lo/statistics/ecn",
            "/sys/kernel/debug/mlx5x",
        ] {
            assert!(!is_ours(other.as_bytes()), "{other}");
        }
        for fwctl in ["/dev/fwctl/fwctl0", "/sys/class/fwctl"] {
            assert!(is_below(fwctl.as_bytes(), FWCTL_PREFIXES), "{fwctl}");
            assert!(!is_ours(fwctl.as_bytes()), "nothing answers for {fwctl}");
        }
    }

    #[test]
    fn a_path_that_does_not_fit_goes_through() {
        let mut room = Room::new();
        assert!(room.fill(b"/root", &[b'x'; PATH_MAX - 6]));
        assert_eq!(room.0[PATH_MAX - 1], 0);
        assert!(!room.fill(b"/root", &[b'x'; PATH_MAX - 5]));
    }
}
