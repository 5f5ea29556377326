//! Timeouts under an active profile: the vendor's documented algorithm, with its gaps filled.

use ferroce_base::time::{Span, Time};

use crate::policy::{DecTrigger, Policy};
use crate::profile::{DecMode, Profile, Range};
use crate::state::{Algorithm, Expiry, NO_RANGE, RetryState};

/// Adaptive retransmission by a profile.
pub(crate) struct Adaptive<'a> {
    pub(crate) profile: &'a Profile,
}

impl Adaptive<'_> {
    /// The first timeout has expired: the ranges begin.
    //= D3: inside a range, and the lowest index wins, the same exponent begins that range's count
    //= of uses; outside of all, the low bound of the start range does. Nothing doubles yet.
    #[cold]
    fn enter(&self, policy: &Policy, state: &mut RetryState) {
        let exclusive = policy.range_bound_exclusive;
        let holds = |range: Range| (range.low()..=range.high(exclusive)).contains(&state.exponent);
        let raw = self.profile.raw();
        if let Some(found) = (0..raw.range_num).find(|&i| holds(self.profile.range(i))) {
            state.range = found;
        } else {
            state.range = raw.start_range_index;
            state.exponent = self.profile.range(state.range).low();
        }
        state.uses = 0;
    }

    /// The next longer timeout, if there is one.
    #[inline]
    fn raise(&self, policy: &Policy, state: &mut RetryState) {
        let exclusive = policy.range_bound_exclusive;
        let next = state.exponent + 1;
        if next <= self.profile.range(state.range).high(exclusive) {
            state.exponent = next;
            state.uses = 0;
            return;
        }
        //= D15: upwards into the next range that reaches above the exponent, at its low bound or
        //= one step on, whichever is longer.
        for i in state.range + 1..self.profile.raw().range_num {
            let range = self.profile.range(i);
            if range.high(exclusive) >= next {
                state.range = i;
                state.exponent = range.low().max(next);
                state.uses = 0;
                return;
            }
        }
        //= D16: past the last range its upper bound holds.
    }

    /// The next shorter timeout.
    #[inline]
    fn lower(&self, policy: &Policy, state: &mut RetryState) {
        let range = self.profile.range(state.range);
        let low = range.low();
        if state.exponent > low {
            //= D18: a half is one exponent, a quarter two; the low bound ends both.
            state.exponent = match range.dec_mode() {
                DecMode::Div4 => state.exponent.saturating_sub(2).max(low),
                DecMode::Div2 => (state.exponent - 1).max(low),
                DecMode::LowBound => low,
            };
        } else if state.range > 0 {
            //= D18: at the low bound, on to the previous range, at its upper bound or one step
            //= down, whichever is shorter. D10: range 0 stays.
            state.range = range.prev();
            let high = self
                .profile
                .range(state.range)
                .high(policy.range_bound_exclusive);
            state.exponent = high.min(state.exponent.saturating_sub(1));
        }
    }

    /// Whether the QP's ACK timeout cuts the wait.
    //= D4: no longer timeout once the cap is reached.
    #[inline]
    fn is_capped(&self, state: &RetryState, ack: Span) -> bool {
        self.profile.duration(state.exponent) >= ack
    }

    /// Whether there is no longer timeout.
    fn is_last(&self, policy: &Policy, state: &RetryState, ack: Span) -> bool {
        let mut raised = *state;
        self.raise(policy, &mut raised);
        raised.exponent == state.exponent || self.is_capped(state, ack)
    }

    /// How long after the last progress the QP fails; `None` = never.
    //= D5, D7: the QP's own product or the profile's exponent. D14: what saturates never comes.
    #[inline]
    fn limit(&self, state: &RetryState, ack: Span) -> Option<Span> {
        let raw = self.profile.raw();
        if raw.qp_total_timeout {
            return Some(ack * u64::from(state.qp.retry_cnt));
        }
        let limit = self.profile.duration(raw.retx_total_timeout.into());
        (limit < Span::NEVER).then_some(limit)
    }
}

impl Algorithm for Adaptive<'_> {
    //= D1: a uniform exponent in low ..= low + size - 1.
    fn begin(&self, _: &Policy, state: &mut RetryState) {
        let low = self.profile.raw().timeout_init_low_bound;
        state.exponent = u16::from(low) + u16::from(state.draw);
        state.adaptive = true;
    }

    //= D4: the QP's ACK timeout caps every wait. D5: the last one ends exactly at the total; a
    //= total of 0 cuts nothing, and makes the first expiry fatal (D7).
    #[inline]
    fn wait(&self, _: &Policy, state: &RetryState, ack: Span, now: Time) -> Span {
        let wait = self.profile.duration(state.exponent).min(ack);
        match self.limit(state, ack) {
            None | Some(Span::ZERO) => wait,
            Some(limit) => {
                let elapsed = now.since(state.clock);
                wait.min(limit - elapsed)
            }
        }
    }

    fn repeats(&self, policy: &Policy, state: &RetryState, ack: Span) -> u64 {
        match state.range {
            NO_RANGE => 0,
            _ if self.is_last(policy, state, ack) => u64::MAX,
            range => {
                let last = self.profile.range(range).uses() - 1;
                last.saturating_sub(state.uses).into()
            }
        }
    }

    #[inline]
    fn on_timeout(&self, policy: &Policy, state: &mut RetryState, ack: Span, now: Time) -> Expiry {
        //= D5: the fatal expiry changes nothing and is no retransmission.
        if self.is_over(policy, state, ack, now) {
            return Expiry::Fatal;
        }
        if state.range == NO_RANGE {
            self.enter(policy, state);
            return Expiry::Retransmit { adaptive: true };
        }
        state.uses = state.uses.saturating_add(1);
        if state.uses >= self.profile.range(state.range).uses() && !self.is_capped(state, ack) {
            self.raise(policy, state);
        }
        Expiry::Retransmit { adaptive: true }
    }

    #[inline]
    fn is_over(&self, _: &Policy, state: &RetryState, ack: Span, now: Time) -> bool {
        let elapsed = now.since(state.clock);
        self.limit(state, ack).is_some_and(|limit| elapsed >= limit)
    }

    //= D17: one step per progress, only once in a range.
    #[inline]
    fn on_progress(&self, policy: &Policy, state: &mut RetryState) {
        let is_due = policy.dec_trigger == DecTrigger::PerProgress || state.expiries > 0;
        if state.range != NO_RANGE {
            state.uses = 0;
            if is_due {
                self.lower(policy, state);
            }
        }
    }

    fn total(&self, _: &Policy, state: &RetryState, ack: Span) -> Option<Span> {
        self.limit(state, ack)
    }
}
