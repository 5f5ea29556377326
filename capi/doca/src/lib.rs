//! DOCA's telemetry of adaptive retransmission, and what programs need around it: devices, errors,
//! log lines, command lines.
//!
//! What the calls mean is here; `capi/libdoca_common`, `capi/libdoca_argp` and
//! `capi/libdoca_telemetry` are the libraries that programs load. They turn pointers into values,
//! and a [`Refusal`] into a number and a log line.
//!
//! | module | does |
//! |---|---|
//! | [`border`] | what passes between C and the libraries: no panic, no cancellation |
//! | [`error`] | DOCA's error codes, and refusals |
//! | [`handles`] | objects that programs hold pointers to |
//! | [`devices`] | the devices there are, by PCI address |
//! | [`log`] | levels, and what a line looks like |
//! | [`argp`] | command lines and JSON files |
//! | [`telemetry`] | the timeout histogram: capabilities, a context's configuration and states |
//! | [`registers`] | access to a device's registers, which is all that telemetry needs of it |
//! | [`mod@pointer`] | the program's memory, for those libraries |
//! | [`headers`] | the headers and pkg-config files that `ferroce install` lays out |

#![deny(unsafe_code)]

pub mod argp;
pub mod border;
pub mod devices;
pub mod error;
pub mod handles;
pub mod headers;
pub mod log;
#[allow(unsafe_code)]
pub mod pointer;
pub mod registers;
pub mod telemetry;

pub use error::{Code, Refusal};
pub use handles::Handles;

/// The release of DOCA whose interface this is.
pub const VERSION: &str = "3.3.0";
