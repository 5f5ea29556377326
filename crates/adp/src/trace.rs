//! Replays of one QP: against a silent peer, or along a list of events.

use ferroce_time::{Span, Time};

use crate::policy::{Policy, QpTimeouts};
use crate::state::{Expiry, RetryState};

/// A QP whose peer is silent from its first send on: an iterator over its waits, up to the one that
/// ends in the error.
///
/// It may not end: then [`Wait::event`] of the only wait is [`Event::Never`], or the total is
/// infinite and the waits go on for as long as the caller likes to [`take`](Iterator::take) them.
#[derive(Clone, Debug)]
pub struct SilentPeer {
    policy: Policy,
    state: RetryState,
    now: Time,
    is_over: bool,
}

impl SilentPeer {
    /// A QP that is about to send for the first time.
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

    /// The same with the draw forced, counted from the smallest initial timeout.
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
    /// The timeout in use meanwhile; see [`RetryState::exponent`].
    pub exponent: u16,
    /// The range in use meanwhile; see [`RetryState::range`].
    pub range: Option<u8>,
    /// What the expiry meant.
    pub event: Event,
}

/// What the expiry of a timer meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The QP failed with `IBV_WC_RETRY_EXC_ERR`.
    Error,
    /// The timer never expires.
    Never,
    /// The oldest packet was sent again.
    Retransmit {
        /// Whether it was a timer of adaptive retransmission; see [`Expiry::Retransmit`].
        adaptive: bool,
    },
    /// Nothing was sent; see [`Expiry::Initial`].
    Initial,
}

/// A QP along a list of inputs, in model time: a timeout comes when the timer armed by the input
/// before it expires, progress comes at once.
#[derive(Clone, Debug)]
pub struct Replay<I> {
    policy: Policy,
    state: RetryState,
    now: Time,
    has_failed: bool,
    inputs: I,
}

impl<I: Iterator<Item = Input>> Replay<I> {
    /// A QP that has just sent for the first time.
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

/// What happens to a QP in a [`Replay`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The oldest unacknowledged PSN advances, and something stays outstanding.
    Progress,
    /// The timer expires.
    Timeout,
}

/// Where a QP stands after one [`Input`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The input.
    pub input: Input,
    /// The timeout in use; see [`RetryState::exponent`].
    pub exponent: u16,
    /// The range in use; see [`RetryState::range`].
    pub range: Option<u8>,
    /// How long the timer runs that is armed now; `None` = it does not, or the QP has failed.
    pub timer: Option<Span>,
    /// Whether the input was the fatal timeout.
    pub has_failed: bool,
}
