//! A library whose symbols are jumps into our `libibverbs.so.1`: every symbol of its `symbols.txt` under
//! its version.
//!
//! When it is loaded, it looks for the other library in its own directory and, if it is not there,
//! among the libraries already loaded. If it finds another project's libibverbs, every call fails
//! with `ENOSYS`.

use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::null;
use std::sync::atomic::Ordering;

use crate::{NAMES, SONAME, TARGETS};

/// Defines `$name` as a jump to where an entry of `TARGETS` points; further names of it are bound to
/// the versions given.
#[cfg(target_arch = "x86_64")]
macro_rules! export {
    ($name:literal, $index:literal $(, $alias:literal => $node:literal)*) => {
        core::arch::global_asm!(
            concat!(
                ".text\n.globl ", $name, "\n.type ", $name, ",@function\n",
                $(".globl ", $alias, "\n.type ", $alias, ",@function\n",)*
                $name, ":\n",
                $($alias, ":\n",)*
                "\tjmp *{targets}+8*", $index, "(%rip)\n.size ", $name, ", .-", $name, "\n",
                $(".size ", $alias, ", .-", $alias, "\n",
                  ".symver ", $alias, ", ", $name, "@", $node, ", remove\n",)*
            ),
            targets = sym TARGETS,
            options(att_syntax)
        );
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! export {
    ($name:literal, $index:literal $(, $alias:literal => $node:literal)*) => {
        core::arch::global_asm!(
            concat!(
                ".text\n.globl ", $name, "\n.type ", $name, ",@function\n",
                $(".globl ", $alias, "\n.type ", $alias, ",@function\n",)*
                $name, ":\n",
                $($alias, ":\n",)*
                "\tadrp x16, {targets}+8*", $index, "\n",
                "\tldr x16, [x16, :lo12:{targets}+8*", $index, "]\n",
                "\tbr x16\n.size ", $name, ", .-", $name, "\n",
                $(".size ", $alias, ", .-", $alias, "\n",
                  ".symver ", $alias, ", ", $name, "@", $node, ", remove\n",)*
            ),
            targets = sym TARGETS
        );
    };
}

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static FIND_TARGETS: extern "C" fn() = find_targets;

extern "C" fn find_targets() {
    let Some(library) = beside().or_else(loaded) else {
        return tell(c"there is no libibverbs.so.1");
    };
    let target = |name: &CStr| {
        // SAFETY: a handle of `dlopen` and a C string.
        unsafe { libc::dlsym(library, name.as_ptr()) }
    };
    let found: Vec<_> = NAMES.iter().map(|name| name.map(target)).collect();
    if found.iter().flatten().any(|target| target.is_null()) {
        return tell(c"libibverbs.so.1 is another one, or of another release");
    }
    for (slot, target) in TARGETS.iter().zip(found) {
        if let Some(target) = target {
            slot.store(target, Ordering::Release);
        }
    }
}

/// The libibverbs.so.1 in the directory of this library.
fn beside() -> Option<*mut c_void> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: an address in this library and room for the answer.
    let found = unsafe { libc::dladdr((&raw const TARGETS).cast(), info.as_mut_ptr()) };
    if found == 0 {
        return None;
    }
    // SAFETY: zeroed is a value of the structure, and `dladdr` wrote a C string into it.
    let file = unsafe { CStr::from_ptr(info.assume_init().dli_fname) };
    let file = Path::new(std::ffi::OsStr::from_bytes(file.to_bytes()));
    let other = file.with_file_name("libibverbs.so.1");
    open(
        &CString::new(other.as_os_str().as_bytes()).ok()?,
        libc::RTLD_NOW,
    )
}

/// The libibverbs.so.1 that the program has loaded.
fn loaded() -> Option<*mut c_void> {
    open(c"libibverbs.so.1", libc::RTLD_NOW | libc::RTLD_NOLOAD)
}

fn open(file: &CStr, flags: c_int) -> Option<*mut c_void> {
    // SAFETY: a C string; a library's constructors run, as when the program loads it.
    let handle = unsafe { libc::dlopen(file.as_ptr(), flags) };
    (!handle.is_null()).then_some(handle)
}

fn tell(what: &CStr) {
    let what = what.to_string_lossy();
    eprintln!(
        "ferroce: {SONAME}: {what}; put Ferroce's own beside this file, all calls fail until \
         then"
    );
}

pub(crate) extern "C" fn null_pointer() -> *const c_void {
    enosys();
    null()
}

pub(crate) extern "C" fn zero() -> usize {
    enosys();
    0
}

pub(crate) fn enosys() {
    set_errno(libc::ENOSYS);
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = errno }
}
