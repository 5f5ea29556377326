//! Direct verbs of ConnectX cards, which these devices do not support.
//!
//! libmlx5 itself refuses almost all its calls on other devices. But perftest since 6.28 queries
//! every device of this vendor for its capabilities and does not continue without an answer. That
//! query therefore succeeds, and reports no capabilities.

use std::ffi::c_int;

use ferroce_abi::border;

use crate::abi::{ibv_context, mlx5dv_context};
use crate::context;
use crate::error::{Error, status};

/// No capability (mlx5dv_query_device(3)): of the optional fields that the program asks for, none is
/// there.
#[border(status)]
pub unsafe extern "C" fn mlx5dv_query_device(
    context: *mut ibv_context,
    attrs: *mut mlx5dv_context,
) -> c_int {
    let result = context::find(context).and_then(|_| {
        if attrs.is_null() {
            return Err(Error::Null("attrs_out"));
        }
        let none = mlx5dv_context {
            version: 0,
            flags: 0,
            comp_mask: 0,
        };
        // SAFETY: not null, and a variable that may be written to.
        unsafe { attrs.write(none) };
        Ok(())
    });
    status("mlx5dv_query_device", result)
}
