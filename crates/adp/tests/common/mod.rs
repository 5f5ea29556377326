//! What several test files need.
#![allow(dead_code, reason = "no test file uses all of it")]

use ferroce_adp::trace::{Event, Input, Replay, SilentPeer, Step, Wait};
use ferroce_adp::{
    AckTimeoutFloor, Policy, PolicyKind, Profile, QpTimeouts, RawProfile, RawRange, RetryState,
};
use ferroce_base::time::{Span, Time};

pub(crate) fn qp(timeout: u8, retry_cnt: u8) -> QpTimeouts {
    QpTimeouts { timeout, retry_cnt }
}

pub(crate) fn profile(words: [u32; 6]) -> Profile {
    let mut bytes = [0; 0x30];
    for (chunk, word) in bytes.chunks_mut(4).zip(words) {
        chunk.copy_from_slice(&word.to_be_bytes());
    }
    Profile::from_register(&bytes).unwrap()
}

/// Profile B of the worked traces: four ranges, its own total, all three ways down.
pub(crate) fn fast_four() -> Policy {
    Policy::new(PolicyKind::Profile(profile([
        0x4040_0004,
        0x1400_0803,
        0x0802_0802,
        0x0403_0b01,
        0x1401_0e02,
        0x2004_1104,
    ])))
}

/// One range of exponents 10 to 16, each used once, initial timeout 10, QP total.
pub(crate) fn plain_doubling() -> RawProfile {
    let mut raw = RawProfile {
        time_base: 4,
        range_num: 1,
        qp_total_timeout: true,
        timeout_init_low_bound: 10,
        timeout_init_range_size: 1,
        ..RawProfile::EMPTY
    };
    raw.timeout_range[0] = RawRange {
        range_low_bound: 10,
        range_size: 6,
        timeout_retry_num: 1,
        dec_mode: 2,
        prev_range_index: 0,
    };
    raw
}

pub(crate) fn firmware(initial_exponent: u8) -> Policy {
    let initial_exponent = Some(initial_exponent);
    Policy::new(PolicyKind::Firmware {
        quantiser: false,
        initial_exponent,
    })
}

pub(crate) fn ib(multiplier: u8) -> Policy {
    Policy::new(PolicyKind::Ib { multiplier })
}

pub(crate) fn without_floor(policy: Policy) -> Policy {
    Policy {
        floor: AckTimeoutFloor::Disabled,
        ..policy
    }
}

pub(crate) fn silent(policy: Policy, qp: QpTimeouts, draw: u8) -> Vec<Wait> {
    SilentPeer::with_draw(policy, qp, draw)
        .take(10_000)
        .collect()
}

/// Waits in microseconds, and when the error comes.
pub(crate) fn waits_us(waits: &[Wait]) -> (Vec<f64>, f64) {
    let last = waits.last().unwrap();
    assert_eq!(last.event, Event::Error);
    let us = |ns: Option<u64>| ns.unwrap() as f64 / 1000.0;
    (
        waits.iter().map(|wait| us(ns(wait.wait))).collect(),
        us(ns(last.at)),
    )
}

/// The states of a QP along a script of `t` and `a`.
pub(crate) fn replay(policy: Policy, qp: QpTimeouts, draw: u8, script: &str) -> Vec<Step> {
    let inputs = script.chars().filter_map(|c| match c {
        't' => Some(Input::Timeout),
        'a' => Some(Input::Progress),
        _ => None,
    });
    Replay::new(policy, RetryState::with_draw(&policy, qp, 0, draw), inputs).collect()
}

/// A point in time, from nanoseconds.
pub(crate) fn at(ns: u64) -> Time {
    Time::from_nanos(ns)
}

/// Nanoseconds, if it ends.
pub(crate) fn ns(span: Option<Span>) -> Option<u64> {
    span.map(Span::as_nanos)
}
