//! Writable files: parameters that take effect immediately or are refused with an error.
//!
//! A process that opens such a file for writing gets a memory file named after it. The name stays
//! with the descriptor in a duplicate, in a child, and in a program that the child executes. Writes
//! are intercepted, or found in the memory file when a stream is flushed or the descriptor closed,
//! because the C library's streams write by themselves.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

use ferroce_abi::border::cross;
use ferroce_registry::Registry;
use ferroce_sysfs::{SetError, is_parameter, may_be_parameter, set_parameter};
use libc::{FILE, size_t};

use crate::live;
use crate::redirect::{self, PATH_MAX};

/// What the names of such memory files begin with.
const MARK: &str = "ferroce-parameter:";
/// How the system shows those names.
const SHOWN: &[u8] = b"/memfd:ferroce-parameter:";
const SHOWN_END: &[u8] = b" (deleted)";
/// More than any value has.
const VALUE_MAX: usize = 64;
/// The flag by which the C library's inlined `ferror` knows that a write to a stream has failed.
const STREAM_ERROR: c_int = 0x20;

/// Whether this process may have such a file: if not, a write costs one load.
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const NONE: u8 = 1;
const SOME: u8 = 2;

/// Opens the file of a parameter, if it is one that is opened for writing.
///
/// # Safety
///
/// `path` is null or points to a string that ends with a zero.
pub(crate) unsafe fn open(directory: c_int, path: *const c_char, flags: c_int) -> Option<c_int> {
    let root = redirect::root()?;
    if flags & libc::O_ACCMODE == libc::O_RDONLY || path.is_null() {
        return None;
    }
    // SAFETY: the caller vouches for the string.
    let name = unsafe { CStr::from_ptr(path) }.to_str().ok()?;
    if !may_be_parameter(name.rsplit('/').next()?) {
        return None;
    }
    let how = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: as above. The system call itself, for the function is one of those caught here.
    let found = unsafe { libc::syscall(libc::SYS_openat, directory, path, how, 0) };
    let found = c_int::try_from(found).ok().filter(|fd| *fd >= 0)?;
    let mut room = [0; PATH_MAX];
    let parameter = name_of(found, &mut room)
        .and_then(|path| path.strip_prefix(root)?.strip_prefix(b"/"))
        .and_then(|path| std::str::from_utf8(path).ok())
        .filter(|path| is_parameter(path));
    let memory = parameter.and_then(|path| memory_file(path, flags));
    // SAFETY: the descriptor was opened above and has no other owner.
    unsafe { libc::syscall(libc::SYS_close, found) };
    memory
}

fn memory_file(parameter: &str, flags: c_int) -> Option<c_int> {
    let name = CString::new(format!("{MARK}{parameter}")).ok()?;
    let on_exec = match flags & libc::O_CLOEXEC {
        0 => 0,
        _ => libc::MFD_CLOEXEC,
    };
    // SAFETY: the name ends with a zero.
    let memory = unsafe { libc::memfd_create(name.as_ptr(), on_exec) };
    if memory < 0 {
        return None;
    }
    STATE.store(SOME, Ordering::Relaxed);
    Some(memory)
}

/// Takes what is written to a descriptor. `None` if that is no parameter; else what `write`
/// returns, with `errno` set.
///
/// # Safety
///
/// `data` points to `size` bytes.
pub(crate) unsafe fn write(fd: c_int, data: *const c_void, size: size_t) -> Option<libc::ssize_t> {
    if !may_have_some() {
        return None;
    }
    let mut room = [0; PATH_MAX];
    let parameter = parameter_of(fd, &mut room)?;
    if size == 0 {
        return Some(0);
    }
    // SAFETY: the caller vouches for the bytes.
    let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) };
    match inside_set(parameter, data) {
        Ok(()) => Some(size.cast_signed()),
        Err(error) => {
            set_errno(error);
            Some(-1)
        }
    }
}

/// Takes what a stream has written to a descriptor, if that is a parameter. False if the value was
/// refused, with `errno` set.
pub(crate) fn settle(fd: c_int) -> bool {
    !may_have_some() || settle_any(fd)
}

#[cold]
fn settle_any(fd: c_int) -> bool {
    let mut room = [0; PATH_MAX];
    let Some(parameter) = parameter_of(fd, &mut room) else {
        return true;
    };
    let mut value = [0; VALUE_MAX];
    // SAFETY: the buffer has this size.
    let read = unsafe { libc::pread(fd, value.as_mut_ptr().cast(), value.len(), 0) };
    let written = value.get(..usize::try_from(read).unwrap_or(0));
    let Some(written) = written.filter(|it| !it.is_empty()) else {
        return true;
    };
    let outcome = inside_set(parameter, written);
    // SAFETY: these take no memory. The next value begins where this one did.
    unsafe {
        libc::ftruncate(fd, 0);
        libc::lseek(fd, 0, libc::SEEK_SET);
    }
    match outcome {
        Ok(()) => true,
        Err(error) => {
            set_errno(error);
            false
        }
    }
}

