//! Device memory (ibv_alloc_dm(3)): a block of the heap that only the device and two copy functions
//! reach.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_abi::border;
use ferroce_abi::pointer::{check, read};
use ferroce_device::{Buffer, Memory, limits};

use crate::abi::{ibv_alloc_dm_attr, ibv_context, ibv_dm, ibv_mr, ibv_pd};
use crate::arena::Arena;
use crate::context::{self, ContextRef};
use crate::error::{Error, pointer, status};
use crate::mr;

/// A block of device memory. Memory regions on it keep it.
pub(crate) struct Block {
    buffer: Buffer,
    handle: u32,
    /// Bytes that the device has left.
    free: Arc<AtomicU64>,
}

impl Drop for Block {
    fn drop(&mut self) {
        let length = self.buffer.len() as u64;
        self.free.fetch_add(length, Ordering::Relaxed);
    }
}

/// A program's hold on a block.
struct Dm {
    context: ContextRef,
    block: Arc<Block>,
    /// Registered regions count what they share of this.
    regions: Arc<()>,
}

static DMS: Arena<ibv_dm, Dm> = Arena::new("device memory");

/// The largest alignment, as an exponent: a page.
const LOG_ALIGN_MAX: u32 = 12;

/// Allocates device memory.
#[border(pointer)]
pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    // SAFETY: null or a structure of the program, valid during the call.
    let attr = unsafe { read("attr", attr) }.map_err(Error::from);
    pointer("ibv_alloc_dm", attr.and_then(|attr| alloc(context, attr)))
}

fn alloc(context: *mut ibv_context, attr: &ibv_alloc_dm_attr) -> Result<*mut ibv_dm, Error> {
    static HANDLES: AtomicU64 = AtomicU64::new(1);
    let own = context::find(context)?;
    if attr.comp_mask != 0 {
        return Err(Error::Unsupported("an attribute in comp_mask"));
    }
    if attr.log_align_req > LOG_ALIGN_MAX {
        return Err(Error::invalid(
            "log_align_req",
            attr.log_align_req,
            "0 to 12",
        ));
    }
    let length = attr.length as u64;
    if length == 0 || length > limits::MAX_DM_SIZE {
        return Err(Error::invalid("length", length, "1 to max_dm_size"));
    }
    let left = |free: u64| free.checked_sub(length);
    own.adapter
        .dm_free
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left)
        .map_err(|_| std::io::Error::from_raw_os_error(libc::ENOMEM))?;
    let block = Block {
        buffer: Buffer::zeroed(attr.length),
        handle: HANDLES.fetch_add(1, Ordering::Relaxed) as u32,
        free: Arc::clone(&own.adapter.dm_free),
    };
    Ok(hold(context, own, Arc::new(block), Arc::default()))
}

fn hold(
    context: *mut ibv_context,
    own: ContextRef,
    block: Arc<Block>,
    regions: Arc<()>,
) -> *mut ibv_dm {
    let abi = ibv_dm {
        context,
        memcpy_to_dm: Some(memcpy_to_dm),
        memcpy_from_dm: Some(memcpy_from_dm),
        comp_mask: 0,
        handle: block.handle,
    };
    let dm = Dm {
        context: own,
        block,
        regions,
    };
    DMS.insert(abi, dm)
}

/// Frees device memory without regions.
#[border(status)]
pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    status("ibv_free_dm", free(dm))
}

fn free(dm: *mut ibv_dm) -> Result<(), Error> {
    let object = DMS.find(dm)?.own();
    let holds = DMS.all();
    let shared = holds
        .iter()
        .filter(|other| Arc::ptr_eq(&other.own().block, &object.block))
        .count();
    if Arc::strong_count(&object.regions) > shared {
        return Err(Error::Busy("memory regions lie on the device memory"));
    }
    DMS.remove(dm);
    Ok(())
}

