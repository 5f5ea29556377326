//! Memory regions.

pub(crate) mod dmabuf;
pub(crate) mod extended;
mod memory;

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferroce_abi::border;
use ferroce_device::{Memory, MrKey, MrModify, RegFlags};
use ferroce_fault::Target;

use crate::abi::{ibv_mr, ibv_pd, ibv_sge};
use crate::arena::Arena;
use crate::context::{self, ContextRef};
use crate::error::{Error, pointer, status, tell};
use crate::pd;

use memory::{fault_in, memory};

pub(crate) struct Mr {
    context: ContextRef,
    key: MrKey,
    flags: Mutex<RegFlags>,
    kind: Kind,
}

/// What a region consists of.
enum Kind {
    /// Memory of the program.
    Memory,
    /// Nothing.
    Null,
    /// Memory of a descriptor or of the device, which stays as long as the region.
    Kept { _memory: Box<dyn Any + Send + Sync> },
    /// A region of another context.
    Imported,
}

impl Kind {
    fn kept(memory: impl Any + Send + Sync) -> Self {
        let _memory = Box::new(memory);
        Self::Kept { _memory }
    }
}

impl Mr {
    fn new(context: ContextRef, key: MrKey, flags: RegFlags, kind: Kind) -> Self {
        Self {
            context,
            key,
            flags: Mutex::new(flags),
            kind,
        }
    }

    fn flags(&self) -> MutexGuard<'_, RegFlags> {
        self.flags.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static MRS: Arena<ibv_mr, Mr> = Arena::new("memory region");

/// Registers memory under its own address (ibv_reg_mr(3)).
#[border(pointer)]
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
#[border(pointer)]
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
#[border(pointer)]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> *mut ibv_mr {
    pointer("ibv_reg_mr_iova2", register(pd, addr, length, iova, access))
}

pub(crate) fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> Result<*mut ibv_mr, Error> {
    let own = pd::find(pd)?.own();
    own.context.adapter.meet(Target::RegMr, None)?;
    let flags = RegFlags::from_bits(access)?;
    let memory = memory(addr, length, flags)?;
    let iova = if flags.zero_based { 0 } else { iova };
    let device = own.context.adapter.live()?;
    let info = device.with(|hca| hca.reg_mr_iova(own.id, memory, iova, flags.access))?;
    let mr = Mr::new(Arc::clone(&own.context), info.key, flags, Kind::Memory);
    Ok(insert(pd, addr, length, mr))
}

/// Registers a part of device memory, which has no address that means anything to a program.
pub(crate) fn register_dm(
    pd: *mut ibv_pd,
    memory: Memory,
    access: u32,
    hold: impl Any + Send + Sync,
) -> Result<*mut ibv_mr, Error> {
    let own = pd::find(pd)?.own();
    own.context.adapter.meet(Target::RegMr, None)?;
    let flags = RegFlags::from_bits(access)?;
    if !flags.zero_based {
        let allowed = "flags with IBV_ACCESS_ZERO_BASED";
        return Err(Error::invalid("access", access, allowed));
    }
    let length = memory.len() as usize;
    let device = own.context.adapter.live()?;
    let info = device.with(|hca| hca.reg_mr_iova(own.id, memory, 0, flags.access))?;
    let kind = Kind::kept(hold);
    let mr = Mr::new(Arc::clone(&own.context), info.key, flags, kind);
    Ok(insert(pd, null_mut(), length, mr))
}

/// The region of a handle, for another context of the device. Its address may mean nothing to
/// the importer (ibv_import_mr(3)).
fn import(pd: *mut ibv_pd, own: ContextRef, handle: u32) -> Result<*mut ibv_mr, Error> {
    let known = MRS.all().into_iter().find(|mr| {
        let mr = mr.own();
        mr.key.0 == handle && Arc::ptr_eq(&mr.context.adapter, &own.adapter)
    });
    let original = known.ok_or(Error::Handle("mr_handle"))?;
    // SAFETY: an object whose memory is never freed.
    let length = unsafe { (*original.abi()).length };
    let (key, flags) = (original.own().key, *original.own().flags());
    let mr = Mr::new(own, key, flags, Kind::Imported);
    Ok(insert(pd, null_mut(), length, mr))
}

/// Ends an object whose region stays.
fn forget(pointer: *mut ibv_mr) -> Result<(), Error> {
    MRS.find(pointer)?;
    MRS.remove(pointer);
    Ok(())
}

/// A memory region by its handle (ibv_import_mr(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    let found = pd::find(pd).and_then(|object| {
        let own = Arc::clone(&object.own().context);
        own.check_same_process()?;
        import(pd, own, handle)
    });
    pointer("ibv_import_mr", found)
}

