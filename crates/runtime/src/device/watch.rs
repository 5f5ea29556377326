//! Requests that wait to be sent together with others, and the helper's watch over them.

use std::thread;

use ferroce_driver::{Ring, Watch, Watched};
use ferroce_os::Clock;

use super::progress::{Shared, ran};
use super::stoppable::Stoppable;
use crate::links::Engine;

impl Shared {
    /// Whether what the program has posted leaves now.
    #[inline]
    pub(super) fn ring(&self, engine: &mut Engine) -> Ring {
        let handshake = &self.engine.handshake;
        let ring = engine.ring(handshake.is_watched(), handshake.take_pause());
        if ring == Ring::Waits {
            handshake.note_post();
        }
        ring
    }

    /// Sends what the program has posted, unless that waits for more.
    pub(super) fn answer(&self, engine: &mut Engine, ring: Ring) {
        match ring {
            Ring::Waits => {}
            Ring::Fill => {
                self.engine
                    .handshake
                    .note_poll_unless_at_rest(|| Clock.now(), ran);
                engine.send_batches();
                self.engine.handshake.note_end(|| Clock.now());
                self.publish(engine);
            }
            Ring::Leaves { wants_watch } => {
                // Who posts goes on to poll.
                self.engine
                    .handshake
                    .note_poll_unless_at_rest(|| Clock.now(), ran);
                self.send(engine);
                self.engine.handshake.note_end(|| Clock.now());
                let polls = self.engine.handshake.last_poll().is_some();
                if wants_watch && polls && self.engine.handshake.ask_for_watch() {
                    self.helper.wake();
                }
            }
        }
    }

    /// The helper stays awake for requests that wait, until the program turns to something else.
    pub(super) fn keep_watch(&self, program: Option<&Stoppable<'_>>) {
        self.engine.handshake.begin_watch();
        let mut watch = Watch::new(Clock.now());
        loop {
            let watched = match self.helper.is_stopped() {
                true => Watched::End,
                false => {
                    let is_at_rest = self.engine.handshake.is_at_rest();
                    watch.look(Clock.now(), self.engine.handshake.waiting(), is_at_rest)
                }
            };
            if watched != Watched::Again
                && let Some(mut engine) = self.try_lock_for_helper(program)
            {
                self.send_deferred(&mut engine);
                if watched == Watched::End {
                    // From here on nothing waits any more.
                    self.engine.handshake.end_watch();
                    return;
                }
            }
            thread::yield_now();
        }
    }
}
