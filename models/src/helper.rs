//! The handshake of a program's threads and the helper.

use std::sync::Arc;

use ferroce_device::{Span, Time};
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use crate::handshake::Handshake;

fn at(ns: u64) -> Option<Time> {
    Some(Time::from_nanos(ns))
}

/// A program comes to rest while the helper begins to wait for that: one of them sees the other.
pub fn a_program_that_rests_is_not_missed() {
    let handshake = Arc::new(Handshake::default());
    handshake.note_poll(Time::from_nanos(1), || Span::ZERO);
    let helper = {
        let handshake = Arc::clone(&handshake);
        thread::spawn(move || handshake.await_absence())
    };
    let wakes = handshake.rest();
    let polls = helper.join().unwrap();
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
    let helper = {
        let device = Arc::clone(&device);
        thread::spawn(move || {
            let mut until = None;
            for _ in 0..2 {
                {
                    let locked = device.locked.lock().unwrap();
                    until = locked.0;
                    device.handshake.sleep_until(until);
                }
                if !device.is_woken.load(Ordering::Acquire) {
                    break;
                }
                device.handshake.end_sleep();
            }
            until
        })
    };
    {
        let mut locked = device.locked.lock().unwrap();
        locked.0 = at(5);
        if device.handshake.sleeps_past(|| locked.0) {
            device.is_woken.store(true, Ordering::Release);
        }
    }
    let until = helper.join().unwrap();
    let sleeps = until.is_none() && !device.is_woken.load(Ordering::Acquire);
    assert!(!sleeps, "the helper sleeps, and a timer is due");
}

/// A request waits only while the helper keeps watch, which sends it.
pub fn waiting_requests_are_watched() {
    let device = Device::new(None);
    let helper = {
        let device = Arc::clone(&device);
        thread::spawn(move || {
            device.handshake.begin_watch();
            let mut locked = device.locked.lock().unwrap();
            locked.1 = false;
            device.handshake.end_watch();
        })
    };
    {
        let mut locked = device.locked.lock().unwrap();
        locked.1 = device.handshake.is_watched();
    }
    helper.join().unwrap();
    assert!(!device.locked.lock().unwrap().1, "a request waits for ever");
}
