//! Every rule for profiles: what it refuses or suspects, and its text.

mod common;

use common::{plain_doubling, qp};
use ferroce_adp::{AckTimeoutFloor, RawProfile, RawRange, Rule};

/// Two ranges, 8 to 10 and 12 to 14, initial timeout 8 to 10, own total.
fn two_ranges() -> RawProfile {
    let mut raw = plain_doubling();
    raw.range_num = 2;
    raw.qp_total_timeout = false;
    raw.retx_total_timeout = 20;
    raw.timeout_init_low_bound = 8;
    raw.timeout_init_range_size = 3;
    let range = |range_low_bound| RawRange {
        range_low_bound,
        range_size: 2,
        timeout_retry_num: 2,
        dec_mode: 1,
        prev_range_index: 0,
    };
    raw.timeout_range[0] = range(8);
    raw.timeout_range[1] = range(12);
    raw
}

#[track_caller]
fn refuses(change: impl FnOnce(&mut RawProfile), rule: Rule, text: &str) {
    let mut raw = two_ranges();
    change(&mut raw);
    let report = raw.check();
    let found: Vec<_> = report
        .violations
        .iter()
        .map(|v| (v.rule, v.to_string()))
        .collect();
    assert_eq!(found, [(rule, text.to_owned())]);
    assert!(report.warnings.is_empty());
}

#[track_caller]
fn suspects(change: impl FnOnce(&mut RawProfile), rule: Rule, text: &str) {
    let mut raw = two_ranges();
    change(&mut raw);
    let report = raw.check();
    assert!(report.is_valid(), "{report:?}");
    let found: Vec<_> = report
        .warnings
        .iter()
        .map(|w| (w.rule, w.to_string()))
        .collect();
    assert_eq!(found, [(rule, text.to_owned())]);
}

#[test]
fn a_good_profile_has_no_findings() {
    let report = two_ranges().check();
    assert!(
        report.violations.is_empty() && report.warnings.is_empty(),
        "{report:?}"
    );
}

#[test]
fn the_base_is_a_power_of_two_from_4_up() {
    for (time_base, instead) in [
        (0, "time_base = 4"),
        (1, "time_base = 4"),
        (3, "time_base = 4"),
        (5, "time_base = 4 or time_base = 8"),
        (1000, "time_base = 512 or time_base = 1024"),
        (65535, "time_base = 32768"),
    ] {
        let text = format!(
            "time_base = {time_base}: must be a power of two from 4 to 32768; write {instead}"
        );
        refuses(|raw| raw.time_base = time_base, Rule::TimeBase, &text);
    }
}

#[test]
fn the_unit_is_microseconds() {
    let text =
        "time_unit = 2: must be 1 (microseconds); write time_unit = 1, or leave the line out";
    refuses(|raw| raw.time_unit = 2, Rule::TimeUnit, text);
}

#[test]
fn there_are_one_to_four_ranges() {
    let text = "range_num = 0: must be 1 to 4; write at least one [[timeout_range]]";
    refuses(|raw| raw.range_num = 0, Rule::RangeNum, text);
    let mut raw = two_ranges();
    raw.range_num = 5;
    raw.timeout_range[2] = RawRange {
        range_low_bound: 16,
        ..raw.timeout_range[1]
    };
    raw.timeout_range[3] = RawRange {
        range_low_bound: 20,
        ..raw.timeout_range[1]
    };
    assert_eq!(
        raw.check().violations[0].to_string(),
        "range_num = 5: must be 1 to 4; write at most 4 [[timeout_range]] tables"
    );
}

#[test]
fn the_start_range_exists() {
    let text = "start_range_index = 2: must be 0 to 1 (range_num = 2); write start_range_index = 1";
    refuses(|raw| raw.start_range_index = 2, Rule::StartRange, text);
}

#[test]
fn ranges_are_sorted() {
    for low in [3, 8] {
        let text = format!(
            "timeout_range[1].range_low_bound = {low}: must be more than 8, the low bound of \
             range 0; write range_low_bound = 9 or more, or sort the ranges"
        );
        refuses(
            |raw| raw.timeout_range[1].range_low_bound = low,
            Rule::RangeOrder,
            &text,
        );
    }
    let mut raw = two_ranges();
    raw.timeout_range[0].range_low_bound = 255;
    let text = raw.check().violations[0].to_string();
    assert!(
        text.ends_with("write a smaller timeout_range[0].range_low_bound"),
        "{text}"
    );
}

#[test]
fn the_previous_range_comes_earlier() {
    refuses(
        |raw| raw.timeout_range[0].prev_range_index = 1,
        Rule::PrevRange,
        "timeout_range[0].prev_range_index = 1: must be 0 (range 0 has no previous range); \
         write prev_range_index = 0",
    );
    refuses(
        |raw| raw.timeout_range[1].prev_range_index = 1,
        Rule::PrevRange,
        "timeout_range[1].prev_range_index = 1: must be 0; write prev_range_index = 0",
    );
}

