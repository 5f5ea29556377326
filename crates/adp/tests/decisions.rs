//! The decisions that no trace of a silent peer shows.

mod common;

use common::{at, fast_four, firmware, ib, ns, plain_doubling, qp, replay, silent, without_floor};
use ferroce_adp::trace::Event;
use ferroce_adp::{
    AckTimeoutFloor, DecTrigger, Expiry, Policy, PolicyKind, Profile, RawProfile, RawRange,
    RetryState,
};

const RETRANSMIT: Expiry = Expiry::Retransmit { adaptive: true };

fn policy(raw: RawProfile) -> Policy {
    Policy::new(PolicyKind::Profile(Profile::try_from(raw).unwrap()))
}

fn exponents(steps: &[ferroce_adp::trace::Step]) -> Vec<u16> {
    steps.iter().map(|step| step.exponent).collect()
}

#[test]
fn d1_every_exponent_of_the_initial_range_is_drawn_and_no_other() {
    let fast_four = fast_four();
    let drawn: std::collections::BTreeSet<_> = (0..1000)
        .map(|qpn| RetryState::new(&fast_four, qp(14, 7), qpn).exponent())
        .collect();
    assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [8, 9, 10]);
    for size in [0, 1] {
        let policy = policy(RawProfile {
            timeout_init_range_size: size,
            ..plain_doubling()
        });
        for qpn in 0..100 {
            assert_eq!(RetryState::new(&policy, qp(14, 7), qpn).exponent(), 10);
        }
    }
}

#[test]
fn d2_the_upper_bound_belongs_to_the_range_unless_switched_off() {
    let mut policy = policy(plain_doubling());
    let last = |policy| {
        replay(policy, qp(20, 7), 0, "tttttttttt")
            .last()
            .unwrap()
            .exponent
    };
    assert_eq!(last(policy), 16);
    policy.range_bound_exclusive = true;
    assert_eq!(last(policy), 15);
    let mut raw = plain_doubling();
    raw.timeout_range[0].range_size = 0;
    assert_eq!(last(self::policy(raw)), 10);
    assert_eq!(
        last(Policy {
            range_bound_exclusive: true,
            ..self::policy(raw)
        }),
        10
    );
}

#[test]
fn d3_the_lowest_range_that_holds_the_initial_timeout_wins() {
    let mut raw = plain_doubling();
    raw.range_num = 2;
    raw.timeout_init_low_bound = 13;
    raw.timeout_range[0].timeout_retry_num = 3;
    raw.timeout_range[1] = RawRange {
        range_low_bound: 12,
        range_size: 8,
        ..RawRange::EMPTY
    };
    let steps = replay(policy(raw), qp(20, 7), 0, "tttt");
    assert_eq!(exponents(&steps), [13, 13, 13, 14]);
    assert!(steps.iter().all(|step| step.range == Some(0)));
}

#[test]
fn d4_a_capped_timeout_rises_no_further_and_so_shrinks_at_once() {
    let mut raw = plain_doubling();
    raw.qp_total_timeout = false;
    raw.retx_total_timeout = 30;
    raw.timeout_range[0].range_size = 20;
    raw.timeout_range[0].dec_mode = 1;
    // 4.096 us << 14 lies between 4 us << 14 and 4 us << 15.
    let policy = without_floor(policy(raw));
    let steps = replay(policy, qp(14, 7), 0, &format!("{}a", "t".repeat(12)));
    assert_eq!(
        exponents(&steps),
        [10, 11, 12, 13, 14, 15, 15, 15, 15, 15, 15, 15, 14]
    );
    assert_eq!(ns(steps[11].timer), Some(4096 << 14));
    assert_eq!(ns(steps[12].timer), Some(4000 << 14));
}

#[test]
fn d5_the_clock_restarts_with_progress_and_with_the_first_send() {
    let policy = fast_four();
    let total_ns = ns(policy.total(qp(18, 7))).unwrap();
    let mut state = RetryState::new(&policy, qp(18, 7), 1);
    state.start(&policy, at(5));
    assert_eq!(state.on_timeout(&policy, at(5 + total_ns - 1)), RETRANSMIT);
    assert_eq!(ns(state.wait(&policy, at(5 + total_ns - 1))), Some(1));
    state.on_progress(&policy, at(5 + total_ns - 1));
    assert_eq!(state.on_timeout(&policy, at(5 + total_ns)), RETRANSMIT);
    state.start(&policy, at(3 * total_ns));
    assert_eq!(state.on_timeout(&policy, at(4 * total_ns - 1)), RETRANSMIT);
    assert_eq!(state.on_timeout(&policy, at(4 * total_ns)), Expiry::Fatal);
    assert_eq!(
        state.on_timeout(&policy, at(u64::MAX)),
        Expiry::Fatal,
        "late timers"
    );
}

