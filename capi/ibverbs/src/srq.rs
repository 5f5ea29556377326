//! Shared receive queues.

use std::ffi::c_int;
use std::sync::Arc;

use ferroce_abi::border;
use ferroce_abi::pointer::{change, put, read};
use ferroce_device::{SrqId, SrqModify, XrcObjects};

use crate::abi::{
    IBV_SRQ_INIT_ATTR_CQ, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQ_INIT_ATTR_XRCD,
    IBV_SRQT_BASIC, IBV_SRQT_XRC, ibv_context, ibv_pd, ibv_recv_wr, ibv_srq, ibv_srq_attr,
    ibv_srq_init_attr, ibv_srq_init_attr_ex,
};
use crate::arena::{Arena, Object};
use crate::chain::{Chain, recv_request};
use crate::context::{self, ContextRef};
use crate::error::{Error, pointer, status};
use crate::events::{Reported, wait_acknowledged};
use crate::routes::{AsyncRoute, write};
use crate::{cq, pd, xrc};

pub(crate) struct Srq {
    context: ContextRef,
    pub(crate) id: SrqId,
    /// Asynchronous events that the program has received.
    pub(crate) reported: Reported,
}

static SRQS: Arena<ibv_srq, Srq> = Arena::new("shared receive queue");

pub(crate) fn find(srq: *const ibv_srq) -> Result<&'static Object<ibv_srq, Srq>, Error> {
    SRQS.find(srq)
}

/// A shared receive queue of the context.
pub(crate) fn find_in(srq: *const ibv_srq, context: &ContextRef) -> Result<SrqId, Error> {
    let srq = find(srq)?.own();
    context::check_same("shared receive queue", &srq.context, context)?;
    Ok(srq.id)
}

/// Makes a shared receive queue and writes the capacities it got back into `init`
/// (ibv_create_srq(3)).
#[border(pointer)]
pub unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY: null or a structure of the program that nothing else accesses during the call.
    let init = unsafe { change("srq_init_attr", init) }.map_err(Error::from);
    pointer(
        "ibv_create_srq",
        init.and_then(|init| create(pd, init, None)),
    )
}

/// The same with more attributes (ibv_create_srq_ex(3)).
#[border(pointer)]
pub(crate) unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: null or a structure of the program that nothing else accesses during the call.
    let ex = unsafe { change("srq_init_attr_ex", init) }.map_err(Error::from);
    pointer("ibv_create_srq_ex", ex.and_then(create_extended))
}

fn create_extended(ex: &mut ibv_srq_init_attr_ex) -> Result<*mut ibv_srq, Error> {
    const BASIC: u32 = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    const XRC: u32 = BASIC | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    let has = |bit| ex.comp_mask & bit != 0;
    let is_xrc = has(IBV_SRQ_INIT_ATTR_TYPE) && ex.srq_type == IBV_SRQT_XRC;
    let is_basic = !has(IBV_SRQ_INIT_ATTR_TYPE) || ex.srq_type == IBV_SRQT_BASIC;
    if !(is_xrc || is_basic) || ex.comp_mask & !XRC != 0 {
        return Err(Error::Unsupported("the type of shared receive queue"));
    }
    if !has(IBV_SRQ_INIT_ATTR_PD) || is_xrc && ex.comp_mask != XRC {
        let allowed = "a protection domain, and for XRC an XRC domain and a CQ, too";
        return Err(Error::invalid("comp_mask", ex.comp_mask, allowed));
    }
    let xrc = match is_xrc {
        true => {
            let context = &pd::find(ex.pd)?.own().context;
            Some(XrcObjects {
                xrcd: xrc::find_in(ex.xrcd, context)?.id,
                cq: cq::find_in(ex.cq, context)?,
            })
        }
        false => None,
    };
    // SAFETY: the plain structure is the head of the extended one.
    let init = unsafe { &mut *std::ptr::from_mut(ex).cast() };
    create(ex.pd, init, xrc)
}

