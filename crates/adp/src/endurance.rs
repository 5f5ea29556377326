//! The effect of an outage on a QP: how long the outage may last, how soon the QP resumes
//! afterwards, and when it gives up.
//!
//! The outage begins while the QP has something outstanding, which is the worst case, and every
//! packet is lost until the link returns. A QP therefore survives an outage if and only if it sends
//! a retransmission after the outage ends. The last retransmission is sent one wait before the
//! error, and a link that returns during that last wait is too late: a QP that gives up after 60 s
//! does not survive an outage of 59 s if its last wait is 8 s.

use ferroce_base::time::{Span, Time};

use crate::policy::{Policy, PolicyKind, QpTimeouts};
use crate::state::{Expiry, RetryState};

/// The figures of a policy's QPs in an outage. They hold for every initial timeout a QP may draw,
/// whether or not it has recovered from an outage before, and however a coarse timer shortens its
/// waits (F14). [`Span::NEVER`] means without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endurance {
    /// The longest outage that every QP survives; zero if not even a lost packet is survived.
    pub survives: Span,
    /// The longest outage that any QP survives: the one with the latest last retransmission.
    pub survives_at_best: Span,
    /// When the first QP gives up, counted from its last progress.
    pub gives_up_first: Span,
    /// When the last QP gives up: by then a dead peer has been detected.
    pub gives_up_last: Span,
    /// The maximum time from the end of an outage to the next retransmission. Zero if there is
    /// none.
    pub resumes_within: Span,
    /// The maximum number of retransmissions of a QP during an outage.
    pub retransmissions: u64,
    /// The shortest wait before a retransmission, or the only wait.
    pub shortest_wait: Span,
}

impl Endurance {
    /// Returns the figures for outages of any length that QPs survive, or `None` if the QP's ACK
    /// timer is off (D6) and it never retransmits.
    #[must_use]
    pub fn of(policy: &Policy, qp: QpTimeouts) -> Option<Self> {
        Self::within(policy, qp, Span::NEVER)
    }

    /// Like [`of`](Self::of), but [`resumes_within`](Self::resumes_within) and
    /// [`retransmissions`](Self::retransmissions) only cover outages of up to `outage`.
    #[must_use]
    pub fn within(policy: &Policy, qp: QpTimeouts, outage: Span) -> Option<Self> {
        policy.ack_timeout(qp)?;
        let draws = (0..policy.draws()).map(|draw| RetryState::with_draw(policy, qp, 0, draw));
        let states = draws.chain(RetryState::settled(policy, qp));
        let figures = states.map(|state| Self::of_state(policy, state, outage));
        figures.reduce(Self::or)
    }

    /// Returns the figures of QPs that have drawn one particular initial timeout.
    #[must_use]
    pub fn of_draw(policy: &Policy, qp: QpTimeouts, draw: u8, outage: Span) -> Self {
        Self::of_state(policy, RetryState::with_draw(policy, qp, 0, draw), outage)
    }

    fn of_state(policy: &Policy, state: RetryState, outage: Span) -> Self {
        let ladder = Ladder::new(policy, state);
        let mut found = Self {
            survives: Span::ZERO,
            survives_at_best: Span::ZERO,
            gives_up_first: Span::NEVER,
            gives_up_last: Span::NEVER,
            resumes_within: Span::ZERO,
            retransmissions: 0,
            shortest_wait: Span::NEVER,
        };
        let (mut earliest, mut latest) = (Span::ZERO, Span::ZERO);
        // Since something was last sent.
        let mut gap = Span::ZERO;
        let mut sent_earliest = Span::ZERO;
        for step in ladder {
            let before = earliest;
            earliest += step.shortest * step.count;
            latest += step.longest * step.count;
            gap += step.longest;
            match step.expiry {
                Expiry::Initial => found.shortest_wait = step.shortest,
                Expiry::Fatal => {
                    if found.survives == Span::ZERO {
                        found.shortest_wait = found.shortest_wait.min(step.shortest);
                    }
                    (found.gives_up_first, found.gives_up_last) = (earliest, latest);
                    break;
                }
                Expiry::Retransmit { .. } => {
                    found.shortest_wait = found.shortest_wait.min(step.shortest);
                    if sent_earliest < outage {
                        found.resumes_within = found.resumes_within.max(gap);
                        let left = (outage - before).as_picos();
                        let in_outage = left / step.shortest.as_picos().max(1);
                        let lost = in_outage.min(step.count);
                        found.retransmissions = found.retransmissions.saturating_add(lost);
                    }
                    (found.survives, found.survives_at_best) = (earliest, latest);
                    (gap, sent_earliest) = (Span::ZERO, earliest);
                }
            }
        }
        found
    }

