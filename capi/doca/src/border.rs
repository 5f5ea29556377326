//! [`ferroce_abi::border`](mod@ferroce_abi::border), with the results of DOCA's calls.

pub use ferroce_abi::border::{nothing, pointer, value};

use ferroce_abi::border::cross;

use crate::error::Code;

/// A call that returns an error code, or one of the program's own.
pub fn code<T: From<Code>>(call: impl FnOnce() -> T) -> T {
    cross(call).unwrap_or_else(|| Code::Unexpected.into())
}
