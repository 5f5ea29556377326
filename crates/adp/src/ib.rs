//! Plain InfiniBand: the same wait every time, as often as the retry count allows.

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
    fn wait_ns(&self, _: &Policy, _: &RetryState, ack_ns: u64, _: u64) -> u64 {
        self.multiplier() * ack_ns
    }

    //= D7: 7 means seven. Timeouts and sequence NAKs spend the same count.
    #[inline]
    fn on_timeout(&self, policy: &Policy, state: &mut RetryState, _: u64, _: u64) -> Expiry {
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

    fn total_ns(&self, _: &Policy, state: &RetryState, ack_ns: u64) -> Option<u64> {
        Some((u64::from(state.qp.retry_cnt) + 1) * self.multiplier() * ack_ns)
    }
}
