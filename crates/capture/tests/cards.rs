//! What was measured on real cards (spec adaptive-retransmission, section 6).

use ferroce_capture::{End, Ladder, Policy, Sure, identify};

fn ladder(times_ms: &[f64], end: End) -> Ladder {
    let zero = [0.0];
    let times = zero.iter().chain(times_ms).map(|ms| (ms * 1e6) as u64);
    Ladder::of_times(&times.collect::<Vec<_>>(), end).unwrap()
}

fn of_waits(waits_ms: &[f64], end: End) -> Ladder {
    let mut at = 0.0;
    let times: Vec<f64> = waits_ms
        .iter()
        .map(|wait| {
            at += wait;
            at
        })
        .collect();
    ladder(&times, end)
}

#[track_caller]
fn assert_firmware(
    ladder: Ladder,
    expected_top: std::ops::RangeInclusive<u8>,
    retries: Option<u8>,
) {
    let answer = identify(&[ladder]);
    assert!(answer.sure >= Sure::Likely, "{answer:?}");
    let Policy::Firmware { top, retry_cnt, .. } = &answer.policies[0] else {
        panic!("{answer:?}");
    };
    assert_eq!(*top, expected_top, "{answer:?}");
    if let Some(retries) = retries {
        assert_eq!(*retry_cnt, retries..=retries, "{answer:?}");
    }
}

#[test]
fn connectx_6_with_timeout_20_and_retry_count_7() {
    let times = [
        20.7, 37.7, 71.4, 138.4, 239.1, 440.4, 977.3, 1782.4, 3930.3, 8225.1, 16815.3, 25405.6,
        33995.8, 42585.9, 51176.1, 59766.1,
    ];
    assert_firmware(ladder(&times, End::Failed), 20..=20, Some(7));
}

#[test]
fn connectx_6_of_an_older_firmware() {
    let waits = [3.8, 4.5, 6.0, 12.0, 25.5, 66.8, 134.6, 268.8, 536.8, 536.8];
    assert_firmware(of_waits(&waits, End::Silent { for_ns: 0 }), 16..=16, None);
}

#[test]
fn waits_reported_by_a_paper() {
    let waits = [5.6, 4.1, 8.4, 16.7, 25.1, 67.1, 134.2];
    let end = End::Silent { for_ns: 0 };
    assert_firmware(of_waits(&waits, end), 16..=31, None);
}

/// Adaptive retransmission off or the minimum disabled: interval 1.000 N(T).
#[test]
fn connectx_6_without_the_enforced_minimum() {
    let waits = [67.109 * 1.7, 67.11, 67.1, 67.11, 67.12, 67.11, 67.11];
    let answer = identify(&[of_waits(
        &waits,
        End::Silent {
            for_ns: 10_000_000_000,
        },
    )]);
    let Policy::Plain {
        readings,
        retry_cnt,
    } = &answer.policies[0]
    else {
        panic!("{answer:?}");
    };
    assert!(
        readings.iter().all(|it| it.timeout == (14..=14)),
        "{answer:?}"
    );
    assert_eq!(*retry_cnt, 7..=7);
}

/// 429 ms and then 537 ms, six times: a ladder of which the counters showed the sum only.
#[test]
fn nothing_is_said_of_what_fits_nothing() {
    let answer = identify(&[of_waits(&[429.0, 300.0, 123.0, 777.0], End::Failed)]);
    assert_eq!(answer.sure, Sure::No, "{answer:?}");
    assert!(identify(&[]).policies.is_empty());
}
