//! The way back: from the outages that are to be survived to a QP's attributes, or a profile's.

use ferroce_time::Span;

use crate::endurance::Endurance;
use crate::policy::{Policy, PolicyKind, QpTimeouts};
use crate::profile::{Profile, RawProfile};

/// What an operator asks of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Every outage up to this long is survived.
    pub survive: Span,
    /// A dead peer is noticed within this time; [`Span::NEVER`] = whenever.
    pub detect_within: Span,
}

/// How one policy meets a [`Demand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The QP's attributes.
    pub qp: QpTimeouts,
    /// How such a QP fares. [`Endurance::resumes_within`] and [`Endurance::retransmissions`] are
    /// those of the outage in question.
    pub endurance: Endurance,
}

impl Demand {
    /// How a QP fares, if that meets the demand.
    #[must_use]
    pub fn met_by(&self, policy: &Policy, qp: QpTimeouts) -> Option<Answer> {
        let endurance = Endurance::within(policy, qp, self.survive)?;
        let is_met =
            endurance.outlives(self.survive) && endurance.gives_up_last <= self.detect_within;
        is_met.then_some(Answer { qp, endurance })
    }

    /// The smallest timeout that meets the demand with some retry count, and the smallest such
    /// count. Timeouts below the enforced minimum are left out, they are the minimum; so is a retry
    /// count of 0, with which the first packet that overtakes another one is fatal.
    #[must_use]
    pub fn smallest(&self, policy: &Policy) -> Option<Answer> {
        attributes(policy).find_map(|qp| self.met_by(policy, qp))
    }

    /// The profile with a total of its own, and the shortest that meets the demand for this QP.
    #[must_use]
    pub fn own_total(&self, profile: &Profile, policy: &Policy, qp: QpTimeouts) -> Option<Owned> {
        let totals = 0..=u8::MAX;
        totals
            .map(|retx_total_timeout| RawProfile {
                qp_total_timeout: false,
                retx_total_timeout,
                ..*profile.raw()
            })
            .filter_map(|raw| Profile::try_from(raw).ok())
            // A longer one never gives up earlier.
            .take_while(|profile| total(profile) <= self.detect_within)
            .filter(|profile| total(profile) >= self.survive)
            .find_map(|profile| {
                let mut policy = *policy;
                policy.kind = PolicyKind::Profile(profile);
                let answer = self.met_by(&policy, qp)?;
                Some(Owned { profile, answer })
            })
    }

    /// How soon a dead peer can be noticed at best by QPs that survive this outage.
    #[must_use]
    pub fn soonest(&self, policy: &Policy) -> Option<Answer> {
        let patient = Self {
            detect_within: Span::NEVER,
            ..*self
        };
        attributes(policy)
            .filter_map(|qp| patient.met_by(policy, qp))
            .min_by_key(|answer| answer.endurance.gives_up_last)
    }
}

/// A profile that was given a total of its own, and how it meets the demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The profile.
    pub profile: Profile,
    /// How it fares.
    pub answer: Answer,
}

/// Every pair of attributes with an ACK timer and retries, the smallest timeouts first.
fn attributes(policy: &Policy) -> impl Iterator<Item = QpTimeouts> {
    let least = policy.floor.apply(1);
    (least..=31).flat_map(|timeout| (1..=7).map(move |retry_cnt| QpTimeouts { timeout, retry_cnt }))
}

fn total(profile: &Profile) -> Span {
    profile.duration(profile.raw().retx_total_timeout.into())
}
