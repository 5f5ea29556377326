//! From outages to settings: finds the QP attributes, or the profile, that survive given outages.

use ferroce_base::time::Span;

use crate::endurance::Endurance;
use crate::policy::{Policy, PolicyKind, QpTimeouts};
use crate::profile::Profile;
use crate::raw::RawProfile;

/// An operator's requirements for a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Every outage up to this length must be survived.
    pub survive: Span,
    /// A dead peer must be detected within this time; [`Span::NEVER`] = no limit.
    pub detect_within: Span,
}

/// A setting that meets a [`Demand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The QP's attributes.
    pub qp: QpTimeouts,
    /// The figures of such a QP. [`Endurance::resumes_within`] and [`Endurance::retransmissions`]
    /// apply to the demanded outage.
    pub endurance: Endurance,
}

impl Demand {
    /// Returns the figures of a QP, if it meets the demand.
    #[must_use]
    pub fn met_by(&self, policy: &Policy, qp: QpTimeouts) -> Option<Answer> {
        let endurance = Endurance::within(policy, qp, self.survive)?;
        let is_met =
            endurance.outlives(self.survive) && endurance.gives_up_last <= self.detect_within;
        is_met.then_some(Answer { qp, endurance })
    }

    /// Returns the smallest timeout that meets the demand with some retry count, and the smallest
    /// such count. Timeouts below the enforced minimum are skipped because they equal the minimum.
    /// A retry count of 0 is skipped because it makes the first packet that overtakes another one
    /// fatal.
    #[must_use]
    pub fn smallest(&self, policy: &Policy) -> Option<Answer> {
        attributes(policy).find_map(|qp| self.met_by(policy, qp))
    }

    /// Returns the profile with its own total, the shortest one that meets the demand for this QP.
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

    /// Returns the setting that detects a dead peer soonest among those that survive this outage.
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

/// A profile with its own total, and how it meets the demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The profile.
    pub profile: Profile,
    /// Its figures.
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
