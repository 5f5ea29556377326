//! System calls that neither the standard library nor a dependency wraps.

mod descriptors;
mod epoll;
mod faults;
mod file;
mod fork;
mod identity;
mod interface;
mod limit;
mod list;
mod map;
mod own_memory;
mod region;
mod signals;
mod slice;
mod ticks;

pub(crate) use descriptors::{memory_file, receive_with, send_with};
pub(crate) use epoll::Epoll;
pub use faults::recover_faults;
pub(crate) use file::{
    allocate, is_any_locked, is_locked, lock, lock_shared, lock_when_free, locked_bytes, unlock,
};
pub use fork::after_fork_in_child;
pub use fork::out_of_the_way;
pub(crate) use fork::{NotInherited, forks};
pub(crate) use identity::{NetworkNamespace, effective_uid, outer_uid};
pub use interface::Interface;
pub(crate) use interface::own_addresses;
pub(crate) use limit::{after, remedy};
pub(crate) use list::List;
pub(crate) use map::{Shareable, map, shareable};
pub use own_memory::own_memory;
pub(crate) use region::{Region, fixed_memory_file};
pub(crate) use signals::NoSignals;
pub(crate) use slice::shorten_slice;
pub(crate) use ticks::ticks;
