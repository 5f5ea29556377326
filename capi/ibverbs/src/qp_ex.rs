//! The `ibv_wr_*` functions: work requests composed call by call (ibv_wr_post(3)).

use std::ffi::{c_int, c_void};

use ferroce_abi::border;
use ferroce_abi::border::uncancelled;
use ferroce_abi::pointer::{change as modify, check, read};
use ferroce_device::{SendFlags, SendOp, SendWr, Sge, Sges};
use ferroce_fault::Target;

use crate::abi::{
    IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_BIND_MW, IBV_QP_EX_WITH_LOCAL_INV,
    IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
    IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_QP_EX_WITH_SEND_WITH_INV,
    IBV_QP_INIT_ATTR_CREATE_FLAGS, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
    IBV_QP_INIT_ATTR_XRCD, IBV_QPT_UD, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND, WrBindMw, ibv_ah,
    ibv_context, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_qp_ex, ibv_qp_init_attr_ex,
    ibv_sge,
};
use crate::adapter::Adapter;
use crate::error::{Error, pointer, status};
use crate::qp::{self, Batch, Qp, Wanted};
use crate::{ah, chain, convert, mw, xrc_qp};

const OPERATIONS: u64 = IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_SEND_WITH_INV
    | IBV_QP_EX_WITH_LOCAL_INV
    | IBV_QP_EX_WITH_BIND_MW;

/// Makes a queue pair with more attributes (ibv_create_qp_ex(3)).
#[border(pointer)]
pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: null or a structure of the program that nothing else accesses during the call.
    let ex = unsafe { modify("qp_init_attr_ex", init) }.map_err(Error::from);
    pointer(
        "ibv_create_qp_ex",
        ex.and_then(|ex| create_extended(context, ex, Wanted::default())),
    )
}

/// `direct` is what direct verbs ask for.
pub(crate) fn create_extended(
    context: *mut ibv_context,
    ex: &mut ibv_qp_init_attr_ex,
    direct: Wanted,
) -> Result<*mut ibv_qp, Error> {
    const KNOWN: u32 = IBV_QP_INIT_ATTR_PD
        | IBV_QP_INIT_ATTR_XRCD
        | IBV_QP_INIT_ATTR_CREATE_FLAGS
        | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    if ex.comp_mask & !KNOWN != 0 {
        return Err(Error::Unsupported("an attribute in comp_mask"));
    }
    let flags = match ex.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS {
        0 => 0,
        _ => ex.create_flags,
    };
    let may_block = ex.qp_type == IBV_QPT_UD && flags == IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
    if flags != 0 && !may_block {
        return Err(Error::Unsupported("a flag in create_flags"));
    }
    if ex.qp_type == IBV_QPT_XRC_RECV {
        return xrc_qp::create(context, ex);
    }
    let operations = match ex.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS {
        0 => None,
        _ => Some(ex.send_ops_flags),
    };
    if operations.is_some_and(|flags| flags & !OPERATIONS != 0) {
        return Err(Error::Unsupported("an operation in send_ops_flags"));
    }
    // SAFETY: the plain structure is the head of the extended one.
    let init = unsafe { &mut *std::ptr::from_mut(ex).cast() };
    let made = qp::create(ex.pd, init, direct, |base| match operations {
        Some(operations) => extended(base, operations),
        None => ibv_qp_ex::of(base),
    })?;
    if flags != 0 {
        let Qp { context, qpn, .. } = qp::find(made)?.own();
        let Adapter { device, listed, .. } = &*context.adapter;
        device.with(|hca| hca.block_own_mcast(*qpn, listed.spec.address))?;
    }
    Ok(made)
}

/// The queue pair with what the calls on it put together.
///
/// # Safety
/// Between `wr_start` and the call that ends it, on the thread that called it.
unsafe fn batch<'a>(qp: *mut ibv_qp_ex) -> Option<(&'a Qp, &'a mut Batch)> {
    let own = qp::get(qp.cast()).ok()?.own();
    // SAFETY: this thread holds the mutex, as the caller promises, and no other reference lives
    // longer than a call.
    Some((own, unsafe { &mut *own.builder.batch.get() }))
}

/// Begins a request with the `wr_id` and `wr_flags` that the program has set.
///
/// # Safety
/// As for [`batch`].
unsafe fn begin(qp: *mut ibv_qp_ex, op: SendOp) {
    // SAFETY: as the caller promises; the two fields are the program's.
    unsafe {
        let Some((own, batch)) = batch(qp) else {
            return;
        };
        batch.requests.push(SendWr {
            wr_id: (*qp).wr_id,
            to: own.peer(),
            op,
            flags: SendFlags::from_bits_truncate((*qp).wr_flags) - SendFlags::INLINE,
            sges: Sges::new(),
            inline: None,
        });
    }
}

