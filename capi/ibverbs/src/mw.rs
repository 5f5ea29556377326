//! Memory windows.

use std::ffi::c_int;
use std::sync::Arc;

use ferroce_abi::border;
use ferroce_abi::pointer::read;
use ferroce_hca::{MwBind, MwBindWr, MwId, MwType, RegFlags, SendFlags, SendOp};

use crate::abi::{WrBindMw, ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_pd, ibv_qp};
use crate::arena::Arena;
use crate::context::{self, ContextRef};
use crate::error::{Error, pointer, status};
use crate::{mr, pd, qp};

struct Mw {
    context: ContextRef,
    id: MwId,
}

static MWS: Arena<ibv_mw, Mw> = Arena::new("memory window");

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
    // SAFETY: a live object.
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

/// Binds a window of type 1 (ibv_bind_mw(3)).
#[border(status)]
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    let bound = (|| {
        let (queue_pair, window) = (qp::get(qp)?.own(), MWS.find(mw)?);
        let context = &queue_pair.context;
        context::check_same("memory window", &window.own().context, context)?;
        // SAFETY: null or a structure of the program, valid during the call.
        let bind = unsafe { read("mw_bind", bind)? };
        let flags = permissions(&bind.bind_info)?;
        if flags.zero_based {
            let allowed = "without IBV_ACCESS_ZERO_BASED, which is for windows of type 2";
            let given = bind.bind_info.mw_access_flags;
            return Err(Error::invalid("mw_access_flags", given, allowed));
        }
        let request = MwBindWr {
            wr_id: bind.wr_id,
            flags: SendFlags::from_bits_truncate(bind.send_flags),
            mr: mr::key_to_bind(bind.bind_info.mr, context)?,
            va: bind.bind_info.addr,
            length: bind.bind_info.length,
            access: flags.access,
        };
        let device = context.adapter.live()?;
        let posted = device.post(|hca| hca.bind_mw(queue_pair.qpn, window.own().id, &request));
        // SAFETY: a live object; programs only read the field.
        unsafe { (*window.abi()).rkey = posted? };
        Ok(())
    })();
    status("ibv_bind_mw", bound)
}

fn permissions(info: &ibv_mw_bind_info) -> Result<RegFlags, Error> {
    Ok(RegFlags::from_bits(info.mw_access_flags)?)
}

/// The bind of a window of type 2, as a work request of the queue pair. The program chose the key
/// and so knows it: `rkey` in its window stays what the program last wrote there.
pub(crate) fn bind_request(queue_pair: &qp::Qp, bind: &WrBindMw) -> Result<SendOp, Error> {
    let window = MWS.get(bind.mw)?.own();
    context::check_same("memory window", &window.context, &queue_pair.context)?;
    let info = &bind.bind_info;
    let flags = permissions(info)?;
    Ok(SendOp::BindMw(MwBind {
        // The pointer says which window it is, so only the tag of the program's key counts, as with
        // the libraries of cards.
        rkey: window.id.key(bind.rkey as u8),
        lkey: mr::key(info.mr, &queue_pair.context)?.map_or(0, ferroce_hca::MrKey::lkey),
        va: info.addr,
        length: info.length,
        access: flags.access,
        zero_based: flags.zero_based,
    }))
}
