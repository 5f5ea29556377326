use std::mem::MaybeUninit;
use std::ptr;

/// What a thread does to itself, which blocked or not ends it or goes to a handler: a program's write
/// barrier must also hear of what a device writes.
const OWN_FAULTS: [libc::c_int; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// While it lives, the thread takes no signals that others send, and threads that it starts never
/// take any: a program's handlers are to run in the program's threads. Those of a thread's own faults
/// it takes.
pub(crate) struct NoSignals {
    before: libc::sigset_t,
}

impl NoSignals {
    pub(crate) fn new() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both sets are writable, and the first call fills `all`. SIG_SETMASK is a valid
        // request, so the second call cannot fail and fills `before`.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for signal in OWN_FAULTS {
                libc::sigdelset(all.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self {
                before: before.assume_init(),
            }
        }
    }
}

impl Drop for NoSignals {
    fn drop(&mut self) {
        // SAFETY: the set was filled by the kernel; nobody wants the present one.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut());
        }
    }
}
