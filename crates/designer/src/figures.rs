//! Behaviour in outages, in words and as JSON.

use ferroce_adp::{Endurance, QpTimeouts};
use ferroce_base::time::Span;
use serde::Serialize;

/// Which outages a QP survives. What has no end is null.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Endurance")
)]
pub struct EnduranceJson {
    /// The longest outage that every QP survives.
    pub survives_ns: Option<u64>,
    /// The longest outage that any QP survives.
    pub survives_at_best_ns: Option<u64>,
    /// How long after the end of an outage the next retransmission leaves, at most.
    pub resumes_within_ns: Option<u64>,
    /// When the first QP gives up, counted from its last progress.
    pub gives_up_first_ns: Option<u64>,
    /// When the last QP gives up: by then a dead peer has been noticed.
    pub gives_up_last_ns: Option<u64>,
    /// How many times a QP retransmits during an outage, at most.
    pub retransmissions: Option<u64>,
    /// The shortest wait that a retransmission follows.
    pub shortest_wait_ns: Option<u64>,
}

impl From<Endurance> for EnduranceJson {
    fn from(endurance: Endurance) -> Self {
        let ns = |span: Span| (span != Span::NEVER).then_some(span.as_nanos());
        Self {
            survives_ns: ns(endurance.survives),
            survives_at_best_ns: ns(endurance.survives_at_best),
            resumes_within_ns: ns(endurance.resumes_within),
            gives_up_first_ns: ns(endurance.gives_up_first),
            gives_up_last_ns: ns(endurance.gives_up_last),
            retransmissions: Some(endurance.retransmissions).filter(|count| *count < u64::MAX),
            shortest_wait_ns: ns(endurance.shortest_wait),
        }
    }
}

/// The figures of an [`Endurance`] as people read them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Words {
    /// The longest outage that every QP survives.
    pub survives: String,
    /// How long after the end of an outage a QP retransmits, at most.
    pub resumes_within: String,
    /// When a QP gives up.
    pub gives_up_after: String,
    /// How many times it retransmits during an outage, at most.
    pub retransmissions: String,
}

impl Words {
    /// Without figures the QP's ACK timer is off.
    #[must_use]
    pub fn of(endurance: Option<&Endurance>) -> Self {
        let never = || Span::NEVER.to_string();
        let Some(found) = endurance else {
            return Self {
                survives: "nothing".to_owned(),
                resumes_within: never(),
                gives_up_after: never(),
                retransmissions: "0".to_owned(),
            };
        };
        let survives = match found.survives {
            Span::ZERO => "nothing".to_owned(),
            Span::NEVER => "anything".to_owned(),
            survives => survives.at_least().to_string(),
        };
        let resumes_within = || found.resumes_within.at_most().to_string();
        let (resumes_within, retransmissions) = match (found.survives, found.retransmissions) {
            (Span::ZERO, _) => (never(), "0".to_owned()),
            (_, u64::MAX) => (resumes_within(), "no limit".to_owned()),
            (_, count) => (resumes_within(), count.to_string()),
        };
        Self {
            survives,
            resumes_within,
            gives_up_after: span_range(found.gives_up_first, found.gives_up_last),
            retransmissions,
        }
    }
}

/// The answer in one sentence.
#[must_use]
pub fn sentence(endurance: Option<&Endurance>) -> String {
    let Some(found) = endurance else {
        return "timeout 0 turns the ACK timer off: a lost packet is never sent again, and a dead \
                peer is never noticed"
            .to_owned();
    };
    let resumes = found.resumes_within.at_most();
    let between = between(found.gives_up_first, found.gives_up_last);
    match (found.survives, found.gives_up_last) {
        (Span::ZERO, _) => {
            format!("tolerates no outage, not even a lost packet; gives up {between}")
        }
        (Span::NEVER, _) | (_, Span::NEVER) => format!(
            "tolerates outages of any length; retransmits again at most {resumes} after the link \
             returns; never gives up"
        ),
        (survives, _) => format!(
            "tolerates outages up to {}; retransmits again at most {resumes} after the link \
             returns; gives up {between}",
            survives.at_least()
        ),
    }
}

/// When a QP gives up, for a sentence.
fn between(first: Span, last: Span) -> String {
    let both = span_range(first, last);
    match both.split_once(" to ") {
        Some((first, last)) => format!("between {first} and {last}"),
        None => format!("after {both}"),
    }
}

/// Two points in time as one: `55.8 to 60.1 s`.
#[must_use]
pub fn span_range(first: Span, last: Span) -> String {
    let (first, last) = (first.about().to_string(), last.about().to_string());
    if first == last {
        return last;
    }
    match (first.split_once(' '), last.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number} to {last}"),
        _ => format!("{first} to {last}"),
    }
}

/// A QP as operators say it.
#[must_use]
pub fn qp_name(qp: QpTimeouts) -> String {
    format!("{}/{}", qp.timeout, qp.retry_cnt)
}
