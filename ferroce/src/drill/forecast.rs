//! What is expected of a run, from the same figures as `ferroce explain timeout`.

use std::fmt;

use ferroce_adp::Endurance;
use ferroce_base::time::Span;

use super::verdict::{End, Verdict};

/// What an outage is expected to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Every queue pair survives it.
    Waits,
    /// Queue pairs give up, and the library tries again until it is over.
    Retries,
    /// Some queue pairs survive it, depending on what they draw; others give up.
    Depends,
    /// Queue pairs give up, and traffic moves to another rail.
    FailsOver,
    /// Queue pairs give up, and so does the library.
    Fails,
}

/// What is expected of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Forecast {
    pub(super) kind: Kind,
    /// The longest outage that every queue pair survives.
    pub(super) survives: Span,
    /// When the first and the last queue pair give up.
    pub(super) gives_up: (Span, Span),
    /// Whether the library can move its traffic to another rail.
    pub(super) fails_over: bool,
    /// Whether it ends its processes where others return an error.
    pub(super) aborts: bool,
}

impl Forecast {
    /// What a run with an outage of this length is expected to do, if the library can move its traffic
    /// to another rail or if it cannot, and if it makes this number of attempts.
    pub(super) fn of(endurance: &Endurance, outage: Span, fails_over: bool, attempts: u64) -> Self {
        let mut gives_up = (endurance.gives_up_first, endurance.gives_up_last);
        if !fails_over && attempts > 1 {
            // The first one may find a queue pair that has given up already.
            gives_up = (gives_up.0 * (attempts - 1), gives_up.1 * attempts);
        }
        let kind = match outage {
            _ if endurance.outlives(outage) => Kind::Waits,
            _ if attempts > 1 && !fails_over && outage <= gives_up.0 => Kind::Retries,
            _ if outage <= endurance.survives_at_best => Kind::Depends,
            _ if fails_over => Kind::FailsOver,
            _ => Kind::Fails,
        };
        Self {
            kind,
            survives: endurance.survives,
            gives_up,
            fails_over,
            aborts: false,
        }
    }

    /// Whether a run went as expected.
    pub(super) fn agrees(&self, verdict: &Verdict) -> bool {
        let has_failed = match verdict.end {
            End::Failed { .. } => true,
            End::Died { .. } => self.aborts,
            End::Survived | End::Stuck => false,
        };
        let is_over = verdict.end == End::Survived;
        if verdict.bytes == 0 {
            return false;
        }
        match self.kind {
            Kind::Waits => is_over && verdict.failed_queue_pairs == 0,
            Kind::Retries => is_over,
            Kind::Depends => is_over || has_failed,
            Kind::FailsOver => is_over && verdict.failed_over_s.is_some(),
            Kind::Fails => has_failed && verdict.ended_s >= Some(self.earliest_s()),
        }
    }
}

impl Forecast {
    /// The same if a port goes down and the library gives up at once what uses it, however short the
    /// outage: where it has no other port, there is nothing to wait for.
    pub(super) fn heeding(endurance: &Endurance, fails_over: bool) -> Self {
        let forecast = Self::of(endurance, Span::NEVER, fails_over, 1);
        let first = match fails_over {
            true => endurance.gives_up_first,
            false => Span::ZERO,
        };
        Self {
            gives_up: (first, endurance.gives_up_last),
            ..forecast
        }
    }

    /// When the library may fail, in seconds from the outage: a timer of a queue pair may have run for a
    /// while before.
    fn earliest_s(&self) -> f64 {
        const EARLY: f64 = 0.9;
        self.gives_up.0.as_nanos() as f64 / 1e9 * EARLY
    }
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = self.gives_up;
        let seconds = |span: Span| match span.as_nanos() as f64 / 1e9 {
            long if long >= 10.0 => format!("{long:.0}"),
            short => format!("{short:.1}"),
        };
        let range = match (seconds(first), seconds(last)) {
            (first, last) if first == last => format!("{first} s"),
            (first, last) => format!("{first}-{last} s"),
        };
        let error = if self.aborts { "abort" } else { "error" };
        match self.kind {
            Kind::Waits => f.write_str("waits"),
            Kind::Retries => f.write_str("tries again"),
            Kind::Depends if self.fails_over => write!(f, "waits or over, {range}"),
            Kind::Depends => write!(f, "waits or {error}, {range}"),
            Kind::FailsOver => write!(f, "over, {range}"),
            Kind::Fails => write!(f, "{error}, {range}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use ferroce_adp::{Policy, PolicyKind, QpTimeouts};

    use super::*;

    #[test]
    fn the_length_of_an_outage_decides() {
        let policy = Policy::new(PolicyKind::IB);
        let qp = QpTimeouts {
            timeout: 16,
            retry_cnt: 7,
        };
        let endurance = Endurance::of(&policy, qp).unwrap();
        let kind = |outage, fails_over| Forecast::of(&endurance, outage, fails_over, 1).kind;
        assert_eq!(kind(Span::from_millis(300), true), Kind::Waits);
        assert_eq!(kind(Span::from_secs(30), true), Kind::FailsOver);
        assert_eq!(kind(Span::from_secs(30), false), Kind::Fails);
        assert_eq!(kind(Span::NEVER, false), Kind::Fails);
        let failing = |attempts| Forecast::of(&endurance, Span::NEVER, false, attempts).to_string();
        assert_eq!(failing(1), "error, 2.1 s");
        assert_eq!(failing(10), "error, 19-21 s");
        let aborting = Forecast {
            aborts: true,
            ..Forecast::of(&endurance, Span::NEVER, false, 1)
        };
        assert_eq!(aborting.to_string(), "abort, 2.1 s");
        let retrying = Forecast::of(&endurance, Span::from_secs(10), false, 10);
        assert_eq!(retrying.kind, Kind::Retries);
        let heeding = |fails_over| Forecast::heeding(&endurance, fails_over).to_string();
        assert_eq!(
            (heeding(true), heeding(false)),
            ("over, 2.1 s".into(), "error, 0.0-2.1 s".into())
        );
    }
}
