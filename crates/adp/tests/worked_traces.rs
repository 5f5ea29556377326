//! The worked traces: what the policies do with a silent peer, in microseconds.

mod common;

use common::{fast_four, firmware, ib, ns, qp, replay, silent, waits_us, without_floor};
use ferroce_adp::trace::Event;
use ferroce_adp::{Policy, PolicyKind};

#[test]
fn the_decrease_walk_of_profile_b() {
    let script = format!("{}{}", "t".repeat(17), "a".repeat(9));
    let steps = replay(fast_four(), qp(18, 7), 1, &script);
    assert_eq!((steps[16].exponent, steps[16].range), (17, Some(3)));
    let walk: Vec<_> = steps[17..]
        .iter()
        .map(|step| {
            (
                step.exponent,
                step.range.unwrap(),
                ns(step.timer).unwrap() / 1000,
            )
        })
        .collect();
    assert_eq!(
        walk,
        [
            (16, 2, 262_144),
            (15, 2, 131_072),
            (14, 2, 65_536),
            (12, 1, 16_384),
            (11, 1, 8_192),
            (10, 0, 4_096),
            (8, 0, 1_024),
            (8, 0, 1_024),
            (8, 0, 1_024),
        ]
    );
}

#[test]
fn adp_off_with_floor_and_knob_2() {
    let (waits, error) = waits_us(&silent(ib(2), qp(14, 7), 0));
    assert_eq!(waits, [536_870.912; 8]);
    assert_eq!(error, 4_294_967.296);
}

#[test]
fn adp_off_without_floor_and_knob_1() {
    let (waits, error) = waits_us(&silent(without_floor(ib(1)), qp(14, 7), 0));
    assert_eq!(waits, [67_108.864; 8]);
    assert_eq!(error, 536_870.912);
}

#[test]
fn profile_0_ladders() {
    let ladder = [
        8_388.608,
        8_388.608,
        16_777.216,
        33_554.432,
        67_108.864,
        134_217.728,
        268_435.456,
    ];
    for (timeout, retry_cnt, more, plain, error) in [
        (14, 7, &[][..], (536_870.912, 6), 3_758_096.384),
        (17, 7, &[536_870.912], (1_073_741.824, 6), 7_516_192.768),
        (
            20,
            7,
            &[536_870.912, 1_073_741.824, 2_147_483.648, 4_294_967.296],
            (8_589_934.592, 6),
            60_129_542.144,
        ),
        (14, 1, &[], (0.0, 0), 536_870.912),
    ] {
        let mut expected = [&ladder[..], more].concat();
        let adaptive = expected.len();
        expected.extend(vec![plain.0; plain.1]);
        let trace = silent(firmware(11), qp(timeout, retry_cnt), 0);
        assert_eq!(
            waits_us(&trace),
            (expected, error),
            "T={timeout} R={retry_cnt}"
        );
        for (i, wait) in trace[..trace.len() - 1].iter().enumerate() {
            assert_eq!(
                wait.event,
                Event::Retransmit {
                    adaptive: i < adaptive
                }
            );
        }
    }
}

/// The ideal time to error does not depend on where the ladder begins.
#[test]
fn profile_0_fails_after_retry_count_times_twice_the_timeout() {
    for timeout in 1..=31 {
        for retry_cnt in 1..=7 {
            let ideal_ns = u64::from(retry_cnt) * 2 * (4096 << timeout.max(16));
            for exponent in 0..=31 {
                let policy = firmware(exponent);
                let trace = silent(policy, qp(timeout, retry_cnt), 0);
                assert_eq!(ns(trace.last().unwrap().at), Some(ideal_ns));
                assert_eq!(ns(policy.total(qp(timeout, retry_cnt))), Some(ideal_ns));
            }
        }
    }
}

/// Measured at T=14: seven retransmissions, error between two and four times 2 N(16).
#[test]
fn profile_0_with_retry_count_0_retransmits_seven_times() {
    for timeout in [14, 17, 20, 31] {
        for exponent in 10..=14 {
            let policy = firmware(exponent);
            let trace = silent(policy, qp(timeout, 0), 0);
            assert_eq!(trace.len(), 8, "T={timeout} X={exponent}");
            let error_ns = ns(trace.last().unwrap().at);
            assert_eq!(ns(policy.total(qp(timeout, 0))), error_ns);
        }
    }
    let (_, error) = waits_us(&silent(firmware(11), qp(14, 0), 0));
    assert_eq!(error, 2.0 * 536_870.912);
    let (_, error) = waits_us(&silent(firmware(13), qp(14, 0), 0));
    assert_eq!(error, 4.0 * 536_870.912);
}