/// Changes the request begun last; an error makes `wr_complete` refuse all.
///
/// # Safety
/// As for [`batch`].
pub(crate) unsafe fn change(
    qp: *mut ibv_qp_ex,
    change: impl FnOnce(&Qp, &mut SendWr) -> Result<(), Error>,
) {
    // SAFETY: as the caller promises.
    let Some((own, batch)) = (unsafe { batch(qp) }) else {
        return;
    };
    let Some(request) = batch.requests.last_mut() else {
        return;
    };
    if let Err(error) = change(own, request) {
        batch.refused.get_or_insert(error);
    }
}

#[border(field)]
unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    let Ok(object) = qp::get(qp.cast()) else {
        return;
    };
    let builder = &object.own().builder;
    // SAFETY: initialised; and with the mutex held the batch is this thread's.
    unsafe {
        libc::pthread_mutex_lock(builder.mutex.get());
        let batch = &mut *builder.batch.get();
        batch.requests.clear();
        batch.refused = None;
    }
}

#[border(quick_status)]
unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: after `wr_start`, as the header requires.
    let Some((own, batch)) = (unsafe { batch(qp) }) else {
        return status("ibv_wr_complete", Err(Error::Handle("queue pair")));
    };
    let result = match batch.refused.take() {
        Some(error) => Err(error),
        None => {
            let met = own.context.adapter.meet(Target::PostSend, Some(own.qpn));
            met.and_then(|()| post_all(own, &mut batch.requests))
        }
    };
    // SAFETY: locked by `wr_start` on this thread.
    unsafe { libc::pthread_mutex_unlock(own.builder.mutex.get()) };
    match result {
        Ok(()) => 0,
        error => uncancelled(|| status("ibv_wr_complete", error)),
    }
}

/// Posts all requests or none.
fn post_all(own: &Qp, requests: &mut Vec<SendWr>) -> Result<(), Error> {
    let device = own.context.adapter.live()?;
    let (posted, departure) = device.post_first(|hca| {
        let max = own.cap.max_send_wr;
        if hca.send_queue_used(own.qpn) + requests.len() > max as usize {
            return Err(ferroce_device::PostError::QueueFull { max }.into());
        }
        hca.post_sends(own.qpn, requests.drain(..))
    });
    if departure.is_some() {
        uncancelled(|| drop(departure));
    }
    Ok(posted?)
}

#[border(field)]
unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: after `wr_start`, as the header requires; so this thread holds the mutex.
    unsafe {
        if let Some((own, batch)) = batch(qp) {
            batch.requests.clear();
            libc::pthread_mutex_unlock(own.builder.mutex.get());
        }
    }
}

/// Defines functions that begin a request.
macro_rules! operations {
    ($($name:ident($($argument:ident: $kind:ty),*) => $op:expr;)*) => {
        $(#[border(field)]
        unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $argument: $kind)*) {
            // SAFETY: after `wr_start`, as the header requires.
            unsafe { begin(qp, $op) }
        })*
    };
}

operations! {
    wr_send() => SendOp::Send { imm: None };
    wr_send_imm(imm: u32) => SendOp::Send { imm: Some(u32::from_be(imm)) };
    wr_send_inv(rkey: u32) => SendOp::SendInvalidate { rkey };
    wr_rdma_write(rkey: u32, va: u64) => SendOp::Write { va, rkey, imm: None };
    wr_rdma_write_imm(rkey: u32, va: u64, imm: u32) =>
        SendOp::Write { va, rkey, imm: Some(u32::from_be(imm)) };
    wr_rdma_read(rkey: u32, va: u64) => SendOp::Read { va, rkey };
    wr_atomic_cmp_swp(rkey: u32, va: u64, compare: u64, swap: u64) =>
        SendOp::CompareSwap { va, rkey, compare, swap };
    wr_atomic_fetch_add(rkey: u32, va: u64, add: u64) => SendOp::FetchAdd { va, rkey, add };
    wr_local_inv(rkey: u32) => SendOp::LocalInvalidate { rkey };
}

#[border(field)]
unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    bind_info: *const ibv_mw_bind_info,
) {
    // SAFETY: after `wr_start`, as the header requires; null or a structure of the program, valid during
    // the call.
    unsafe {
        let Some((own, batch)) = batch(qp) else {
            return;
        };
        let request = read("bind_info", bind_info).map_err(Error::from);
        let request = request.and_then(|bind_info| {
            let bind_info = *bind_info;
            let bind = WrBindMw {
                mw,
                rkey,
                bind_info,
            };
            mw::bind_request(&own.context, &bind)
        });
        match request {
            Ok(op) => begin(qp, op),
            Err(error) => {
                batch.refused.get_or_insert(error);
            }
        }
    }
}

