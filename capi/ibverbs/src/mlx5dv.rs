//! Direct verbs of ConnectX cards, which these devices do not have.
//!
//! libmlx5 itself says so of almost all its calls: it knows its own devices. But perftest since 6.28 asks
//! every device of the vendor for its capabilities and goes no further without an answer. So that one
//! question has one, which is that there are none.

use std::ffi::c_int;

use ferroce_border::border;

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
        // SAFETY: the program's own structure, of which these are the first fields.
        unsafe { attrs.write(none) };
        Ok(())
    });
    status("mlx5dv_query_device", result)
}
