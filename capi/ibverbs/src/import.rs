//! Objects of other contexts, by their handles (ibv_import_device(3), ibv_import_pd(3),
//! ibv_import_mr(3)).
//!
//! A kernel knows the objects of all processes; here each process has its own. Handles of another
//! process's context are therefore invalid, although the device itself can be opened with it.

use std::ffi::c_int;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ferroce_abi::border;

use crate::abi::{ibv_context, ibv_mr, ibv_pd};
use crate::adapter::{self, Adapter};
use crate::context::{self, Context};
use crate::error::{Error, pointer, status};
use crate::{mr, pd};

/// What a command descriptor starts with.
const MARK: &str = "ferroce context of";

/// A command descriptor: a file that says which device of which process it belongs to.
pub(crate) fn command_fd(adapter: &Adapter) -> io::Result<OwnedFd> {
    // SAFETY: a C string; the result is checked.
    let fd = unsafe { libc::memfd_create(c"ferroce-context".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fresh, and owned by nobody else.
    let mut file = unsafe { File::from_raw_fd(fd) };
    let name = &adapter.listed.spec.name;
    writeln!(file, "{MARK} {name} {:x}", adapter.identity)?;
    Ok(file.into())
}

/// Device and identity in a command descriptor.
fn read_command(fd: c_int) -> Result<(String, u64), Error> {
    let mut text = [0; 256];
    // SAFETY: the descriptor is only borrowed: it is given back below without being closed.
    let file = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    let length = file.read_at(&mut text, 0)?;
    parse_command(&text[..length]).ok_or_else(|| {
        let allowed = "copies of cmd_fd of a context of this library";
        Error::invalid("cmd_fd", fd, allowed)
    })
}

fn parse_command(text: &[u8]) -> Option<(String, u64)> {
    let line = std::str::from_utf8(text).ok()?;
    let (name, identity) = line.strip_prefix(MARK)?.trim().split_once(' ')?;
    let identity = u64::from_str_radix(identity, 16).ok()?;
    Some((name.to_owned(), identity))
}

/// Opens the device of a context by a copy of its `cmd_fd`, which the new context closes
/// (ibv_import_device(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    pointer("ibv_import_device", import_device(cmd_fd))
}

fn import_device(cmd_fd: c_int) -> Result<*mut ibv_context, Error> {
    if cmd_fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF).into());
    }
    let (name, identity) = read_command(cmd_fd)?;
    let listed = adapter::named(&name)?;
    let own = Adapter::of_identity(listed, identity);
    let foreign = own.is_none();
    let adapter = own.map_or_else(|| Adapter::attach(listed), Ok)?;
    context::make(adapter, foreign, || {
        // SAFETY: the program gives the descriptor away with a call that succeeds.
        Ok(unsafe { OwnedFd::from_raw_fd(cmd_fd) })
    })
}

impl Context {
    /// Whether handles that a program imports into this context are of this process.
    pub(crate) fn check_same_process(&self) -> Result<(), Error> {
        if self.foreign {
            return Err(Error::Unsupported("an object of another process"));
        }
        Ok(())
    }
}

/// A protection domain by its handle (ibv_import_pd(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
    let found = context::find(context).and_then(|own| {
        own.check_same_process()?;
        pd::import(context, own, handle)
    });
    pointer("ibv_import_pd", found)
}

/// Ends the use of a protection domain, which stays (ibv_import_pd(3)).
#[border(nothing)]
pub unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    status("ibv_unimport_pd", pd::forget(pd));
}

/// A memory region by its handle (ibv_import_mr(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    let found = pd::find(pd).and_then(|object| {
        let own = Arc::clone(&object.own().context);
        own.check_same_process()?;
        mr::import(pd, own, handle)
    });
    pointer("ibv_import_mr", found)
}

/// Ends the use of a memory region, which stays (ibv_import_mr(3)).
#[border(nothing)]
pub unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    status("ibv_unimport_mr", mr::forget(mr));
}
