//! Which outages are survived, and how soon the QP recovers: by the figures, and by a replay.

mod common;

use common::{fast_four, firmware, plain_doubling, qp};
use ferroce_adp::trace::{Event, SilentPeer};
use ferroce_adp::{
    AckTimeoutFloor, Demand, Endurance, Policy, PolicyKind, Profile, QpTimeouts, RawProfile,
    RawRange,
};
use ferroce_base::time::Span;
use proptest::prelude::*;

const OUT_OF_THE_BOX: PolicyKind = PolicyKind::Firmware {
    quantiser: true,
    initial_exponent: None,
};

fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

#[test]
fn nccl_out_of_the_box() {
    let found = Endurance::of(&Policy::new(OUT_OF_THE_BOX), qp(20, 7)).unwrap();
    // 2 N(20) is the last wait; the ladder and the first plain wait may be cut by a quarter.
    let n = Span::from_nanos(4_294_967_296);
    assert_eq!(found.survives_at_best, n * 12);
    assert_eq!(found.gives_up_last, n * 14);
    assert_eq!(found.gives_up_last - found.survives_at_best, n * 2);
    assert_eq!(found.resumes_within, n * 2);
    assert_eq!(found.gives_up_first - found.survives, n * 2);
    assert!(
        (ms(47_200)..ms(47_300)).contains(&found.survives),
        "{found:?}"
    );
    assert_eq!(found.shortest_wait, Span::from_nanos(4_194_304 * 3 / 4));
}

#[test]
fn plain_timers_survive_all_but_the_last_wait() {
    let n = Span::from_nanos(268_435_456);
    for retry_cnt in 0..=7 {
        let found = Endurance::of(&Policy::new(PolicyKind::IB), qp(14, retry_cnt)).unwrap();
        let retries = u64::from(retry_cnt);
        assert_eq!(found.survives, n * retries);
        assert_eq!(found.gives_up_first, n * (retries + 1));
        assert_eq!(found.retransmissions, retries);
        assert_eq!(
            found.resumes_within,
            if retries > 0 { n } else { Span::ZERO }
        );
    }
}

#[test]
fn a_timer_that_is_off_has_no_figures() {
    assert_eq!(Endurance::of(&Policy::new(OUT_OF_THE_BOX), qp(0, 7)), None);
}

#[test]
fn the_wait_that_nothing_follows_counts_together_with_the_next() {
    let mut policy = Policy::new(OUT_OF_THE_BOX);
    policy.floor = AckTimeoutFloor::Disabled;
    let n = Span::from_nanos(67_108_864);
    let found = Endurance::of(&policy, qp(14, 3)).unwrap();
    assert_eq!(found.retransmissions, 3);
    //= F15: 1.16 timeouts at first, then one more until something is sent.
    assert_eq!(found.resumes_within, n / 100 * 116 + n);
    assert_eq!(found.survives, n / 100 * 51 + n * 3);
}

#[test]
fn billions_of_waits_take_no_time() {
    let raw = RawProfile {
        time_base: 4,
        timeout_init_range_size: 255,
        retx_total_timeout: 41,
        qp_total_timeout: false,
        ..plain_doubling()
    };
    let mut steady = raw;
    steady.timeout_range[0] = RawRange {
        range_low_bound: 0,
        range_size: 0,
        timeout_retry_num: 1023,
        ..RawRange::EMPTY
    };
    let policy = Policy::new(PolicyKind::Profile(Profile::try_from(steady).unwrap()));
    let found = Endurance::of_draw(&policy, qp(31, 7), 0, Span::NEVER);
    assert_eq!(found.gives_up_last, Span::from_micros(4 << 41));
    assert!(found.retransmissions > 1 << 40, "{found:?}");
    // Without a limit it continues.
    steady.retx_total_timeout = 60;
    let policy = Policy::new(PolicyKind::Profile(Profile::try_from(steady).unwrap()));
    let found = Endurance::of_draw(&policy, qp(31, 7), 0, Span::NEVER);
    assert_eq!(
        (found.survives, found.gives_up_last),
        (Span::NEVER, Span::NEVER)
    );
    assert_eq!(found.resumes_within, Span::from_micros(4 << 10));
    let within = Endurance::of_draw(&policy, qp(31, 7), 0, ms(1_000));
    assert!(
        (200_000..=250_000).contains(&within.retransmissions),
        "{within:?}"
    );
}

