//! Plain InfiniBand: the same wait every time, as often as the retry count allows.

use ferroce_base::time::{Span, Time};

use crate::policy::Policy;
use crate::state::{Algorithm, Expiry, RetryState};

/// Adaptive retransmission is off (D23).
pub(crate) struct Ib {
    pub(crate) multiplier: u8,
}

impl Ib {
    //= D23: the standard lets a timer run for 1 to 4 times its code's duration.
    fn multiplier(&self) -> u64 {
        self.multiplier.clamp(1, 4).into()
    }
}

impl Algorithm for Ib {
    fn begin(&self, policy: &Policy, state: &mut RetryState) {
        state.exponent = policy.floor.apply(state.qp.timeout).into();
        state.adaptive = false;
    }

    #[inline]
    fn wait(&self, _: &Policy, _: &RetryState, ack: Span, _: Time) -> Span {
        self.multiplier() * ack
    }

    //= D7: 7 means seven. Timeouts and sequence NAKs spend the same count.
    #[inline]
    fn on_timeout(&self, policy: &Policy, state: &mut RetryState, _: Span, _: Time) -> Expiry {
        state.exponent = policy.floor.apply(state.qp.timeout).into();
        if state.retries >= state.qp.retry_cnt {
            return Expiry::Fatal;
        }
        state.retries += 1;
        Expiry::Retransmit { adaptive: false }
    }

    #[inline]
    fn on_progress(&self, policy: &Policy, state: &mut RetryState) {
        self.begin(policy, state);
    }

    fn total(&self, _: &Policy, state: &RetryState, ack: Span) -> Option<Span> {
        Some(ack * self.multiplier() * (u64::from(state.qp.retry_cnt) + 1))
    }
}
