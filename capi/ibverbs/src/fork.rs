//! The state of devices in a child after `fork`.
//!
//! Devices stay with the parent: the child opens its own. It can query inherited devices and their
//! ports, and it can destroy its copies of the objects, which still belong to the parent; every
//! other call on them fails with ENODEV.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::{MutexGuard, Once};

use ferroce_abi::border;
use ferroce_os::Tap;

use crate::devices::{self, Listed};
use crate::gate::{self, Closed};
use crate::{adapter, capture, faults};

/// All locks that a child needs and another thread may hold, in the order in which threads take them.
struct Held {
    _xrc: MutexGuard<'static, ()>,
    _gate: Closed,
    _listed: MutexGuard<'static, Vec<&'static Listed>>,
    _capture: MutexGuard<'static, Option<Tap>>,
}

/// What is held from before a fork until after it.
struct Cell(UnsafeCell<Option<Held>>);

// SAFETY: only the thread that has closed the gate accesses it.
unsafe impl Sync for Cell {}

static HELD: Cell = Cell(UnsafeCell::new(None));

/// Prepares for forks from now on.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: registers functions that live as long as the library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(in_child)) };
    });
}

#[border(nothing)]
unsafe extern "C" fn before() {
    let held = Held {
        _xrc: gate::xrc_changes(),
        _gate: gate::close(),
        _listed: devices::listed(),
        _capture: capture::capture(),
    };
    // SAFETY: this thread has closed the gate, so no other accesses the cell.
    unsafe { *HELD.0.get() = Some(held) };
}

#[border(nothing)]
unsafe extern "C" fn after() {
    // SAFETY: this thread closed the gate in `before`, so no other accesses the cell.
    let held = unsafe { (*HELD.0.get()).take() };
    drop(held);
}

#[border(nothing)]
unsafe extern "C" fn in_child() {
    ferroce_os::after_fork_in_child();
    // SAFETY: the child's only thread is the one that was in `before`.
    unsafe { after() };
    adapter::forget_all();
    capture::forget();
    faults::after_fork();
}

/// Nothing is left to be done (ibv_fork_init(3)).
#[border(status)]
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// `IBV_FORK_UNNEEDED`: the device reads a process's memory as the process does
/// (ibv_is_fork_initialized(3)).
#[border(value)]
pub extern "C" fn ibv_is_fork_initialized() -> c_int {
    2
}