#[test]
fn d6_a_timeout_of_0_never_expires() {
    for policy in [
        fast_four(),
        firmware(11),
        ib(4),
        without_floor(firmware(11)),
    ] {
        let mut state = RetryState::new(&policy, qp(0, 7), 1);
        state.start(&policy, at(0));
        assert_eq!(ns(state.wait(&policy, at(0))), None);
        assert_eq!(ns(state.total(&policy)), None);
        assert_eq!(ns(policy.ack_timeout(qp(0, 7))), None);
        assert!(matches!(
            state.on_timeout(&policy, at(u64::MAX)),
            Expiry::Retransmit { .. }
        ));
        let trace = silent(policy, qp(0, 0), 0);
        assert_eq!(trace.len(), 1);
        assert_eq!((trace[0].event, ns(trace[0].wait)), (Event::Never, None));
    }
}

#[test]
fn d7_sequence_naks_use_retries_and_progress_restores_them() {
    for policy in [fast_four(), firmware(11), ib(1)] {
        for retry_cnt in 0..=7 {
            let mut state = RetryState::new(&policy, qp(14, retry_cnt), 1);
            for round in 0..3 {
                for left in (0..retry_cnt).rev() {
                    assert!(state.on_sequence_nak(&policy));
                    assert_eq!(state.retries_left(), left);
                }
                assert!(!state.on_sequence_nak(&policy));
                state.on_progress(&policy, at(round));
            }
        }
    }
}

#[test]
fn d7_timeouts_and_naks_share_the_count_only_without_a_profile() {
    let mut state = RetryState::new(&ib(1), qp(14, 2), 1);
    assert!(state.on_sequence_nak(&ib(1)));
    assert_eq!(
        state.on_timeout(&ib(1), at(1)),
        Expiry::Retransmit { adaptive: false }
    );
    assert!(!state.on_sequence_nak(&ib(1)));
    assert_eq!(state.on_timeout(&ib(1), at(2)), Expiry::Fatal);

    let policy = fast_four();
    let mut state = RetryState::new(&policy, qp(14, 2), 1);
    for now_ns in 1..100 {
        assert_eq!(state.on_timeout(&policy, at(now_ns)), RETRANSMIT);
    }
    assert_eq!(state.retries_left(), 2);
}

#[test]
fn d8_the_floor_lifts_smaller_codes_and_no_others() {
    for code in 1..=31 {
        assert_eq!(AckTimeoutFloor::DEFAULT.apply(code), code.max(16));
        assert_eq!(AckTimeoutFloor::Enforced(20).apply(code), code.max(20));
        assert_eq!(AckTimeoutFloor::Disabled.apply(code), code);
    }
    assert_eq!(AckTimeoutFloor::DEFAULT.apply(0), 0);
}

#[test]
fn d16_the_last_upper_bound_holds() {
    let trace = silent(policy(plain_doubling()), qp(20, 7), 0);
    assert!(
        trace[8..]
            .iter()
            .all(|wait| wait.exponent == 16 && wait.range == Some(0))
    );
    assert!(trace.len() > 100);
}

#[test]
fn d17_progress_before_the_first_timeout_changes_nothing() {
    let steps = replay(fast_four(), qp(18, 7), 1, "aaat");
    assert!(
        steps[..3]
            .iter()
            .all(|step| step.range.is_none() && step.exponent == 9)
    );
    assert_eq!((steps[3].exponent, steps[3].range), (9, Some(0)));
}

#[test]
fn d17_per_recovery_takes_one_step_for_each_outage() {
    let policy = Policy {
        dec_trigger: DecTrigger::PerRecovery,
        ..fast_four()
    };
    let steps = replay(policy, qp(18, 7), 0, &format!("{}aaata", "t".repeat(14)));
    assert_eq!(exponents(&steps[13..]), [15, 14, 14, 14, 15, 14]);
}

