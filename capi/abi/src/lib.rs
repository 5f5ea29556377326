//! What the libraries that C programs load have in common.
//!
//! | module | content |
//! |---|---|
//! | [`mod@border`] | stops panics and cancellations; the results of calls that panic, by kind; and the attribute that puts a function's body behind it |
//! | [`pointer`](mod@pointer) | pointers of the program to its own memory |
//! | [`log`] | lines on standard error, as `FERROCE_LOG` allows |

pub mod border;
pub mod log;
pub mod pointer;

pub use ferroce_abi_macros::border;
