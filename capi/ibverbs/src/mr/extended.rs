//! The call that registers any kind of region (ibv_reg_mr_ex(3)).

use std::ptr::addr_of;

use ferroce_abi::border;

use super::{dmabuf, register};
use crate::abi::{
    IBV_REG_MR_MASK_ADDR, IBV_REG_MR_MASK_BUF, IBV_REG_MR_MASK_FD, IBV_REG_MR_MASK_FD_OFFSET,
    IBV_REG_MR_MASK_IOVA, ibv_mr, ibv_mr_init_attr, ibv_pd,
};
use crate::buf;
use crate::error::{Error, pointer};

/// Registers memory at an address, or of a descriptor.
#[border(pointer)]
pub unsafe extern "C" fn ibv_reg_mr_ex(
    pd: *mut ibv_pd,
    attr: *mut ibv_mr_init_attr,
) -> *mut ibv_mr {
    // SAFETY: null or a structure that has the fields its `comp_mask` names, as the header requires.
    pointer("ibv_reg_mr_ex", unsafe { register_extended(pd, attr) })
}

/// # Safety
/// `attr` is null or points to a structure that has the fields which its `comp_mask` names; programs
/// built against older headers have no others.
unsafe fn register_extended(
    pd: *mut ibv_pd,
    attr: *const ibv_mr_init_attr,
) -> Result<*mut ibv_mr, Error> {
    const KNOWN: u64 = IBV_REG_MR_MASK_IOVA
        | IBV_REG_MR_MASK_ADDR
        | IBV_REG_MR_MASK_FD
        | IBV_REG_MR_MASK_FD_OFFSET
        | IBV_REG_MR_MASK_BUF;
    const OF_FD: u64 = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET | IBV_REG_MR_MASK_IOVA;
    if attr.is_null() {
        return Err(Error::Null("mr_init_attr"));
    }
    /// A field that the program has.
    macro_rules! field {
        ($name:ident) => {
            // SAFETY: as the caller promises.
            unsafe { addr_of!((*attr).$name).read() }
        };
    }
    let mask = field!(comp_mask);
    let (length, access) = (field!(length), field!(access) as u32);
    if mask & !KNOWN != 0 {
        return Err(Error::Unsupported("a field that comp_mask names"));
    }
    let has = |bit| mask & bit != 0;
    if has(IBV_REG_MR_MASK_FD) {
        if mask != OF_FD {
            let allowed = "IBV_REG_MR_MASK_FD with _FD_OFFSET and _IOVA only";
            return Err(Error::invalid("comp_mask", mask, allowed));
        }
        let (offset, iova) = (field!(fd_offset), field!(iova));
        return dmabuf::register(pd, offset, length, iova, field!(fd), access);
    }
    if !has(IBV_REG_MR_MASK_ADDR) || has(IBV_REG_MR_MASK_FD_OFFSET) {
        let allowed = "IBV_REG_MR_MASK_ADDR, or _FD with _FD_OFFSET and _IOVA";
        return Err(Error::invalid("comp_mask", mask, allowed));
    }
    let addr = field!(addr);
    if has(IBV_REG_MR_MASK_BUF) {
        buf::check_inside(pd, field!(buf), addr, length)?;
    }
    let iova = match has(IBV_REG_MR_MASK_IOVA) {
        true => field!(iova),
        false => addr as u64,
    };
    register(pd, addr, length, iova, access)
}