#[test]
fn the_smallest_timeout_that_survives() {
    let policy = Policy::new(OUT_OF_THE_BOX);
    let demand = |survive, detect_within| Demand {
        survive: ms(survive),
        detect_within,
    };
    let found = demand(20_000, Span::NEVER).smallest(&policy).unwrap();
    assert_eq!(found.qp, qp(19, 7));
    let found = demand(1_000, Span::NEVER).smallest(&policy).unwrap();
    assert_eq!(found.qp, qp(16, 4));
    assert_eq!(demand(30_000, ms(10_000)).smallest(&policy), None);
    assert_eq!(demand(20_000, ms(20_001)).smallest(&policy), None);
    let soonest = demand(20_000, ms(20_001)).soonest(&policy).unwrap();
    assert!(soonest.endurance.outlives(ms(20_000)));
    assert_eq!(demand(1 << 40, Span::NEVER).smallest(&policy), None);
    // With timers of its own, a profile gets closer.
    let profile = Profile::try_from(plain_doubling()).unwrap();
    let owned = demand(20_000, ms(34_000)).own_total(&profile, &policy, qp(20, 7));
    assert_eq!(owned.unwrap().profile.raw().retx_total_timeout, 23);
    assert_eq!(
        demand(20_000, ms(33_000)).own_total(&profile, &policy, qp(20, 7)),
        None
    );
}

fn any_profile() -> impl Strategy<Value = PolicyKind> {
    let range = (0u8..8, 0u8..4, 0u16..4);
    let header = (0u8..3, any::<bool>(), 8u8..22, 0u8..16, 0u8..6);
    (header, prop::collection::vec(range, 1..5)).prop_filter_map("a profile", |(header, ranges)| {
        let (start, qp_total_timeout, total, low, size) = header;
        let mut raw = RawProfile {
            time_base: 4,
            start_range_index: start,
            range_num: u8::try_from(ranges.len()).unwrap(),
            qp_total_timeout,
            retx_total_timeout: total,
            timeout_init_low_bound: low,
            timeout_init_range_size: size,
            ..RawProfile::EMPTY
        };
        let mut low = 4;
        for (at, (gap, range_size, timeout_retry_num)) in ranges.into_iter().enumerate() {
            low += gap;
            raw.timeout_range[at] = RawRange {
                range_low_bound: low,
                range_size,
                timeout_retry_num,
                ..RawRange::EMPTY
            };
        }
        Profile::try_from(raw).ok().map(PolicyKind::Profile)
    })
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let firmware = prop::option::of(0u8..20).prop_map(|initial_exponent| PolicyKind::Firmware {
        quantiser: false,
        initial_exponent,
    });
    let ib = (1u8..5).prop_map(|multiplier| PolicyKind::Ib { multiplier });
    let kind = prop_oneof![firmware, ib, any_profile()];
    (kind, any::<bool>(), any::<bool>()).prop_map(|(kind, floor, exclusive)| {
        let mut policy = Policy::new(kind);
        if floor {
            policy.floor = AckTimeoutFloor::Disabled;
        }
        policy.range_bound_exclusive = exclusive;
        policy
    })
}

