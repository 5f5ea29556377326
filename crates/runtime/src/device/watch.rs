//! Requests that wait to be sent together with others, and the helper's watch over them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use ferroce_driver::{Ring, Waiting, Watch, Watched};
use ferroce_os::Clock;

use super::progress::Shared;
use crate::link::Engine;

/// What a program and the helper tell each other of requests that wait. A line of the cache of its own:
/// the helper reads it all the time while it keeps watch.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct WatchState {
    /// What waits, as [`Waiting::to_bits`] tells it.
    waiting: AtomicU64,
    /// The program does not poll any more.
    is_at_rest: AtomicBool,
    /// The helper is to keep watch.
    pub(super) is_wanted: AtomicBool,
    /// It does. Changes only while a thread has the engine.
    pub(super) is_kept: AtomicBool,
}

impl WatchState {
    pub(super) fn waiting(&self) -> Waiting {
        Waiting::from_bits(self.waiting.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn note_rest(&self, is_at_rest: bool) {
        if self.is_at_rest.load(Ordering::Relaxed) != is_at_rest {
            self.is_at_rest.store(is_at_rest, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn tell(&self, waiting: Waiting) {
        let bits = waiting.to_bits();
        if self.waiting.load(Ordering::Relaxed) != bits {
            self.waiting.store(bits, Ordering::Relaxed);
        }
    }
}

impl Shared {
    /// What becomes of what the program has posted.
    #[inline]
    pub(super) fn ring(&self, engine: &mut Engine) -> Ring {
        engine.ring(self.watch.is_kept.load(Ordering::Relaxed))
    }

    /// Sends what the program has posted, unless that waits for more.
    pub(super) fn answer(&self, engine: &mut Engine, ring: Ring) {
        match ring {
            Ring::Waits => {}
            Ring::Fill => {
                self.note_poll_unless_at_rest();
                engine.send_batches();
                self.publish(engine);
            }
            Ring::Leaves { wants_watch } => {
                // Who posts goes on to poll.
                self.note_poll_unless_at_rest();
                self.send(engine);
                let polls = self.last_poll(Ordering::Relaxed).is_some();
                if wants_watch && polls && !self.watch.is_wanted.swap(true, Ordering::Relaxed) {
                    self.wake_helper();
                }
            }
        }
    }

    /// The helper stays awake for requests that wait, until the program turns to something else.
    pub(super) fn keep_watch(&self) {
        let begun = self.watch.is_kept.swap(true, Ordering::Relaxed);
        debug_assert!(!begun, "one thread keeps watch");
        let mut watch = Watch::new(Clock.now());
        loop {
            let is_at_rest = self.watch.is_at_rest.load(Ordering::Relaxed);
            let watched = match self.stop.load(Ordering::Acquire) {
                true => Watched::End,
                false => watch.look(Clock.now(), self.watch.waiting(), is_at_rest),
            };
            if watched != Watched::Again
                && let Some(mut engine) = self.try_lock()
            {
                self.send_deferred(&mut engine);
                if watched == Watched::End {
                    // From here on nothing waits any more.
                    self.watch.is_wanted.store(false, Ordering::Relaxed);
                    self.watch.is_kept.store(false, Ordering::Relaxed);
                    return;
                }
            }
            thread::yield_now();
        }
    }
}
