//! Direct verbs of ConnectX cards (mlx5dv(7)): those that need no card, which are the dynamically
//! connected transport and what programs call on the way to it. The library that programs load for
//! them, `libmlx5.so.1`, leads here, and refuses all others.

mod cq;
mod qp;

use std::ffi::c_int;
use std::mem::zeroed;
use std::sync::OnceLock;

use ferroce_abi::border;
use ferroce_abi::pointer::{change, check, put, read};
use ferroce_device::{Hca, QpType, limits};
use ferroce_runtime::Device;

pub use self::cq::mlx5dv_create_cq;
pub use self::qp::{mlx5dv_create_qp, mlx5dv_qp_ex_from_ibv_qp_ex};
use crate::abi::{
    MLX5DV_CONTEXT_MASK_DC_ODP_CAPS, MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM,
    MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS, MLX5DV_CONTEXT_MASK_OOO_RECV_WRS,
    MLX5DV_QUERY_PORT_VPORT_VHCA_ID, ibv_context, ibv_device, ibv_qp, mlx5dv_context,
    mlx5dv_context_attr, mlx5dv_ooo_recv_wrs_caps, mlx5dv_port,
};
use crate::error::{Error, pointer, status};
use crate::{context, convert, devices, open, qp as queue_pair};

/// Whether a device is one of libmlx5 (mlx5dv_is_supported(3)): only with `FERROCE_MLX5DV=1`. Programs
/// that find such a device, UCX above all, go on to a card's own queues, which these devices do not
/// have.
#[border(value)]
pub unsafe extern "C" fn mlx5dv_is_supported(device: *mut ibv_device) -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    let wanted = || std::env::var_os("FERROCE_MLX5DV").is_some_and(|value| value == "1");
    *WANTED.get_or_init(wanted) && devices::find(device).is_ok()
}

/// Opens a device (mlx5dv_open_device(3)).
#[border(pointer)]
pub unsafe extern "C" fn mlx5dv_open_device(
    device: *mut ibv_device,
    attr: *mut mlx5dv_context_attr,
) -> *mut ibv_context {
    // SAFETY: null or a structure of the program, valid during the call.
    let attr = unsafe { read("attr", attr) }.map_err(Error::from);
    let opened = attr.and_then(|attr| {
        if attr.flags != 0 {
            return Err(Error::Unsupported("a flag in flags (DEVX)"));
        }
        if attr.comp_mask != 0 {
            return Err(Error::Unsupported("an attribute in comp_mask"));
        }
        open::open(device)
    });
    pointer("mlx5dv_open_device", opened)
}

/// The capabilities that `comp_mask` asks for and the device has (mlx5dv_query_device(3)). No field is
/// filled only to say that the device lacks something: perftest asks with bits that it has not set, and
/// its structure may end before a newer field.
#[border(status)]
pub unsafe extern "C" fn mlx5dv_query_device(
    context: *mut ibv_context,
    attrs: *mut mlx5dv_context,
) -> c_int {
    let result = context::find(context).and_then(|own| {
        check("attrs_out", attrs)?;
        let relaxes = |hca: &mut Hca| hca.can_route_adaptively(QpType::Rc);
        let newer = match own.adapter.device.with(relaxes) {
            true => MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM | MLX5DV_CONTEXT_MASK_OOO_RECV_WRS,
            false => MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM,
        };
        // SAFETY: not null, and a structure of the program that may be written to. It has the fields
        // that its `comp_mask` names.
        unsafe {
            let asked = (*attrs).comp_mask;
            // Bits that release 65 does not know show that the program has set none.
            let newer = match asked < MLX5DV_CONTEXT_MASK_OOO_RECV_WRS << 1 {
                true => newer,
                false => 0,
            };
            let caps = MLX5DV_CONTEXT_MASK_DC_ODP_CAPS | MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS | newer;
            let known = asked & caps;
            if known & MLX5DV_CONTEXT_MASK_DC_ODP_CAPS != 0 {
                (*attrs).dc_odp_caps = limits::ODP_RC_CAPS;
            }
            if known & MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS != 0 {
                (*attrs).num_lag_ports = own.adapter.lag_ports();
            }
            if known & MLX5DV_CONTEXT_MASK_MAX_DC_RD_ATOM != 0 {
                (*attrs).max_dc_rd_atom = limits::MAX_RD_ATOMIC.into();
                (*attrs).max_dc_init_rd_atom = limits::MAX_RD_ATOMIC.into();
            }
            if known & MLX5DV_CONTEXT_MASK_OOO_RECV_WRS != 0 {
                (*attrs).ooo_recv_wrs_caps = mlx5dv_ooo_recv_wrs_caps {
                    max_rc: limits::MAX_WR,
                    max_xrc: 0,
                    max_dct: 0,
                    max_ud: 0,
                    max_uc: 0,
                };
            }
            ((*attrs).version, (*attrs).flags) = (0, 0);
            (*attrs).comp_mask = known;
        }
        Ok(())
    });
    status("mlx5dv_query_device", result)
}

