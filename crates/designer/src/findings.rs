//! Errors and suspicious values in a profile, and its effect on QPs.

use ferroce_adp::file::Document;
use ferroce_adp::file::import::ImportError;
use ferroce_adp::{AckTimeoutFloor, Endurance, Policy, PolicyKind, Profile, QpTimeouts, Report};
use serde::Serialize;

/// perftest's, which is also that of many programs' own, and NCCL's.
pub const COMMON_QPS: [QpTimeouts; 2] = [
    QpTimeouts {
        timeout: 14,
        retry_cnt: 7,
    },
    QpTimeouts {
        timeout: 20,
        retry_cnt: 7,
    },
];

/// What is found about a profile with any of these QPs.
#[must_use]
pub fn check(document: &Document, qps: &[QpTimeouts], floor: AckTimeoutFloor) -> Report {
    let reports = qps.iter().map(|qp| document.check_for(*qp, floor));
    reports.reduce(Report::and).unwrap_or_default()
}

/// A QP, and how it fares unless its timer is off.
pub type Fare = (QpTimeouts, Option<Endurance>);

/// How these QPs fare with a profile; nothing if it is invalid.
#[must_use]
pub fn fares(document: &Document, qps: &[QpTimeouts], floor: AckTimeoutFloor) -> Vec<Fare> {
    let Ok(profile) = Profile::try_from(*document.raw()) else {
        return Vec::new();
    };
    let mut policy = Policy::new(PolicyKind::Profile(profile));
    policy.floor = floor;
    let fares = qps.iter().map(|qp| (*qp, Endurance::of(&policy, *qp)));
    fares.collect()
}

/// One thing because of which a text is not a profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where, counted from 1.
    pub line: Option<usize>,
    /// What is wrong, and what to write.
    pub text: String,
}

/// All that is wrong with the form of a text.
#[must_use]
pub fn problems(error: &ImportError) -> Vec<Problem> {
    let problem = |line, text| Problem { line, text };
    match error {
        ImportError::File(error) => {
            let problems = error.problems.iter();
            problems
                .map(|it| problem(it.line, it.to_string()))
                .collect()
        }
        ImportError::Line { line, reason } => vec![problem(Some(*line), reason.clone())],
        error => vec![problem(None, error.to_string())],
    }
}
