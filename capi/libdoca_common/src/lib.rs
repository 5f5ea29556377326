//! `libdoca_common.so.2`: errors, log, versions and devices.
//!
//! `libdoca_argp.so.2` and `libdoca_telemetry.so.2` use it as programs do, and two functions more:
//! `ferroce_doca_tell`, by which they log, and `ferroce_doca_locator` to a device's registers.
//!
//! # Safety
//!
//! Every function is called from C with what its header asks for. Pointers to objects of the library
//! are checked; pointers to the program's own memory cannot be.
#![allow(
    clippy::missing_safety_doc,
    reason = "one contract for all calls, stated above: what the headers ask for"
)]

// Where `#[border]` leads.
use ferroce_doca::border;

pub mod dev;
pub mod error;
pub mod log;
pub mod missing;
