//! `libdoca_common.so.2`: errors, log, versions and devices.
//!
//! `libdoca_argp.so.2` and `libdoca_telemetry.so.2` use it as programs do, and also use two
//! functions of their own: `ferroce_doca_tell` for logging, and `ferroce_doca_locator` for access
//! to a device's registers.
//!
//! # Safety
//!
//! Every function is called from C with the arguments that its header requires. Pointers to objects
//! of the library are checked; pointers to the program's own memory cannot be.
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
