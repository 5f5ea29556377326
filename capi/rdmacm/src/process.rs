//! Per-process state. A forked child starts without any: identifiers and sockets created before the
//! fork belong to its parent.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use ferroce_abi::border;

/// Forks between the program's first process and this one.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// A value that each process has for itself, and that lives as long as the process.
pub(crate) struct PerProcess<T>(AtomicPtr<Kept<T>>);

struct Kept<T> {
    /// [`FORKS`] of the process that it belongs to.
    forks: usize,
    value: T,
}

impl<T: Default + Send + Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// This process's value.
    pub(crate) fn get(&'static self) -> &'static T {
        let known = self.0.load(Ordering::Acquire);
        // SAFETY: null, or made by `begin` and never freed.
        match unsafe { known.as_ref() } {
            Some(kept) if kept.forks == FORKS.load(Ordering::Acquire) => &kept.value,
            _ => self.begin(known),
        }
    }

    #[cold]
    fn begin(&'static self, before: *mut Kept<T>) -> &'static T {
        count_forks();
        let fresh = Box::into_raw(Box::new(Kept {
            forks: FORKS.load(Ordering::Acquire),
            value: T::default(),
        }));
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let current = match self.0.compare_exchange(before, fresh, success, failure) {
            Ok(_) => fresh,
            Err(other) => {
                // SAFETY: made above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(fresh) });
                other
            }
        };
        // SAFETY: made here or by another thread, and never freed.
        unsafe { &(*current).value }
    }
}

fn count_forks() {
    static AT_FORK: Once = Once::new();
    #[border(nothing)]
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::AcqRel);
    }
    AT_FORK.call_once(|| {
        // SAFETY: a function of the library, which is never unloaded; all it does is allowed in a child.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
