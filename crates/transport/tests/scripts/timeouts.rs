//! A silent peer, under every policy: the waits, the total, the error.

use ferroce_adp::trace::{Event, SilentPeer};
use ferroce_adp::{
    AckTimeoutFloor, Policy, PolicyKind, Profile, QpTimeouts, RawProfile, RawRange, RetryState,
};
use ferroce_transport::{Counter, QpState, Span, WcStatus, WorkQueue};

use crate::common::{A, B, Fate, Pair, Setup};

fn profile(qp_total_timeout: bool) -> Profile {
    let mut raw = RawProfile {
        time_base: 4,
        range_num: 2,
        qp_total_timeout,
        retx_total_timeout: 18,
        timeout_init_low_bound: 8,
        timeout_init_range_size: 3,
        ..RawProfile::EMPTY
    };
    for (index, low) in [8, 12].into_iter().enumerate() {
        raw.timeout_range[index] = RawRange {
            range_low_bound: low,
            range_size: 2,
            timeout_retry_num: 2,
            ..RawRange::EMPTY
        };
    }
    Profile::try_from(raw).unwrap()
}

fn policies() -> Vec<Policy> {
    let mut policies: Vec<_> = [
        PolicyKind::IB,
        PolicyKind::Ib { multiplier: 4 },
        PolicyKind::FIRMWARE,
        PolicyKind::Firmware {
            quantiser: true,
            initial_exponent: Some(12),
        },
        PolicyKind::Profile(profile(true)),
        PolicyKind::Profile(profile(false)),
    ]
    .map(Policy::new)
    .into();
    for index in 0..policies.len() {
        policies.push(Policy {
            floor: AckTimeoutFloor::Disabled,
            ..policies[index]
        });
    }
    policies
}

fn silent(policy: Policy, timeout: u8, retry_cnt: u8) -> Pair {
    let mut pair = Setup {
        policy,
        timeout,
        retry_cnt,
        ..Setup::default()
    }
    .connect();
    pair.silence(A);
    pair
}

/// The times are those of the model behind the traces and the documentation.
#[test]
fn timeouts_match_the_trace_to_the_nanosecond() {
    for policy in policies() {
        for (timeout, retry_cnt) in [(14, 7), (8, 7), (17, 3), (18, 1), (1, 2), (14, 0)] {
            let mut pair = silent(policy, timeout, retry_cnt);
            let start = pair.now;
            pair.write(A, 1, 10);
            pair.run();
            let qp = QpTimeouts { timeout, retry_cnt };
            let mut state = RetryState::new(&policy, qp, pair[A].qp.qpn().value());
            state.start(&policy, start);
            // The quantiser depends on the time, so the trace starts when the pair does.
            let waits = trace(&policy, state, start);
            let last = waits.last().unwrap();
            assert_eq!(
                pair.now.since(start).as_nanos(),
                last.0,
                "{policy:?} {qp:?}"
            );
            let sent: Vec<u64> = pair
                .log
                .iter()
                .map(|p| p.at.since(start).as_nanos())
                .collect();
            let mut expected = vec![0];
            let resent = |(at, event): &(u64, Event)| {
                matches!(event, Event::Retransmit { .. }).then_some(*at)
            };
            expected.extend(waits.iter().filter_map(resent));
            assert_eq!(sent, expected, "{policy:?} {qp:?}");
            expect_failed(&mut pair);
            let expiries = &pair[A].host.expiries;
            assert_eq!(expiries.len(), waits.len());
            for (expiry, (_, event)) in expiries.iter().zip(&waits) {
                assert_eq!(expiry.fatal, *event == Event::Error);
                let adaptive = Event::Retransmit { adaptive: true };
                assert_eq!(expiry.adaptive, *event == adaptive);
            }
        }
    }
}

/// When each timer expires after the start, and with which effect.
fn trace(
    policy: &Policy,
    mut state: RetryState,
    start: ferroce_transport::Time,
) -> Vec<(u64, Event)> {
    use ferroce_adp::Expiry;
    let mut now = start;
    let mut waits = Vec::new();
    while let Some(wait) = state.wait(policy, now) {
        now = now.after(wait);
        let event = match state.on_timeout(policy, now) {
            Expiry::Fatal => Event::Error,
            Expiry::Retransmit { adaptive } => Event::Retransmit { adaptive },
            Expiry::Initial => Event::Initial,
        };
        waits.push((now.since(start).as_nanos(), event));
        if event == Event::Error {
            break;
        }
    }
    waits
}