/// The same by visiting each wait.
fn replayed(policy: &Policy, qp: QpTimeouts, draw: u8, outage: Span) -> Endurance {
    let mut found = Endurance {
        survives: Span::ZERO,
        survives_at_best: Span::ZERO,
        gives_up_first: Span::NEVER,
        gives_up_last: Span::NEVER,
        resumes_within: Span::ZERO,
        retransmissions: 0,
        shortest_wait: Span::NEVER,
    };
    let mut sent = Span::ZERO;
    for wait in SilentPeer::with_draw(*policy, qp, draw) {
        if wait.event != Event::Error || found.survives == Span::ZERO {
            found.shortest_wait = found.shortest_wait.min(wait.wait.unwrap());
        }
        let at = wait.at.unwrap();
        match wait.event {
            Event::Retransmit { .. } => {
                if sent < outage {
                    found.resumes_within = found.resumes_within.max(at - sent);
                }
                found.retransmissions += u64::from(at <= outage);
                (found.survives, found.survives_at_best, sent) = (at, at, at);
            }
            Event::Error => (found.gives_up_first, found.gives_up_last) = (at, at),
            Event::Initial => {}
            Event::Never => unreachable!("the timer runs"),
        }
    }
    found
}

proptest! {
    #[test]
    fn the_figures_are_those_of_a_replay(
        policy in any_policy(), timeout in 1u8..22, retry_cnt in 0u8..8, outage_ms in 0u64..100_000,
    ) {
        let qp = qp(timeout, retry_cnt);
        for draw in [0, policy.draws() / 2, policy.draws() - 1] {
            let exact = |outage| Endurance::of_draw(&policy, qp, draw, outage);
            prop_assert_eq!(exact(Span::NEVER), replayed(&policy, qp, draw, Span::NEVER));
            prop_assert_eq!(exact(ms(outage_ms)), replayed(&policy, qp, draw, ms(outage_ms)));
        }
    }

    #[test]
    fn all_draws_and_coarse_timers_are_within_the_bounds(
        seed: u64, timeout in 1u8..22, retry_cnt in 0u8..8, qpn in 0u32..1 << 24,
    ) {
        let mut policy = Policy::new(OUT_OF_THE_BOX);
        policy.seed = seed;
        let qp = qp(timeout, retry_cnt);
        let bounds = Endurance::of(&policy, qp).unwrap();
        let state = ferroce_adp::RetryState::new(&policy, qp, qpn);
        let waits: Vec<_> = SilentPeer::new(policy, state).collect();
        let [.., last, error] = &waits[..] else {
            panic!("it retransmits once at least");
        };
        prop_assert!((bounds.survives..=bounds.survives_at_best).contains(&last.at.unwrap()));
        let error = error.at.unwrap();
        prop_assert!((bounds.gives_up_first..=bounds.gives_up_last).contains(&error));
        prop_assert!(waits.iter().rev().skip(1).all(|it| it.wait.unwrap() <= bounds.resumes_within));
        prop_assert_eq!(bounds.gives_up_last, policy.total(qp).unwrap());
        prop_assert_eq!(bounds.gives_up_first, policy.shortest_total(qp).unwrap());
    }
}

#[test]
fn a_qp_that_has_recovered_before_counts_too() {
    // Fresh: 4.096 ms twice, then 8.192. In its range: 4.096 ms once.
    let policy = Policy::new(PolicyKind::Profile(
        Profile::try_from(plain_doubling()).unwrap(),
    ));
    let outage = Span::from_micros(4_096 + 1);
    let fresh = Endurance::of_draw(&policy, qp(14, 7), 0, outage);
    assert_eq!(fresh.resumes_within, Span::from_micros(4_096));
    let any = Endurance::within(&policy, qp(14, 7), outage).unwrap();
    assert_eq!(any.resumes_within, Span::from_micros(8_192));
}

#[test]
fn the_worked_profiles() {
    let found = Endurance::of(&fast_four(), qp(18, 7)).unwrap();
    assert_eq!(found.gives_up_last, Span::from_micros(4_194_304));
    let found = Endurance::of(&firmware(11), qp(14, 7)).unwrap();
    assert_eq!(found.retransmissions, 12);
    assert_eq!(found.survives, Span::from_nanos(3_221_225_472));
}
