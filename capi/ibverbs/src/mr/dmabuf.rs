//! Regions of memory that a descriptor refers to: DMA-bufs (udmabuf, for example) and memfds, which
//! back a udmabuf. Both are process memory, so the device maps them.

use std::ffi::{c_int, c_void};
use std::fs::read_link;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;

use ferroce_abi::border;
use ferroce_device::{AccessFlags, RegFlags};
use ferroce_fault::Target;

use super::memory::memory;
use super::{Kind, Mr, insert};
use crate::abi::{ibv_mr, ibv_pd};
use crate::error::{Error, pointer};
use crate::pd;

/// A page: addresses and offsets agree below it.
const PAGE: u64 = 4096;

/// What a region of this kind may be for; a card's driver takes no other flags.
const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

/// Memory of a descriptor, mapped from its beginning.
struct Mapping {
    base: *mut c_void,
    length: usize,
}

// SAFETY: an address and a length; the memory is the device's to reach from any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `Mapping::new`, and nothing reaches it any more.
        unsafe { libc::munmap(self.base, self.length) };
    }
}

impl Mapping {
    /// Maps the first `length` bytes.
    fn new(fd: c_int, length: usize, writable: bool) -> io::Result<Self> {
        let protection = match writable {
            true => libc::PROT_READ | libc::PROT_WRITE,
            false => libc::PROT_READ,
        };
        // SAFETY: a new mapping, where the kernel has room.
        let base = unsafe { libc::mmap(null_mut(), length, protection, libc::MAP_SHARED, fd, 0) };
        match base == libc::MAP_FAILED {
            true => Err(io::Error::last_os_error()),
            false => Ok(Self { base, length }),
        }
    }
}

/// Registers memory of a descriptor under the address `iova` (ibv_reg_dmabuf_mr(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    pointer(
        "ibv_reg_dmabuf_mr",
        register(pd, offset, length, iova, fd, access as u32),
    )
}

pub(super) fn register(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: u32,
) -> Result<*mut ibv_mr, Error> {
    let own = pd::find(pd)?.own();
    let flags = RegFlags::from_bits(access)?;
    if !ACCESS.contains(flags.access) || flags.zero_based || flags.on_demand {
        let allowed = "local write, remote write, read and atomic, relaxed ordering";
        return Err(Error::invalid("access", access, allowed));
    }
    // UCX and NCCL register nothing, or a descriptor that is not open, to see whether the call exists.
    if length == 0 {
        return Err(Error::Probed {
            errno: libc::EINVAL,
            what: "length is 0; allowed: 1 or more".into(),
        });
    }
    if offset % PAGE != iova % PAGE {
        let allowed = "an address that is as far into its page as offset is";
        return Err(Error::invalid("iova", iova, allowed));
    }
    let name = name_of(fd)?;
    let size = size_of_file(fd)?;
    let end = offset.checked_add(length as u64).filter(|end| *end <= size);
    let Some(end) = end.and_then(|end| usize::try_from(end).ok()) else {
        return Err(Error::refused(
            libc::EINVAL,
            format!(
                "fd {fd} ({name}) has {size} bytes; offset {offset} and length {length} reach \
                 beyond its end"
            ),
        ));
    };
    let writable = flags.access.contains(AccessFlags::LOCAL_WRITE);
    let mapping = Mapping::new(fd, end, writable).map_err(|error| {
        Error::refused(
            error.raw_os_error().unwrap_or(libc::EINVAL),
            format!("fd {fd} ({name}) cannot be mapped: {error}"),
        )
    })?;
    let start = mapping.base.wrapping_byte_add(offset as usize);
    let memory = memory(start, length, flags)?;
    own.context.adapter.meet(Target::RegMr, None)?;
    let device = own.context.adapter.live()?;
    let info = device.with(|hca| hca.reg_mr_iova(own.id, memory, iova, flags.access))?;
    let kind = Kind::kept(mapping);
    let mr = Mr::new(Arc::clone(&own.context), info.key, flags, kind);
    // Programs find the offset where other regions have their address.
    Ok(insert(pd, offset as *mut c_void, length, mr))
}

/// What a descriptor stands for, if that is memory.
fn name_of(fd: c_int) -> Result<String, Error> {
    let name =
        read_link(Path::new("/proc/self/fd").join(fd.to_string())).map_err(|_| Error::Probed {
            errno: libc::EBADF,
            what: format!("fd {fd} is not open"),
        })?;
    let name = name.to_string_lossy().into_owned();
    if ["/dmabuf:", "/memfd:"]
        .iter()
        .any(|kind| name.starts_with(kind))
    {
        return Ok(name);
    }
    Err(Error::refused(
        libc::EINVAL,
        format!("fd {fd} is {name}; allowed: a DMA-buf that can be mapped, or a memfd"),
    ))
}

fn size_of_file(fd: c_int) -> Result<u64, Error> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for what the call writes.
    if unsafe { libc::fstat(fd, status.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: written, as the call has succeeded.
    let status = unsafe { status.assume_init() };
    Ok(status.st_size.try_into().unwrap_or(0))
}
