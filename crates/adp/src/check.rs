//! The findings about a profile: errors, and values that are legal but suspicious.

mod suspicion;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use ferroce_base::time::Span;

use self::suspicion::Suspicion;
use crate::policy::{AckTimeoutFloor, QpTimeouts};
use crate::profile::Profile;
use crate::raw::RawProfile;
use crate::violation::{FieldName, Rule, Violation, violations};

impl RawProfile {
    /// Returns all errors and suspicious values of the profile, for the most common QP: timeout 14,
    /// retry count 7, minimum enforced.
    #[must_use]
    pub fn check(&self) -> Report {
        self.check_for(
            QpTimeouts {
                timeout: 14,
                retry_cnt: 7,
            },
            Default::default(),
        )
    }

    /// Like [`check`](Self::check), for a given QP. Violations do not depend on it, some warnings
    /// do.
    #[must_use]
    pub fn check_for(&self, qp: QpTimeouts, floor: AckTimeoutFloor) -> Report {
        let violations = violations(self);
        match Profile::checked(self, &violations) {
            Some(profile) => Suspicion::new(&profile, qp, floor).report(),
            None => Report {
                violations,
                ..Report::default()
            },
        }
    }
}

/// The findings about a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Reasons why the profile is invalid. A device refuses it.
    pub violations: Vec<Violation>,
    /// Legal but suspicious values.
    pub warnings: Vec<Warning>,
    /// Effects of the profile on a QP that are worth knowing.
    pub notes: Vec<Warning>,
}

impl Report {
    /// Whether the profile is valid.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.violations.is_empty()
    }

    /// Returns whether the profile would kill jobs, or their network.
    #[must_use]
    pub fn is_deadly(&self) -> bool {
        self.warnings.iter().any(|warning| warning.is_deadly)
    }

    /// Merges the findings about the same profile for another QP; findings that both have appear
    /// once.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        let add = |found: &mut Vec<Warning>, others: Vec<Warning>| {
            for other in others {
                let is_same = |it: &&mut Warning| (it.rule, it.field) == (other.rule, other.field);
                match found.iter_mut().find(is_same) {
                    Some(same) if same.is_deadly || !other.is_deadly => {}
                    Some(same) => *same = other,
                    None => found.push(other),
                }
            }
        };
        add(&mut self.warnings, other.warnings);
        add(&mut self.notes, other.notes);
        self
    }
}

/// A legal but suspicious value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The rule it comes from.
    pub rule: Rule,
    /// The field.
    pub field: FieldName,
    /// Its value.
    pub value: i64,
    /// The consequence.
    pub text: String,
    /// What to write instead.
    pub instead: String,
    /// Whether it kills jobs, or their network: such a profile should only be written to a device
    /// after confirmation.
    pub is_deadly: bool,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            value,
            text,
            instead,
            ..
        } = self;
        write!(f, "{field} = {value}: {text}; {instead}")
    }
}

/// A QP that gives up earlier than this fails in outages that occur in every network: a link that
/// retrains, a route that changes. This limit is our judgement, from the outages that operators
/// report; no document specifies one.
pub const TOTAL_MIN: Span = Span::from_secs(1);

/// No acknowledgement comes back sooner than this on a network with switches, so a shorter wait
/// retransmits every message, even if nothing was lost. This limit is our judgement: an idle
/// fabric's round trip is 5 to 20 us.
pub const ROUND_TRIP_MIN: Span = Span::from_micros(20);

/// On a loaded network, an acknowledgement may take this long. This limit is our judgement: 1 MiB
/// in a switch's queue takes 84 us at 100 Gb/s.
pub const ROUND_TRIP_LOADED: Span = Span::from_micros(200);

/// The outage over which retransmissions are counted, or as much of it as the QP survives.
pub const FLOOD_OUTAGE: Span = Span::from_secs(10);

/// This many retransmissions of one QP in that time add to the congestion that may have caused
/// them: a wait of 10 ms each time.
pub const FLOOD: u64 = 1_000;
