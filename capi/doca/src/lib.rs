//! DOCA's adaptive retransmission telemetry, and what programs need around it: devices, errors, log
//! lines, command lines.
//!
//! The calls are implemented here; `capi/libdoca_common`, `capi/libdoca_argp` and
//! `capi/libdoca_telemetry` are the libraries that programs load. They turn pointers into values,
//! and a [`Refusal`] into a number and a log line.
//!
//! | module | purpose |
//! |---|---|
//! | [`border`] | the border to C: stops panics and cancellations |
//! | [`error`] | DOCA's error codes, and refusals |
//! | [`handles`] | objects that programs hold pointers to |
//! | [`devices`] | the available devices, by PCI address |
//! | [`log`] | levels and lines of the log |
//! | [`argp`] | command lines and JSON files |
//! | [`telemetry`] | the timeout histogram: capabilities, a context's configuration and states |
//! | [`registers`] | access to a device's registers, which is all that telemetry needs |
//! | [`mod@pointer`] | the program's memory, for those libraries |
//! | [`headers`] | the headers and pkg-config files that `ferroce install` provides |

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
