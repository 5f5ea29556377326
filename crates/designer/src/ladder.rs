//! The waits of a QP with a silent peer.

use ferroce_adp::trace::{Event, SilentPeer, Wait};
use ferroce_adp::{Policy, PolicyKind, QpTimeouts, RetryState};
use ferroce_base::time::Span;
use serde::Serialize;

/// Timers that are followed. A picture shows no more, and a profile may have a billion of them.
pub const WAITS_MAX: usize = 5_000;

/// The waits of a QP that draws the smallest initial timeout. What has no end is null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ladder {
    /// The QP's ACK timeout, which caps the waits under a profile.
    pub ack_timeout_ns: Option<u64>,
    /// When the QP gives up, counted from the first send.
    pub gives_up_ns: Option<u64>,
    /// Whether there are further steps.
    pub is_cut: bool,
    /// Equal waits that follow each other are one step.
    pub steps: Vec<Step>,
    /// The timeout ranges of a profile.
    pub bands: Vec<Band>,
}

/// Equal waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// How long each takes.
    pub wait_ns: Option<u64>,
    /// How many there are.
    pub count: u64,
    /// When the first begins, counted from the first send.
    pub from_ns: Option<u64>,
    /// When the last ends.
    pub at_ns: Option<u64>,
    /// The range in use meanwhile.
    pub range: Option<u8>,
    /// What each ends with.
    pub event: &'static str,
}

/// A timeout range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Band {
    /// Its shortest timeout.
    pub low_ns: u64,
    /// Its longest.
    pub high_ns: u64,
}

impl Ladder {
    /// The ladder of a QP under a policy. Its waits are as long as they may be.
    #[must_use]
    pub fn new(policy: &Policy, qp: QpTimeouts) -> Self {
        let state = RetryState::with_draw(policy, qp, 0, 0);
        let mut peer = SilentPeer::new(*policy, state);
        let mut steps: Vec<Step> = Vec::new();
        let mut before = Some(Span::ZERO);
        for wait in peer.by_ref().take(WAITS_MAX) {
            let step = Step::of(&wait, before);
            match steps.last_mut() {
                Some(last) if last.continues_in(&step) => {
                    last.count += 1;
                    last.at_ns = step.at_ns;
                }
                _ => steps.push(step),
            }
            before = wait.at;
        }
        Self {
            ack_timeout_ns: policy.ack_timeout(qp).map(Span::as_nanos),
            gives_up_ns: gives_up(policy, state, &steps),
            is_cut: peer.next().is_some(),
            steps,
            bands: bands(policy),
        }
    }
}

/// When the error comes: as the ladder shows, or else as the policy says.
fn gives_up(policy: &Policy, state: RetryState, steps: &[Step]) -> Option<u64> {
    match steps.last() {
        Some(last) if last.event == "error" => last.at_ns,
        Some(last) if last.event == "never" => None,
        _ => state.total(policy).map(Span::as_nanos),
    }
}

fn bands(policy: &Policy) -> Vec<Band> {
    let PolicyKind::Profile(profile) = &policy.kind else {
        return Vec::new();
    };
    let band = |range: ferroce_adp::Range| Band {
        low_ns: profile.duration(range.low()).as_nanos(),
        high_ns: profile
            .duration(range.high(policy.range_bound_exclusive))
            .as_nanos(),
    };
    profile.ranges().map(band).collect()
}

impl Step {
    fn of(wait: &Wait, from: Option<Span>) -> Self {
        Self {
            wait_ns: wait.wait.map(Span::as_nanos),
            count: 1,
            from_ns: from.map(Span::as_nanos),
            at_ns: wait.at.map(Span::as_nanos),
            range: wait.range,
            event: word(wait.event),
        }
    }

    fn continues_in(&self, next: &Self) -> bool {
        let kind = |it: &Self| (it.wait_ns, it.range, it.event);
        kind(self) == kind(next)
    }
}

/// What the expiry of a timer meant, in one word.
#[must_use]
pub fn word(event: Event) -> &'static str {
    match event {
        Event::Error => "error",
        Event::Never => "never",
        Event::Retransmit { .. } => "retransmit",
        Event::Initial => "initial",
    }
}
