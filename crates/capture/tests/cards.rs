//! What was measured on real cards (spec adaptive-retransmission, section 6).

use ferroce_capture::{Answer, End, Ladder, Policy, Sure, identify, identify_together};

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
fn waits_that_match_no_policy_are_not_identified() {
    let answer = identify(&[of_waits(&[429.0, 300.0, 123.0, 777.0], End::Failed)]);
    assert_eq!(answer.sure, Sure::No, "{answer:?}");
    assert!(identify(&[]).policies.is_empty());
}

/// No waits tell plain InfiniBand from a profile of which the timeout cuts all.
#[track_caller]
fn assert_plain_or_cut(answer: &Answer) {
    let [Policy::Plain { .. }, Policy::Profile { cap: Some(_), .. }] = answer.policies[..] else {
        panic!("{answer:?}");
    };
    assert_eq!(answer.sure, Sure::Likely, "{answer:?}");
}

/// Timeouts of 14 and 16 without the minimum: together they look like a profile.
#[test]
fn queue_pairs_with_different_timeouts_are_not_one() {
    let plain = |wait: f64| vec![of_waits(&[wait; 6], End::Silent { for_ns: 0 })];
    let (one, other) = (plain(67.15), plain(268.5));
    assert_eq!(identify_together(&[&one, &other]), None);
    for own in [&one, &other] {
        let answer = identify(own);
        assert_plain_or_cut(&answer);
    }
    assert_plain_or_cut(&identify_together(&[&one, &one.clone()]).unwrap());
}

/// Waits of 1 to 3 ms, as a busy machine stretches them, have no timeout of their own.
#[test]
fn short_waits_that_vary_are_not_a_timeout() {
    let waits = [
        1.08, 1.05, 1.26, 1.63, 0.99, 1.05, 1.11, 1.03, 2.21, 2.27, 1.65, 1.07, 1.19, 2.07, 3.77,
    ];
    let single = |wait: &f64| of_waits(&[*wait], End::Silent { for_ns: 0 });
    let ladders: Vec<Ladder> = waits.iter().map(single).collect();
    let answer = identify(&ladders);
    assert!(answer.sure < Sure::Certain, "{answer:?}");
}

/// During an outage the retransmissions are lost before the point of capture: all that it shows is one
/// wait of each queue pair, whose length is that of a longer timeout.
#[test]
fn waits_with_unseen_retransmissions_are_not_certain() {
    let seen = [of_waits(&[537.0], End::Silent { for_ns: 0 })];
    let answer = identify_together(&[&seen[..]; 8]).unwrap();
    assert!(answer.sure <= Sure::Undecided, "{answer:?}");
}

/// 537 ms again and again: timeout 17, or the end of a ladder that began before the capture.
#[test]
fn a_capture_that_begins_in_an_outage_leaves_both_open() {
    let mut ladder = of_waits(&[537.0; 5], End::Silent { for_ns: 0 });
    let plain = identify(&[ladder.clone()]);
    assert!(
        matches!(plain.policies[0], Policy::Plain { .. }),
        "{plain:?}"
    );
    ladder.is_midway = true;
    let answer = identify(&[ladder]);
    assert!(answer.sure < Sure::Certain, "{answer:?}");
    // A profile whose later waits the timeout cuts looks like this, too.
    let mut ladder = of_waits(&[268.5; 6], End::Silent { for_ns: 0 });
    ladder.is_midway = true;
    let answer = identify(&[ladder]);
    assert!(answer.sure < Sure::Certain, "{answer:?}");
}