#[track_caller]
fn expect_failed(pair: &mut Pair) {
    let done = pair.completions(A, WorkQueue::Send);
    assert_eq!(done[0].status, WcStatus::RetryExcErr);
    assert_eq!(done[0].vendor_err, 129);
    assert_eq!(pair[A].qp.state(), QpState::Err);
    assert_eq!(pair.count(A, Counter::ReqTransportRetriesExceeded), 1);
    assert_eq!(pair[A].qp.poll_timeout(), None);
}

/// Known totals, written down rather than computed: timeout 14 counts as 16.
#[test]
fn documented_totals() {
    let total = |kind, retry_cnt| {
        let mut pair = silent(Policy::new(kind), 14, retry_cnt);
        let start = pair.now;
        pair.write(A, 1, 10);
        pair.run();
        expect_failed(&mut pair);
        pair.now.since(start).as_nanos()
    };
    let n = 268_435_456;
    assert_eq!(total(PolicyKind::IB, 7), 8 * n);
    assert_eq!(total(PolicyKind::FIRMWARE, 7), 7 * 2 * n);
    assert_eq!(total(PolicyKind::Profile(profile(true)), 7), 7 * n);
    assert_eq!(total(PolicyKind::Profile(profile(false)), 7), 4_000 << 18);
}

#[test]
fn an_extended_retry_count_replaces_the_retry_count() {
    let total = |kind, extended| {
        let mut pair = Setup {
            policy: Policy::new(kind),
            extended_retry_count: Some(extended),
            ..Setup::default()
        }
        .connect();
        pair.silence(A);
        let start = pair.now;
        pair.write(A, 1, 10);
        pair.run();
        expect_failed(&mut pair);
        pair.now.since(start).as_nanos()
    };
    let n = 268_435_456;
    for count in [1, 2, 50, 255] {
        assert_eq!(total(PolicyKind::IB, count), (u64::from(count) + 1) * n);
        let firmware = total(PolicyKind::FIRMWARE, count);
        assert_eq!(firmware, u64::from(count) * 2 * n);
        let profiled = total(PolicyKind::Profile(profile(true)), count);
        assert_eq!(profiled, u64::from(count) * n);
        // A total of the profile's own depends on no count.
        let own = total(PolicyKind::Profile(profile(false)), count);
        assert_eq!(own, 4_000 << 18);
    }
}

/// The same, from the public trace.
#[test]
fn the_public_trace_agrees() {
    for policy in policies() {
        let quantised = matches!(
            policy.kind,
            PolicyKind::Firmware {
                quantiser: true,
                ..
            }
        );
        if quantised {
            continue; // what its coarse timers shorten depends on the time of day
        }
        let mut pair = silent(policy, 14, 7);
        let start = pair.now;
        pair.write(A, 1, 10);
        pair.run();
        let state = RetryState::new(&policy, pair[A].qp.timeouts(), pair[A].qp.qpn().value());
        let end = SilentPeer::new(policy, state).last().unwrap();
        assert_eq!(end.event, Event::Error);
        assert_eq!(
            Some(pair.now.since(start).as_nanos()),
            end.at.map(Span::as_nanos)
        );
    }
}

#[test]
fn counters_tell_adaptive_from_plain() {
    let count = |policy| {
        let mut pair = silent(policy, 14, 3);
        pair.write(A, 1, 10);
        pair.run();
        let counters = [
            Counter::LocalAckTimeoutErr,
            Counter::RoceAdpRetrans,
            Counter::RoceAdpRetransTo,
        ];
        counters.map(|counter| pair.count(A, counter))
    };
    assert_eq!(count(Policy::new(PolicyKind::IB)), [4, 0, 0]);
    let firmware = PolicyKind::Firmware {
        quantiser: false,
        initial_exponent: Some(14),
    };
    // 14, 14, 15, 16 are adaptive; two plain timeouts follow, as measured.
    assert_eq!(count(Policy::new(firmware)), [2, 4, 0]);
    let [plain, adaptive, total] = count(Policy::new(PolicyKind::Profile(profile(true))));
    assert_eq!((plain, total), (0, 1));
    assert!(adaptive > 5);
}

#[test]
fn timeout_0_waits_forever() {
    for policy in policies() {
        let mut pair = silent(policy, 0, 7);
        pair.write(A, 1, 10);
        pair.run();
        assert_eq!(pair[A].qp.poll_timeout(), None);
        assert_eq!(pair[A].qp.state(), QpState::Rts);
        assert_eq!(pair.log.len(), 1);
        // Later requests are still sent.
        pair.heal();
        pair.write(A, 2, 10);
        pair.run();
        pair.expect_sent(A, [1, 2]);
    }
}