#[border(field)]
unsafe extern "C" fn wr_set_ud_addr(
    qp: *mut ibv_qp_ex,
    ah: *mut ibv_ah,
    remote_qpn: u32,
    remote_qkey: u32,
) {
    // SAFETY: after `wr_start`, as the header requires.
    unsafe {
        change(qp, |own, request| {
            request.to = ah::datagram(own.sender(), ah, remote_qpn, remote_qkey)?;
            Ok(())
        });
    }
}

#[border(field)]
unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, remote_srqn: u32) {
    // SAFETY: after `wr_start`, as the header requires.
    unsafe {
        change(qp, |_, request| {
            request.to = convert::srq(remote_srqn)?;
            Ok(())
        });
    }
}

#[border(field)]
unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: after `wr_start`, as the header requires.
    unsafe {
        change(qp, |_, request| {
            // As with a card, an element without bytes is none.
            if length > 0 {
                request.sges.push(Sge { addr, length, lkey });
            }
            Ok(())
        });
    }
}

#[border(field)]
unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: after `wr_start`, as the header requires.
    unsafe {
        change(qp, |own, request| {
            if count > own.cap.max_send_sge as usize {
                let allowed = "0 to max_send_sge of the queue pair";
                return Err(Error::invalid("num_sge", count, allowed));
            }
            if count > 0 {
                check("sg_list", list.cast_mut())?;
            }
            for index in 0..count {
                request
                    .sges
                    .push(chain::sge(list.add(index).read_unaligned()));
            }
            Ok(())
        });
    }
}

#[border(field)]
unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let buffer = ibv_data_buf { addr, length };
    // SAFETY: after `wr_start`, as the header requires.
    unsafe { wr_set_inline_data_list(qp, 1, &raw const buffer) }
}

#[border(field)]
unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: after `wr_start`, as the header requires, with `count` buffers that are valid for reads.
    unsafe {
        change(qp, |own, request| {
            if count > 0 {
                check("buf_list", list.cast_mut())?;
            }
            let buffers = (0..count).map(|index| list.add(index).read_unaligned());
            let pieces = buffers.map(|buffer| (buffer.addr.cast_const().cast(), buffer.length));
            let max = own.cap.max_inline_data as usize;
            chain::inline(pieces, max, &mut request.inline)?;
            request.flags |= SendFlags::INLINE;
            Ok(())
        });
    }
}

/// A queue pair with `ibv_wr_*` for the `operations` it was made for.
fn extended(base: ibv_qp, operations: u64) -> ibv_qp_ex {
    let has = |bit: u64| operations & bit != 0;
    let datagrams = base.qp_type == IBV_QPT_UD;
    let xrc = base.qp_type == IBV_QPT_XRC_SEND;
    /// The function, if the queue pair has it.
    macro_rules! given {
        ($has:expr, $function:expr) => {
            if $has { Some($function) } else { None }
        };
    }
    ibv_qp_ex {
        wr_atomic_cmp_swp: given!(has(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP), wr_atomic_cmp_swp),
        wr_atomic_fetch_add: given!(
            has(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD),
            wr_atomic_fetch_add
        ),
        wr_bind_mw: given!(has(IBV_QP_EX_WITH_BIND_MW), wr_bind_mw),
        wr_local_inv: given!(has(IBV_QP_EX_WITH_LOCAL_INV), wr_local_inv),
        wr_rdma_read: given!(has(IBV_QP_EX_WITH_RDMA_READ), wr_rdma_read),
        wr_rdma_write: given!(has(IBV_QP_EX_WITH_RDMA_WRITE), wr_rdma_write),
        wr_rdma_write_imm: given!(has(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM), wr_rdma_write_imm),
        wr_send: given!(has(IBV_QP_EX_WITH_SEND), wr_send),
        wr_send_imm: given!(has(IBV_QP_EX_WITH_SEND_WITH_IMM), wr_send_imm),
        wr_send_inv: given!(has(IBV_QP_EX_WITH_SEND_WITH_INV), wr_send_inv),
        wr_set_ud_addr: given!(datagrams, wr_set_ud_addr),
        wr_set_xrc_srqn: given!(xrc, wr_set_xrc_srqn),
        wr_set_inline_data: Some(wr_set_inline_data),
        wr_set_inline_data_list: Some(wr_set_inline_data_list),
        wr_set_sge: Some(wr_set_sge),
        wr_set_sge_list: Some(wr_set_sge_list),
        wr_start: Some(wr_start),
        wr_complete: Some(wr_complete),
        wr_abort: Some(wr_abort),
        ..ibv_qp_ex::of(base)
    }
}

/// The queue pair's `ibv_wr_*` functions, if it was created with them (ibv_qp_to_qp_ex in
/// ibv_wr_post(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    match qp::find(qp) {
        // SAFETY: an object, whose memory is never freed; programs do not write to the field.
        Ok(object) if unsafe { (*object.abi()).wr_start.is_some() } => object.abi(),
        _ => std::ptr::null_mut(),
    }
}
