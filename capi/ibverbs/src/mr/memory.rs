//! The memory of the program that regions are made of.

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::sync::OnceLock;

use ferroce_device::{AccessFlags, Memory, RegFlags};
use ferroce_runtime::{own_memory, recover_faults};

use crate::error::Error;

/// The device's way to memory of the program.
pub(super) fn memory(addr: *mut c_void, length: usize, flags: RegFlags) -> Result<Memory, Error> {
    let (start, len) = (addr as u64, length as u64);
    let implicit = flags.is_implicit(start, len)?;
    // Before anything can reach it.
    let recovers = recover_faults();
    let careful = (flags.on_demand || checked() || !recovers).then(own_memory);
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
        // SAFETY: the same; where it is not mapped any more, the fault is handled.
        None => unsafe { Memory::borrowed(addr.cast(), length) },
    })
}

/// Whether all memory is to be reached by system calls (`FERROCE_CHECKED=1`), for programs whose
/// handler of SIGSEGV must not see a fault of the device; they pay for it with each access.
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
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        _ if done == 0 => Ok(()),
        // So are answered ranges with other permissions or beyond all addresses, but also mappings
        // of devices; and kernels before 5.14 do not know the advice.
        Some(libc::EINVAL) if is_mapped(first as u64..end as u64, writable) => Ok(()),
        _ => Err(fault),
    }
}

/// Whether mappings that may be read, or also written, cover a range; yes if that is unknown.
fn is_mapped(range: Range<u64>, writable: bool) -> bool {
    let Ok(maps) = std::fs::read("/proc/self/maps") else {
        return true;
    };
    // In ascending order: each that begins no later than the last one ended leads on.
    let covered = String::from_utf8_lossy(&maps)
        .lines()
        .filter_map(|line| usable(line, writable))
        .fold(range.start, |covered, mapping| {
            match mapping.contains(&covered) {
                true => mapping.end,
                false => covered,
            }
        });
    covered >= range.end
}

/// The addresses in a line of `/proc/self/maps` (proc(5)), if they may be used as asked.
fn usable(line: &str, writable: bool) -> Option<Range<u64>> {
    let (addresses, rest) = line.split_once(' ')?;
    let (start, end) = addresses.split_once('-')?;
    let may = rest.starts_with(if writable { "rw" } else { "r" });
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(number(start)?..number(end)?).filter(|_| may)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_covered_by_mappings_without_holes() {
        let lines = "1000-2000 r--p 0\n2000-3000 rw-p 0 [heap]\n4000-5000 ---p 0";
        let read = |line| usable(line, false);
        let all: Vec<_> = lines.lines().filter_map(read).collect();
        assert_eq!(all, [0x1000..0x2000, 0x2000..0x3000]);
        let written = lines.lines().find_map(|line| usable(line, true));
        assert_eq!(written, Some(0x2000..0x3000));
    }

    #[test]
    fn own_memory_is_mapped_and_the_last_address_is_not() {
        let own = [0_u8; 64];
        let start = own.as_ptr() as u64;
        assert!(is_mapped(start..start + 64, true));
        assert!(!is_mapped(start..u64::MAX, false));
    }
}
