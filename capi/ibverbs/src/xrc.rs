//! XRC domains.

use std::ffi::c_int;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use ferroce_abi::border;
use ferroce_abi::pointer::read;
use ferroce_device::XrcdId;

use crate::abi::{ibv_context, ibv_xrcd, ibv_xrcd_init_attr};
use crate::arena::Arena;
use crate::context::{self, ContextRef};
use crate::error::{Error, pointer, status};
use crate::gate;

pub(crate) struct Xrcd {
    pub(crate) context: ContextRef,
    pub(crate) id: XrcdId,
    /// Device and inode of the file that openers share the domain by.
    file: Option<(u64, u64)>,
}

static XRCDS: Arena<ibv_xrcd, Xrcd> = Arena::new("XRC domain");

fn find(xrcd: *const ibv_xrcd) -> Result<&'static Xrcd, Error> {
    XRCDS.find(xrcd).map(|object| object.own())
}

/// An XRC domain of the context.
pub(crate) fn find_in(xrcd: *const ibv_xrcd, context: &ContextRef) -> Result<&'static Xrcd, Error> {
    let xrcd = find(xrcd)?;
    context::check_same("XRC domain", &xrcd.context, context)?;
    Ok(xrcd)
}

/// Opens an XRC domain: one of its own, or the one of a file for all its openers in this process
/// (ibv_open_xrcd(3)).
#[border(pointer)]
pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    init: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    // SAFETY: null or a structure of the program, valid during the call.
    let init = unsafe { read("xrcd_init_attr", init) }.map_err(Error::from);
    pointer("ibv_open_xrcd", init.and_then(|init| open(context, init)))
}

fn open(context: *mut ibv_context, init: &ibv_xrcd_init_attr) -> Result<*mut ibv_xrcd, Error> {
    const FD_AND_OFLAGS: u32 = 0b11;
    if init.comp_mask != FD_AND_OFLAGS {
        let allowed = "IBV_XRCD_INIT_ATTR_FD and IBV_XRCD_INIT_ATTR_OFLAGS, both";
        return Err(Error::invalid("comp_mask", init.comp_mask, allowed));
    }
    let own = context::find(context)?;
    let file = match init.fd {
        -1 => None,
        fd => Some(inode(fd)?),
    };
    let _changes = gate::xrc_changes();
    let known = match file {
        Some(file) => domain_of(file, &own)?,
        None => None,
    };
    let id = match known {
        Some(_) if init.oflags & libc::O_EXCL != 0 => {
            let allowed = "without O_EXCL: the file has a domain";
            return Err(Error::invalid("oflags", init.oflags, allowed));
        }
        Some(id) => id,
        None if file.is_some() && init.oflags & libc::O_CREAT == 0 => {
            return Err(std::io::Error::from_raw_os_error(libc::EAGAIN).into());
        }
        None => own.adapter.live()?.with(|hca| hca.alloc_xrcd())?,
    };
    let xrcd = Xrcd {
        context: own,
        id,
        file,
    };
    Ok(XRCDS.insert(ibv_xrcd { context }, xrcd))
}

/// The domain of a file on the context's device.
fn domain_of(file: (u64, u64), context: &ContextRef) -> Result<Option<XrcdId>, Error> {
    let all = XRCDS.all();
    let listed = context.adapter.listed;
    let mut openers = all.iter().map(|xrcd| xrcd.own()).filter(|xrcd| {
        xrcd.file == Some(file) && std::ptr::eq(xrcd.context.adapter.listed, listed)
    });
    let Some(first) = openers.next() else {
        return Ok(None);
    };
    match shares_device(first, context) {
        true => Ok(Some(first.id)),
        // Two threads have it open, each for itself.
        false => Err(Error::OtherContext("XRC domain of this file")),
    }
}

fn shares_device(xrcd: &Xrcd, context: &ContextRef) -> bool {
    Arc::ptr_eq(&xrcd.context.adapter, &context.adapter)
}

/// Device and inode of an open file.
fn inode(fd: c_int) -> Result<(u64, u64), Error> {
    if fd < 0 {
        return Err(std::io::Error::from_raw_os_error(libc::EBADF).into());
    }
    // SAFETY: the file is never dropped, so the descriptor is not closed; one that is not open only
    // makes the call fail.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Closes an XRC domain; its last opener destroys it, if nothing uses it (ibv_open_xrcd(3)).
#[border(status)]
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    status("ibv_close_xrcd", close_domain(xrcd))
}

fn close_domain(pointer: *mut ibv_xrcd) -> Result<(), Error> {
    let _changes = gate::xrc_changes();
    let xrcd = find(pointer)?;
    let same = |other: &Xrcd| shares_device(other, &xrcd.context) && other.id == xrcd.id;
    let all = XRCDS.all();
    if all.iter().filter(|other| same(other.own())).count() == 1 {
        let adapter = &xrcd.context.adapter;
        adapter.end(|hca| hca.dealloc_xrcd(xrcd.id))?;
    }
    XRCDS.remove(pointer);
    Ok(())
}

/// Destroys what a closing context has left.
pub(crate) fn close(context: &ContextRef) {
    for xrcd in XRCDS.all() {
        if Arc::ptr_eq(&xrcd.own().context, context) {
            // In use by another context: it goes when that one does.
            let _ = close_domain(xrcd.abi());
        }
    }
}
