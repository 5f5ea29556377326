//! What holds for every profile, every QP and every order of events: examples of all sizes. `ladder.rs` has
//! all steps of small profiles.

mod common;

use common::{at, ns, qp, silent};
use ferroce_adp::trace::{Event, SilentPeer};
use ferroce_adp::{
    AckTimeoutFloor, DecTrigger, Expiry, Policy, PolicyKind, Profile, QpTimeouts, RANGE_NUM_MAX,
    RawProfile, RawRange, RetryState,
};
use proptest::prelude::*;

/// Any values that fit the types, most of them no valid profile.
fn any_raw() -> impl Strategy<Value = RawProfile> {
    let range = (
        any::<u8>(),
        any::<u8>(),
        any::<u16>(),
        any::<u8>(),
        any::<u8>(),
    )
        .prop_map(
            |(range_low_bound, range_size, timeout_retry_num, dec_mode, prev_range_index)| {
                RawRange {
                    range_low_bound,
                    range_size,
                    timeout_retry_num,
                    dec_mode,
                    prev_range_index,
                }
            },
        );
    let header = (
        any::<u16>(),
        any::<u8>(),
        any::<u8>(),
        any::<u8>(),
        any::<bool>(),
    );
    let init = (any::<u8>(), any::<u8>(), any::<u8>());
    (header, init, prop::array::uniform4(range)).prop_map(|(header, init, timeout_range)| {
        RawProfile {
            time_base: header.0,
            time_unit: header.1,
            start_range_index: header.2,
            range_num: header.3,
            qp_total_timeout: header.4,
            retx_total_timeout: init.0,
            timeout_init_low_bound: init.1,
            timeout_init_range_size: init.2,
            timeout_range,
        }
    })
}

/// Valid profiles: any values, bent to the rules. Half of them stay where a QP notices.
fn any_profile() -> impl Strategy<Value = Profile> {
    (any_raw(), any::<bool>(), 1..=4_u8).prop_filter_map("no room", |(mut raw, small, num)| {
        raw.time_base = 1 << (2 + raw.time_base % 14);
        raw.time_unit = 1;
        raw.range_num = num;
        raw.start_range_index %= num;
        let span = if small { 24 } else { 255 };
        if small {
            raw.retx_total_timeout %= span;
            raw.timeout_init_low_bound %= span;
            raw.timeout_init_range_size %= 8;
        }
        raw.timeout_range
            .sort_by_key(|range| range.range_low_bound % span);
        for (i, range) in raw.timeout_range.iter_mut().enumerate() {
            range.dec_mode %= 3;
            range.prev_range_index %= u8::try_from(i).unwrap().max(1);
            range.timeout_retry_num %= if small { 5 } else { 1024 };
            if small {
                range.range_low_bound %= span;
                range.range_size %= 8;
            }
        }
        Profile::try_from(raw).ok()
    })
}

fn any_qp() -> impl Strategy<Value = QpTimeouts> {
    let retry_cnt = prop_oneof![9 => 0..=7_u8, 1 => any::<u8>()];
    (0..=31_u8, retry_cnt).prop_map(|(timeout, retry_cnt)| qp(timeout, retry_cnt))
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let kind = prop_oneof![
        6 => any_profile().prop_map(PolicyKind::Profile),
        1 => any::<u8>().prop_map(|multiplier| PolicyKind::Ib { multiplier }),
        2 => (any::<bool>(), any::<Option<u8>>()).prop_map(|(quantiser, initial_exponent)| {
            PolicyKind::Firmware { quantiser, initial_exponent }
        }),
    ];
    let floor = prop_oneof![
        Just(AckTimeoutFloor::DEFAULT),
        Just(AckTimeoutFloor::Disabled),
        any::<u8>().prop_map(AckTimeoutFloor::Enforced),
    ];
    (
        kind,
        floor,
        any::<bool>(),
        any::<bool>(),
        any::<u64>(),
        any::<u64>(),
    )
        .prop_map(
            |(kind, floor, recovery, range_bound_exclusive, seed, epoch)| Policy {
                kind,
                floor,
                epoch,
                dec_trigger: if recovery {
                    DecTrigger::PerRecovery
                } else {
                    DecTrigger::PerProgress
                },
                range_bound_exclusive,
                seed,
                ..Policy::new(kind)
            },
        )
}