/// D5: the clock of the total starts with the first send on an idle queue pair.
#[test]
fn the_total_timeout_does_not_run_while_idle() {
    for policy in policies() {
        let mut pair = Setup {
            policy,
            ..Setup::default()
        }
        .connect();
        pair.write(A, 1, 10);
        pair.run();
        pair.run_for(3_600_000_000_000);
        pair.silence(A);
        let start = pair.now;
        pair.write(A, 2, 10);
        pair.run();
        let least = policy.total(pair[A].qp.timeouts()).unwrap().as_nanos() / 4;
        assert!(pair.now.since(start).as_nanos() >= least, "{policy:?}");
        assert_eq!(pair.sends(A)[1], (2, WcStatus::RetryExcErr));
    }
}

/// D5: any progress restarts the clock of the total.
#[test]
fn progress_restarts_the_clock() {
    let policy = Policy::new(PolicyKind::Profile(profile(true)));
    let mut pair = Setup {
        policy,
        retry_cnt: 1,
        ..Setup::default()
    }
    .connect();
    let total = policy.total(pair[A].qp.timeouts()).unwrap().as_nanos();
    for wr_id in 0..4 {
        pair.write(A, wr_id, 10);
    }
    // Each of the four is executed only after three quarters of the total.
    let mut executed = 0;
    while executed < 4 {
        let target = pair[A].qp.send_queue_len();
        pair.silence(A);
        pair.run_for(total / 4 * 3);
        pair.heal();
        let next = pair.attr(A).sq_psn.wrapping_add(executed);
        pair.rule(usize::MAX, Fate::Lost, move |p| {
            p.from == A && p.headers.psn != next
        });
        while pair[A].qp.send_queue_len() == target {
            assert!(pair.step(None));
        }
        executed += 1;
    }
    pair.expect_sent(A, 0..4);
}

/// D22: the running timer finishes, then the new policy is in force.
#[test]
fn a_new_policy_takes_over_at_the_next_timer() {
    let mut pair = silent(Policy::new(PolicyKind::IB), 14, 7);
    let start = pair.now;
    pair.write(A, 1, 10);
    pair.run_for(1_000_000);
    let armed = pair[A].qp.poll_timeout();
    assert_eq!(armed, Some(start.after(Span::from_nanos(268_435_456))));
    pair[A].host.policy = Policy {
        epoch: 1,
        ..Policy::new(PolicyKind::Profile(profile(false)))
    };
    pair.transmit();
    assert_eq!(pair[A].qp.poll_timeout(), armed);
    pair.run();
    expect_failed(&mut pair);
    assert_eq!(
        pair.now.since(start).as_nanos(),
        4_000 << 18,
        "the outage counts from its start"
    );
    let second = pair.log[2].at.since(pair.log[1].at).as_nanos();
    assert!((4_000 << 8..=4_000 << 10).contains(&second), "{second}");
}

#[test]
fn more_sends_do_not_push_the_timer_back() {
    let mut pair = silent(Policy::new(PolicyKind::IB), 14, 7);
    pair.write(A, 1, 10);
    pair.transmit();
    let armed = pair[A].qp.poll_timeout();
    for wr_id in 2..20 {
        pair.run_for(1_000_000);
        pair.write(A, wr_id, 10);
        pair.transmit();
        assert_eq!(pair[A].qp.poll_timeout(), armed);
    }
}

#[test]
fn the_timer_stops_when_everything_is_acknowledged() {
    let mut pair = Setup::default().connect();
    for wr_id in 0..3 {
        pair.write(A, wr_id, 10);
    }
    pair.run();
    assert_eq!(pair[A].qp.poll_timeout(), None);
    assert!(pair.now.as_nanos() < 6_000_000);
    assert!(pair[A].host.expiries.is_empty());
}

/// The wait for a receiver does not count as silence.
#[test]
fn waiting_for_a_receiver_does_not_use_up_the_total() {
    let policy = Policy::new(PolicyKind::Profile(profile(true)));
    let mut pair = Setup {
        policy,
        retry_cnt: 1,
        min_rnr_timer: 31,
        ..Setup::default()
    }
    .connect();
    let total = policy.total(pair[A].qp.timeouts()).unwrap().as_nanos();
    pair.send(A, 1, 10);
    pair.run_for(10 * total);
    assert_eq!(pair[A].qp.state(), QpState::Rts);
    pair.recv(B, 1, 10);
    pair.run();
    pair.expect_sent(A, [1]);
}