    /// Returns whether every QP survives outages of this length.
    #[must_use]
    pub fn outlives(&self, outage: Span) -> bool {
        self.survives >= outage
    }

    /// Both together: the worse of two promises, and all of what may happen.
    fn or(self, other: Self) -> Self {
        Self {
            survives: self.survives.min(other.survives),
            survives_at_best: self.survives_at_best.max(other.survives_at_best),
            gives_up_first: self.gives_up_first.min(other.gives_up_first),
            gives_up_last: self.gives_up_last.max(other.gives_up_last),
            resumes_within: self.resumes_within.max(other.resumes_within),
            retransmissions: self.retransmissions.max(other.retransmissions),
            shortest_wait: self.shortest_wait.min(other.shortest_wait),
        }
    }
}

/// Equal timers of a QP whose peer is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Steps {
    /// How long each takes at most, and how short a coarse timer may make it.
    longest: Span,
    shortest: Span,
    count: u64,
    expiry: Expiry,
}

/// The waits of a QP whose peer is silent, equal neighbours at once: a profile may wait a billion
/// times for a microsecond.
struct Ladder<'a> {
    /// With exact timers.
    exact: Policy,
    /// As it is.
    policy: &'a Policy,
    state: RetryState,
    now: Time,
    /// When a profile's time is over; for other policies it is not the time that decides.
    limit: Span,
    is_over: bool,
}

impl<'a> Ladder<'a> {
    fn new(policy: &'a Policy, state: RetryState) -> Self {
        let mut exact = *policy;
        if let PolicyKind::Firmware { quantiser, .. } = &mut exact.kind {
            *quantiser = false;
        }
        Self {
            limit: state.total(&exact).unwrap_or(Span::NEVER),
            exact,
            policy,
            state,
            now: Time::ZERO,
            is_over: false,
        }
    }
}

impl Iterator for Ladder<'_> {
    type Item = Steps;

    fn next(&mut self) -> Option<Steps> {
        if self.is_over {
            return None;
        }
        let longest = self.state.wait(&self.exact, self.now)?;
        let shortest = self.state.shortest_wait(self.policy, self.now)?;
        let left = self.limit - self.now.since(Time::ZERO) - Span::from_picos(1);
        let before_limit = match self.limit {
            Span::NEVER => u64::MAX,
            _ => left / longest.max(Span::from_picos(1)),
        };
        let repeats = self.state.repeats(&self.exact).min(before_limit);
        if repeats > 0 {
            // One that never changes and has no limit is the last step there is.
            self.is_over = repeats == u64::MAX;
            self.state.skip(repeats);
            self.now = self.now.after(longest * repeats);
            return Some(Steps {
                longest,
                shortest,
                count: repeats,
                expiry: Expiry::Retransmit { adaptive: true },
            });
        }
        self.now = self.now.after(longest);
        let expiry = self.state.on_timeout(&self.exact, self.now);
        self.is_over = expiry == Expiry::Fatal;
        Some(Steps {
            longest,
            shortest,
            count: 1,
            expiry,
        })
    }
}
