//! Profiles with arbitrary values.

use ferroce_adp::trace::{Event, Input, Replay, SilentPeer};
use ferroce_adp::{
    AckTimeoutFloor, PROFILE_SIZE, Policy, PolicyKind, Profile, QpTimeouts, RANGE_NUM_MAX,
    RawProfile, RawRange, RetryState, file,
};
use ferroce_base::time::Span;

use crate::Cursor;

/// Waits looked at in one trace; a total timeout of years over waits of microseconds has more.
const WAITS_MAX: usize = 2000;

/// Profiles: as files, as register contents, and what a queue pair does under them.
pub fn profile(data: &[u8]) {
    let mut input = Cursor::new(data);
    match input.below(3) {
        0 => from_file(&String::from_utf8_lossy(input.rest())),
        1 => from_register(input),
        _ => {
            let raw = sensible(&mut input);
            judge(&raw, &mut input);
        }
    }
}

fn from_file(text: &str) {
    imported(text);
    let document = match file::Document::parse(text) {
        Ok(document) => document,
        Err(error) => {
            assert!(!error.problems.is_empty());
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let report = document.check();
    let profile = document.profile();
    assert_eq!(profile.is_ok(), report.is_valid());
    match profile {
        Ok(profile) => {
            assert_eq!(profile.raw(), document.raw());
            judge(document.raw(), &mut Cursor::new(text.as_bytes()));
        }
        Err(report) => describe(&report),
    }
}

/// The same text as all else that it may be.
fn imported(text: &str) {
    match file::import::import(text) {
        Ok(imported) => {
            let again = file::import::import(&file::to_toml(imported.document.raw()));
            if let Ok(again) = again {
                assert_eq!(again.document.raw(), imported.document.raw());
            }
            describe(&imported.document.check());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn from_register(mut input: Cursor<'_>) {
    let mut bytes = [0; PROFILE_SIZE];
    let given = input.take(PROFILE_SIZE);
    bytes[..given.len()].copy_from_slice(given);
    let raw = RawProfile::from_register(&bytes);
    let back = raw.to_register().expect("values that came out of fields");
    assert_eq!(RawProfile::from_register(&back), raw);
    let checked = Profile::from_register(&bytes);
    assert_eq!(checked.is_ok(), raw.check().is_valid());
    judge(&raw, &mut input);
}

/// Values near those of a good profile.
fn sensible(input: &mut Cursor<'_>) -> RawProfile {
    let mut low = input.u8() % 16;
    let range_num = 1 + input.u8() % 4;
    RawProfile {
        time_base: 4 << input.below(8),
        time_unit: 1,
        start_range_index: input.u8() % 4,
        range_num,
        qp_total_timeout: input.one_in(2),
        retx_total_timeout: input.u8() % 40,
        timeout_init_low_bound: input.u8() % 24,
        timeout_init_range_size: input.u8() % 8,
        timeout_range: std::array::from_fn(|index| {
            let range_size = input.u8() % 6;
            let range = RawRange {
                range_low_bound: low,
                range_size,
                timeout_retry_num: u16::from(input.u8() % 5),
                dec_mode: input.u8() % 4,
                prev_range_index: input.u8() % (index as u8 + 1),
            };
            low = (low + range_size + input.u8() % 3).min(31);
            range
        }),
    }
}

fn describe(report: &ferroce_adp::Report) {
    for violation in &report.violations {
        assert!(!violation.to_string().is_empty());
    }
    for warning in &report.warnings {
        assert!(!warning.to_string().is_empty());
    }
}

fn judge(raw: &RawProfile, input: &mut Cursor<'_>) {
    describe(&raw.check());
    let text = file::to_toml(raw);
    match file::Document::parse(&text) {
        Ok(document) => assert_eq!(document.raw(), raw),
        // A register can claim no ranges, or more than it has room for; a file cannot.
        Err(error) => {
            let range_num = usize::from(raw.range_num);
            assert!(!(1..=RANGE_NUM_MAX).contains(&range_num), "{error}");
        }
    }
    let Ok(profile) = Profile::try_from(*raw) else {
        assert!(!raw.check().is_valid());
        return;
    };
    assert_eq!(Profile::from_register(&profile.to_register()), Ok(profile));
    let mut policy = Policy::new(PolicyKind::Profile(profile));
    if input.one_in(2) {
        policy.floor = AckTimeoutFloor::Disabled;
    }
    policy.range_bound_exclusive = input.one_in(4);
    let qp = QpTimeouts {
        timeout: input.u8() % 32,
        retry_cnt: input.u8() % 8,
    };
    silent_peer(&policy, qp, input.u8() % policy.draws());
    replay(&policy, qp, input.rest());
}

/// Waits grow up to the cap, the last one ends at the total, and the error comes then.
fn silent_peer(policy: &Policy, qp: QpTimeouts, draw: u8) {
    let total = policy.total(qp);
    let cap = policy.ack_timeout(qp);
    let mut last = Span::ZERO;
    for wait in SilentPeer::with_draw(*policy, qp, draw).take(WAITS_MAX) {
        match (wait.event, wait.wait, wait.at) {
            (Event::Never, None, None) => assert_eq!(cap, None),
            (Event::Error, Some(waited), Some(at)) => {
                assert!(
                    total == Some(at) || total == Some(Span::ZERO),
                    "{total:?}, not {at}"
                );
                assert!(waited > Span::ZERO || total == Some(Span::ZERO));
            }
            (Event::Retransmit { .. }, Some(waited), Some(at)) => {
                assert!(waited > Span::ZERO && waited <= cap.unwrap_or(Span::NEVER));
                assert!(waited >= last, "a loss made the wait shorter");
                assert!(total.is_none_or(|total| at < total));
                // The initial timeout may lie anywhere; the ranges begin after it (D3).
                last = if wait.range.is_some() {
                    waited
                } else {
                    Span::ZERO
                };
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Any order of losses and progress.
fn replay(policy: &Policy, qp: QpTimeouts, steps: &[u8]) {
    let state = RetryState::new(policy, qp, 0x11);
    let inputs = steps.iter().map(|byte| {
        if byte % 3 == 0 {
            Input::Progress
        } else {
            Input::Timeout
        }
    });
    let ranges = match &policy.kind {
        PolicyKind::Profile(profile) => profile.raw().range_num,
        _ => 0,
    };
    let cap = policy.ack_timeout(qp);
    for step in Replay::new(*policy, state, inputs).take(WAITS_MAX) {
        assert!(step.range.is_none_or(|range| range < ranges));
        assert!(
            step.timer
                .is_none_or(|timer| timer <= cap.unwrap_or(Span::NEVER))
        );
        assert!(!(step.has_failed && step.input == Input::Progress));
    }
}