#[test]
fn reserved_modes_and_wide_values_are_refused() {
    refuses(
        |raw| raw.timeout_range[1].dec_mode = 3,
        Rule::DecMode,
        "timeout_range[1].dec_mode = 3: must be TO_DIV_4 (0), TO_DIV_2 (1) or TO_LOW_BOUND \
         (2); write dec_mode = \"TO_LOW_BOUND\"",
    );
    refuses(
        |raw| raw.timeout_range[1].timeout_retry_num = 1024,
        Rule::Width,
        "timeout_range[1].timeout_retry_num = 1024: must be 1 to 1023 (10 bits); write \
         timeout_retry_num = 1023",
    );
    refuses(
        |raw| raw.timeout_range[3].prev_range_index = 8,
        Rule::Width,
        "timeout_range[3].prev_range_index = 8: must be 0 to 7; write prev_range_index = 0",
    );
}

#[test]
fn all_violations_are_found_at_once() {
    let mut raw = two_ranges();
    raw.time_base = 6;
    raw.start_range_index = 3;
    raw.timeout_range[0].prev_range_index = 1;
    raw.timeout_range[1].dec_mode = 3;
    let rules: Vec<_> = raw
        .check()
        .violations
        .iter()
        .map(|found| found.rule)
        .collect();
    assert_eq!(
        rules,
        [
            Rule::TimeBase,
            Rule::StartRange,
            Rule::PrevRange,
            Rule::DecMode
        ]
    );
}

#[test]
fn unused_values_only_have_to_fit() {
    let text = "range_num = 2: timeout_range has entries beyond the first 2; they are kept but \
                not used; remove them or raise range_num";
    suspects(
        |raw| {
            raw.timeout_range[3] = RawRange {
                dec_mode: 3,
                prev_range_index: 7,
                ..RawRange::EMPTY
            };
        },
        Rule::NoEffect,
        text,
    );
}

#[test]
fn doubtful_values_raise_suspicions() {
    suspects(
        |raw| raw.timeout_range[1].timeout_retry_num = 0,
        Rule::NoRetry,
        "timeout_range[1].timeout_retry_num = 0: counts as 1, every timeout is used at least \
         once; write timeout_retry_num = 1",
    );
    suspects(
        |raw| raw.timeout_range[1].range_low_bound = 10,
        Rule::Overlap,
        "timeout_range[1].range_low_bound = 10: range 1 overlaps those before it, which reach up \
         to 10; it is entered upwards at 11; write range_low_bound = 11 or a smaller range_size \
         before",
    );
    suspects(
        |raw| raw.timeout_init_low_bound = 9,
        Rule::InitialOutside,
        "timeout_init_low_bound = 9: the initial timeout 11 lies outside every range, and the \
         first expiry jumps to 8, 1.024 ms, which is shorter; draw from range 0: write \
         timeout_init_low_bound = 8 and timeout_init_range_size = 1 to 3",
    );
    suspects(
        |raw| {
            raw.timeout_init_low_bound = 6;
            raw.timeout_init_range_size = 2;
        },
        Rule::InitialOutside,
        "timeout_init_low_bound = 6: every initial timeout lies outside every range, and the \
         first expiry jumps to 8, 1.024 ms; draw from range 0: write timeout_init_low_bound = 8 \
         and timeout_init_range_size = 1 to 3",
    );
    suspects(
        |raw| raw.retx_total_timeout = 11,
        Rule::ShortTotal,
        "retx_total_timeout = 11: for a QP with timeout 14 and retry count 7 the total of 8.192 \
         ms leaves one retransmission at most; write retx_total_timeout = 18 (1 s) or more",
    );
    suspects(
        |raw| raw.retx_total_timeout = 60,
        Rule::Saturated,
        "retx_total_timeout = 60: time_base << it is longer than 213 days and counts as never; a \
         silent peer is waited for without end; lower it",
    );
    suspects(
        |raw| raw.timeout_range[1].range_size = 200,
        Rule::Saturated,
        "timeout_range[1].range_size = 200: time_base << 212 is longer than 213 days; it counts \
         as never, and the QP's timeout caps it; lower it",
    );
    suspects(
        |raw| raw.qp_total_timeout = true,
        Rule::NoEffect,
        "retx_total_timeout = 20: has no effect while qp_total_timeout is set; write \
         qp_total_timeout = false to use it, or 0 here",
    );
}

