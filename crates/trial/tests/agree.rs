//! Pairs of devices fare as the figures of their policy say.

use ferroce_adp::trace::{Event, SilentPeer};
use ferroce_adp::{Endurance, Policy, PolicyKind, QpTimeouts, RetryState, builtin};
use ferroce_base::time::Span;
use ferroce_trial::{Fate, Link, Times, Train, fate};
use proptest::prelude::*;

fn policies() -> Vec<Policy> {
    let profiles = builtin::all()
        .iter()
        .map(|it| PolicyKind::Profile(it.profile));
    let firmware = PolicyKind::Firmware {
        quantiser: true,
        initial_exponent: None,
    };
    let kinds = profiles.chain([firmware, PolicyKind::FIRMWARE, PolicyKind::IB]);
    kinds.map(Policy::new).collect()
}

const fn qp(timeout: u8, retry_cnt: u8) -> QpTimeouts {
    QpTimeouts { timeout, retry_cnt }
}

const ROUND_TRIP: Span = Span::from_micros(20);
/// What a queue pair that was back has to wait besides: it retransmits one packet, and the others once
/// that is answered.
const BESIDES: Span = Span::from_micros(25);

fn link() -> Link {
    Link {
        loss: 0,
        round_trip: Times::Same(ROUND_TRIP),
    }
}

fn one(policy: &Policy, qp: QpTimeouts, outage: Span) -> Fate {
    fate(policy, qp, &link(), &Train::once(outage), 7).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// What `explain timeout` says of all QPs holds of each.
    #[test]
    fn a_pair_fares_within_the_figures(
        which in 0usize..8, timeout in 14u8..22, retry_cnt in 0u8..8, us in 1u64..40_000_000,
        seed: u64,
    ) {
        let mut policy = policies()[which];
        policy.seed = seed;
        let (qp, outage) = (qp(timeout, retry_cnt), Span::from_micros(us));
        let bounds = Endurance::within(&policy, qp, outage).unwrap();
        let fate = one(&policy, qp, outage);
        prop_assert!(fate.survived || !bounds.outlives(outage));
        prop_assert!(!fate.survived || outage <= bounds.survives_at_best);
        // All packets of a message, each time; and the one that gets through.
        prop_assert!(fate.retransmissions <= 4 * (bounds.retransmissions + 1));
        prop_assert_eq!(fate.spurious, 0);
        if fate.survived {
            let back = outage + fate.resumed_after;
            prop_assert!(back <= fate.lost && fate.lost <= back + BESIDES);
            prop_assert!(fate.resumed_after <= bounds.resumes_within);
        }
    }

    /// What `adp trace` prints of a draw is what the pair does to the nanosecond.
    #[test]
    fn a_pair_fares_as_its_trace_says(
        which in 0usize..8, timeout in 14u8..22, us in 1u64..40_000_000, seed: u64,
    ) {
        let mut policy = policies()[which];
        if matches!(policy.kind, PolicyKind::Firmware { quantiser: true, .. }) {
            return Ok(()); // which waits it cuts depends on the time
        }
        policy.seed = seed;
        let (qp, outage) = (qp(timeout, 7), Span::from_micros(us));
        let fate = one(&policy, qp, outage);
        // Each draw is possible; one of them is this queue pair's.
        let traces = (0..policy.draws()).map(|draw| {
            let state = RetryState::with_draw(&policy, qp, 0, draw);
            let sent = |event| matches!(event, Event::Retransmit { .. });
            let mut waits = SilentPeer::new(policy, state).take_while(|it| it.event != Event::Error);
            waits.find(|it| sent(it.event) && it.at >= Some(outage)).and_then(|it| it.at)
        });
        let back = fate.survived.then_some(outage + fate.resumed_after);
        prop_assert!(traces.clone().any(|at| at == back), "{back:?} of {:?}", traces.collect::<Vec<_>>());
    }

    #[test]
    fn flaps_cost_no_more_than_each_alone(
        which in 0usize..8, down_ms in 1u64..5_000, up_ms in 20_000u64..50_000, count in 1u32..6,
    ) {
        let policy = policies()[which];
        let (down, up) = (Span::from_millis(down_ms), Span::from_millis(up_ms));
        let train = Train { down, up, count };
        let flaps = fate(&policy, qp(20, 7), &link(), &train, 1).unwrap();
        let bounds = Endurance::within(&policy, qp(20, 7), down).unwrap();
        if bounds.outlives(down) {
            prop_assert!(flaps.survived);
            prop_assert!(flaps.lost <= (down + bounds.resumes_within + BESIDES) * count.into());
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
    let found = fate(&policy, qp(14, 7), &link(), &train, 1).unwrap();
    assert!(found.survived);
    let waits = Span::from_nanos(268_435_456) * 5;
    assert!(waits <= found.lost && found.lost <= waits + BESIDES * 2);
}

#[test]
fn losses_cost_waits_and_late_answers_cost_packets() {
    let policy = policies()[2];
    let outage = Train::once(Span::from_millis(5));
    let fates = |link: &Link| -> Vec<Fate> {
        let fate = |seed| fate(&policy, qp(20, 7), link, &outage, seed).unwrap();
        (0..20).map(fate).collect()
    };
    let sum = |fates: &[Fate], of: fn(&Fate) -> u64| fates.iter().map(of).sum::<u64>();
    let calm = fates(&link());
    let lossy = fates(&Link {
        loss: u32::MAX / 50,
        ..link()
    });
    assert!(sum(&lossy, |it| it.lost.as_nanos()) > sum(&calm, |it| it.lost.as_nanos()));
    assert!(sum(&lossy, |it| it.retransmissions) > sum(&calm, |it| it.retransmissions));
    assert!(lossy.iter().all(|it| it.survived));
    // An answer that takes longer than the first wait.
    let slow = fates(&Link {
        round_trip: Times::Same(Span::from_millis(3)),
        ..link()
    });
    assert!(sum(&slow, |it| it.spurious) > 100);
    assert_eq!(sum(&calm, |it| it.spurious), 0);
}
