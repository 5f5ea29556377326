//! Decides when posted requests are sent: immediately, or together with the next ones.

use ferroce_device::{Posted, Span, Time};

use crate::patience::{
    BATCH_BYTES, BATCH_REQUESTS, CALL_REQUESTS, CLOSE, LATE, SUCCESSION, TRUST_MAX, TRUST_MIN,
    WATCH, WATCH_WAITS,
};

/// What to do with requests that were posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ring {
    /// They wait for more requests or for the next poll; the watch sends them if neither happens.
    Waits,
    /// They fill a batch, which is sent, and may begin another one, which waits.
    Fill,
    /// They are sent immediately, together with everything that waits.
    Leaves {
        /// If the helper kept watch, later requests could wait.
        wants_watch: bool,
    },
}

/// Collects requests into batches.
///
/// A system call costs as much as twenty packets in a batch. So a request that comes while others of
/// its queue pair wait for their answers waits itself: the program will poll for those, and then it
/// leaves. It waits only after some have come in quick succession, so that a program which posts now and then
/// needs no watch; and while the helper keeps [watch](Watch), which sends it if the program turns to something
/// else instead. A program that has not done so for many batches is trusted, and its requests wait without a watch.
#[derive(Debug)]
pub(crate) struct Doorbell {
    /// When the first of the waiting requests was posted.
    since: Option<Time>,
    requests: u32,
    bytes: u32,
    /// The helper watches over them.
    is_watched: bool,
    /// Batches that have begun to wait under a watch so far.
    batches: u64,
    /// Batches that need one before the program is trusted.
    untrusted: u32,
    /// As many are needed after its next pause.
    penalty: u32,
    /// Those of the requests that are about to leave that could have waited for a watch.
    alone: u32,
    /// How many of these have left in quick succession, up to [`CALL_REQUESTS`].
    succession: u32,
    /// When requests left last.
    left: Time,
}

impl Default for Doorbell {
    fn default() -> Self {
        Self {
            since: None,
            requests: 0,
            bytes: 0,
            is_watched: false,
            batches: 0,
            untrusted: TRUST_MIN,
            penalty: TRUST_MIN,
            alone: 0,
            succession: 0,
            left: Time::ZERO,
        }
    }
}

impl Doorbell {
    /// The program has done something else than to post and to poll.
    #[cold]
    pub(crate) fn note_pause(&mut self) {
        if self.untrusted == 0 {
            self.penalty = TRUST_MAX.min(self.penalty * 2);
        }
        self.untrusted = self.penalty;
    }

    /// Decides about requests that have just been posted.
    #[inline]
    pub(crate) fn ring(
        &mut self,
        posted: Posted,
        is_watched: bool,
        now: impl Fn() -> Time,
    ) -> Ring {
        self.requests = self.requests.saturating_add(posted.requests);
        self.bytes = self.bytes.saturating_add(posted.bytes);
        if posted.at_once || self.requests >= BATCH_REQUESTS {
            return Ring::Leaves { wants_watch: false };
        }
        // What waits has a watch already.
        let ring = match self.since {
            Some(_) => Ring::Waits,
            None => self.begin(posted, is_watched, now()),
        };
        match ring {
            Ring::Waits if self.bytes >= BATCH_BYTES => Ring::Fill,
            ring => ring,
        }
    }

    /// Decides about the first that may wait.
    fn begin(&mut self, posted: Posted, is_watched: bool, now: Time) -> Ring {
        let pause = now.since(self.left);
        if pause >= SUCCESSION {
            self.succession = 0;
        }
        // Of what is not answered only the clock tells whether it follows on something.
        let follows = posted.requests > 0 && (posted.is_answered || pause < CLOSE);
        let may_wait = follows && self.succession >= CALL_REQUESTS;
        if may_wait && (is_watched || self.untrusted == 0) {
            self.keep(now);
            return Ring::Waits;
        }
        if follows {
            self.alone = posted.requests;
        }
        Ring::Leaves {
            wants_watch: may_wait,
        }
    }

    /// Something waits from now on.
    pub(crate) fn keep(&mut self, now: Time) {
        self.since = Some(now);
        self.is_watched = self.untrusted > 0;
        if self.is_watched {
            self.untrusted -= 1;
            self.batches += 1;
        }
    }

    /// Everything that could leave has left: packets, or nothing, as for a queue pair that first wants
    /// answers.
    #[inline]
    pub(crate) fn leave(&mut self, now: Time, has_sent: bool) {
        if self.requests == 0 && self.since.is_none() {
            return;
        }
        if has_sent {
            self.succession = CALL_REQUESTS.min(self.succession + self.alone);
            self.left = now;
        }
        // Neither the program nor the watch was there in time: for a while nothing waits for them.
        if self.since.is_some_and(|since| now.since(since) > LATE) {
            self.succession = 0;
        }
        (self.since, self.requests, self.bytes, self.alone) = (None, 0, 0, 0);
    }

    #[inline]
    pub(crate) fn waiting(&self) -> Waiting {
        let is_some = self.is_watched && self.since.is_some();
        Waiting(self.batches << 1 | u64::from(is_some))
    }
}

/// Identifies the batch of requests that waits under a watch, for a thread that checks without locking the device.
/// Each batch has a different value, and so has the state without one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waiting(u64);

impl Waiting {
    /// As a number.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// From the result of [`Self::to_bits`].
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    fn is_some(self) -> bool {
        self.0 & 1 == 1
    }
}

/// The helper's watch over waiting requests: it stays awake for them, because waking up takes longer than
/// they may wait.
#[derive(Clone, Debug)]
pub struct Watch {
    seen: Waiting,
    since: Time,
}

/// What the helper does after a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watched {
    /// Check again, after yielding the core.
    Again,
    /// Send what waits, unless the program has the device at this moment.
    Send,
    /// Send what waits, and end the watch.
    End,
}

impl Watch {
    /// A watch that starts now.
    pub fn new(now: Time) -> Self {
        Self {
            seen: Waiting::default(),
            since: now,
        }
    }

    /// Checks what waits. If the program is at rest, the helper takes over the device immediately.
    pub fn look(&mut self, now: Time, waiting: Waiting, is_at_rest: bool) -> Watched {
        if is_at_rest {
            return Watched::End;
        }
        if self.seen != waiting {
            self.seen = waiting;
            self.since = now;
            return Watched::Again;
        }
        let still: Span = now.since(self.since);
        if waiting.is_some() && still >= WATCH_WAITS {
            return Watched::Send;
        }
        match still >= WATCH {
            true => Watched::End,
            false => Watched::Again,
        }
    }
}
