//! Threads of the library in a program that is not its own.

use std::io;
use std::thread::{Builder, JoinHandle};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// Bytes of a thread's stack. The C library gives a new thread the stack of one that has ended if it
/// is at most four times as large. With less than a quarter of the 2 MiB and 8 MiB that threads of
/// programs have by default, the library's threads never continue on a stack that the program asked
/// for, which valgrind would blame the program for.
pub(crate) const STACK_SIZE: usize = 384 << 10;

/// What a thread does to itself, which blocked or not ends it or goes to a handler: a program's write
/// barrier must also hear of what a device writes.
pub(crate) const OWN_FAULTS: [Signal; 6] = [
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGSYS,
];

/// Starts a thread that takes no signals that others send: a program's handlers are to run in the
/// program's threads. Those of its own faults it takes.
///
/// # Errors
/// Returns the error of the C library, such as the limit of threads.
pub fn spawn<T: Send + 'static>(
    name: String,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let mut all = SigSet::all();
    for signal in OWN_FAULTS {
        all.remove(signal);
    }
    let before = all
        .thread_swap_mask(SigmaskHow::SIG_SETMASK)
        .expect("the request is valid");
    // A new thread has the mask of the one that starts it.
    let thread = Builder::new().name(name).stack_size(STACK_SIZE).spawn(run);
    let restored = before.thread_set_mask();
    debug_assert!(restored.is_ok(), "a valid request, too");
    thread
}
