//! Contexts: a device as one opener sees it.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::os::fd::IntoRawFd;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Arc;
use std::thread::available_parallelism;

use ferroce_hca::limits;

use crate::abi::{
    IBV_VALUES_MASK_RAW_CLOCK, VERBS_ABI_IS_EXTENDED, ibv_context, ibv_context_ops, ibv_device,
    ibv_device_attr, ibv_device_attr_ex, ibv_values_ex, verbs_context,
};
use crate::adapter::{self, Adapter, text};
use crate::arena::Arena;
use crate::error::{Error, pointer, status};
use crate::events::{AsyncQueue, close_channels};
use crate::{cq, cq_ex, domain, mr, pd, port, post, qp};

/// What belongs to a context.
pub(crate) struct Context {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) events: Arc<AsyncQueue>,
    async_fd: c_int,
}

/// The context that an object was made in.
pub(crate) type ContextRef = Arc<Context>;

static CONTEXTS: Arena<verbs_context, ContextRef> = Arena::new("context");

/// The context behind a program's pointer.
pub(crate) fn find(context: *const ibv_context) -> Result<ContextRef, Error> {
    CONTEXTS
        .find(around(context))
        .map(|object| Arc::clone(object.own()))
}

/// The structure whose last field a program points to.
fn around(context: *const ibv_context) -> *mut verbs_context {
    context
        .wrapping_byte_sub(offset_of!(verbs_context, context))
        .cast_mut()
        .cast()
}

/// Opens a device (ibv_open_device(3)).
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    pointer("ibv_open_device", open(device))
}

fn open(device: *mut ibv_device) -> Result<*mut ibv_context, Error> {
    let listed = adapter::find(device)?;
    let adapter = Adapter::attach(listed)?;
    let (events, public) = AsyncQueue::new()?;
    // The program never reads from it; it exists so that a program may close or inherit it.
    let command = public.try_clone()?;
    let events = Arc::new(events);
    adapter::write(&adapter.routes.contexts).push(Arc::downgrade(&events));
    let async_fd = public.into_raw_fd();
    let context = ibv_context {
        device,
        ops: operations(),
        cmd_fd: command.into_raw_fd(),
        async_fd,
        num_comp_vectors: available_parallelism().map_or(1, |n| n.get() as c_int),
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        abi_compat: with_exposed_provenance_mut(VERBS_ABI_IS_EXTENDED),
    };
    let own = Arc::new(Context {
        adapter,
        events,
        async_fd,
    });
    let outer = CONTEXTS.insert(extended(context), own);
    // SAFETY: just made.
    Ok(unsafe { &raw mut (*outer).context })
}

fn operations() -> ibv_context_ops {
    ibv_context_ops {
        compat_0: [null_mut(); 7],
        alloc_mw: None,
        bind_mw: None,
        dealloc_mw: None,
        compat_create_cq: null_mut(),
        poll_cq: Some(cq::poll_cq),
        req_notify_cq: Some(cq::req_notify_cq),
        compat_1: [null_mut(); 7],
        post_srq_recv: None,
        compat_2: [null_mut(); 4],
        post_send: Some(post::post_send),
        post_recv: Some(post::post_recv),
        compat_3: [null_mut(); 5],
    }
}

fn extended(context: ibv_context) -> verbs_context {
    verbs_context {
        query_port: Some(port::query_port),
        advise_mr: None,
        alloc_null_mr: None,
        read_counters: null_mut(),
        attach_counters_point_flow: null_mut(),
        create_counters: null_mut(),
        destroy_counters: null_mut(),
        reg_dm_mr: None,
        alloc_dm: None,
        free_dm: None,
        modify_flow_action_esp: null_mut(),
        destroy_flow_action: null_mut(),
        create_flow_action_esp: null_mut(),
        modify_qp_rate_limit: null_mut(),
        alloc_parent_domain: Some(domain::alloc_parent_domain),
        dealloc_td: Some(domain::dealloc_td),
        alloc_td: Some(domain::alloc_td),
        modify_cq: None,
        post_srq_ops: null_mut(),
        destroy_rwq_ind_table: null_mut(),
        create_rwq_ind_table: null_mut(),
        destroy_wq: null_mut(),
        modify_wq: null_mut(),
        create_wq: null_mut(),
        query_rt_values: Some(query_rt_values),
        create_cq_ex: Some(cq_ex::create_cq_ex),
        priv_: null_mut(),
        query_device_ex: Some(query_device_ex),
        destroy_flow: null_mut(),
        placeholder_2: null_mut(),
        create_flow: null_mut(),
        placeholder_1: null_mut(),
        open_qp: None,
        create_qp_ex: Some(qp::create_qp_ex),
        get_srq_num: None,
        create_srq_ex: None,
        open_xrcd: None,
        close_xrcd: None,
        placeholder_3: 0,
        sz: size_of::<verbs_context>(),
        context,
    }
}

/// Closes a context and destroys on the device what was made in it (ibv_open_device(3)).
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    status("ibv_close_device", close(context))
}

