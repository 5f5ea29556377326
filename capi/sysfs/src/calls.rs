//! The functions that programs call.
//!
//! Each has the name and the arguments of the original in the C library, whose manual page
//! describes it. Functions with a variadic mode take it as a last argument that may be absent: on
//! the supported systems, such an argument is in the same register, and is passed on unread.
//!
//! Threads can be cancelled in several of them, which unwinds through them: see [`crate::border`].

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::{mem, ptr};

use libc::{DIR, FILE, mode_t, size_t, ssize_t};

use crate::next::next;
use crate::parameter;
use crate::redirect::{Room, shown};

/// Functions that hand everything on except the path, which stands at the semicolon.
macro_rules! with_path {
    ($($name:ident($($before:ident: $type_before:ty),*; $($after:ident: $type_after:ty),*) -> $result:ty;)*) => { $(
        /// # Safety
        ///
        /// As for the C library's function of this name.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            $($before: $type_before,)* path: *const c_char $(, $after: $type_after)*
        ) -> $result {
            type Function = unsafe extern "C-unwind" fn(
                $($type_before,)* *const c_char $(, $type_after)*
            ) -> $result;
            let next = next!($name);
            let mut room = Room::new();
            // SAFETY: the C library's function of this name has this type; the arguments are the
            // caller's, who vouches for them, and the path is equally good.
            unsafe {
                let next: Function = mem::transmute(next);
                next($($before,)* room.redirect(path) $(, $after)*)
            }
        }
    )* };
}

// SAFETY: only the C library calls these, with what `scandir(3)` says.
type Filter = Option<unsafe extern "C-unwind" fn(*const libc::dirent) -> c_int>;
type Compare = Option<
    unsafe extern "C-unwind" fn(*mut *const libc::dirent, *mut *const libc::dirent) -> c_int,
>;

with_path! {
    opendir(;) -> *mut DIR;
    scandir(; names: *mut c_void, filter: Filter, compare: Compare) -> c_int;
    scandir64(; names: *mut c_void, filter: Filter, compare: Compare) -> c_int;
    chdir(;) -> c_int;
    access(; mode: c_int) -> c_int;
    eaccess(; mode: c_int) -> c_int;
    euidaccess(; mode: c_int) -> c_int;
    faccessat(directory: c_int; mode: c_int, flags: c_int) -> c_int;
    stat(; buffer: *mut c_void) -> c_int;
    stat64(; buffer: *mut c_void) -> c_int;
    lstat(; buffer: *mut c_void) -> c_int;
    lstat64(; buffer: *mut c_void) -> c_int;
    fstatat(directory: c_int; buffer: *mut c_void, flags: c_int) -> c_int;
    fstatat64(directory: c_int; buffer: *mut c_void, flags: c_int) -> c_int;
    statx(directory: c_int; flags: c_int, mask: c_uint, buffer: *mut c_void) -> c_int;
    getxattr(; name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t;
    lgetxattr(; name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t;
    readlink(; buffer: *mut c_char, size: size_t) -> ssize_t;
    readlinkat(directory: c_int; buffer: *mut c_char, size: size_t) -> ssize_t;
    __readlink_chk(; buffer: *mut c_char, size: size_t, room: size_t) -> ssize_t;
    __readlinkat_chk(
        directory: c_int; buffer: *mut c_char, size: size_t, room: size_t
    ) -> ssize_t;
}

/// What no program does to the system's own files.
const CHANGES: c_int = libc::O_CREAT | libc::O_TRUNC;

/// Whether a file of the tree is to be written and not read, which only happens by mistake:
/// parameters are opened elsewhere, and nodes are opened for both. The error is that of the system.
fn is_refused(flags: c_int) -> bool {
    let is_refused = flags & libc::O_ACCMODE == libc::O_WRONLY;
    if is_refused {
        // SAFETY: the address is that of this thread's error number.
        unsafe { *libc::__errno_location() = libc::EACCES };
    }
    is_refused
}

/// Functions that open files: with a path and flags, and perhaps a mode or a directory.
macro_rules! opening {
    (@directory $name:ident) => { c_int };
    (@mode $name:ident) => { mode_t };
    ($($name:ident($($directory:ident)?; $($mode:ident)?);)*) => { $(
        /// # Safety
        ///
        /// As for the C library's function of this name.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            $($directory: c_int,)? path: *const c_char, flags: c_int $(, $mode: mode_t)?
        ) -> c_int {
            type Function = unsafe extern "C-unwind" fn(
                $(opening!(@directory $directory),)? *const c_char, c_int $(, opening!(@mode $mode))?
            ) -> c_int;
            let next = next!($name);
            let at = [$($directory,)? libc::AT_FDCWD][0];
            let mut room = Room::new();
            // SAFETY: the C library's function of this name has this type; the arguments are the
            // caller's, who vouches for them, and the path is equally good.
            unsafe {
                let found = room.redirect(path);
                if let Some(opened) = parameter::open(at, found, flags) {
                    return opened;
                }
                if found == path {
                    let next: Function = mem::transmute(next);
                    return next($($directory,)? path, flags $(, $mode)?);
                }
                if is_refused(flags) {
                    return -1;
                }
                let next: Function = mem::transmute(next);
                next($($directory,)? found, flags & !CHANGES $(, $mode)?)
            }
        }
    )* };
}

opening! {
    open(; mode);
    open64(; mode);
    __open_2(;);
    __open64_2(;);
    openat(directory; mode);
    openat64(directory; mode);
    __openat_2(directory;);
    __openat64_2(directory;);
}

/// Functions that open streams.
macro_rules! opening_streams {
    ($($name:ident;)*) => { $(
        /// # Safety
        ///
        /// As for the C library's function of this name.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            type Function = unsafe extern "C-unwind" fn(*const c_char, *const c_char) -> *mut FILE;
            let next = next!($name);
            let mut room = Room::new();
            // SAFETY: the C library's function has this type; the caller vouches for the arguments,
            // the path is equally good, and the descriptor is new.
            unsafe {
                let found = room.redirect(path);
                let flags = parameter::flags_of(mode);
                if let Some(opened) = parameter::open(libc::AT_FDCWD, found, flags) {
                    return libc::fdopen(opened, mode);
                }
                if found != path && is_refused(flags) {
                    return ptr::null_mut();
                }
                let next: Function = mem::transmute(next);
                next(found, mode)
            }
        }
    )* };
}