/// Has a queue pair's packets leave by this link of a bond, from 1, while that is up
/// (mlx5dv_modify_qp_lag_port(3)).
#[border(status)]
pub unsafe extern "C" fn mlx5dv_modify_qp_lag_port(qp: *mut ibv_qp, port_num: u8) -> c_int {
    let result = queue_pair::find(qp).and_then(|object| {
        let own = object.own();
        let set = |hca: &mut Hca| hca.set_lag_port(own.qpn, port_num);
        on_bond(&own.context.adapter.device)?
            .with(set)
            .map_err(Error::from)
    });
    status("mlx5dv_modify_qp_lag_port", result)
}

/// The link of a bond that was chosen for a queue pair, and the one that its packets leave by now
/// (mlx5dv_query_qp_lag_port(3)).
#[border(status)]
pub unsafe extern "C" fn mlx5dv_query_qp_lag_port(
    qp: *mut ibv_qp,
    port_num: *mut u8,
    active_port_num: *mut u8,
) -> c_int {
    let result = queue_pair::find(qp).and_then(|object| {
        let own = object.own();
        let known = on_bond(&own.context.adapter.device)?.with(|hca| hca.lag_port(own.qpn));
        let (wanted, active) = known?;
        // SAFETY: null or variables of the program that may be written to.
        unsafe {
            put("port_num", port_num, wanted)?;
            put("active_port_num", active_port_num, active)?;
        }
        Ok(())
    });
    status("mlx5dv_query_qp_lag_port", result)
}

fn on_bond(device: &Device) -> Result<&Device, Error> {
    match device.spec().bond {
        true => Ok(device),
        false => Err(Error::Unsupported("a link of a device that is not a bond")),
    }
}

/// What belongs to a port inside the card (mlx5dv_query_port(3)): these devices know the number of the
/// function.
#[border(status)]
pub unsafe extern "C" fn _mlx5dv_query_port(
    context: *mut ibv_context,
    port_num: u32,
    info: *mut mlx5dv_port,
    info_len: usize,
) -> c_int {
    let result = context::find(context).and_then(|own| {
        convert::port_of(&own.adapter.device, port_num)?;
        if info_len < size_of::<mlx5dv_port>() {
            let allowed = "the size of mlx5dv_port or more";
            return Err(Error::invalid("info_len", info_len, allowed));
        }
        // SAFETY: null or a structure of the program that nothing else accesses during the call.
        let info = unsafe { change("info", info)? };
        // SAFETY: zero is valid for numbers.
        let none: mlx5dv_port = unsafe { zeroed() };
        *info = mlx5dv_port {
            flags: MLX5DV_QUERY_PORT_VPORT_VHCA_ID,
            vport_vhca_id: own.adapter.listed.spec.vhca_id(),
            ..none
        };
        Ok(())
    });
    status("mlx5dv_query_port", result)
}
