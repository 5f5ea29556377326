//! The document of a drill.

use ferroce_base::time::Span;

use super::forecast::{Forecast, Kind};
use super::plan::Rail;
use super::record::{Note, Record};
use super::report::Row;
use super::verdict::End;
use crate::json::drill as json;

impl Row {
    pub(super) fn json(&self) -> json::Run {
        let (verdict, record) = (&self.verdict, &self.record);
        let [version, setting, policy] = self.keys.clone();
        let (outcome, failed_host, failed_in, result) = match &verdict.end {
            End::Survived => ("survived", None, None, None),
            End::Stuck => ("stuck", None, None, None),
            End::Failed {
                host, call, code, ..
            } => ("failed", Some(*host), Some(call.clone()), Some(*code)),
            End::Died { host, how } => ("died", Some(*host), Some(how.clone()), None),
        };
        let notes = |notes: &[Note]| notes.iter().map(|it| note(record, it)).collect();
        let rails = record.rails.iter().enumerate();
        json::Run {
            version,
            setting,
            variables: self.variables.iter().cloned().collect(),
            policy,
            plan: self.plan.clone(),
            standstill_s: verdict.standstill_s,
            failed_over_s: verdict.failed_over_s,
            back_s: verdict.back_s,
            rails_before: verdict.rails.0,
            rails_after: verdict.rails.1,
            payload_bytes: verdict.bytes,
            wrong_bytes: verdict.wrong_words * 8,
            outcome,
            ended_s: verdict.ended_s,
            failed_host,
            failed_in,
            result,
            expected: self.forecast.map(expected),
            as_expected: !self.disagrees(),
            events: notes(&record.events),
            messages: notes(&record.messages),
            rails: rails
                .map(|(at, rail)| timeline(record, at, *rail))
                .collect(),
        }
    }
}

fn expected(forecast: Forecast) -> json::Expected {
    let seconds = |span: Span| (span != Span::NEVER).then(|| span.as_nanos() as f64 / 1e9);
    json::Expected {
        outcome: match forecast.kind {
            Kind::Waits => "waits",
            Kind::Retries => "retries",
            Kind::Depends => "depends",
            Kind::FailsOver => "fails_over",
            Kind::Fails => "fails",
        },
        survives_s: seconds(forecast.survives),
        gives_up_first_s: seconds(forecast.gives_up.0),
        gives_up_last_s: seconds(forecast.gives_up.1),
    }
}

fn note(record: &Record, note: &Note) -> json::Note {
    json::Note {
        at_s: since_event(record, note.at_ns),
        host: note.host,
        text: note.text.clone(),
        times: note.times,
    }
}

fn since_event(record: &Record, at_ns: u64) -> f64 {
    let milliseconds = (at_ns as f64 - record.first_event_ns as f64) / 1e6;
    milliseconds.round() / 1e3
}

/// How many samples make a point.
const SAMPLES: usize = 5;

/// What a rail did over time.
fn timeline(record: &Record, at: usize, rail: Rail) -> json::Timeline {
    let changes = record
        .samples
        .windows(2)
        .filter(|it| it[0].rails[at].is_up != it[1].rails[at].is_up);
    let mut timeline = json::Timeline {
        rail: rail.to_string(),
        port_changes_s: changes.map(|it| since_event(record, it[1].at_ns)).collect(),
        ..json::Timeline::default()
    };
    let samples: Vec<_> = record.samples.iter().step_by(SAMPLES).collect();
    for it in samples.windows(2) {
        let (from, to) = (&it[0].rails[at], &it[1].rails[at]);
        let bits = (to.sent - from.sent) * 8;
        let gbps = bits as f64 / (it[1].at_ns - it[0].at_ns).max(1) as f64;
        let middle = it[0].at_ns.midpoint(it[1].at_ns);
        timeline.at_s.push(since_event(record, middle));
        timeline.gbps.push((gbps * 1e3).round() / 1e3);
        timeline.timeouts.push(to.timeouts - from.timeouts);
        let retransmitted = to.retransmitted - from.retransmitted;
        timeline.retransmitted_packets.push(retransmitted);
        timeline
            .failed_queue_pairs
            .push(to.failures - from.failures);
    }
    timeline
}
