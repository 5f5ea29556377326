//! The retransmission state of one QP, and what an algorithm makes of it.

use ferroce_base::time::{Span, Time};

use crate::policy::{Policy, QpTimeouts};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// Returns how many more sequence NAKs may be answered before the QP fails.
    #[must_use]
    pub const fn retries_left(&self) -> u8 {
        self.qp.retry_cnt.saturating_sub(self.retries)
    }

    /// Returns the current timeout as a number of doublings: of the profile's `time_base` under a
    /// profile, otherwise of 4.096 us. Under [`PolicyKind::Ib`](crate::PolicyKind::Ib) this is the enforced timeout code,
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

    /// This number of those expire.
    pub(crate) fn skip(&mut self, expiries: u64) {
        let add = |count: u64| count.saturating_add(expiries);
        self.uses = u16::try_from(add(self.uses.into())).unwrap_or(u16::MAX);
        self.expiries = u8::try_from(add(self.expiries.into())).unwrap_or(u8::MAX);
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