#[test]
fn d17_progress_resets_the_uses_of_a_timeout() {
    let steps = replay(fast_four(), qp(18, 7), 0, "ttatt");
    assert_eq!(
        exponents(&steps),
        [8, 8, 8, 8, 9],
        "two uses before and two after"
    );
}

#[test]
fn d18_to_div_4_takes_two_steps_and_stops_at_the_low_bound() {
    let mut raw = plain_doubling();
    raw.timeout_range[0].dec_mode = 0;
    let steps = replay(policy(raw), qp(20, 7), 0, "ttttttaaaa");
    assert_eq!(exponents(&steps[5..]), [15, 13, 11, 10, 10]);
}

#[test]
fn d18_a_decrease_enters_the_lower_range_below_the_timeout() {
    let mut raw = plain_doubling();
    raw.range_num = 2;
    raw.timeout_range[1] = RawRange {
        range_low_bound: 12,
        range_size: 8,
        timeout_retry_num: 1,
        ..raw.timeout_range[0]
    };
    // Up: 10 to 16 in range 0, then 17 in range 1. Down: to 12, then 11 in range 0, then 10.
    let steps = replay(policy(raw), qp(20, 7), 0, "ttttttttaaaa");
    let walk: Vec<_> = steps[6..]
        .iter()
        .map(|s| (s.exponent, s.range.unwrap()))
        .collect();
    assert_eq!(walk, [(16, 0), (17, 1), (12, 1), (11, 0), (10, 0), (10, 0)]);
}

#[test]
fn d22_a_new_profile_waits_for_the_running_timer_and_then_draws() {
    let old = firmware(11);
    let new = Policy {
        epoch: 1,
        ..fast_four()
    };
    let mut state = RetryState::new(&old, qp(18, 7), 9);
    state.start(&old, at(0));
    assert_eq!(
        state.on_timeout(&old, at(1)),
        Expiry::Retransmit { adaptive: true }
    );
    // Now the profile is set. The timer of the ladder is still running, and counts as adaptive.
    assert_eq!(
        state.on_timeout(&new, at(2)),
        Expiry::Retransmit { adaptive: true }
    );
    let fresh = RetryState::new(&new, qp(18, 7), 9);
    assert_eq!((state.exponent(), state.range()), (fresh.exponent(), None));
    assert_eq!(state.on_timeout(&new, at(3)), RETRANSMIT);
    assert_eq!(state.range(), Some(0));

    // Back to plain waits: the timer that finishes was still one of the profile.
    let plain = Policy { epoch: 2, ..ib(1) };
    assert_eq!(state.on_timeout(&plain, at(4)), RETRANSMIT);
    assert_eq!(
        state.on_timeout(&plain, at(5)),
        Expiry::Retransmit { adaptive: false }
    );
    assert_eq!(state.retries_left(), 6);
}

#[test]
fn d22_whatever_comes_first_after_a_new_profile_draws() {
    let old = firmware(11);
    let new = Policy {
        epoch: 1,
        ..fast_four()
    };
    let fresh = RetryState::new(&new, qp(18, 7), 9);
    let base = RetryState::new(&old, qp(18, 7), 9);
    assert_eq!(ns(base.wait(&new, at(0))), ns(fresh.wait(&new, at(0))));
    let mut state = base;
    state.start(&new, at(7));
    assert_eq!(state.exponent(), fresh.exponent());
    let mut state = base;
    state.on_progress(&new, at(7));
    assert_eq!(state.exponent(), fresh.exponent());
    let mut state = base;
    assert!(state.on_sequence_nak(&new));
    assert_eq!(state.exponent(), fresh.exponent());
}

/// A QP that has missed any number of changes notices that there were changes.
#[test]
fn d22_holds_2_to_the_32_profiles_later() {
    let old = firmware(11);
    let new = Policy {
        epoch: old.epoch + (1 << 32),
        ..fast_four()
    };
    let mut state = RetryState::new(&old, qp(18, 7), 9);
    state.start(&new, at(0));
    let fresh = RetryState::new(&new, qp(18, 7), 9);
    assert_eq!(state.exponent(), fresh.exponent());
}