//= F15: one initial wait without a retransmission, then R + 1 times the timeout. Measured: errors at
//= 9.49, 37.9, 147.0 and 574.9 ms with 7 retries, at 2.24 and 105 ms with none.
#[test]
fn profile_0_without_floor_is_plain_behind_an_initial_wait() {
    let policy = without_floor(Policy::new(PolicyKind::FIRMWARE));
    for (timeout, retry_cnt, measured_us) in [
        (8, 7, 9_490.0),
        (10, 7, 37_900.0),
        (12, 7, 147_000.0),
        (14, 7, 574_900.0),
        (8, 0, 2_240.0),
        (14, 0, 105_000.0),
    ] {
        let n = (4096_u64 << timeout) as f64 / 1000.0;
        let qp = qp(timeout, retry_cnt);
        let mut errors_us = Vec::new();
        for draw in 0..policy.draws() {
            let trace = silent(policy, qp, draw);
            let (waits, error) = waits_us(&trace);
            assert_eq!(waits.len(), usize::from(retry_cnt) + 2);
            assert!((0.50999..1.16).contains(&(waits[0] / n)), "{waits:?}");
            assert!(waits[1..].iter().all(|wait| *wait == n), "{waits:?}");
            let events: Vec<_> = trace.iter().map(|wait| wait.event).collect();
            assert_eq!(events[0], Event::Initial);
            let (fatal, others) = events[1..].split_last().unwrap();
            assert_eq!(*fatal, Event::Error);
            let plain = Event::Retransmit { adaptive: false };
            assert!(others.iter().all(|event| *event == plain));
            errors_us.push(error);
        }
        let (first, last) = (errors_us[0], *errors_us.last().unwrap());
        assert!((first..=last).contains(&measured_us), "{first} to {last}");
        let us = |span| ns(span).unwrap() as f64 / 1000.0;
        assert_eq!(us(policy.shortest_total(qp)), first);
        assert_eq!(us(policy.total(qp)), last);
    }
}

//= F14: measured at T=14 R=7, 55 trials: 3,495 to 3,756 ms, in the median 3,558.
#[test]
fn coarse_timers_end_within_the_measured_band() {
    let policy = Policy::new(PolicyKind::Firmware {
        quantiser: true,
        initial_exponent: None,
    });
    let qp = qp(14, 7);
    let ms = |span| ns(span).unwrap() / 1_000_000;
    assert_eq!(ms(policy.shortest_total(qp)), 3_490);
    assert_eq!(ms(policy.total(qp)), 3_758);
    let mut errors: Vec<_> = (0..1000)
        .map(|seed| {
            let policy = Policy { seed, ..policy };
            let draw = (seed % 5) as u8;
            ms(silent(policy, qp, draw).last().unwrap().at)
        })
        .collect();
    errors.sort_unstable();
    assert!((3_490..3_500).contains(&errors[0]), "{}", errors[0]);
    assert!((3_750..=3_758).contains(&errors[999]), "{}", errors[999]);
    assert!(errors.contains(&3_558));
}

/// One measured trial at T=20: the ladder begins at N(12), and four of its waits were cut to three
/// quarters.
#[test]
fn the_quantiser_shortens_some_waits_to_three_quarters() {
    let kind = PolicyKind::Firmware {
        quantiser: true,
        initial_exponent: Some(12),
    };
    let exact = silent(firmware(12), qp(20, 7), 0);
    let mut shortened = 0;
    for seed in 0..200 {
        let trace = silent(
            Policy {
                seed,
                ..Policy::new(kind)
            },
            qp(20, 7),
            0,
        );
        assert_eq!(trace.len(), exact.len());
        for (i, (wait, exact)) in trace.iter().zip(&exact).enumerate() {
            let (wait, exact) = (ns(wait.wait).unwrap(), ns(exact.wait).unwrap());
            // 10 waits on the ladder, then the first plain one.
            let may = (1..=10).contains(&i);
            assert!(
                wait == exact || may && wait == exact / 4 * 3,
                "{i}: {wait} of {exact}"
            );
            shortened += u32::from(wait != exact);
        }
    }
    assert!((900..1100).contains(&shortened), "{shortened} of 2000");
}
