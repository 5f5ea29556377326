//! Completion queues that are read field by field (ibv_create_cq_ex(3)).

use std::ffi::{c_int, c_uint};

use ferroce_abi::border;
use ferroce_abi::border::uncancelled;
use ferroce_abi::pointer::read;
use ferroce_device::{Completion, CqInit, WcOpcode};
use ferroce_wire::Qpn;

use crate::abi::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CQ_INIT_ATTR_MASK_PD, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED, IBV_WC_EX_WITH_BYTE_LEN,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    IBV_WC_EX_WITH_DLID_PATH_BITS, IBV_WC_EX_WITH_IMM, IBV_WC_EX_WITH_QP_NUM, IBV_WC_EX_WITH_SL,
    IBV_WC_EX_WITH_SLID, IBV_WC_EX_WITH_SRC_QP, ibv_context, ibv_cq, ibv_cq_ex,
    ibv_cq_init_attr_ex, ibv_poll_cq_attr,
};
use crate::cq::{self, Cq, Wanted, imm_data};
use crate::error::{Error, pointer, tell};
use crate::{context, pd};

/// What the readers can tell: no VLAN, flow tag or tag matching.
const READERS: u64 = IBV_WC_EX_WITH_BYTE_LEN
    | IBV_WC_EX_WITH_IMM
    | IBV_WC_EX_WITH_QP_NUM
    | IBV_WC_EX_WITH_SRC_QP
    | IBV_WC_EX_WITH_SLID
    | IBV_WC_EX_WITH_SL
    | IBV_WC_EX_WITH_DLID_PATH_BITS
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

/// Makes a completion queue (ibv_create_cq_ex(3)).
#[border(pointer)]
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    init: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: null or a structure of the program, valid during the call.
    let init = unsafe { read("cq_attr", init) }.map_err(Error::from);
    let made = init.and_then(|init| create(context, init));
    pointer("ibv_create_cq_ex", made)
}

pub(crate) fn create(
    context: *mut ibv_context,
    init: &ibv_cq_init_attr_ex,
) -> Result<*mut ibv_cq_ex, Error> {
    let wanted = wanted(context, init)?;
    cq::create(context, &wanted, |cq| extended(cq, init.wc_flags))
}

fn wanted(context: *mut ibv_context, init: &ibv_cq_init_attr_ex) -> Result<Wanted, Error> {
    if init.wc_flags & !READERS != 0 {
        return Err(Error::Unsupported("a field of completions in wc_flags"));
    }
    if init.comp_mask & !(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) != 0 {
        return Err(Error::Unsupported("an attribute in comp_mask"));
    }
    let flags = match init.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS {
        0 => 0,
        _ => init.flags,
    };
    const KNOWN: u32 = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    if flags & !KNOWN != 0 {
        return Err(Error::Unsupported("a flag in flags"));
    }
    if init.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD != 0 {
        pd::find_parent(init.parent_domain, &context::find(context)?)?;
    }
    Ok(Wanted {
        init: CqInit {
            capacity: init.cqe,
            ignore_overrun: flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN != 0,
        },
        cq_context: init.cq_context,
        channel: init.channel,
        comp_vector: init.comp_vector,
        single_threaded: flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0,
    })
}

/// The structure that programs see, with the functions for the fields they asked for.
fn extended(cq: ibv_cq, wc_flags: u64) -> ibv_cq_ex {
    macro_rules! readers {
        ($($field:ident: $flag:expr),*) => {
            ibv_cq_ex {
                start_poll: Some(start_poll),
                next_poll: Some(next_poll),
                end_poll: Some(end_poll),
                read_opcode: Some(read_opcode),
                read_vendor_err: Some(read_vendor_err),
                read_wc_flags: Some(read_wc_flags),
                $($field: (wc_flags & $flag != 0).then_some($field as _),)*
                ..ibv_cq_ex::of(cq)
            }
        };
    }
    readers! {
        read_byte_len: IBV_WC_EX_WITH_BYTE_LEN,
        read_imm_data: IBV_WC_EX_WITH_IMM,
        read_qp_num: IBV_WC_EX_WITH_QP_NUM,
        read_src_qp: IBV_WC_EX_WITH_SRC_QP,
        read_slid: IBV_WC_EX_WITH_SLID,
        read_sl: IBV_WC_EX_WITH_SL,
        read_dlid_path_bits: IBV_WC_EX_WITH_DLID_PATH_BITS,
        read_completion_ts: IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
        read_completion_wallclock_ns: IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK
    }
}