fn close(context: *mut ibv_context) -> Result<(), Error> {
    let own = find(context)?;
    qp::close(&own);
    mr::close(&own);
    cq::close(&own);
    pd::close(&own);
    domain::close(&own);
    close_channels(&own);
    let outer = around(context);
    // SAFETY: a live context.
    let command = unsafe { (*outer).context.cmd_fd };
    if CONTEXTS.remove(outer).is_some() {
        // SAFETY: both were made for the program and are the context's to close.
        unsafe {
            libc::close(command);
            libc::close(own.async_fd);
        }
    }
    Ok(())
}

/// The device's limits (ibv_query_device(3)).
pub unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    let result = find(context).map(|own| {
        // SAFETY: the program's own structure.
        unsafe { attr.write(device_attr(&own.adapter)) }
    });
    status("ibv_query_device", result)
}

/// The device's limits, with what came later, as far as `attr_size` reaches
/// (ibv_query_device_ex(3)).
unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    _input: *const c_void,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    let result = find(context).and_then(|own| {
        if attr_size < size_of::<ibv_device_attr>() {
            let allowed = "the size of ibv_device_attr or more";
            return Err(Error::invalid("attr_size", attr_size, allowed));
        }
        let known = device_attr_ex(&own.adapter);
        let length = attr_size.min(size_of::<ibv_device_attr_ex>());
        // SAFETY: the program's own structure of `attr_size` bytes; what it has beyond ours is
        // zeroed.
        unsafe {
            attr.cast::<u8>().write_bytes(0, attr_size);
            attr.cast::<u8>()
                .copy_from_nonoverlapping((&raw const known).cast(), length);
        }
        Ok(())
    });
    status("ibv_query_device_ex", result)
}

/// What the device's clock shows (ibv_query_rt_values_ex(3)): as with other cards, the counter that
/// timestamps are taken from, all of it in `tv_nsec`.
unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    let result = find(context).and_then(|own| {
        // SAFETY: the program's own structure.
        let values = unsafe { &mut *values };
        if values.comp_mask & !IBV_VALUES_MASK_RAW_CLOCK != 0 {
            return Err(Error::Unsupported("a value in comp_mask"));
        }
        if values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK != 0 {
            values.raw_clock.tv_sec = 0;
            values.raw_clock.tv_nsec = own.adapter.device.now().as_nanos() as _;
        }
        Ok(())
    });
    status("ibv_query_rt_values_ex", result)
}

fn device_attr_ex(adapter: &Adapter) -> ibv_device_attr_ex {
    let orig_attr = device_attr(adapter);
    // SAFETY: all fields are numbers, for which zero is a value.
    let zero: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
    ibv_device_attr_ex {
        orig_attr,
        completion_timestamp_mask: u64::MAX,
        // The device's clock counts nanoseconds; the field is in kHz.
        hca_core_clock: 1_000_000,
        device_cap_flags_ex: orig_attr.device_cap_flags.into(),
        phys_port_cnt_ex: 1,
        ..zero
    }
}

fn int(value: impl TryInto<c_int>) -> c_int {
    value.try_into().unwrap_or(c_int::MAX)
}

/// `IBV_DEVICE_PORT_ACTIVE_EVENT`, `SYS_IMAGE_GUID`, `RC_RNR_NAK_GEN`, `CURR_QP_STATE_MOD`.
const CAPABILITIES: u32 = 1 << 10 | 1 << 11 | 1 << 12 | 1 << 7;

fn device_attr(adapter: &Adapter) -> ibv_device_attr {
    let spec = &adapter.listed.spec;
    let guid = spec.guid().to_be();
    let config = adapter.device.with(|hca| *hca.config());
    ibv_device_attr {
        fw_ver: text(&spec.fw_ver),
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: u64::MAX,
        page_size_cap: !0xfff,
        vendor_id: spec.vendor_id,
        vendor_part_id: spec.vendor_part_id,
        hw_ver: spec.hw_ver,
        max_qp: int(config.max_qp),
        max_qp_wr: int(limits::MAX_WR),
        device_cap_flags: CAPABILITIES,
        max_sge: int(limits::MAX_SGE),
        max_sge_rd: int(limits::MAX_SGE),
        max_cq: int(limits::MAX_CQ),
        max_cqe: int(limits::MAX_CQE),
        max_mr: int(limits::MAX_MR),
        max_pd: int(limits::MAX_PD),
        max_qp_rd_atom: limits::MAX_RD_ATOMIC.into(),
        max_ee_rd_atom: 0,
        max_res_rd_atom: int(u64::from(config.max_qp) * u64::from(limits::MAX_RD_ATOMIC)),
        max_qp_init_rd_atom: limits::MAX_RD_ATOMIC.into(),
        max_ee_init_rd_atom: 0,
        // Atomic also against the processors of this host: IBV_ATOMIC_GLOB.
        atomic_cap: 2,
        max_ee: 0,
        max_rdd: 0,
        max_mw: 0,
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: int(limits::MAX_MCAST_GRP),
        max_mcast_qp_attach: int(limits::MAX_MCAST_QP_ATTACH),
        max_total_mcast_qp_attach: int(limits::MAX_MCAST_GRP * limits::MAX_MCAST_QP_ATTACH),
        max_ah: c_int::MAX,
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: int(limits::MAX_SRQ),
        max_srq_wr: int(limits::MAX_WR),
        max_srq_sge: int(limits::MAX_SGE),
        max_pkeys: 1,
        local_ca_ack_delay: spec.ca_ack_delay,
        phys_port_cnt: 1,
    }
}
