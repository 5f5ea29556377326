//! Memory of the program that may not be mapped.

mod faults;
mod own_memory;

pub use faults::recover_faults;
pub use own_memory::own_memory;
