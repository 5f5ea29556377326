//! Waiting for what must happen, and how long a machine keeps threads waiting.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Tells the threads of a test that it is over when it goes, also when the test fails.
#[derive(Debug)]
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Longer than anything takes on a busy machine, so that a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is so, as it soon must be.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "not so: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The longest time that a thread waited for a processor while `run` ran.
///
/// A machine with too much else to do makes waits longer; tests that measure them repeat what such a
/// machine has disturbed.
pub fn longest_wait<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    const NAP: Duration = Duration::from_millis(1);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !over.load(Ordering::Relaxed) {
                let started = Instant::now();
                thread::sleep(NAP);
                longest = longest.max(started.elapsed() - NAP);
            }
            longest
        });
        let done = {
            let _over = Over(&over);
            run()
        };
        (done, watcher.join().unwrap())
    })
}