/// The device memory of a handle, in another context of the process (ibv_import_dm(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_import_dm(context: *mut ibv_context, handle: u32) -> *mut ibv_dm {
    let found = context::find(context).and_then(|own| {
        own.check_same_process()?;
        let known = DMS.all().into_iter().find(|dm| {
            let dm = dm.own();
            dm.block.handle == handle && Arc::ptr_eq(&dm.context.adapter, &own.adapter)
        });
        let dm = known.ok_or(Error::Handle("dm_handle"))?.own();
        let (block, regions) = (Arc::clone(&dm.block), Arc::clone(&dm.regions));
        Ok(hold(context, own, block, regions))
    });
    pointer("ibv_import_dm", found)
}

/// Ends the use of imported device memory, which stays (ibv_import_dm(3)).
#[border(nothing)]
pub unsafe extern "C" fn ibv_unimport_dm(dm: *mut ibv_dm) {
    let result = DMS.find(dm).map(|_| DMS.remove(dm));
    status("ibv_unimport_dm", result.map(drop));
}

/// Where `length` bytes from `offset` are. The device's memory is made of words of 4 bytes.
fn place(dm: &Dm, offset: u64, length: usize) -> Result<usize, Error> {
    let size = dm.block.buffer.len();
    if !offset.is_multiple_of(4) {
        return Err(Error::invalid("dm_offset", offset, "multiples of 4"));
    }
    if !length.is_multiple_of(4) {
        return Err(Error::invalid("length", length, "multiples of 4"));
    }
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    match start.checked_add(length) {
        Some(end) if end <= size => Ok(start),
        _ => Err(Error::invalid(
            "length",
            length,
            "what is left from dm_offset",
        )),
    }
}

#[border(status)]
unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> c_int {
    let result = DMS.find(dm).and_then(|object| {
        let at = place(object.own(), offset, length)?;
        if length > 0 {
            check("host_addr", from.cast_mut())?;
            // SAFETY: not null, and `length` bytes are valid for reads, as the header requires.
            let bytes = unsafe { std::slice::from_raw_parts(from.cast(), length) };
            object.own().block.buffer.write(at, bytes);
        }
        Ok(())
    });
    status("ibv_memcpy_to_dm", result)
}

#[border(status)]
unsafe extern "C" fn memcpy_from_dm(
    to: *mut c_void,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
) -> c_int {
    let result = DMS.find(dm).and_then(|object| {
        let at = place(object.own(), offset, length)?;
        if length > 0 {
            check("host_addr", to)?;
            let mut bytes = vec![0; length];
            object.own().block.buffer.read(at, &mut bytes);
            // SAFETY: not null, and `length` bytes may be written to, as the header requires.
            unsafe { to.copy_from_nonoverlapping(bytes.as_ptr().cast(), length) };
        }
        Ok(())
    });
    status("ibv_memcpy_from_dm", result)
}

/// Device memory under a memory region.
pub(crate) struct Hold {
    _block: Arc<Block>,
    _region: Arc<()>,
}

/// Registers device memory; its addresses begin at 0 (ibv_alloc_dm(3)).
#[border(pointer)]
pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    let made = DMS.find(dm).and_then(|object| {
        let dm = object.own();
        let at = place(dm, offset, length)?;
        let base = dm.block.buffer.addr() as *mut u8;
        // SAFETY: a part of the block, which stays until the region ends; only the device and the copy
        // functions access it.
        let memory = unsafe { Memory::borrowed(base.wrapping_add(at), length) };
        let hold = Hold {
            _block: Arc::clone(&dm.block),
            _region: Arc::clone(&dm.regions),
        };
        mr::register_dm(pd, memory, access, hold)
    });
    pointer("ibv_reg_dm_mr", made)
}

/// Frees what a closing context has left.
pub(crate) fn close(context: &ContextRef) {
    for dm in DMS.all() {
        if Arc::ptr_eq(&dm.own().context, context) {
            DMS.remove(dm.abi());
        }
    }
}
