//! Calls a released UCX library: tagged messages and one-sided writes between workers.
//!
//! | module | content |
//! |---|---|
//! | `abi` | the structures and functions of UCP, UCX's upper interface |
//! | `library` | a loaded library |
//! | `worker` | workers, endpoints, messages, writes |
#![deny(unsafe_code)]

mod abi;
mod library;
mod worker;

pub use library::{CallError, Library, LoadError};
pub use worker::{Endpoint, ErrorMode, Region, RemoteRegion, Request, Worker};
