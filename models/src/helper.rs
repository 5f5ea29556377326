//! The handshake of a program's threads and the helper.

use std::sync::Arc;

use ferroce_device::{Span, Time};
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicBool, Ordering};

use crate::handshake::Handshake;
use crate::sync::concurrently;

fn at(ns: u64) -> Option<Time> {
    Some(Time::from_nanos(ns))
}

/// A program comes to rest while the helper begins to wait for that: one of them sees the other.
pub fn a_program_that_rests_is_not_missed() {
    let handshake = Arc::new(Handshake::default());
    handshake.note_poll(Time::from_nanos(1), || Span::ZERO);
    let (program, helper) = (Arc::clone(&handshake), Arc::clone(&handshake));
    let (wakes, polls) = concurrently(move || program.rest(), move || helper.await_absence());
    assert!(wakes || !polls, "the helper sleeps, and no thread polls");
    assert_eq!(handshake.last_poll(), None);
}

/// A device, as far as the helper's sleep depends on it.
struct Device {
    handshake: Handshake,
    /// Its deadline, and whether requests wait for the watch.
    locked: Mutex<(Option<Time>, bool)>,
    is_woken: AtomicBool,
}

impl Device {
    fn new(deadline: Option<Time>) -> Arc<Self> {
        Arc::new(Self {
            handshake: Handshake::default(),
            locked: Mutex::new((deadline, false)),
            is_woken: AtomicBool::new(false),
        })
    }
}

/// While the helper goes to sleep, and wakes, and sleeps again, a thread of the program brings the
/// deadline forward: the helper does not sleep past it.
pub fn a_deadline_is_not_slept_past() {
    let device = Device::new(None);
    let (program, helper) = (Arc::clone(&device), Arc::clone(&device));
    let program = move || {
        let mut locked = program.locked.lock().unwrap();
        locked.0 = at(5);
        if program.handshake.sleeps_past(|| locked.0) {
            program.is_woken.store(true, Ordering::Release);
        }
    };
    let helper = move || {
        let mut until = None;
        for _ in 0..2 {
            {
                let locked = helper.locked.lock().unwrap();
                until = locked.0;
                helper.handshake.sleep_until(until);
            }
            if !helper.is_woken.load(Ordering::Acquire) {
                break;
            }
            helper.handshake.end_sleep();
        }
        until
    };
    let ((), until) = concurrently(program, helper);
    let sleeps = until.is_none() && !device.is_woken.load(Ordering::Acquire);
    assert!(!sleeps, "the helper sleeps, and a timer is due");
}

/// A request waits only while the helper keeps watch, which sends it.
pub fn waiting_requests_are_watched() {
    let device = Device::new(None);
    let (program, helper) = (Arc::clone(&device), Arc::clone(&device));
    let program = move || {
        let mut locked = program.locked.lock().unwrap();
        locked.1 = program.handshake.is_watched();
    };
    let helper = move || {
        helper.handshake.begin_watch();
        let mut locked = helper.locked.lock().unwrap();
        locked.1 = false;
        helper.handshake.end_watch();
    };
    concurrently(program, helper);
    assert!(!device.locked.lock().unwrap().1, "a request waits for ever");
}
