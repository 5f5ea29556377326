//! The firmware's own timeouts, as measured in public on ConnectX-6 (D23).
//!
//! With the QP's enforced timeout code `c`, a QP that hears nothing waits `X, X, 2X, 4X .. N(c)`,
//! which add up to `2 N(c)` and cost one retry, and then `retry_cnt - 1` times `2 N(c)`. It
//! therefore fails after `retry_cnt * 2 * N(c)`, regardless of `X`. The waits up to `N(c)` are
//! adaptive retransmissions, the others plain timeouts.
//!
//! Two measurements do not fit this description, and are imitated:
//! - with a retry count of 0 the QP still retransmits seven times, and fails at the eighth expiry;
//! - without the enforced minimum, there is no adaptive retransmission (D8): the QP waits about
//!   `N(T)`, sends nothing, and then waits `N(T)` every time, as in plain InfiniBand (F15).
//!
//! The effect of progress was not measured with a peer that answers. Operators report that every
//! loss is first answered within milliseconds, regardless of the QP's timeout, so here progress
//! returns the wait to `X`.

use ferroce_base::time::{Span, Time};

use crate::ib::Ib;
use crate::policy::{AckTimeoutFloor, FIRMWARE_EXPONENTS, INITIAL_WAIT_PERCENT, Policy, UNIT};
use crate::rng;
use crate::state::{Algorithm, Expiry, RetryState};

/// Adaptive retransmission is on and no profile is active.
pub(crate) struct Firmware {
    pub(crate) quantiser: bool,
    pub(crate) initial_exponent: Option<u8>,
}

/// How often a QP with a retry count of 0 retransmits.
const RETRANSMISSIONS_OF_ZERO: u8 = 7;

/// Adaptive retransmission disappears together with the enforced minimum.
const PLAIN: Ib = Ib { multiplier: 1 };

impl Firmware {
    /// The first exponent; a ladder that would begin above its top is its top.
    fn first(&self, policy: &Policy, state: &RetryState) -> u16 {
        let drawn = FIRMWARE_EXPONENTS.start() + state.draw;
        let first = self.initial_exponent.unwrap_or(drawn);
        u16::from(first).min(top(policy, state))
    }

    /// Whether this wait is one of those that the device's coarse timer may shorten.
    //= D24, F14: f in {0.75, 1}. Measured: never the first wait, and of the plain ones only the first.
    fn may_be_shortened(&self, policy: &Policy, state: &RetryState) -> bool {
        let is_first_plain = state.uses == 0;
        self.quantiser
            && state.expiries > 0
            && (state.exponent <= top(policy, state) || is_first_plain)
    }

    /// Whether it does.
    #[inline]
    fn is_shortened(&self, policy: &Policy, state: &RetryState) -> bool {
        let key = [
            policy.seed ^ state.clock.as_nanos(),
            state.qpn.into(),
            state.expiries.into(),
        ];
        self.may_be_shortened(policy, state) && rng::draw(2, key) == 1
    }
}

/// How long a wait is, shortened or not.
#[inline]
fn length(policy: &Policy, state: &RetryState, is_shortened: bool) -> Span {
    let wait = UNIT.doubled(state.exponent.min(top(policy, state) + 1).into());
    if is_shortened { wait / 4 * 3 } else { wait }
}

/// The first wait without the enforced minimum.
//= F15: 0.51 to 1.16 of the timeout.
fn initial_wait(state: &RetryState, ack: Span) -> Span {
    let percent = INITIAL_WAIT_PERCENT.start() + state.draw;
    ack / 100 * percent.into()
}

/// The exponent of the longest adaptive wait.
fn top(policy: &Policy, state: &RetryState) -> u16 {
    policy.floor.apply(state.qp.timeout).into()
}

impl Algorithm for Firmware {
    fn begin(&self, policy: &Policy, state: &mut RetryState) {
        if policy.floor == AckTimeoutFloor::Disabled {
            return PLAIN.begin(policy, state);
        }
        state.exponent = self.first(policy, state);
        state.uses = 0;
        state.adaptive = true;
    }

    #[inline]
    fn wait(&self, policy: &Policy, state: &RetryState, ack: Span, now: Time) -> Span {
        if policy.floor == AckTimeoutFloor::Disabled {
            return match state.expiries {
                0 => initial_wait(state, ack),
                _ => PLAIN.wait(policy, state, ack, now),
            };
        }
        length(policy, state, self.is_shortened(policy, state))
    }

    fn shortest_wait(&self, policy: &Policy, state: &RetryState, ack: Span, now: Time) -> Span {
        if policy.floor == AckTimeoutFloor::Disabled {
            return self.wait(policy, state, ack, now);
        }
        length(policy, state, self.may_be_shortened(policy, state))
    }

    #[inline]
    fn on_timeout(&self, policy: &Policy, state: &mut RetryState, ack: Span, now: Time) -> Expiry {
        if policy.floor == AckTimeoutFloor::Disabled {
            return match state.expiries {
                1 => Expiry::Initial,
                _ => PLAIN.on_timeout(policy, state, ack, now),
            };
        }
        let top = top(policy, state);
        let adaptive = state.exponent <= top;
        let is_first = state.expiries == 1;
        if adaptive {
            // X is used twice, every other step once. Above the top lies the plain wait.
            state.exponent += u16::from(!is_first);
        }
        state.uses = if adaptive { 0 } else { 1 };
        state.adaptive = state.exponent <= top;
        let fatal = if state.qp.retry_cnt == 0 {
            state.expiries > RETRANSMISSIONS_OF_ZERO
        } else {
            // The ladder costs one unit, at its end; every plain timeout costs one.
            let costs = !adaptive || state.exponent > top;
            state.retries = state.retries.saturating_add(u8::from(costs));
            costs && state.retries >= state.qp.retry_cnt
        };
        if fatal {
            Expiry::Fatal
        } else {
            Expiry::Retransmit { adaptive }
        }
    }

    #[inline]
    fn on_progress(&self, policy: &Policy, state: &mut RetryState) {
        self.begin(policy, state);
    }

    fn total(&self, policy: &Policy, state: &RetryState, ack: Span) -> Option<Span> {
        if policy.floor == AckTimeoutFloor::Disabled {
            let plain = PLAIN.total(policy, state, ack)?;
            return Some(plain + initial_wait(state, ack));
        }
        let units = match state.qp.retry_cnt {
            0 => {
                let steps = top(policy, state) - self.first(policy, state) + 2;
                let expiries = u16::from(RETRANSMISSIONS_OF_ZERO) + 1;
                let Some(plain) = expiries.checked_sub(steps) else {
                    // The eighth expiry still lies on the ladder: X and X .. 64 X.
                    let longest = self.first(policy, state) + expiries - 1;
                    return Some(UNIT.doubled(longest.into()));
                };
                u64::from(plain) + 1
            }
            retry_cnt => retry_cnt.into(),
        };
        Some(ack * units * 2)
    }

    fn shortest_total(&self, policy: &Policy, state: &RetryState, ack: Span) -> Option<Span> {
        if policy.floor == AckTimeoutFloor::Disabled {
            return self.total(policy, state, ack);
        }
        let mut state = *state;
        self.begin(policy, &mut state);
        (state.retries, state.expiries) = (0, 0);
        let mut total = Span::ZERO;
        loop {
            total += self.shortest_wait(policy, &state, ack, Time::ZERO);
            state.expiries = state.expiries.saturating_add(1);
            if self.on_timeout(policy, &mut state, ack, Time::ZERO) == Expiry::Fatal {
                return Some(total);
            }
        }
    }
}