/// Ends the use of a memory region, which stays (ibv_import_mr(3)).
#[border(nothing)]
pub unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    status("ibv_unimport_mr", forget(mr));
}

/// The region as the program sees it.
fn insert(pd: *mut ibv_pd, addr: *mut c_void, length: usize, mr: Mr) -> *mut ibv_mr {
    let abi = ibv_mr {
        // SAFETY: an object whose memory is never freed.
        context: unsafe { (*pd).context },
        pd,
        addr,
        length,
        handle: mr.key.0,
        lkey: mr.key.lkey(),
        rkey: mr.key.rkey(),
    };
    MRS.insert(abi, mr)
}

/// The key of a memory region of the context; `None` for the null pointer.
pub(crate) fn key(mr: *const ibv_mr, context: &ContextRef) -> Result<Option<MrKey>, Error> {
    if mr.is_null() {
        return Ok(None);
    }
    let mr = MRS.get(mr)?.own();
    context::check_same("memory region", &mr.context, context)?;
    Ok(Some(mr.key))
}

/// [`key`] of a region to which `ibv_bind_mw` binds windows. Those count addresses of the program, so
/// the providers of cards refuse regions that have none of their own.
pub(crate) fn key_to_bind(mr: *const ibv_mr, context: &ContextRef) -> Result<Option<MrKey>, Error> {
    let key = key(mr, context)?;
    if key.is_some() {
        let own = MRS.get(mr)?.own();
        if !matches!(own.kind, Kind::Memory) {
            return Err(Error::Unsupported(
                "a window on a region that is not memory of the program",
            ));
        }
        let flags = *own.flags();
        if flags.zero_based {
            return Err(Error::refused(
                libc::EINVAL,
                "the region starts at 0; bind to one without IBV_ACCESS_ZERO_BASED",
            ));
        }
    }
    Ok(key)
}

/// A region that swallows what is written and reads as zeros (ibv_alloc_null_mr(3)).
#[border(pointer)]
pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    let made = pd::find(pd).and_then(|object| {
        let own = object.own();
        let device = own.context.adapter.live()?;
        let info = device.with(|hca| hca.alloc_null_mr(own.id))?;
        let context = Arc::clone(&own.context);
        let mr = Mr::new(context, info.key, RegFlags::default(), Kind::Null);
        Ok(insert(pd, null_mut(), 0, mr))
    });
    pointer("ibv_alloc_null_mr", made)
}

/// Changes memory, protection domain or permissions of a region: all that is asked for, or on error
/// nothing. Its keys stay (ibv_rereg_mr(3)). The result says who refuses: other libraries look at the
/// arguments, and the rest is up to the kernel.
#[border(number)]
pub unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    const ERR_INPUT: c_int = -1;
    const ERR_CMD: c_int = -4;
    let change = Change {
        what: flags,
        pd,
        addr,
        length,
        access: access as u32,
    };
    let refused = match change.check(mr) {
        Ok(own) => change.apply(mr, own).map_err(|error| (ERR_CMD, error)),
        Err(error) => Err((ERR_INPUT, error)),
    };
    refused.map_or_else(
        |(code, error)| {
            tell("ibv_rereg_mr", &error);
            code
        },
        |()| 0,
    )
}

/// What a program wants to change of a region.
struct Change {
    what: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: u32,
}

impl Change {
    const TRANSLATION: c_int = 1;
    const PD: c_int = 1 << 1;
    const ACCESS: c_int = 1 << 2;

    fn changes(&self, what: c_int) -> bool {
        self.what & what != 0
    }