opening_streams! {
    fopen;
    fopen64;
}

/// # Safety
///
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn write(file: c_int, data: *const c_void, size: size_t) -> ssize_t {
    type Function = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t) -> ssize_t;
    let next = next!(write);
    // SAFETY: the C library's function has this type; the caller vouches for the arguments.
    unsafe {
        if let Some(written) = parameter::write(file, data, size) {
            return written;
        }
        let next: Function = mem::transmute(next);
        next(file, data, size)
    }
}

/// # Safety
///
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fflush(stream: *mut FILE) -> c_int {
    type Function = unsafe extern "C-unwind" fn(*mut FILE) -> c_int;
    let next = next!(fflush);
    // SAFETY: the C library's function has this type; the caller vouches for the stream.
    unsafe {
        let next: Function = mem::transmute(next);
        let flushed = next(stream);
        match parameter::settle_stream(stream) {
            true => flushed,
            false => libc::EOF,
        }
    }
}

/// # Safety
///
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fclose(stream: *mut FILE) -> c_int {
    type Function = unsafe extern "C-unwind" fn(*mut FILE) -> c_int;
    let next = next!(fclose);
    // SAFETY: the C library's function has this type; the caller vouches for the stream.
    unsafe {
        let is_good = !parameter::may_have_some() || fflush(stream) == 0;
        let error = *libc::__errno_location();
        let next: Function = mem::transmute(next);
        let closed = next(stream);
        if is_good {
            return closed;
        }
        *libc::__errno_location() = error;
        libc::EOF
    }
}

/// # Safety
///
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close(file: c_int) -> c_int {
    type Function = unsafe extern "C-unwind" fn(c_int) -> c_int;
    let next = next!(close);
    let is_good = parameter::settle(file);
    // SAFETY: the C library's functions have these types; the caller vouches for the descriptor.
    unsafe {
        let error = *libc::__errno_location();
        let next: Function = mem::transmute(next);
        let closed = next(file);
        if is_good {
            return closed;
        }
        *libc::__errno_location() = error;
        -1
    }
}

/// The names that headers before glibc 2.33 gave to the functions of `stat`. Their structures are
/// the same, and the version that comes first is the only one there ever was on these systems.
macro_rules! old_stat {
    ($($old:ident($($before:ident: $type_before:ty),*; $($after:ident: $type_after:ty),*)
        = $new:ident;)*) => { $(
        /// # Safety
        ///
        /// As for the C library's function of this name.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $old(
            _version: c_int,
            $($before: $type_before,)* path: *const c_char $(, $after: $type_after)*
        ) -> c_int {
            // SAFETY: the same arguments under another name.
            unsafe { $new($($before,)* path $(, $after)*) }
        }
    )* };
}

old_stat! {
    __xstat(; buffer: *mut c_void) = stat;
    __xstat64(; buffer: *mut c_void) = stat64;
    __lxstat(; buffer: *mut c_void) = lstat;
    __lxstat64(; buffer: *mut c_void) = lstat64;
    __fxstatat(directory: c_int; buffer: *mut c_void, flags: c_int) = fstatat;
    __fxstatat64(directory: c_int; buffer: *mut c_void, flags: c_int) = fstatat64;
}

/// The path without links, as the program knows it. It never gets longer by this, so it stays in
/// the buffer it is in.
///
/// # Safety
///
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn realpath(path: *const c_char, buffer: *mut c_char) -> *mut c_char {
    type Function = unsafe extern "C-unwind" fn(*const c_char, *mut c_char) -> *mut c_char;
    let next = next!(realpath);
    let mut room = Room::new();
    // SAFETY: the C library's function has this type; the caller vouches for the arguments.
    let found = unsafe {
        let next: Function = mem::transmute(next);
        next(room.redirect(path), buffer)
    };
    if found.is_null() {
        return found;
    }
    // SAFETY: a result that is not null is a string that ends with a zero.
    let text = unsafe { CStr::from_ptr(found) }.to_bytes_with_nul();
    let shown = shown(text);
    // SAFETY: `shown` is the end of `text` with its zero, and goes to the beginning of it.
    unsafe { ptr::copy(shown.as_ptr().cast(), found, shown.len()) };
    found
}

/// `realpath` of programs that are built to check the sizes of their buffers.
///
/// # Safety
///
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __realpath_chk(
    path: *const c_char,
    buffer: *mut c_char,
    size: size_t,
) -> *mut c_char {
    if size < libc::PATH_MAX as size_t {
        // SAFETY: takes no argument and does not return. The C library ends the program, too.
        unsafe { libc::abort() }
    }
    // SAFETY: the caller's arguments.
    unsafe { realpath(path, buffer) }
}

/// # Safety
///
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
    // SAFETY: the caller's argument; a buffer is allocated for a null one.
    unsafe { realpath(path, ptr::null_mut()) }
}
