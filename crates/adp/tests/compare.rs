//! Policies over many outages: each job fares as the figures of its policy say.

use ferroce_adp::compare::{Train, compare, fate, lognormal};
use ferroce_adp::{Endurance, Policy, PolicyKind, QpTimeouts, builtin};
use ferroce_time::Span;
use proptest::prelude::*;

fn policies() -> Vec<Policy> {
    let profiles = builtin::all()
        .iter()
        .map(|it| PolicyKind::Profile(it.profile));
    let firmware = PolicyKind::Firmware {
        quantiser: true,
        initial_exponent: None,
    };
    let kinds = profiles.chain([firmware, PolicyKind::IB]);
    kinds.map(Policy::new).collect()
}

const fn qp(timeout: u8, retry_cnt: u8) -> QpTimeouts {
    QpTimeouts { timeout, retry_cnt }
}

proptest! {
    #[test]
    fn a_job_fares_as_the_figures_say(
        which in 0usize..7, timeout in 1u8..22, retry_cnt in 0u8..8, qpn in 0u32..1_000,
        us in 1u64..40_000_000, seed: u64,
    ) {
        let mut policy = policies()[which];
        policy.seed = seed;
        let qp = qp(timeout, retry_cnt);
        let outage = Span::from_micros(us);
        let bounds = Endurance::within(&policy, qp, outage).unwrap();
        let fate = fate(&policy, qp, qpn, &Train::once(outage));
        prop_assert!(fate.survived || !bounds.outlives(outage));
        prop_assert!(!fate.survived || outage <= bounds.survives_at_best);
        prop_assert!(fate.retransmissions <= bounds.retransmissions);
        if fate.survived {
            prop_assert_eq!(fate.lost, outage + fate.resumed_after);
            prop_assert!(fate.resumed_after <= bounds.resumes_within);
        }
    }

    #[test]
    fn flaps_cost_no_more_than_each_alone(
        which in 0usize..7, down_ms in 1u64..5_000, up_ms in 20_000u64..50_000, count in 1u32..6,
    ) {
        let policy = policies()[which];
        let (down, up) = (Span::from_millis(down_ms), Span::from_millis(up_ms));
        let flaps = fate(&policy, qp(20, 7), 1, &Train { down, up, count });
        let bounds = Endurance::within(&policy, qp(20, 7), down).unwrap();
        if bounds.outlives(down) {
            prop_assert!(flaps.survived);
            prop_assert!(flaps.lost <= (down + bounds.resumes_within) * count.into());
            prop_assert!(flaps.lost >= down * count.into());
        }
    }
}

#[test]
fn a_link_that_is_up_for_less_than_a_wait_may_be_missed() {
    let policy = Policy::new(PolicyKind::IB);
    // Waits of 268 ms: the third one ends at 805 ms, behind the second outage, and from the third
    // outage on it takes two.
    let train = Train {
        down: Span::from_millis(300),
        up: Span::from_millis(200),
        count: 3,
    };
    let found = fate(&policy, qp(14, 7), 1, &train);
    assert!(found.survived);
    assert_eq!(found.lost, Span::from_nanos(268_435_456) * 5);
}

#[test]
fn the_same_outages_fare_the_same() {
    let outages = lognormal(Span::from_millis(300), Span::from_secs(20), 500);
    for policy in policies() {
        let fared = compare(&policy, qp(20, 7), &outages);
        assert_eq!(fared, compare(&policy, qp(20, 7), &outages));
        assert!((0.0..=1.0).contains(&fared.survived));
        assert!(fared.lost[0] <= fared.lost[1]);
    }
}
