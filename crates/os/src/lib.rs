//! What the hosts of a device on an operating system share, and what neither the standard library nor
//! a dependency wraps.
//!
//! | module | purpose |
//! |---|---|
//! | `wait` | sleeping, waking, the clock |
//! | `wall_clock` | the time of day of completions and of captured packets |
//! | `tap` | packet captures |
//! | `fork` | descriptors that children of `fork` must not keep |
//! | `descriptors` | descriptors passed between processes |
//! | `epoll` | one descriptor for several sockets |
//! | `file` | space for files, and locks on their bytes |
//! | `region` | memory that two processes use at the same time |
//! | `list` | a list that can be read without a lock |
//! | `interface`, `identity` | the host's interfaces; who this process is |
//! | `thread` | threads in a program that is not the library's own |
//! | `companion`, `program` | a thread that continues as a process of its own, and the program it serves |
//! | `slice`, `ticks`, `limit` | time slices, the processor's counter, limits of a process |
#![allow(unsafe_code, reason = "system calls")]

mod companion;
mod descriptors;
mod epoll;
mod file;
mod fork;
mod identity;
mod interface;
mod limit;
mod list;
mod program;
mod region;
mod slice;
mod tap;
mod thread;
mod ticks;
mod wait;
mod wall_clock;

pub use companion::{program_id, run_as_companion};
pub use descriptors::{memory_file, receive_with, send_with};
pub use epoll::Epoll;
pub use file::{
    allocate, is_any_locked, is_locked, lock, lock_shared, lock_when_free, locked_bytes, unlock,
};
pub use fork::{NotInherited, after_fork_in_child, forks, out_of_the_way};
pub use identity::{NetworkNamespace, effective_uid, outer_uid};
pub use interface::{Interface, own_addresses};
pub use limit::{after, remedy};
pub use list::List;
pub use program::Program;
pub use region::{Region, fixed_memory_file};
pub use slice::shorten_slice;
pub use tap::{Seen, Tap, TapDirection};
pub use thread::spawn;
pub use ticks::ticks;
pub use wait::{Clock, Waiter, Wake, Waker, thread_cpu_ns, tighten_timer_slack};
pub use wall_clock::WallClock;
