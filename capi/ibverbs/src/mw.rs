//! Memory windows.

use std::ffi::c_int;
use std::sync::Arc;

use ferroce_abi::border;
use ferroce_device::{MwBind, MwId, MwType, RegFlags, SendOp};

use crate::abi::{WrBindMw, ibv_mw, ibv_mw_bind_info, ibv_pd};
use crate::arena::{Arena, Object};
use crate::context::{self, ContextRef};
use crate::error::{Error, pointer, status};
use crate::{mr, pd};

pub(crate) struct Mw {
    context: ContextRef,
    pub(crate) id: MwId,
}

static MWS: Arena<ibv_mw, Mw> = Arena::new("memory window");

/// A memory window of the context.
pub(crate) fn find_in(
    mw: *const ibv_mw,
    context: &ContextRef,
) -> Result<&'static Object<ibv_mw, Mw>, Error> {
    let window = MWS.find(mw)?;
    context::check_same("memory window", &window.own().context, context)?;
    Ok(window)
}

/// Makes a memory window (ibv_alloc_mw(3)).
#[border(pointer)]
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: c_int) -> *mut ibv_mw {
    pointer("ibv_alloc_mw", alloc(pd, kind))
}

fn alloc(pd: *mut ibv_pd, kind: c_int) -> Result<*mut ibv_mw, Error> {
    let domain = pd::find(pd)?.own();
    let mw_type = match kind {
        1 => MwType::Type1,
        2 => MwType::Type2,
        _ => return Err(Error::invalid("type", kind, "1 and 2")),
    };
    let context = Arc::clone(&domain.context);
    let device = context.adapter.live()?;
    let info = device.with(|hca| hca.alloc_mw(domain.id, mw_type))?;
    // SAFETY: an object whose memory is never freed.
    let context_pointer = unsafe { (*pd).context };
    let abi = ibv_mw {
        context: context_pointer,
        pd,
        rkey: info.rkey,
        handle: info.id.0,
        r#type: kind,
    };
    let id = info.id;
    Ok(MWS.insert(abi, Mw { context, id }))
}

/// Destroys a memory window (ibv_alloc_mw(3)).
#[border(status)]
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    status("ibv_dealloc_mw", dealloc(mw))
}

fn dealloc(pointer: *mut ibv_mw) -> Result<(), Error> {
    let mw = MWS.find(pointer)?.own();
    mw.context.adapter.end(|hca| hca.dealloc_mw(mw.id))?;
    MWS.remove(pointer);
    Ok(())
}

/// Destroys what a closing context has left.
pub(crate) fn close(context: &ContextRef) {
    for mw in MWS.all() {
        if Arc::ptr_eq(&mw.own().context, context) {
            // Nothing more can be done about one that stays.
            let _ = dealloc(mw.abi());
        }
    }
}

pub(crate) fn permissions(info: &ibv_mw_bind_info) -> Result<RegFlags, Error> {
    Ok(RegFlags::from_bits(info.mw_access_flags)?)
}

/// The bind of a window of type 2, as a work request of a queue pair of the context. The program chose the key
/// and so knows it: `rkey` in its window stays what the program last wrote there.
pub(crate) fn bind_request(used_in: &ContextRef, bind: &WrBindMw) -> Result<SendOp, Error> {
    let window = MWS.get(bind.mw)?.own();
    context::check_same("memory window", &window.context, used_in)?;
    let info = &bind.bind_info;
    let flags = permissions(info)?;
    Ok(SendOp::BindMw(MwBind {
        // The pointer says which window it is, so only the tag of the program's key counts, as with
        // the libraries of cards.
        rkey: window.id.key(bind.rkey as u8),
        lkey: mr::key(info.mr, used_in)?.map_or(0, ferroce_device::MrKey::lkey),
        va: info.addr,
        length: info.length,
        access: flags.access,
        zero_based: flags.zero_based,
    }))
}