#[test]
fn suspicions_that_depend_on_the_qp() {
    let mut raw = two_ranges();
    let rules = |raw: RawProfile, qp, floor| -> Vec<_> {
        raw.check_for(qp, floor)
            .warnings
            .iter()
            .map(|found| found.rule)
            .collect()
    };
    assert_eq!(
        rules(raw, qp(6, 7), AckTimeoutFloor::Disabled),
        [Rule::Capped, Rule::Flood]
    );
    assert_eq!(rules(raw, qp(6, 7), AckTimeoutFloor::DEFAULT), []);
    assert_eq!(rules(raw, qp(0, 7), AckTimeoutFloor::DEFAULT), []);
    raw.qp_total_timeout = true;
    raw.retx_total_timeout = 0;
    assert_eq!(
        rules(raw, qp(14, 0), AckTimeoutFloor::DEFAULT),
        [Rule::ShortTotal]
    );
    assert_eq!(
        rules(raw, qp(14, 1), AckTimeoutFloor::DEFAULT),
        [Rule::BriefTotal]
    );
    assert_eq!(rules(raw, qp(14, 4), AckTimeoutFloor::DEFAULT), []);
}

#[track_caller]
fn is_deadly(change: impl FnOnce(&mut RawProfile), rule: Rule, expected: bool) {
    let mut raw = two_ranges();
    change(&mut raw);
    let report = raw.check();
    let found = report.warnings.iter().find(|found| found.rule == rule);
    let found = found.unwrap_or_else(|| panic!("{report:?}"));
    assert_eq!((found.is_deadly, report.is_deadly()), (expected, expected));
}

#[test]
fn job_killers() {
    // 4 ms, as one operator has set it.
    is_deadly(|raw| raw.retx_total_timeout = 10, Rule::ShortTotal, true);
    is_deadly(|raw| raw.retx_total_timeout = 17, Rule::BriefTotal, true);
    suspects(
        |raw| raw.retx_total_timeout = 17,
        Rule::BriefTotal,
        "retx_total_timeout = 17: for a QP with timeout 14 and retry count 7 the error comes after \
         524 ms without progress, sooner than most outages end; write retx_total_timeout = 18 (1 \
         s) or more",
    );
    let first_wait = |low| {
        move |raw: &mut RawProfile| {
            raw.timeout_init_low_bound = low;
            raw.timeout_init_range_size = 1;
            raw.timeout_range[0].range_low_bound = low;
            raw.timeout_range[0].range_size = 10 - low;
        }
    };
    is_deadly(first_wait(2), Rule::BelowRoundTrip, true);
    is_deadly(first_wait(3), Rule::BelowRoundTrip, false);
    suspects(
        first_wait(0),
        Rule::BelowRoundTrip,
        "timeout_init_low_bound = 0: waits of 4 us are shorter than any round trip: every message \
         is sent again before its acknowledgement can arrive; begin at 6 (256 us) or more",
    );
    assert!(!two_ranges().check().is_deadly());
}

#[test]
fn floods_of_a_network() {
    suspects(
        |raw| {
            raw.range_num = 1;
            raw.timeout_range[1] = RawRange::EMPTY;
        },
        Rule::Flood,
        "timeout_range[0].range_size = 2: a QP with timeout 14 and retry count 7 retransmits 1027 \
         times in an outage of 4.2 s: with many QPs they add to congestion; raise it, so that \
         waits grow to 10 ms and more",
    );
    let mut raw = two_ranges();
    raw.timeout_range[1].range_size = 0;
    raw.range_num = 1;
    raw.timeout_range[0].range_low_bound = 12;
    raw.timeout_range[0].range_size = 0;
    raw.timeout_range[1] = RawRange::EMPTY;
    raw.timeout_init_low_bound = 12;
    raw.timeout_init_range_size = 1;
    let report = raw.check();
    assert_eq!(
        report
            .warnings
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        [
            "timeout_range[0].range_size = 0: the timeout never leaves its first step, 16.4 ms: no \
          retransmission waits longer than the one before; raise range_size, or lower \
          timeout_retry_num"
        ]
    );
}

#[test]
fn ranges_beyond_the_cap_are_noted() {
    let mut raw = two_ranges();
    raw.timeout_range[1].range_low_bound = 17;
    let report = raw.check();
    assert_eq!(report.warnings, []);
    let notes: Vec<_> = report.notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "timeout_range[1].range_low_bound = 17: a QP with timeout 14 and retry count 7 never \
          waits so long, 524 ms: its ACK timeout caps every wait at 268 ms; a QP needs timeout 17 \
          to use range 1"
        ]
    );
    let beside = raw.check_for(qp(20, 7), AckTimeoutFloor::DEFAULT);
    assert_eq!(beside.notes, []);
    // Both together give the note once.
    assert_eq!(beside.and(report.clone()).and(report).notes.len(), 1);
}
