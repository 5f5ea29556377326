//! Per-process state. A forked child starts without any: identifiers and sockets created before the
//! fork belong to its parent.

use std::collections::HashMap;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, RwLock};
use std::sync::{RwLockReadGuard, RwLockWriteGuard};

use ferroce_abi::border;
use ferroce_hca::cm::CommId;
use ferroce_wire::cm::ServiceId;

use crate::device::Device;
use crate::id::Id;
use crate::rsocket::Sockets;

/// Who gets the events of a device's connection manager.
#[derive(Default)]
pub(crate) struct Routes {
    pub(crate) connections: HashMap<(usize, CommId), Arc<Id>>,
    pub(crate) listeners: HashMap<(usize, ServiceId), Arc<Id>>,
}

#[derive(Default)]
pub(crate) struct Process {
    pub(crate) devices: Mutex<Vec<&'static Device>>,
    pub(crate) sockets: Sockets,
    routes: RwLock<Routes>,
}

static CURRENT: AtomicPtr<Process> = AtomicPtr::new(null_mut());

/// This process.
pub(crate) fn process() -> &'static Process {
    static AT_FORK: Once = Once::new();
    #[border(nothing)]
    extern "C" fn begin_anew() {
        CURRENT.store(null_mut(), Ordering::Release);
    }
    AT_FORK.call_once(|| {
        // SAFETY: the function lives as long as the library, which is never unloaded; all it does
        // is allowed in a child.
        unsafe { libc::pthread_atfork(None, None, Some(begin_anew)) };
    });
    let current = CURRENT.load(Ordering::Acquire);
    let current = if current.is_null() { begin() } else { current };
    // SAFETY: made by `begin` and never freed.
    unsafe { &*current }
}

fn begin() -> *mut Process {
    let fresh = Box::into_raw(Box::default());
    match CURRENT.compare_exchange(null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => fresh,
        Err(other) => {
            // SAFETY: made above, and nobody else has seen it.
            drop(unsafe { Box::from_raw(fresh) });
            other
        }
    }
}

impl Process {
    pub(crate) fn routes(&self) -> RwLockReadGuard<'_, Routes> {
        self.routes.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn routes_mut(&self) -> RwLockWriteGuard<'_, Routes> {
        self.routes.write().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
