//! What happens to a QP's retransmission state, by the algorithm in force.

use ferroce_base::time::{Span, Time};

use crate::adaptive::Adaptive;
use crate::firmware::Firmware;
use crate::ib::Ib;
use crate::policy::{Policy, PolicyKind, QpTimeouts};
use crate::state::{Algorithm, Expiry, NO_RANGE, RetryState};

/// Evaluates an expression with the algorithm in force.
macro_rules! dispatch {
    ($policy:expr, $algorithm:ident => $body:expr) => {
        match &$policy.kind {
            PolicyKind::Firmware {
                quantiser,
                initial_exponent,
            } => {
                let $algorithm = &Firmware {
                    quantiser: *quantiser,
                    initial_exponent: *initial_exponent,
                };
                $body
            }
            PolicyKind::Ib { multiplier } => {
                let $algorithm = &Ib {
                    multiplier: *multiplier,
                };
                $body
            }
            PolicyKind::Profile(profile) => {
                let $algorithm = &Adaptive { profile };
                $body
            }
        }
    };
}

impl RetryState {
    /// Creates the state of a new QP, whose initial timeout is drawn from the policy's seed and the
    /// QP's number.
    //= D26, D1
    #[must_use]
    pub fn new(policy: &Policy, qp: QpTimeouts, qpn: u32) -> Self {
        Self::with_draw(policy, qp, qpn, policy.draw(qpn))
    }

    /// Like [`new`](Self::new), with a given draw. `draw` counts from the smallest initial timeout;
    /// larger values than possible mean the largest.
    #[must_use]
    pub fn with_draw(policy: &Policy, qp: QpTimeouts, qpn: u32, draw: u8) -> Self {
        let qp = QpTimeouts {
            timeout: qp.timeout & 31,
            ..qp
        };
        let mut state = Self {
            clock: Time::ZERO,
            epoch: policy.epoch,
            qpn,
            exponent: 0,
            uses: 0,
            qp,
            range: NO_RANGE,
            draw: 0,
            retries: 0,
            expiries: 0,
            adaptive: false,
        };
        state.begin(policy, draw);
        state
    }

    /// The state of a QP that has recovered from timeouts under a profile, and made so much progress
    /// since that its timeout is down again: it is in the ranges, and waits no initial timeout any
    /// more. `None` for policies that begin anew with any progress.
    pub(crate) fn settled(policy: &Policy, qp: QpTimeouts) -> Option<Self> {
        let PolicyKind::Profile(profile) = &policy.kind else {
            return None;
        };
        let mut state = Self::with_draw(policy, qp, 0, 0);
        (state.range, state.exponent) = (0, profile.range(0).low());
        Some(state)
    }

    /// Records a first send on an idle QP.
    //= D5: the clock of the total timeout restarts.
    pub fn start(&mut self, policy: &Policy, now: Time) {
        self.catch_up(policy);
        self.clock = now;
    }

    /// Returns how long the ACK timer runs if it is armed at `now`; `None` = it does not run (D6).
    #[inline]
    #[must_use]
    pub fn wait(&self, policy: &Policy, now: Time) -> Option<Span> {
        let ack = policy.ack_timeout(self.qp)?;
        if self.epoch != policy.epoch {
            // No timer runs while one is being armed, so D22 has nothing to wait for.
            return self.caught_up(policy).wait(policy, now);
        }
        Some(dispatch!(policy, algorithm => algorithm.wait(policy, self, ack, now)))
    }

    /// The least that [`wait`](Self::wait) is if a coarse timer shortens it.
    pub(crate) fn shortest_wait(&self, policy: &Policy, now: Time) -> Option<Span> {
        let ack = policy.ack_timeout(self.qp)?;
        Some(dispatch!(policy, algorithm => algorithm.shortest_wait(policy, self, ack, now)))
    }

    /// How many more times the timer may expire before the timeout changes, if it is not the time
    /// that ends it; `u64::MAX` = it does not change any more.
    pub(crate) fn repeats(&self, policy: &Policy) -> u64 {
        let Some(ack) = policy.ack_timeout(self.qp) else {
            return 0;
        };
        dispatch!(policy, algorithm => algorithm.repeats(policy, self, ack))
    }

    /// Handles an expired ACK timer.
    #[inline]
    pub fn on_timeout(&mut self, policy: &Policy, now: Time) -> Expiry {
        let Some(ack) = policy.ack_timeout(self.qp) else {
            return Expiry::Retransmit { adaptive: false };
        };
        if self.epoch != policy.epoch {
            return self.on_stale_timeout(policy, ack, now);
        }
        self.expiries = self.expiries.saturating_add(1);
        dispatch!(policy, algorithm => algorithm.on_timeout(policy, self, ack, now))
    }

