//! Queue pairs of direct verbs: those of the dynamically connected transport, and of the other types
//! without what only a card has.

use std::mem::zeroed;
use std::ptr::null_mut;

use ferroce_abi::border;
use ferroce_abi::pointer::{change, read};
use ferroce_device::QpType;

use crate::abi::{
    IBV_QPT_DRIVER, MLX5DV_DCTYPE_DCI, MLX5DV_DCTYPE_DCT, MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE,
    MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE, MLX5DV_QP_CREATE_OOO_DP, MLX5DV_QP_INIT_ATTR_MASK_DC,
    MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS, MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
    MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS, ibv_ah, ibv_context, ibv_qp, ibv_qp_ex,
    ibv_qp_init_attr_ex, mlx5dv_dc_init_attr, mlx5dv_qp_ex, mlx5dv_qp_init_attr,
};
use crate::direct::Direct;
use crate::error::{Error, pointer};
use crate::qp::{self, DcEnd, Wanted};
use crate::{ah, qp_ex};

/// Makes a queue pair (mlx5dv_create_qp(3)).
#[border(pointer)]
pub unsafe extern "C" fn mlx5dv_create_qp(
    context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
    direct: *mut mlx5dv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: null or structures of the program that nothing else accesses during the call.
    let made = unsafe {
        change("qp_attr", init)
            .map_err(Error::from)
            .and_then(|init| {
                let wanted = match direct.is_null() {
                    true => Wanted::default(),
                    false => wanted(init.qp_type, read("mlx5_qp_attr", direct)?)?,
                };
                qp_ex::create_extended(context, init, wanted)
            })
    };
    pointer("mlx5dv_create_qp", made)
}

fn wanted(qp_type: i32, direct: &mlx5dv_qp_init_attr) -> Result<Wanted, Error> {
    const KNOWN: u64 = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS
        | MLX5DV_QP_INIT_ATTR_MASK_DC
        | MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS
        | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
    let has = |bit| direct.comp_mask & bit != 0;
    if has(!KNOWN) {
        return Err(Error::Unsupported("an attribute in comp_mask"));
    }
    let flags = match has(MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS) {
        true => direct.create_flags,
        false => 0,
    };
    check_flags(flags)?;
    if has(MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS) && direct.send_ops_flags != 0 {
        return Err(Error::Unsupported(
            "an operation in send_ops_flags of mlx5_qp_attr",
        ));
    }
    if has(MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS) {
        return Err(Error::Unsupported("a DCI with streams"));
    }
    let dc = match (has(MLX5DV_QP_INIT_ATTR_MASK_DC), qp_type) {
        (true, IBV_QPT_DRIVER) => Some(end_of(&direct.dc_init_attr)?),
        (true, _) => {
            let allowed = "IBV_QPT_DRIVER, with MLX5DV_QP_INIT_ATTR_MASK_DC";
            return Err(Error::invalid("qp_type", qp_type, allowed));
        }
        (false, IBV_QPT_DRIVER) => {
            let allowed = "MLX5DV_QP_INIT_ATTR_MASK_DC, with IBV_QPT_DRIVER";
            return Err(Error::invalid("comp_mask", direct.comp_mask, allowed));
        }
        (false, _) => None,
    };
    let any_order = flags & MLX5DV_QP_CREATE_OOO_DP != 0;
    Ok(Wanted { dc, any_order })
}

/// Where a card puts small messages is invisible, and these devices have one way only.
fn check_flags(flags: u32) -> Result<(), Error> {
    const BOTH: u32 =
        MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE | MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE;
    if flags & !(BOTH | MLX5DV_QP_CREATE_OOO_DP) != 0 {
        return Err(Error::Unsupported("a flag in create_flags"));
    }
    if flags & BOTH == BOTH {
        let allowed = "one of DISABLE_SCATTER_TO_CQE and ALLOW_SCATTER_TO_CQE";
        return Err(Error::invalid("create_flags", flags, allowed));
    }
    Ok(())
}

fn end_of(dc: &mlx5dv_dc_init_attr) -> Result<DcEnd, Error> {
    let key = dc.dct_access_key;
    match dc.dc_type {
        MLX5DV_DCTYPE_DCI => Ok(DcEnd::Initiator),
        MLX5DV_DCTYPE_DCT => Ok(DcEnd::Target { key }),
        other => {
            let allowed = "1 (MLX5DV_DCTYPE_DCT) or 2 (MLX5DV_DCTYPE_DCI)";
            Err(Error::invalid("dc_type", other, allowed))
        }
    }
}

/// The functions of direct verbs of a queue pair that was created with `ibv_wr_*` functions
/// (mlx5dv_create_qp(3)).
#[border(pointer)]
pub unsafe extern "C" fn mlx5dv_qp_ex_from_ibv_qp_ex(qp: *mut ibv_qp_ex) -> *mut mlx5dv_qp_ex {
    let Ok(object) = qp::find(qp.cast()) else {
        return null_mut();
    };
    let own = object.own();
    let new = || Direct::new(functions_of(own.qp_type), qp);
    own.direct.get_or_init(new).pointer()
}

fn functions_of(qp_type: QpType) -> mlx5dv_qp_ex {
    // SAFETY: zero is valid for numbers and absent functions.
    let absent: mlx5dv_qp_ex = unsafe { zeroed() };
    match qp_type {
        QpType::Dci => mlx5dv_qp_ex {
            wr_set_dc_addr: Some(wr_set_dc_addr),
            wr_set_dc_addr_stream: Some(wr_set_dc_addr_stream),
            ..absent
        },
        _ => absent,
    }
}

#[border(field)]
unsafe extern "C" fn wr_set_dc_addr(
    direct: *mut mlx5dv_qp_ex,
    ah: *mut ibv_ah,
    remote_dctn: u32,
    remote_dc_key: u64,
) {
    let Ok(qp) = Direct::owner(direct) else {
        return;
    };
    // SAFETY: after `wr_start`, as the header requires.
    unsafe {
        qp_ex::change(qp, |own, request| {
            request.to = ah::target(own.sender(), ah, remote_dctn, remote_dc_key)?;
            Ok(())
        });
    }
}

/// Without streams, which no DCI here has, the number of one has no effect: everything is sent in
/// order. perftest passes numbers nevertheless.
#[border(field)]
unsafe extern "C" fn wr_set_dc_addr_stream(
    direct: *mut mlx5dv_qp_ex,
    ah: *mut ibv_ah,
    remote_dctn: u32,
    remote_dc_key: u64,
    _stream_id: u16,
) {
    // SAFETY: as for the caller.
    unsafe { wr_set_dc_addr(direct, ah, remote_dctn, remote_dc_key) }
}