    /// What can be seen without the device; answers the region.
    fn check(&self, pointer: *mut ibv_mr) -> Result<&'static Mr, Error> {
        if self.what & !(Self::TRANSLATION | Self::PD | Self::ACCESS) != 0 {
            let allowed = "one or more of ibv_rereg_mr_flags";
            return Err(Error::invalid("flags", self.what as u32, allowed));
        }
        let mr = MRS.find(pointer)?.own();
        if !matches!(mr.kind, Kind::Memory) {
            return Err(Error::refused(
                libc::EINVAL,
                "only a region of the program's own memory can change; register another one",
            ));
        }
        if self.changes(Self::TRANSLATION) && self.addr.is_null() {
            return Err(Error::Null("addr"));
        }
        if self.changes(Self::TRANSLATION) && self.length == 0 {
            return Err(Error::invalid("length", self.length, "1 or more"));
        }
        if !self.changes(Self::ACCESS) && self.access != 0 {
            let allowed = "0 without IBV_REREG_MR_CHANGE_ACCESS";
            return Err(Error::invalid("access", self.access, allowed));
        }
        Ok(mr)
    }

    fn apply(&self, pointer: *mut ibv_mr, mr: &Mr) -> Result<(), Error> {
        if self.what == 0 {
            let allowed = "one or more of ibv_rereg_mr_flags";
            return Err(Error::invalid("flags", self.what, allowed));
        }
        let mut flags = *mr.flags();
        if self.changes(Self::ACCESS) {
            flags = RegFlags::from_bits(self.access)?;
        }
        let translation = match self.changes(Self::TRANSLATION) {
            true => {
                let va = if flags.zero_based {
                    0
                } else {
                    self.addr as u64
                };
                Some((memory(self.addr, self.length, flags)?, va))
            }
            false => None,
        };
        let domain = match self.changes(Self::PD) {
            true => Some(pd::find_in(self.pd, &mr.context)?.id),
            false => None,
        };
        let change = MrModify {
            translation,
            pd: domain,
            access: self.changes(Self::ACCESS).then_some(flags.access),
        };
        let device = mr.context.adapter.live()?;
        device.with(|hca| hca.rereg_mr(mr.key, change))?;
        *mr.flags() = flags;
        // SAFETY: a live object; programs only read the fields.
        unsafe {
            if self.changes(Self::TRANSLATION) {
                ((*pointer).addr, (*pointer).length) = (self.addr, self.length);
            }
            if self.changes(Self::PD) {
                (*pointer).pd = self.pd;
            }
        }
        Ok(())
    }
}

/// Brings memory of regions in before it is used (ibv_advise_mr(3)).
#[border(status)]
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: c_int,
    flags: u32,
    list: *mut ibv_sge,
    count: u32,
) -> c_int {
    // SAFETY: null or an array of `count` elements, valid during the call.
    status("ibv_advise_mr", unsafe {
        advise(pd, advice, flags, list, count)
    })
}

/// # Safety
/// `list` points to `count` elements.
unsafe fn advise(
    pd: *mut ibv_pd,
    advice: c_int,
    flags: u32,
    list: *const ibv_sge,
    count: u32,
) -> Result<(), Error> {
    const PREFETCH_WRITE: c_int = 1;
    const PREFETCH_NO_FAULT: c_int = 2;
    const FLUSH: u32 = 1;
    let own = pd::find(pd)?.own();
    if !(0..=PREFETCH_NO_FAULT).contains(&advice) {
        return Err(Error::Unsupported("the advice"));
    }
    if flags & !FLUSH != 0 {
        return Err(Error::invalid("flags", flags, "IBV_ADVISE_MR_FLAG_FLUSH"));
    }
    if count == 0 || list.is_null() {
        return Err(Error::invalid("num_sge", count, "1 or more, with a list"));
    }
    let all = MRS.all();
    for index in 0..count as usize {
        // SAFETY: as the caller promises.
        let sge = unsafe { *list.add(index) };
        let device = own.context.adapter.live()?;
        let info = device.with(|hca| hca.mrs().find(|mr| mr.key.lkey() == sge.lkey).copied());
        let info = info.ok_or(Error::NoKey { lkey: sge.lkey })?;
        if info.pd != own.id {
            return Err(Error::OtherDomain { lkey: sge.lkey });
        }
        let inside = sge.addr.checked_sub(info.va);
        let fits = inside.and_then(|at| at.checked_add(sge.length.into()));
        let (Some(inside), true) = (inside, fits.is_some_and(|end| end <= info.len)) else {
            let (addr, length) = (sge.addr, sge.length.into());
            return Err(Error::Fault { addr, length });
        };
        let region = all.iter().find(|mr| mr.own().key == info.key);
        if advice != PREFETCH_NO_FAULT
            && let Some(region) = region
        {
            // SAFETY: an object whose memory is never freed.
            let base = unsafe { (*region.abi()).addr };
            let start = base.wrapping_byte_add(inside as usize);
            fault_in(start, sge.length as usize, advice == PREFETCH_WRITE)?;
        }
    }
    Ok(())
}

/// Takes a memory region away (ibv_reg_mr(3)).
#[border(status)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    status("ibv_dereg_mr", deregister(mr))
}

fn deregister(pointer: *mut ibv_mr) -> Result<(), Error> {
    let mr = MRS.find(pointer)?.own();
    mr.context.adapter.end(|hca| hca.dereg_mr(mr.key))?;
    MRS.remove(pointer);
    Ok(())
}

/// Takes away what a closing context has left.
pub(crate) fn close(context: &ContextRef) {
    for mr in MRS.all() {
        if Arc::ptr_eq(&mr.own().context, context) {
            // Nothing more can be done about one that stays.
            let _ = match mr.own().kind {
                Kind::Imported => forget(mr.abi()),
                _ => deregister(mr.abi()),
            };
        }
    }
}