    /// Handles progress: the oldest unacknowledged PSN advanced.
    //= D17: the retry count resets, and the timeout shrinks as the policy says.
    //= D5: the clock restarts.
    #[inline]
    pub fn on_progress(&mut self, policy: &Policy, now: Time) {
        if self.epoch == policy.epoch {
            dispatch!(policy, algorithm => algorithm.on_progress(policy, self));
        }
        self.catch_up(policy);
        self.retries = 0;
        self.expiries = 0;
        self.clock = now;
    }

    /// Handles a request to retransmit, by a sequence error NAK or an equivalent gap in the
    /// responses. Returns whether the QP may still retry.
    //= D7: these use the retry count as the standard says, whatever the policy; progress resets it.
    pub fn on_sequence_nak(&mut self, policy: &Policy) -> bool {
        self.catch_up(policy);
        let may = self.retries < self.qp.retry_cnt;
        self.retries += u8::from(may);
        may
    }

    /// Handles an RNR NAK: the peer has received the oldest request in order, and had no receive
    /// posted.
    ///
    /// Nothing was lost, so no retry is used up, and the timeout does not change.
    pub fn on_receiver_not_ready(&mut self, policy: &Policy) {
        self.catch_up(policy);
        self.retries = 0;
    }

    /// Returns how long a silent peer is tolerated; `None` = forever. Like [`Policy::total`], but
    /// for this QP's draw.
    #[must_use]
    pub fn total(&self, policy: &Policy) -> Option<Span> {
        let ack = policy.ack_timeout(self.qp)?;
        let state = self.caught_up(policy);
        dispatch!(policy, algorithm => algorithm.total(policy, &state, ack))
    }

    /// Like [`total`](Self::total), if a coarse timer shortens every wait that it may. See
    /// [`Policy::shortest_total`].
    #[must_use]
    pub fn shortest_total(&self, policy: &Policy) -> Option<Span> {
        let ack = policy.ack_timeout(self.qp)?;
        let state = self.caught_up(policy);
        dispatch!(policy, algorithm => algorithm.shortest_total(policy, &state, ack))
    }

    /// A timer expired that was armed under an earlier policy.
    //= D22: it was to finish, and has; the QP draws its initial timeout anew. How long there was no
    //= progress does not depend on who asks, so the clock of the total goes on (D5).
    #[cold]
    fn on_stale_timeout(&mut self, policy: &Policy, ack: Span, now: Time) -> Expiry {
        let adaptive = self.adaptive;
        self.catch_up(policy);
        let is_over = dispatch!(policy, algorithm => algorithm.is_over(policy, self, ack, now));
        if is_over {
            Expiry::Fatal
        } else {
            Expiry::Retransmit { adaptive }
        }
    }

    /// Starts anew if the policy has changed.
    #[inline]
    fn catch_up(&mut self, policy: &Policy) {
        if self.epoch != policy.epoch {
            self.epoch = policy.epoch;
            self.begin(policy, policy.draw(self.qpn));
        }
    }

    fn caught_up(mut self, policy: &Policy) -> Self {
        self.catch_up(policy);
        self
    }

    fn begin(&mut self, policy: &Policy, draw: u8) {
        self.draw = draw.min(policy.draws() - 1);
        self.range = NO_RANGE;
        self.uses = 0;
        self.retries = 0;
        self.expiries = 0;
        dispatch!(policy, algorithm => algorithm.begin(policy, self));
    }
}

impl Policy {
    /// Returns how long a silent peer is tolerated; `None` = forever.
    ///
    /// Under a profile this is the total timeout, where 0 means up to the first expiry. Otherwise
    /// it is the sum of the waits with exact timers, and with the slowest draw if it depends on
    /// one.
    #[must_use]
    pub fn total(&self, qp: QpTimeouts) -> Option<Span> {
        RetryState::with_draw(self, qp, 0, u8::MAX).total(self)
    }

    /// Like [`total`](Self::total), but with the fastest draw, and with each wait as short as a
    /// coarse timer makes it.
    #[must_use]
    pub fn shortest_total(&self, qp: QpTimeouts) -> Option<Span> {
        RetryState::with_draw(self, qp, 0, 0).shortest_total(self)
    }
}
