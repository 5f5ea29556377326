//! Replays of one QP, with a silent peer or with a list of events.

use ferroce_base::time::{Span, Time};

use crate::policy::{Policy, QpTimeouts};
use crate::state::{Expiry, RetryState};

/// A QP whose peer is silent from the first send: an iterator over its waits, up to the one that
/// ends with the error.
///
/// It may never end: either [`Wait::event`] of the only wait is [`Event::Never`], or the total is
/// infinite and the waits go on for as long as the caller [`take`](Iterator::take)s them.
#[derive(Clone, Debug)]
pub struct SilentPeer {
    policy: Policy,
    state: RetryState,
    now: Time,
    is_over: bool,
}

impl SilentPeer {
    /// Creates a QP that is about to send for the first time.
    #[must_use]
    pub fn new(policy: Policy, mut state: RetryState) -> Self {
        state.start(&policy, Time::ZERO);
        Self {
            policy,
            state,
            now: Time::ZERO,
            is_over: false,
        }
    }

    /// Like [`new`](Self::new), with a given draw, counted from the smallest initial timeout.
    #[must_use]
    pub fn with_draw(policy: Policy, qp: QpTimeouts, draw: u8) -> Self {
        Self::new(policy, RetryState::with_draw(&policy, qp, 0, draw))
    }
}

impl Iterator for SilentPeer {
    type Item = Wait;

    fn next(&mut self) -> Option<Wait> {
        if self.is_over {
            return None;
        }
        let (exponent, range) = (self.state.exponent(), self.state.range());
        let wait = self.state.wait(&self.policy, self.now);
        let event = match wait {
            None => Event::Never,
            Some(wait) => {
                self.now = self.now.after(wait);
                match self.state.on_timeout(&self.policy, self.now) {
                    Expiry::Fatal => Event::Error,
                    Expiry::Retransmit { adaptive } => Event::Retransmit { adaptive },
                    Expiry::Initial => Event::Initial,
                }
            }
        };
        self.is_over = matches!(event, Event::Error | Event::Never);
        Some(Wait {
            wait,
            at: wait.map(|_| self.now.since(Time::ZERO)),
            exponent,
            range,
            event,
        })
    }
}

/// One timer of a [`SilentPeer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// How long the timer ran; `None` = it does not run.
    pub wait: Option<Span>,
    /// When it expired, counted from the first send.
    pub at: Option<Span>,
    /// The timeout during this wait; see [`RetryState::exponent`].
    pub exponent: u16,
    /// The range during this wait; see [`RetryState::range`].
    pub range: Option<u8>,
    /// The consequence of the expiry.
    pub event: Event,
}

/// The consequence of an expired timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The QP failed with `IBV_WC_RETRY_EXC_ERR`.
    Error,
    /// The timer never expires.
    Never,
    /// The oldest packet was retransmitted.
    Retransmit {
        /// Whether it was an adaptive retransmission timer; see [`Expiry::Retransmit`].
        adaptive: bool,
    },
    /// Nothing was sent; see [`Expiry::Initial`].
    Initial,
}

/// A QP with a list of inputs, in model time: a timeout occurs when the timer armed after the input
/// before it expires, progress occurs immediately.
#[derive(Clone, Debug)]
pub struct Replay<I> {
    policy: Policy,
    state: RetryState,
    now: Time,
    has_failed: bool,
    inputs: I,
}

impl<I: Iterator<Item = Input>> Replay<I> {
    /// Creates a QP that has just sent for the first time.
    #[must_use]
    pub fn new(policy: Policy, mut state: RetryState, inputs: I) -> Self {
        state.start(&policy, Time::ZERO);
        Self {
            policy,
            state,
            now: Time::ZERO,
            has_failed: false,
            inputs,
        }
    }
}

impl<I: Iterator<Item = Input>> Iterator for Replay<I> {
    type Item = Step;

    /// The state after the next input; nothing any more after the QP has failed.
    fn next(&mut self) -> Option<Step> {
        if self.has_failed {
            return None;
        }
        let input = self.inputs.next()?;
        match input {
            Input::Progress => self.state.on_progress(&self.policy, self.now),
            // A timer that does not run does not expire.
            Input::Timeout => {
                if let Some(wait) = self.state.wait(&self.policy, self.now) {
                    self.now = self.now.after(wait);
                    let expiry = self.state.on_timeout(&self.policy, self.now);
                    self.has_failed = expiry == Expiry::Fatal;
                }
            }
        }
        let timer = self.state.wait(&self.policy, self.now);
        Some(Step {
            input,
            exponent: self.state.exponent(),
            range: self.state.range(),
            timer: timer.filter(|_| !self.has_failed),
            has_failed: self.has_failed,
        })
    }
}

/// An input to a QP in a [`Replay`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The oldest unacknowledged PSN advances, and something stays outstanding.
    Progress,
    /// The timer expires.
    Timeout,
}

/// The state of a QP after one [`Input`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The input.
    pub input: Input,
    /// The current timeout; see [`RetryState::exponent`].
    pub exponent: u16,
    /// The current range; see [`RetryState::range`].
    pub range: Option<u8>,
    /// The duration of the timer that is now armed; `None` = there is none, or the QP has failed.
    pub timer: Option<Span>,
    /// Whether the input was the fatal timeout.
    pub has_failed: bool,
}
