//! Calls the InfiniBand code inside a released NCCL library, without a GPU.
//!
//! Released libraries have their symbol table. The table of functions of the InfiniBand transport,
//! `ncclNetIb`, is a local symbol there: this crate reads its place from the file, loads the library and
//! calls the functions, with buffers in host memory, as NCCL's proxy threads do.
//!
//! | module | content |
//! |---|---|
//! | `table` | the table of functions, in the versions 8 to 12 of the interface |
//! | `library` | a loaded library |
//! | `net` | connections, sends and receives |
#![deny(unsafe_code)]

mod library;
mod net;
mod table;

pub use library::{Library, LoadError};
pub use net::{Accepting, CallError, Handle, Net, Receiver, Registered, Request, Sender};
pub use table::{Interface, KNOWN};