fn create(
    pd: *mut ibv_pd,
    init: &mut ibv_srq_init_attr,
    xrc: Option<XrcObjects>,
) -> Result<*mut ibv_srq, Error> {
    let domain = pd::find(pd)?.own();
    let own = Arc::clone(&domain.context);
    let ibv_srq_attr {
        max_wr, max_sge, ..
    } = init.attr;
    // Other cards give the least there is if nothing is asked for.
    let (max_wr, max_sge) = (max_wr.max(1), max_sge.max(1));
    let live = own.adapter.live()?;
    live.join()?;
    let made = live.with(|hca| {
        let id = match xrc {
            Some(xrc) => hca.create_xrc_srq(domain.id, xrc, max_wr, max_sge)?,
            None => hca.create_srq(domain.id, max_wr, max_sge)?,
        };
        hca.query_srq(id).map(|attr| (id, attr))
    });
    let (id, granted) = made?;
    (init.attr.max_wr, init.attr.max_sge) = (granted.max_wr, granted.max_sge);
    // SAFETY: an object whose memory is never freed.
    let context = unsafe { (*pd).context };
    let abi = ibv_srq {
        context,
        srq_context: init.srq_context,
        pd,
        handle: id.0,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    let reported = Reported::default();
    let (queue, routes) = (Arc::clone(&own.events), Arc::clone(&own.adapter.routes));
    let srq = Srq {
        context: own,
        id,
        reported: Arc::clone(&reported),
    };
    let pointer = SRQS.insert(abi, srq);
    let route = AsyncRoute {
        queue,
        element: pointer as u64,
        reported,
    };
    write(&routes.srqs).insert(id, route);
    Ok(pointer)
}

/// Changes capacity and limit: all that is asked for, or on error nothing (ibv_modify_srq(3)).
#[border(status)]
pub unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    attr_mask: c_int,
) -> c_int {
    const MAX_WR: c_int = 1;
    const LIMIT: c_int = 1 << 1;
    let result = find(srq).and_then(|object| {
        let own = object.own();
        if attr_mask & !(MAX_WR | LIMIT) != 0 {
            let allowed = "IBV_SRQ_MAX_WR and IBV_SRQ_LIMIT";
            return Err(Error::invalid("srq_attr_mask", attr_mask as u32, allowed));
        }
        // SAFETY: null or a structure of the program, valid during the call.
        let attr = unsafe { read("srq_attr", attr)? };
        let change = SrqModify {
            max_wr: (attr_mask & MAX_WR != 0).then_some(attr.max_wr),
            limit: (attr_mask & LIMIT != 0).then_some(attr.srq_limit),
        };
        let device = own.context.adapter.live()?;
        Ok(device.with(|hca| hca.modify_srq(own.id, &change))?)
    });
    status("ibv_modify_srq", result)
}

/// Capacity and limit (ibv_query_srq(3)).
#[border(status)]
pub unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    let result = find(srq).and_then(|object| {
        let own = object.own();
        let known = own
            .context
            .adapter
            .live()?
            .with(|hca| hca.query_srq(own.id))?;
        let known = ibv_srq_attr {
            max_wr: known.max_wr,
            max_sge: known.max_sge,
            srq_limit: known.limit,
        };
        // SAFETY: null or a structure of the program that may be written to.
        unsafe { put("srq_attr", attr, known) }.map_err(Error::from)
    });
    status("ibv_query_srq", result)
}

/// The number by which peers name the queue (ibv_get_srq_num(3)).
#[border(status)]
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    let result = find(srq).and_then(|object| {
        let own = object.own();
        let device = own.context.adapter.live()?;
        let known = device.with(|hca| hca.srq_number(own.id))?;
        // SAFETY: null or a variable of the program that may be written to.
        unsafe { put("srq_num", number, known.value()) }.map_err(Error::from)
    });
    status("ibv_get_srq_num", result)
}

/// Destroys a queue that no queue pair uses, after its events were acknowledged
/// (ibv_create_srq(3)).
#[border(status)]
pub unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    status("ibv_destroy_srq", destroy(srq, true))
}

fn destroy(pointer: *mut ibv_srq, wait: bool) -> Result<(), Error> {
    let srq = find(pointer)?.own();
    let adapter = &srq.context.adapter;
    let is_live = adapter.end(|hca| hca.destroy_srq(srq.id))?;
    if is_live && let Some(route) = write(&adapter.routes.srqs).remove(&srq.id) {
        route.queue.withdraw(|event| event.element == route.element);
    }
    if is_live && wait {
        // SAFETY: a live object with an initialised mutex and condition.
        unsafe {
            wait_acknowledged(
                &raw mut (*pointer).mutex,
                &raw mut (*pointer).cond,
                &raw const (*pointer).events_completed,
                &srq.reported,
            );
        }
    }
    SRQS.remove(pointer);
    Ok(())
}

/// Destroys what a closing context has left.
pub(crate) fn close(context: &ContextRef) {
    for srq in SRQS.all() {
        if Arc::ptr_eq(&srq.own().context, context) {
            // In use by another context: it goes when that one does.
            let _ = destroy(srq.abi(), false);
        }
    }
}

/// Posts receive requests (ibv_post_srq_recv(3)).
#[border(status)]
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut chain = Chain::new(wr);
    let posted = (|| {
        let own = SRQS.get(srq)?.own();
        let requests = chain.requests(|wr| wr.next, recv_request);
        let device = own.context.adapter.live()?;
        Ok(device.post_srq_recvs(own.id, requests)?)
    })();
    // SAFETY: null or a variable of the program that may be written to.
    unsafe { chain.finish("ibv_post_srq_recv", posted, bad_wr) }
}
