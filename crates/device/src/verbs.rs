//! The verbs, which create, change and destroy objects.

mod audit;
mod cq;
mod domain;
mod ece;
mod group;
mod look;
mod mr;
mod mw;
mod order;
mod qp;
mod srq;

pub use look::{CqLook, QpLook, SrqLook};
pub use mr::{MrModify, RegFlags};
pub use mw::MwBindWr;
pub use qp::QpInit;

use crate::error::{Object, VerbsError};

fn no_such(object: Object, handle: u32) -> VerbsError {
    VerbsError::NoSuch { object, handle }
}

fn in_range(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), VerbsError> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(VerbsError::OutOfRange {
            field,
            value,
            min,
            max,
        })
    }
}

fn not_busy(object: Object, users: u32) -> Result<(), VerbsError> {
    if users == 0 {
        Ok(())
    } else {
        Err(VerbsError::Busy { object, users })
    }
}
