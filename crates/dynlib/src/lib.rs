//! What is the same for all released libraries whose functions Ferroce calls.
//!
//! | module | content |
//! |---|---|
//! | `symbols` | places of symbols in the file |
//! | `library` | a library that is loaded |
//! | `version` | its version |
//! | `memory` | buffers that a library sends from and receives into |
#![deny(unsafe_code)]

mod library;
mod memory;
mod symbols;
mod version;

pub use library::{Library, OpenError, leave};
pub use memory::Buffer;
pub use symbols::{Place, SymbolError, find as find_symbols};
pub use version::Version;
