//! Findings about one direction, as text.

use ferroce_base::time::Span;
use ferroce_capture::{End, Ladder, Way};

use crate::output::lines::grouped;

/// Outages that are described one by one.
const OUTAGES_MAX: usize = 5;

/// What went wrong; nothing if nothing did. Times count from `start`.
pub(super) fn findings(way: &Way, start: u64) -> Vec<String> {
    let mut all = Vec::new();
    let at = |ns: u64| {
        format!(
            "{:.6} s",
            Span::from_nanos(ns.saturating_sub(start)).as_nanos() as f64 / 1e9
        )
    };
    let (requests, responses) = (&way.requests, &way.responses);
    if way.icrc_wrong > 0 {
        all.push(format!(
            "{}: damaged on the way, or by the capture; not looked at further",
            count(way.icrc_wrong, "wrong ICRC", "wrong ICRCs")
        ));
    }
    if way.twice > 0 {
        all.push(format!(
            "{} captured twice",
            count(way.twice, "packet", "packets")
        ));
    }
    if let Some((psn, seen)) = requests.first_missing {
        let later = match requests.late {
            0 => "none came later".to_owned(),
            late if late == requests.missing => "all came later".to_owned(),
            late => format!("{} came later", grouped(late)),
        };
        all.push(format!(
            "{} missing, the first PSN {psn} at {}: lost before the point of capture, or by it; {later}",
            count(requests.missing, "packet", "packets"),
            at(seen),
        ));
    }
    if requests.rounds > 0 {
        let naks = requests.rounds_after_nak + requests.rounds_after_rnr;
        let mut causes = Vec::new();
        for (rounds, cause) in [
            (requests.rounds_after_nak, "after a sequence NAK"),
            (requests.rounds_after_rnr, "after an RNR NAK"),
            (requests.rounds.saturating_sub(naks), "after a wait"),
        ] {
            if rounds > 0 {
                causes.push(format!("{} {cause}", grouped(rounds)));
            }
        }
        all.push(format!(
            "{} sent again, {}: {}",
            count(requests.repeated, "packet", "packets"),
            count(requests.rounds, "time", "times"),
            causes.join(", "),
        ));
    }
    all.extend(
        requests
            .ladders
            .iter()
            .take(OUTAGES_MAX)
            .map(|ladder| outage(ladder, &at)),
    );
    let more = requests.ladders.len().saturating_sub(OUTAGES_MAX) as u64 + requests.ladders_dropped;
    if more > 0 {
        all.push(format!(
            "{} like these; ferroce identify sums them up",
            count(more, "more wait", "more waits")
        ));
    }
    if let Some((psn, opcode)) = requests.first_out_of_sequence {
        all.push(format!(
            "{} that cannot follow the one before, the first: {opcode} at PSN {psn}",
            count(requests.out_of_sequence, "opcode", "opcodes"),
        ));
    }
    if let Some(unanswered @ 1..) = requests.unanswered() {
        all.push(format!(
            "the last {} not acknowledged",
            match unanswered {
                1 => "packet was".to_owned(),
                _ => format!("{} packets were", grouped(unanswered.into())),
            }
        ));
    }
    if responses.sequence_naks > 0 {
        all.push(format!(
            "{}: the receiver missed packets",
            count(
                responses.sequence_naks,
                "sequence NAK sent",
                "sequence NAKs sent"
            )
        ));
    }
    if responses.rnr_naks > 0 {
        all.push(format!(
            "{}: the receiver had no receive request posted",
            count(responses.rnr_naks, "RNR NAK sent", "RNR NAKs sent")
        ));
    }
    if let Some((code, naks)) = responses.fatal_naks {
        all.push(format!(
            "{} sent, which ends the connection: {code}",
            count(naks, "NAK", "NAKs")
        ));
    }
    if way.marked > 0 {
        all.push(format!(
            "{} marked by a switch because of congestion",
            count(way.marked, "packet", "packets")
        ));
    }
    if way.cnps > 0 {
        all.push(format!(
            "{} sent: the other end is asked to slow down",
            count(
                way.cnps,
                "congestion notification",
                "congestion notifications"
            )
        ));
    }
    all
}

fn outage(ladder: &Ladder, at: &impl Fn(u64) -> String) -> String {
    let total = ladder
        .waits
        .iter()
        .fold(Span::ZERO, |all, wait| all + *wait);
    let end = match ladder.end {
        End::Answered { .. } => "then answered".to_owned(),
        End::Unknown { for_ns } | End::Silent { for_ns } => {
            format!("then nothing for {}", Span::from_nanos(for_ns).about())
        }
        End::Failed => "then failed".to_owned(),
    };
    format!(
        "PSN {} unanswered from {} on: sent again {} in {}, {end}",
        ladder.psn,
        at(ladder.since),
        count(ladder.waits.len() as u64, "time", "times"),
        total.about(),
    )
}

fn count(number: u64, one: &str, many: &str) -> String {
    format!(
        "{} {}",
        grouped(number),
        if number == 1 { one } else { many }
    )
}
