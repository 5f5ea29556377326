//! Posting work requests: the data path.

use std::ffi::c_int;

use ferroce_abi::border;
use ferroce_abi::border::uncancelled;
use ferroce_abi::pointer::read;
use ferroce_device::{MwBindWr, SendFlags, SendOp, SendWr, limits};
use ferroce_fault::Target;

use crate::abi::{
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, ibv_mw, ibv_mw_bind, ibv_qp, ibv_recv_wr,
    ibv_send_wr,
};
use crate::chain::{Chain, elements, inline, recv_request, sge};
use crate::error::{Error, status};
use crate::{mr, mw, qp};

/// Posts send requests (ibv_post_send(3)).
#[border(quick_status)]
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    let mut chain = Chain::new(wr);
    let posted = (|| {
        let own = qp::get(qp)?.own();
        own.context.adapter.meet(Target::PostSend, Some(own.qpn))?;
        let writer = |wr| move |to: &mut SendWr| send_request(own, wr, to);
        let requests = chain.walk(|wr: &ibv_send_wr| wr.next).map(writer);
        let device = own.context.adapter.live()?;
        let (posted, departure) = device.post_first(|hca| hca.post_sends_by(own.qpn, requests));
        if departure.is_some() {
            uncancelled(|| drop(departure));
        }
        posted
    })();
    // SAFETY: null or a variable of the program that may be written to.
    unsafe { chain.finish("ibv_post_send", posted, bad_wr) }
}

/// Posts receive requests (ibv_post_recv(3)).
#[border(status)]
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut chain = Chain::new(wr);
    let posted = (|| {
        let own = qp::get(qp)?.own();
        own.context.adapter.meet(Target::PostRecv, Some(own.qpn))?;
        let requests = chain.requests(|wr| wr.next, recv_request);
        Ok(own.context.adapter.live()?.post_recvs(own.qpn, requests)?)
    })();
    // SAFETY: null or a variable of the program that may be written to.
    unsafe { chain.finish("ibv_post_recv", posted, bad_wr) }
}

/// Writes a request of the program to its place.
#[inline]
fn send_request(own: &qp::Qp, wr: &ibv_send_wr, to: &mut SendWr) -> Result<(), Box<Error>> {
    to.wr_id = wr.wr_id;
    to.flags = SendFlags::from_bits_truncate(wr.send_flags);
    // SAFETY: an array of `num_sge` elements, and with inline data their bytes, as the header requires.
    unsafe {
        if to.flags.contains(SendFlags::INLINE) {
            let pieces = elements(wr.sg_list, wr.num_sge)?;
            let pieces = pieces.map(|sge| (sge.addr as *const u8, sge.length as usize));
            inline(pieces, limits::MAX_INLINE as usize, &mut to.inline)?;
        } else {
            to.sges.extend(elements(wr.sg_list, wr.num_sge)?.map(sge));
        }
    }
    to.op = operation(own, wr)?;
    to.to = own.destination(&to.op, wr)?;
    Ok(())
}

fn operation(own: &qp::Qp, wr: &ibv_send_wr) -> Result<SendOp, Error> {
    let imm = Some(u32::from_be(wr.imm_data));
    // SAFETY: all members of the union are numbers, or pointers that are not followed here.
    let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
    let (va, rkey) = (rdma.remote_addr, rdma.rkey);
    Ok(match wr.opcode {
        IBV_WR_SEND => SendOp::Send { imm: None },
        IBV_WR_SEND_WITH_IMM => SendOp::Send { imm },
        IBV_WR_SEND_WITH_INV => SendOp::SendInvalidate { rkey: wr.imm_data },
        IBV_WR_RDMA_WRITE => SendOp::Write {
            va,
            rkey,
            imm: None,
        },
        IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::Write { va, rkey, imm },
        IBV_WR_RDMA_READ => SendOp::Read { va, rkey },
        IBV_WR_ATOMIC_CMP_AND_SWP => SendOp::CompareSwap {
            va: atomic.remote_addr,
            rkey: atomic.rkey,
            compare: atomic.compare_add,
            swap: atomic.swap,
        },
        IBV_WR_ATOMIC_FETCH_AND_ADD => SendOp::FetchAdd {
            va: atomic.remote_addr,
            rkey: atomic.rkey,
            add: atomic.compare_add,
        },
        IBV_WR_LOCAL_INV => SendOp::LocalInvalidate { rkey: wr.imm_data },
        IBV_WR_BIND_MW => mw::bind_request(&own.context, &wr.bind_mw)?,
        other => {
            let allowed = "the operations of ibv_wr_opcode that the queue pair has";
            return Err(Error::invalid("opcode", other, allowed));
        }
    })
}

/// Binds a window of type 1 (ibv_bind_mw(3)).
#[border(status)]
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    let bound = (|| {
        let queue_pair = qp::get(qp)?.own();
        let context = &queue_pair.context;
        let window = mw::find_in(mw, context)?;
        // SAFETY: null or a structure of the program, valid during the call.
        let bind = unsafe { read("mw_bind", bind)? };
        let flags = mw::permissions(&bind.bind_info)?;
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