/// [`settle`] for a stream that was flushed, which has failed if the value was refused.
///
/// # Safety
///
/// `stream` is null or a stream that is open.
pub(crate) unsafe fn settle_stream(stream: *mut FILE) -> bool {
    if stream.is_null() || !may_have_some() {
        return true;
    }
    // SAFETY: the caller vouches for the stream.
    let is_good = settle(unsafe { libc::fileno(stream) });
    if !is_good {
        // SAFETY: a stream begins with its flags; programs read this one by an inlined function.
        unsafe { *stream.cast::<c_int>() |= STREAM_ERROR };
    }
    is_good
}

/// Looks whether a shell has led a standard stream into a parameter, before the program begins: one
/// that only prints may call nothing of ours.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    if may_have_some() {
        // SAFETY: the function takes nothing and lives as long as the program. If there is no room
        // for it, what the program prints last is lost.
        unsafe { libc::atexit(end) };
    }
}

/// Settles what the program has printed and not flushed; the C library would do so without a call.
extern "C" fn end() {
    unsafe extern "C" {
        static stdout: *mut FILE;
    }
    // SAFETY: the C library's own stream, which is open until after this.
    unsafe {
        libc::fflush(stdout);
        settle_stream(stdout);
    }
}

/// Whether this process may have a parameter open for writing.
pub(crate) fn may_have_some() -> bool {
    match STATE.load(Ordering::Relaxed) {
        NONE => false,
        SOME => true,
        _ => look_at_inherited(),
    }
}

#[cold]
fn look_at_inherited() -> bool {
    let mut room = [0; PATH_MAX];
    let has_some = redirect::root().is_some()
        && (0..3).any(|fd| name_of(fd, &mut room).is_some_and(|name| name.starts_with(SHOWN)));
    let state = if has_some { SOME } else { NONE };
    // Another thread may have opened one meanwhile.
    let _ = STATE.compare_exchange(UNKNOWN, state, Ordering::Relaxed, Ordering::Relaxed);
    STATE.load(Ordering::Relaxed) == SOME
}

/// The file that a descriptor stands for, if it is that of a parameter.
fn parameter_of(fd: c_int, room: &mut [u8; PATH_MAX]) -> Option<&str> {
    let name = name_of(fd, room)?.strip_prefix(SHOWN)?;
    std::str::from_utf8(name.strip_suffix(SHOWN_END)?).ok()
}

/// What the system calls the file behind a descriptor. Leaves `errno` alone, and allocates nothing:
/// programs write from signal handlers.
fn name_of(fd: c_int, room: &mut [u8; PATH_MAX]) -> Option<&[u8]> {
    let before = errno();
    let mut link = [0_u8; 32];
    write!(&mut link[..], "/proc/self/fd/{fd}\0").ok()?;
    let (link, at) = (link.as_ptr(), room.as_mut_ptr());
    // SAFETY: the path ends with a zero and the buffer has this size.
    let length = unsafe { libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, link, at, PATH_MAX) };
    set_errno(before);
    room.get(..usize::try_from(length).ok()?)
}

/// [`set`] for a program that has called the C library.
fn inside_set(parameter: &str, value: &[u8]) -> Result<(), c_int> {
    cross(|| set(parameter, value)).unwrap_or(Err(libc::EIO))
}

/// Sets a parameter; else the error that the file of a card gives.
fn set(parameter: &str, value: &[u8]) -> Result<(), c_int> {
    let before = errno();
    let root = redirect::root().ok_or(libc::EIO)?;
    let root = std::str::from_utf8(root).map_err(|_| libc::EIO)?;
    let value = std::str::from_utf8(value).map_err(|_| libc::EINVAL)?;
    let registry = Registry::open().map_err(|_| libc::EIO)?;
    set_parameter(&registry, Path::new(root), parameter, value).map_err(|error| match error {
        SetError::Value(_) => libc::EINVAL,
        SetError::NoFile(_) | SetError::Device(_) => libc::ENODEV,
        _ => libc::EIO,
    })?;
    live::refresh_now();
    set_errno(before);
    Ok(())
}

fn errno() -> c_int {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() }
}

fn set_errno(value: c_int) {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = value }
}

/// The flags of `open` that a mode of `fopen` stands for, as far as they matter here.
///
/// # Safety
///
/// `mode` is null or points to a string that ends with a zero.
pub(crate) unsafe fn flags_of(mode: *const c_char) -> c_int {
    if mode.is_null() {
        return libc::O_RDONLY;
    }
    // SAFETY: the caller vouches for the string.
    let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
    let access = match mode.first() {
        Some(b'w' | b'a') => libc::O_WRONLY,
        _ if mode.contains(&b'+') => libc::O_RDWR,
        _ => libc::O_RDONLY,
    };
    match mode.contains(&b'e') {
        true => access | libc::O_CLOEXEC,
        false => access,
    }
}
