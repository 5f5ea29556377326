//! `libdoca_telemetry.so.2`: the adaptive retransmission histogram (`doca_telemetry_adp_retx.h`).
//!
//! Devices come from `libdoca_common.so.2`, through its functions for programs.
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

pub mod capabilities;
pub mod configuration;
pub mod context;
mod registers;
// One for both libraries; neither can depend on libdoca_common, whose symbols it would have twice.
#[path = "../../libdoca_common/tell.rs"]
mod tell;
