//! Calls the InfiniBand code inside a released NCCL library, without a GPU.
//!
//! Released libraries have their symbol table. The table of functions of the InfiniBand transport,
//! `ncclNetIb`, is a local symbol there: this crate reads its place from the file, loads the library and
//! calls the functions, with buffers in host memory, as NCCL's proxy threads do.
//!
//! | module | content |
//! |---|---|
//! | `symbols` | places of symbols in the file |
//! | `table` | the table of functions, in the versions 8 to 12 of the interface |
//! | `library` | a loaded library |
//! | `memory` | buffers that the library sends from and receives into |
//! | `net` | connections, sends and receives |
#![deny(unsafe_code)]

mod library;
mod memory;
mod net;
mod symbols;
mod table;

pub use library::{Library, LoadError, leave};
pub use memory::Buffer;
pub use net::{Accepting, CallError, Handle, Net, Receiver, Registered, Request, Sender};
pub use symbols::{Place, SymbolError, find as find_symbols};
pub use table::{Interface, Version};
