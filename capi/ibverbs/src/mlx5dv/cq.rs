//! Completion queues of direct verbs.

use std::env;

use ferroce_abi::border;
use ferroce_abi::pointer::read;

use crate::abi::{
    MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE, MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE,
    MLX5DV_CQ_INIT_ATTR_MASK_FLAGS, ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex,
    mlx5dv_cq_init_attr,
};
use crate::cq_ex;
use crate::error::{Error, pointer};

/// Makes a completion queue (mlx5dv_create_cq(3)). These devices have no entries of completion queues,
/// so a size of entries changes nothing.
#[border(pointer)]
pub unsafe extern "C" fn mlx5dv_create_cq(
    context: *mut ibv_context,
    init: *mut ibv_cq_init_attr_ex,
    direct: *mut mlx5dv_cq_init_attr,
) -> *mut ibv_cq_ex {
    // SAFETY: null or structures of the program, valid during the call.
    let given = unsafe { (read("cq_attr", init), read("mlx5_cq_attr", direct)) };
    let made = (|| {
        check(given.1?)?;
        cq_ex::create(context, given.0?)
    })();
    pointer("mlx5dv_create_cq", made)
}

fn check(direct: &mlx5dv_cq_init_attr) -> Result<(), Error> {
    const KNOWN: u64 = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE
        | MLX5DV_CQ_INIT_ATTR_MASK_FLAGS
        | MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
    let has = |bit| direct.comp_mask & bit != 0;
    if has(!KNOWN) {
        return Err(Error::Unsupported("an attribute in comp_mask"));
    }
    if has(MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE) {
        return Err(Error::Unsupported("a compressed format of completions"));
    }
    if has(MLX5DV_CQ_INIT_ATTR_MASK_FLAGS) && direct.flags != 0 {
        return Err(Error::Unsupported("a flag in flags"));
    }
    match has(MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE) {
        true => check_entry_size("cqe_size", direct.cqe_size.into()),
        false => match env::var("MLX5_CQE_SIZE") {
            Ok(size) => check_entry_size("MLX5_CQE_SIZE", size.parse().unwrap_or(0)),
            Err(_) => Ok(()),
        },
    }
}

fn check_entry_size(field: &'static str, size: u32) -> Result<(), Error> {
    match size {
        64 | 128 => Ok(()),
        _ => Err(Error::invalid(field, size, "64 or 128 bytes")),
    }
}
