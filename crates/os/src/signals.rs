//! The signals that a thread of the library accepts.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// What a thread does to itself, which blocked or not ends it or goes to a handler: a program's write
/// barrier must also hear of what a device writes.
const OWN_FAULTS: [Signal; 6] = [
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGSYS,
];

/// While it lives, the thread takes no signals that others send, and threads that it starts never
/// take any: a program's handlers are to run in the program's threads. Those of a thread's own faults
/// it takes.
#[derive(Debug)]
pub struct NoSignals {
    before: SigSet,
}

impl NoSignals {
    /// Blocks the signals until the value is dropped.
    pub fn begin() -> Self {
        let mut all = SigSet::all();
        for signal in OWN_FAULTS {
            all.remove(signal);
        }
        let before = all.thread_swap_mask(SigmaskHow::SIG_SETMASK);
        Self {
            before: before.expect("the request is valid"),
        }
    }
}

impl Drop for NoSignals {
    fn drop(&mut self) {
        // A valid request, too.
        let _ = self.before.thread_set_mask();
    }
}
