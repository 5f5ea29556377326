//! The device's capabilities.

use std::ffi::{c_int, c_void};

use ferroce_abi::border;
use ferroce_abi::pointer::{check, put};
use ferroce_device::limits;

use crate::abi::{ibv_context, ibv_device_attr, ibv_device_attr_ex, ibv_odp_caps};
use crate::adapter::Adapter;
use crate::context;
use crate::devices::text;
use crate::error::{Error, status};

/// The device's limits (ibv_query_device(3)).
#[border(status)]
pub unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    let result = context::find(context).and_then(|own| {
        // SAFETY: null or a structure of the program that may be written to.
        unsafe { put("device_attr", attr, device_attr(&own.adapter)) }.map_err(Error::from)
    });
    status("ibv_query_device", result)
}

/// The device's limits, with what came later, as far as `attr_size` reaches
/// (ibv_query_device_ex(3)).
#[border(status)]
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    _input: *const c_void,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    let result = context::find(context).and_then(|own| {
        if attr_size < size_of::<ibv_device_attr>() {
            let allowed = "the size of ibv_device_attr or more";
            return Err(Error::invalid("attr_size", attr_size, allowed));
        }
        check("attr", attr)?;
        let known = device_attr_ex(&own.adapter);
        let length = attr_size.min(size_of::<ibv_device_attr_ex>());
        // SAFETY: not null, and `attr_size` bytes may be written to; those beyond our structure are
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

fn device_attr_ex(adapter: &Adapter) -> ibv_device_attr_ex {
    let orig_attr = device_attr(adapter);
    // SAFETY: all fields are numbers, for which zero is a value.
    let zero: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
    ibv_device_attr_ex {
        orig_attr,
        odp_caps: ibv_odp_caps {
            general_caps: limits::ODP_GENERAL_CAPS,
            rc_odp_caps: limits::ODP_RC_CAPS,
            uc_odp_caps: limits::ODP_UC_CAPS,
            ud_odp_caps: limits::ODP_UD_CAPS,
        },
        completion_timestamp_mask: limits::TIMESTAMP_MASK,
        hca_core_clock: limits::CORE_CLOCK_KHZ,
        device_cap_flags_ex: orig_attr.device_cap_flags.into(),
        max_dm_size: limits::MAX_DM_SIZE,
        xrc_odp_caps: limits::ODP_RC_CAPS,
        phys_port_cnt_ex: orig_attr.phys_port_cnt.into(),
        ..zero
    }
}

fn int(value: impl TryInto<c_int>) -> c_int {
    value.try_into().unwrap_or(c_int::MAX)
}

fn device_attr(adapter: &Adapter) -> ibv_device_attr {
    let spec = &adapter.listed.spec;
    let guid = spec.guid().to_be();
    let objects = adapter.device.with(|hca| hca.config().limits);
    // SAFETY: all fields are numbers, for which zero is a value.
    let zero: ibv_device_attr = unsafe { std::mem::zeroed() };
    ibv_device_attr {
        fw_ver: text(&spec.fw_ver),
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: limits::MAX_MR_SIZE,
        page_size_cap: limits::PAGE_SIZE_CAP,
        vendor_id: spec.vendor_id,
        vendor_part_id: spec.vendor_part_id,
        hw_ver: spec.hw_ver,
        max_qp: int(objects.max_qp),
        max_qp_wr: int(limits::MAX_WR),
        device_cap_flags: limits::DEVICE_CAP_FLAGS,
        max_sge: int(limits::MAX_SGE),
        max_sge_rd: int(limits::MAX_SGE),
        max_cq: int(objects.max_cq),
        max_cqe: int(limits::MAX_CQE),
        max_mr: int(objects.max_mr),
        max_pd: int(objects.max_pd),
        max_qp_rd_atom: limits::MAX_RD_ATOMIC.into(),
        max_res_rd_atom: int(objects.max_res_rd_atomic()),
        max_qp_init_rd_atom: limits::MAX_RD_ATOMIC.into(),
        atomic_cap: int(limits::ATOMIC_CAP),
        max_mw: int(objects.max_mw),
        max_mcast_grp: int(objects.max_mcast_grp),
        max_mcast_qp_attach: int(objects.max_mcast_qp_attach),
        max_total_mcast_qp_attach: int(objects.max_total_mcast_qp_attach()),
        max_ah: int(limits::MAX_AH),
        max_srq: int(objects.max_srq),
        max_srq_wr: int(limits::MAX_SRQ_WR),
        max_srq_sge: int(limits::MAX_SGE),
        max_pkeys: limits::MAX_PKEYS,
        local_ca_ack_delay: spec.ca_ack_delay,
        phys_port_cnt: adapter.device.ports(),
        ..zero
    }
}