fn inside_a_range(policy: &Policy, exponent: u16) -> bool {
    let PolicyKind::Profile(profile) = &policy.kind else {
        return true;
    };
    let high = |range: &ferroce_adp::Range| range.high(policy.range_bound_exclusive);
    profile
        .ranges()
        .any(|range| (range.low()..=high(&range)).contains(&exponent))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_values_panic(raw in any_raw(), qp in any_qp(), draw: u8) {
        let report = raw.check();
        let profile = Profile::try_from(raw);
        prop_assert_eq!(profile.is_ok(), report.is_valid());
        for violation in &report.violations {
            prop_assert!(!violation.allowed.is_empty() && !violation.instead.is_empty());
        }
        if let Ok(profile) = profile {
            prop_assert_eq!(Profile::from_register(&profile.to_register()), Ok(profile));
            silent(Policy::new(PolicyKind::Profile(profile)), qp, draw);
        }
    }

    #[test]
    fn a_register_round_trip_loses_nothing(profile in any_profile()) {
        let bytes = profile.to_register();
        prop_assert_eq!(Profile::from_register(&bytes).unwrap().to_register(), bytes);
        prop_assert_eq!(Profile::try_from(*profile.raw()), Ok(profile));
    }

    #[test]
    fn a_silent_peer(policy in any_policy(), qp in any_qp(), draw: u8) {
        let state = RetryState::with_draw(&policy, qp, 0, draw);
        let ack_ns = ns(state.ack_timeout(&policy));
        let total_ns = ns(state.total(&policy));
        let waits: Vec<_> = SilentPeer::new(policy, state).take(3000).collect();
        let Some(ack_ns) = ack_ns else {
            prop_assert_eq!(waits.len(), 1);
            prop_assert_eq!(waits[0].event, Event::Never);
            return Ok(());
        };
        let is_profile = matches!(policy.kind, PolicyKind::Profile(_));
        let is_quantised = matches!(policy.kind, PolicyKind::Firmware { quantiser: true, .. });
        let last = *waits.last().unwrap();
        let has_failed = last.event == Event::Error;

        // No wait exceeds the cap.
        prop_assert!(!is_profile || waits.iter().all(|wait| ns(wait.wait) <= Some(ack_ns)));

        // No wait shrinks on loss, but the one that the total cuts, and the jump to the start range.
        for pair in waits.windows(2) {
            let is_cut = pair[1].event == Event::Error;
            let jumps = pair[0].range.is_none() && !inside_a_range(&policy, pair[0].exponent);
            let shrinks = ns(pair[1].wait) < ns(pair[0].wait);
            let is_initial = pair[0].event == Event::Initial;
            prop_assert!(!shrinks || is_cut || jumps || is_quantised || is_initial, "{pair:?}");
            prop_assert!(pair[1].exponent >= pair[0].exponent || jumps, "{pair:?}");
            prop_assert!(pair[1].range >= pair[0].range);
        }

        // The error comes exactly at the total.
        match total_ns {
            Some(0) => prop_assert!(has_failed && waits.len() == 1),
            Some(total_ns) if has_failed && is_quantised => {
                prop_assert!(ns(last.at) <= Some(total_ns));
                prop_assert!(ns(last.at) >= ns(state.shortest_total(&policy)));
            }
            Some(total_ns) if has_failed => prop_assert_eq!(ns(last.at), Some(total_ns)),
            Some(total_ns) => prop_assert!(ns(last.at) < Some(total_ns)),
            None => prop_assert!(!has_failed),
        }
    }

    #[test]
    fn progress_ends_at_the_low_bound_of_range_0(
        policy in any_policy(),
        qp in any_qp(),
        draw: u8,
        losses in 1..300_usize,
    ) {
        let PolicyKind::Profile(profile) = &policy.kind else { return Ok(()) };
        let policy = Policy { dec_trigger: DecTrigger::PerProgress, ..policy };
        let mut state = RetryState::with_draw(&policy, qp, 0, draw);
        let mut now_ns: u64 = 0;
        for _ in 0..losses {
            now_ns = now_ns.saturating_add(ns(state.wait(&policy, at(now_ns))).unwrap_or(0));
            if state.on_timeout(&policy, at(now_ns)) == Expiry::Fatal {
                break;
            }
        }
        for _ in 0..2000 {
            let before = state;
            state.on_progress(&policy, at(now_ns));
            prop_assert!(state.exponent() <= before.exponent());
            prop_assert!(state.range() <= before.range());
        }
        if state.range().is_some() {
            let low = profile.ranges().next().unwrap().low();
            prop_assert_eq!((state.exponent(), state.range()), (low, Some(0)));
        }
    }

    /// Timers fire late, policies change under way, the clock jumps: nothing panics, the exponent
    /// stays inside a range, and a QP that hears nothing fails in the end.
    #[test]
    fn any_order_of_events(
        policies in prop::collection::vec(any_policy(), 1..4),
        qp in any_qp(),
        qpn: u32,
        events in prop::collection::vec((0..8_u8, any::<u32>()), 0..200),
    ) {
        let mut policy = policies[0];
        let mut state = RetryState::new(&policy, qp, qpn);
        let mut now_ns = 0_u64;
        for (event, value) in events {
            match event {
                0 => state.start(&policy, at(now_ns)),
                1 => state.on_progress(&policy, at(now_ns)),
                2 => drop(state.on_sequence_nak(&policy)),
                3 => {
                    policy = policies[value as usize % policies.len()];
                    policy.epoch = value.into();
                }
                _ => {
                    let wait_ns = ns(state.wait(&policy, at(now_ns))).unwrap_or(0);
                    now_ns = now_ns.saturating_add(wait_ns).saturating_add(u64::from(value) / 8);
                    if state.on_timeout(&policy, at(now_ns)) == Expiry::Fatal {
                        break;
                    }
                }
            }
            prop_assert!(state.retries_left() <= state.qp().retry_cnt);
            prop_assert!(state.range().is_none_or(|i| usize::from(i) < RANGE_NUM_MAX));
            prop_assert!(state.exponent() <= 510);
        }
    }
}

/// A retry count of any byte, though a queue pair has three bits: forecasts are asked before it is checked.
#[test]
fn no_retry_count_overflows_a_forecast() {
    for quantiser in [false, true] {
        let policy = Policy::new(PolicyKind::Firmware {
            quantiser,
            initial_exponent: None,
        });
        for retry_cnt in 0..=u8::MAX {
            let state = RetryState::with_draw(&policy, qp(22, retry_cnt), 0, 0);
            let (shortest, total) = (state.shortest_total(&policy), state.total(&policy));
            assert!(shortest <= total, "{retry_cnt}: {shortest:?}, {total:?}");
        }
    }
}
