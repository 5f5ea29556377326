use std::ffi::c_void;
use std::sync::OnceLock;

use ferroce_hca::{AccessFlags, Memory, RegFlags};
use ferroce_udp::own_memory;

use crate::error::Error;

/// The device's way to memory of the program.
pub(super) fn memory(addr: *mut c_void, length: usize, flags: RegFlags) -> Result<Memory, Error> {
    let (start, len) = (addr as u64, length as u64);
    let implicit = flags.is_implicit(start, len)?;
    let careful = (flags.on_demand || checked()).then(own_memory);
    let access = match careful.transpose() {
        Err(error) if implicit || checked() => return Err(error.into()),
        Err(_) => None, // a region that the program had better keep mapped
        Ok(access) => access,
    };
    if !flags.on_demand || access.is_none() {
        let writable = flags.access.contains(AccessFlags::LOCAL_WRITE);
        fault_in(addr, length, writable)?;
    }
    Ok(match access {
        // SAFETY: the program shares registered memory with the device by the rules of the verbs.
        Some(access) => unsafe { Memory::checked(start, len, access) },
        // SAFETY: the same, and the program keeps the memory mapped, as with any card.
        None => unsafe { Memory::borrowed(addr.cast(), length) },
    })
}

/// Whether all memory is to be reached with care (`FERROCE_CHECKED=1`): a program that unmaps what
/// it has registered then gets errors instead of a signal, and pays a system call for each access.
fn checked() -> bool {
    static CHECKED: OnceLock<bool> = OnceLock::new();
    *CHECKED.get_or_init(|| std::env::var_os("FERROCE_CHECKED").is_some_and(|value| value == "1"))
}

/// Brings the pages in, as pinning would, and so finds out whether they may be used.
pub(super) fn fault_in(addr: *mut c_void, length: usize, writable: bool) -> Result<(), Error> {
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
