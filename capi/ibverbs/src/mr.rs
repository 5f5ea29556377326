//! Memory regions.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use ferroce_hca::{AccessFlags, Memory, MrKey};

use crate::abi::{ibv_mr, ibv_pd};
use crate::arena::Arena;
use crate::context::ContextRef;
use crate::convert;
use crate::error::{Error, pointer, status};
use crate::pd;

pub(crate) struct Mr {
    context: ContextRef,
    key: MrKey,
}

static MRS: Arena<ibv_mr, Mr> = Arena::new("memory region");

/// Registers memory under its own address (ibv_reg_mr(3)).
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    pointer(
        "ibv_reg_mr",
        register(pd, addr, length, addr as u64, access as u32),
    )
}

/// Registers memory under the address `iova` (ibv_reg_mr(3)).
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    pointer(
        "ibv_reg_mr_iova",
        register(pd, addr, length, iova, access as u32),
    )
}

/// [`ibv_reg_mr_iova`] for programs whose access flags may be optional ones.
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> *mut ibv_mr {
    pointer("ibv_reg_mr_iova2", register(pd, addr, length, iova, access))
}

fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> Result<*mut ibv_mr, Error> {
    let own = pd::find(pd)?.own();
    let flags = convert::access("access", access)?;
    if access & ON_DEMAND == 0 {
        fault_in(addr, length, flags.contains(AccessFlags::LOCAL_WRITE))?;
    }
    // SAFETY: the program keeps registered memory mapped, as with any card, and shares it with the
    // device by the rules of the verbs.
    let memory = unsafe { Memory::borrowed(addr.cast(), length) };
    let context = Arc::clone(&own.context);
    let info = context
        .adapter
        .device
        .with(|hca| hca.reg_mr_iova(own.id, memory, iova, flags))?;
    // SAFETY: a live object.
    let context_pointer = unsafe { (*pd).context };
    let abi = ibv_mr {
        context: context_pointer,
        pd,
        addr,
        length,
        handle: info.key.0,
        lkey: info.key.lkey(),
        rkey: info.key.rkey(),
    };
    Ok(MRS.insert(
        abi,
        Mr {
            context,
            key: info.key,
        },
    ))
}

/// `IBV_ACCESS_ON_DEMAND`
const ON_DEMAND: u32 = 1 << 6;

/// Brings the pages in, as pinning would, and so finds out whether they may be used.
fn fault_in(addr: *mut c_void, length: usize, writable: bool) -> Result<(), Error> {
    const PAGE: usize = 4096;
    let advice = if writable {
        libc::MADV_POPULATE_WRITE
    } else {
        libc::MADV_POPULATE_READ
    };
    let first = addr as usize & !(PAGE - 1);
    let fault = Error::Fault {
        addr: addr as u64,
        length: length as u64,
    };
    let Some(end) = (addr as usize).checked_add(length) else {
        return Err(fault);
    };
    if length == 0 {
        return Ok(());
    }
    // SAFETY: this advice changes no contents.
    let done = unsafe { libc::madvise(first as *mut c_void, end - first, advice) };
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        _ if done == 0 => Ok(()),
        // Kernels before 5.14 do not know the advice, others refuse it for mappings of devices:
        // then it is not known whether the pages are there.
        Some(libc::EINVAL) if !readable_but_not_writable(addr, writable) => Ok(()),
        _ => Err(fault),
    }
}

/// Whether the first page can be brought in for reading but was refused for writing.
fn readable_but_not_writable(addr: *mut c_void, writable: bool) -> bool {
    let page = (addr as usize & !0xfff) as *mut c_void;
    // SAFETY: this advice changes no contents.
    writable && unsafe { libc::madvise(page, 4096, libc::MADV_POPULATE_READ) } == 0
}

/// Takes a memory region away (ibv_reg_mr(3)).
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    status("ibv_dereg_mr", deregister(mr))
}

fn deregister(pointer: *mut ibv_mr) -> Result<(), Error> {
    let mr = MRS.find(pointer)?.own();
    mr.context.adapter.device.with(|hca| hca.dereg_mr(mr.key))?;
    MRS.remove(pointer);
    Ok(())
}

/// Takes away what a closing context has left.
pub(crate) fn close(context: &ContextRef) {
    for mr in MRS.all() {
        if Arc::ptr_eq(&mr.own().context, context) {
            // Nothing more can be done about one that stays.
            let _ = deregister(mr.abi());
        }
    }
}