#[test]
fn d22_the_clock_of_the_total_goes_on() {
    let new = Policy {
        epoch: 1,
        ..fast_four()
    };
    let total_ns = ns(new.total(qp(18, 7))).unwrap();
    let mut state = RetryState::new(&ib(1), qp(18, 7), 9);
    state.start(&ib(1), at(0));
    let mut late = state;
    assert_eq!(late.on_timeout(&new, at(total_ns)), Expiry::Fatal);
    assert!(matches!(
        state.on_timeout(&new, at(total_ns - 1)),
        Expiry::Retransmit { .. }
    ));
    assert_eq!(ns(state.wait(&new, at(total_ns - 1))), Some(1));
}

#[test]
fn d22_the_ladder_begins_anew_when_the_floor_is_back() {
    let enforced = firmware(11);
    let mut policy = without_floor(enforced);
    let mut state = RetryState::new(&policy, qp(16, 0), 9);
    state.start(&policy, at(0));
    policy.change(enforced.kind, enforced.floor);
    let plain = Expiry::Retransmit { adaptive: false };
    assert_eq!(
        state.on_timeout(&policy, at(1)),
        plain,
        "it was still plain"
    );
    let total_ns = ns(policy.total(qp(16, 0))).unwrap();
    let mut waited_ns = 0;
    loop {
        waited_ns += ns(state.wait(&policy, at(1))).unwrap();
        if state.on_timeout(&policy, at(1)) == Expiry::Fatal {
            break;
        }
    }
    assert_eq!(waited_ns, total_ns);
}

#[test]
fn d22_the_epoch_rises_with_another_ladder_only() {
    let other_floor = AckTimeoutFloor::Enforced(9);
    let of = |policy: Policy| (policy.kind, policy.floor);
    for (from, to, rises) in [
        (firmware(11), of(firmware(11)), 0),
        (firmware(11), of(firmware(12)), 1),
        (firmware(11), of(without_floor(firmware(11))), 1),
        (without_floor(firmware(11)), of(firmware(11)), 1),
        (firmware(11), (firmware(11).kind, other_floor), 0),
        (fast_four(), of(without_floor(fast_four())), 0),
        (ib(1), of(without_floor(ib(1))), 0),
        (ib(1), of(without_floor(firmware(11))), 1),
    ] {
        let mut policy = from;
        policy.change(to.0, to.1);
        assert_eq!((of(policy), policy.epoch), (to, rises), "{from:?}");
    }
}

#[test]
fn d23_the_ib_multiplier_stays_within_what_the_standard_allows() {
    for (multiplier, effective) in [(0, 1), (1, 1), (2, 2), (3, 3), (4, 4), (5, 4), (255, 4)] {
        let trace = silent(ib(multiplier), qp(16, 0), 0);
        assert_eq!(ns(trace[0].wait), Some(effective * 268_435_456));
        assert_eq!(trace.len(), 1);
    }
}

#[test]
fn firmware_progress_goes_back_to_the_first_step_with_all_units() {
    let steps = replay(firmware(11), qp(14, 7), 0, "tttttttttatttttttttt");
    assert_eq!(steps[8].exponent, 17);
    assert_eq!(steps[9].exponent, 11);
    assert_eq!(
        exponents(&steps[10..]),
        [11, 12, 13, 14, 15, 16, 17, 17, 17, 17]
    );
    assert!(!steps.last().unwrap().has_failed);
}

#[test]
fn a_replay_ends_with_the_fatal_timeout() {
    let steps = replay(ib(1), qp(14, 1), 0, "ttttaa");
    assert_eq!(steps.len(), 2);
    assert!(steps[1].has_failed);
    assert_eq!(ns(steps[1].timer), None);
}

#[test]
fn a_changed_seed_changes_draws_and_the_same_seed_does_not() {
    let draws = |seed| -> Vec<_> {
        let policy = Policy {
            seed,
            ..fast_four()
        };
        (0..64)
            .map(|qpn| RetryState::new(&policy, qp(14, 7), qpn).draw())
            .collect()
    };
    assert_eq!(draws(3), draws(3));
    assert_ne!(draws(3), draws(4));
}

#[test]
fn an_oversized_timeout_is_cut_and_the_retry_count_may_exceed_7() {
    let state = RetryState::new(&ib(1), qp(32 + 14, 15), 1);
    assert_eq!(state.qp(), qp(14, 15));
}