/// Takes a completion, and the queue for this thread if there is one.
#[border(quick_status)]
unsafe extern "C" fn start_poll(queue: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    const CALL: &str = "ibv_start_poll";
    // SAFETY: null, or a structure of the program, valid during the call.
    let mask = unsafe { attr.as_ref() }.map_or(0, |attr| attr.comp_mask);
    let found = match mask {
        0 => cq::get(queue),
        _ => Err(Error::invalid("comp_mask", mask, "0")),
    };
    if found.as_ref().is_ok_and(|object| object.own().is_idle()) {
        return libc::ENOENT;
    }
    let started = |cq: &Cq| {
        cq.poller.enter();
        let outcome = advance(CALL, queue, cq);
        if outcome != 0 {
            cq.poller.leave();
        }
        outcome
    };
    uncancelled(|| match found {
        Ok(object) => started(object.own()),
        Err(error) => tell(CALL, &error),
    })
}

/// Takes another one.
#[border(status)]
unsafe extern "C" fn next_poll(queue: *mut ibv_cq_ex) -> c_int {
    const CALL: &str = "ibv_next_poll";
    cq::get(queue).map_or_else(
        |error| tell(CALL, &error),
        |object| advance(CALL, queue, object.own()),
    )
}

#[border(field)]
unsafe extern "C" fn end_poll(queue: *mut ibv_cq_ex) {
    if let Ok(object) = cq::get(queue) {
        object.own().poller.leave();
    }
}

/// 0, or that there is no completion, which is not an error to report.
fn advance(call: &str, queue: *mut ibv_cq_ex, cq: &Cq) -> c_int {
    let taken = cq::take(cq, 1, |completion| {
        // SAFETY: a live object, in the hands of one thread.
        unsafe {
            (*queue).wr_id = completion.wr_id;
            (*queue).status = completion.status as c_int;
            *cq.poller.current.get() = completion;
        }
    });
    match taken {
        Ok(0) => libc::ENOENT,
        Ok(_) => 0,
        Err(error) => tell(call, &error),
    }
}

/// The completion at hand.
fn current(queue: *const ibv_cq_ex) -> Completion {
    match cq::get(queue) {
        // SAFETY: between its `ibv_start_poll` and `ibv_end_poll` the calling thread alone is here.
        Ok(object) => unsafe { *object.own().poller.current.get() },
        Err(error) => {
            tell("ibv_wc_read", &error);
            Completion::success(0, WcOpcode::Send, Qpn::new(0))
        }
    }
}

#[border(field)]
unsafe extern "C" fn read_opcode(queue: *mut ibv_cq_ex) -> c_int {
    current(queue).opcode as c_int
}

#[border(field)]
unsafe extern "C" fn read_vendor_err(queue: *mut ibv_cq_ex) -> u32 {
    current(queue).vendor_err
}

#[border(field)]
unsafe extern "C" fn read_byte_len(queue: *mut ibv_cq_ex) -> u32 {
    current(queue).byte_len
}

#[border(field)]
unsafe extern "C" fn read_imm_data(queue: *mut ibv_cq_ex) -> u32 {
    imm_data(&current(queue))
}

#[border(field)]
unsafe extern "C" fn read_qp_num(queue: *mut ibv_cq_ex) -> u32 {
    current(queue).qpn.value()
}

#[border(field)]
unsafe extern "C" fn read_src_qp(queue: *mut ibv_cq_ex) -> u32 {
    current(queue).src_qp.value()
}

#[border(field)]
unsafe extern "C" fn read_wc_flags(queue: *mut ibv_cq_ex) -> c_uint {
    current(queue).flags.bits()
}

/// RoCE has no LIDs.
#[border(field)]
unsafe extern "C" fn read_slid(_queue: *mut ibv_cq_ex) -> u32 {
    0
}

#[border(field)]
unsafe extern "C" fn read_sl(queue: *mut ibv_cq_ex) -> u8 {
    let completion = current(queue);
    cq::get(queue).map_or(0, |object| cq::service_level(object.own(), &completion))
}

#[border(field)]
unsafe extern "C" fn read_dlid_path_bits(_queue: *mut ibv_cq_ex) -> u8 {
    0
}

/// When the device made the completion, in nanoseconds of its clock.
#[border(field)]
unsafe extern "C" fn read_completion_ts(queue: *mut ibv_cq_ex) -> u64 {
    current(queue).timestamp.as_nanos()
}

/// The same in nanoseconds since 1970.
#[border(field)]
unsafe extern "C" fn read_completion_wallclock_ns(queue: *mut ibv_cq_ex) -> u64 {
    let Ok(object) = cq::get(queue) else {
        return 0;
    };
    let clock = object.own().context.adapter.wall_clock;
    clock.at(current(queue).timestamp)
}
