//! The retransmission state of one QP.

use ferroce_time::{Span, Time};

use crate::adp::Adaptive;
use crate::firmware::Firmware;
use crate::ib::Ib;
use crate::policy::{Policy, PolicyKind, QpTimeouts};

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

/// The retransmission state of one QP: how long to wait, and when to give up.
///
/// The host owns the timer. It calls
/// - [`start`](Self::start) when it sends on a QP that had nothing outstanding,
/// - [`on_progress`](Self::on_progress) when an ACK or response advances the oldest unacknowledged
///   PSN,
/// - [`on_timeout`](Self::on_timeout) when the timer expires,
/// - [`on_sequence_nak`](Self::on_sequence_nak) when the peer, or a gap in its responses, asks for a
///   retransmission,
///
/// and arms the timer with [`wait`](Self::wait) after each of them, as long as something is
/// outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryState {
    /// When the total timeout began to run.
    pub(crate) clock: Time,
    /// The epoch of the policy that the rest belongs to.
    pub(crate) epoch: u64,
    pub(crate) qpn: u32,
    /// Which timeout is in use, in doublings of the policy's base.
    pub(crate) exponent: u16,
    /// How many timers of this timeout have expired.
    pub(crate) uses: u16,
    pub(crate) qp: QpTimeouts,
    /// The range in use, or [`NO_RANGE`].
    pub(crate) range: u8,
    /// Offset of the initial timeout in what it was drawn from.
    pub(crate) draw: u8,
    /// How much of the retry count is spent since the last progress.
    pub(crate) retries: u8,
    /// How many timers have expired since the last progress; stays at its maximum.
    pub(crate) expiries: u8,
    /// Whether the running timer is one of adaptive retransmission.
    pub(crate) adaptive: bool,
}

pub(crate) const NO_RANGE: u8 = u8::MAX;

const _: () = assert!(size_of::<RetryState>() <= 32, "a million QPs keep one each");

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
            retry_cnt: qp.retry_cnt & 7,
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

    /// So many of those expire.
    pub(crate) fn skip(&mut self, expiries: u64) {
        let add = |count: u64| count.saturating_add(expiries);
        self.uses = u16::try_from(add(self.uses.into())).unwrap_or(u16::MAX);
        self.expiries = u8::try_from(add(self.expiries.into())).unwrap_or(u8::MAX);
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

    /// Returns how many more sequence NAKs may be answered before the QP fails.
    #[must_use]
    pub const fn retries_left(&self) -> u8 {
        self.qp.retry_cnt.saturating_sub(self.retries)
    }

    /// Returns the current timeout as a number of doublings: of the profile's `time_base` under a
    /// profile, otherwise of 4.096 us. Under [`PolicyKind::Ib`] this is the enforced timeout code,
    /// of which the wait is a multiple.
    #[must_use]
    pub const fn exponent(&self) -> u16 {
        self.exponent
    }

    /// Returns the current range, or `None` during the initial timeout and for policies without
    /// ranges.
    #[must_use]
    pub const fn range(&self) -> Option<u8> {
        match self.range {
            NO_RANGE => None,
            range => Some(range),
        }
    }

    /// Returns the offset of the initial timeout in its range of draws.
    #[must_use]
    pub const fn draw(&self) -> u8 {
        self.draw
    }

    /// Returns the QP's attributes, reduced to their fields.
    #[must_use]
    pub const fn qp(&self) -> QpTimeouts {
        self.qp
    }

    /// Returns since when there has been no progress: from the first send, the last progress, or the
    /// end of a wait for the receiver.
    #[must_use]
    pub const fn silent_since(&self) -> Time {
        self.clock
    }

    /// Returns the QP's ACK timeout with the minimum enforced; `None` = never.
    #[must_use]
    pub const fn ack_timeout(&self, policy: &Policy) -> Option<Span> {
        policy.ack_timeout(self.qp)
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

/// The consequence of an expired timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Expiry {
    /// The QP fails with `IBV_WC_RETRY_EXC_ERR`.
    Fatal,
    /// The QP retransmits the oldest packet; the peer's answer determines the rest.
    Retransmit {
        /// Whether it was an adaptive retransmission timer. If so, it counts as `roce_adp_retrans`
        /// and is added to the histogram (D25), otherwise it counts as `local_ack_timeout_err`.
        adaptive: bool,
    },
    /// The first wait of a QP without an enforced minimum has ended: it counts as
    /// `local_ack_timeout_err`, nothing is sent, and the timer starts again (F15).
    Initial,
}

/// How timeouts follow each other: one algorithm, one file.
///
/// `ack` is the QP's ACK timeout with the minimum enforced; without one nothing here is called
/// but [`begin`](Self::begin) and [`on_progress`](Self::on_progress).
pub(crate) trait Algorithm {
    /// The first timeout, from `state.draw`.
    fn begin(&self, policy: &Policy, state: &mut RetryState);

    /// How long a timer runs that is armed at `now`.
    fn wait(&self, policy: &Policy, state: &RetryState, ack: Span, now: Time) -> Span;

    /// The same if a coarse timer shortens it.
    fn shortest_wait(&self, policy: &Policy, state: &RetryState, ack: Span, now: Time) -> Span {
        self.wait(policy, state, ack, now)
    }

    /// How many more times the timer may expire and change nothing but `state.uses`.
    fn repeats(&self, _: &Policy, _: &RetryState, _ack: Span) -> u64 {
        0
    }

    /// The next timeout after one has expired, or the end. `state.expiries` has been counted.
    fn on_timeout(&self, policy: &Policy, state: &mut RetryState, ack: Span, now: Time) -> Expiry;

    /// Whether time alone forbids another retransmission.
    fn is_over(&self, _: &Policy, _: &RetryState, _ack: Span, _now: Time) -> bool {
        false
    }

    /// The next timeout after forward progress. The host of the algorithm resets the rest.
    fn on_progress(&self, policy: &Policy, state: &mut RetryState);

    /// How long a silent peer is tolerated.
    fn total(&self, policy: &Policy, state: &RetryState, ack: Span) -> Option<Span>;

    /// The least of that.
    fn shortest_total(&self, policy: &Policy, state: &RetryState, ack: Span) -> Option<Span> {
        self.total(policy, state, ack)
    }
}
