//! `libdoca_argp.so.2`: command lines (`doca_argp.h`).
//!
//! # Safety
//!
//! Every function is called from C with the arguments that its header requires. Pointers to objects
//! of the library are checked; pointers to the program's own memory cannot be.
#![allow(
    clippy::missing_safety_doc,
    reason = "one contract for all calls, stated above: what the header asks for"
)]

// Where `#[border]` leads.
use ferroce_doca::border;

pub mod param;
pub mod session;
pub mod start;
// One for both libraries; neither can depend on libdoca_common, whose symbols it would have twice.
#[path = "../../libdoca_common/tell.rs"]
mod tell;
