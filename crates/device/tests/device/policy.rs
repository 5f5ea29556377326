//! The effect of registers on queue pairs that wait for a silent peer.

use ferroce_adp::{Policy, PolicyKind, Profile, QpTimeouts, trace::SilentPeer};
use ferroce_device::{
    AccessFlags, BinWidthMode, Counter, HcaConfig, HistogramConfig, Personality, QpAttr, QpState,
    SendWr, Span, TimeUnit, WcStatus,
};
use ferroce_wire::Qpn;
use serde_json::Value;

use ferroce_testing::register::{disable_floor, set_profile, switch_adaptive, write};
use ferroce_testing::{A, B, SEND, World, attr};

/// A default device, and a silent one.
fn silent(config: HcaConfig) -> World {
    let mut pair = World::pair(config);
    pair.sides[B].deaf = true;
    pair
}

fn traced() -> HcaConfig {
    HcaConfig {
        trace_timers: true,
        ..HcaConfig::default()
    }
}

/// A queue pair that gets no answers.
fn connect(pair: &mut World, timeout: u8, retry_cnt: u8) -> Qpn {
    let dest = pair.sides[B].address;
    let qpn = pair.sides[A].create_qp();
    let attr = QpAttr {
        timeout,
        retry_cnt,
        ..attr()
    };
    pair.sides[A].connect(qpn, dest, attr);
    qpn
}

fn send(pair: &mut World, qpn: Qpn) {
    let region = pair.sides[A].register(64, AccessFlags::empty());
    pair.post(A, qpn, SendWr::new(1, SEND, region.whole()));
}

/// The waits of a queue pair from the first send to the error.
fn waits(pair: &mut World, qpn: Qpn) -> Vec<u64> {
    let start = pair.now;
    let before = pair.sides[A].expiries().len();
    send(pair, qpn);
    pair.run();
    assert_eq!(pair.sides[A].state(qpn), QpState::Err);
    let completion = pair.sides[A].completions.last().unwrap();
    assert_eq!(completion.status, WcStatus::RetryExcErr);
    assert_eq!(completion.vendor_err, 129);
    let expiries = pair.sides[A].expiries().split_off(before);
    let (last, others) = expiries.split_last().unwrap();
    assert!(last.fatal && others.iter().all(|expiry| !expiry.fatal));
    let waits: Vec<_> = expiries
        .iter()
        .map(|expiry| expiry.wait.as_nanos())
        .collect();
    assert_eq!(pair.now.since(start).as_nanos(), waits.iter().sum::<u64>());
    waits
}

fn vectors() -> Vec<Value> {
    let text = include_str!("../../../adp/tests/vectors/adp.json");
    serde_json::from_str(text).unwrap()
}

fn profile(vector: &Value) -> Profile {
    let words = vector["profile_words"].as_array().unwrap();
    let bytes: Vec<u8> = words
        .iter()
        .flat_map(|word| {
            let word = u32::from_str_radix(word.as_str().unwrap(), 16).unwrap();
            word.to_be_bytes()
        })
        .collect();
    Profile::from_register(bytes[..].try_into().unwrap()).unwrap()
}

fn named(name: &str) -> Profile {
    let vectors = vectors();
    let is = |vector: &&Value| vector["name"].as_str().unwrap().starts_with(name);
    profile(vectors.iter().find(is).unwrap())
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// A device whose first queue pair draws `draw`, with the profile and the floor of the vector set
/// through the register, and that queue pair.
fn device_with_draw(vector: &Value) -> (World, Qpn) {
    let timeout = number(&vector["qp"]["timeout"]) as u8;
    let retry_cnt = number(&vector["qp"]["retry_cnt"]) as u8;
    for seed in 0..1000 {
        let mut pair = silent(HcaConfig { seed, ..traced() });
        set_profile(&mut pair.sides[A].hca, &profile(vector));
        let enforced = vector["qp"]["min_limit_enforced"].as_bool().unwrap();
        disable_floor(&mut pair.sides[A].hca, !enforced);
        let qpn = connect(&mut pair, timeout, retry_cnt);
        let retry = pair.sides[A].hca.qp(qpn).unwrap().retry();
        if u64::from(retry.draw()) == number(&vector["draw"]) {
            return (pair, qpn);
        }
    }
    panic!("no seed has this draw");
}

#[test]
fn a_silent_peer_is_waited_for_exactly_as_the_vectors_say() {
    for vector in vectors() {
        let (mut pair, qpn) = device_with_draw(&vector);
        let trace = vector["trace"].as_array().unwrap();
        let expected: Vec<_> = trace.iter().map(|step| number(&step["wait"])).collect();
        assert_eq!(waits(&mut pair, qpn), expected, "{}", vector["name"]);
        let retransmissions = expected.len() as u64 - 1;
        assert_eq!(pair.count(A, Counter::RoceAdpRetrans), retransmissions);
        assert_eq!(pair.count(A, Counter::RoceAdpRetransTo), 1);
        assert_eq!(
            pair.count(A, Counter::RetransmittedPackets),
            retransmissions
        );
        assert_eq!(pair.count(A, Counter::ReqTransportRetriesExceeded), 1);
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
    }
}

//= D25: the histogram holds the waits that led to a retransmission, without the fatal one.
#[test]
fn the_histogram_holds_exactly_the_waits_before_retransmissions() {
    for vector in vectors() {
        let (mut pair, qpn) = device_with_draw(&vector);
        let config = HistogramConfig {
            bins: 40,
            mode: BinWidthMode::Double,
            unit: TimeUnit::Usec,
            bin0_width: 50,
            bin1_width: 50,
            ..HistogramConfig::default()
        };
        let state = pair.sides[A].hca.state().clone();
        state.configure_histogram(config).unwrap();
        let waits = waits(&mut pair, qpn);
        let mut expected = vec![0; 40];
        for wait in &waits[..waits.len() - 1] {
            expected[config.bin_of(*wait)] += 1;
        }
        assert_eq!(state.histogram(), expected, "{}", vector["name"]);
        state.clear_histogram().unwrap();
        assert_eq!(state.histogram(), [0; 40]);
    }
}

#[test]
fn the_firmware_ladder_counts_and_the_plain_timeout_does_not() {
    let mut pair = silent(traced());
    let qpn = connect(&mut pair, 14, 7);
    let all = waits(&mut pair, qpn).len() as u64;
    let adaptive = pair.sides[A].expiries();
    let adaptive = adaptive.iter().filter(|expiry| expiry.adaptive).count() as u64;
    assert!(
        0 < adaptive && adaptive < all,
        "the ladder, then the plain timeout"
    );
    let state = pair.sides[A].hca.state().clone();
    assert_eq!(state.histogram().iter().sum::<u64>(), adaptive);
    assert_eq!(pair.count(A, Counter::RoceAdpRetrans), adaptive);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), all - adaptive);
    switch_adaptive(&mut pair.sides[A].hca, false);
    let qpn = connect(&mut pair, 14, 7);
    waits(&mut pair, qpn);
    assert_eq!(state.histogram().iter().sum::<u64>(), adaptive);
    assert_eq!(pair.count(A, Counter::RoceAdpRetransTo), 0);
}

//= D23: without adaptive retransmission, the timeout repeats.
#[test]
fn disabling_adaptive_retransmission_leaves_the_plain_timeout() {
    for (ib_multiplier, disabled, expected) in [
        (1, false, 268_435_456),
        (2, false, 536_870_912),
        (1, true, 67_108_864),
        (4, true, 4 * 67_108_864),
    ] {
        let mut pair = silent(HcaConfig {
            personality: Personality {
                ib_multiplier,
                ..Personality::default()
            },
            ..traced()
        });
        set_profile(&mut pair.sides[A].hca, &named("B"));
        switch_adaptive(&mut pair.sides[A].hca, false);
        //= D8: the floor of 16 holds unless it is disabled.
        disable_floor(&mut pair.sides[A].hca, disabled);
        let qpn = connect(&mut pair, 14, 7);
        assert_eq!(waits(&mut pair, qpn), [expected; 8]);
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 8);
        assert_eq!(pair.count(A, Counter::RoceAdpRetrans), 0);
        // The profile that was set before is still there.
        switch_adaptive(&mut pair.sides[A].hca, true);
        let kind = PolicyKind::Profile(named("B"));
        assert_eq!(pair.sides[A].hca.policy().kind, kind);
    }
}

/// The waits that the policy in force gives a queue pair.
fn model(policy: &Policy, qpn: Qpn, qp: QpTimeouts) -> Vec<u64> {
    let state = ferroce_adp::RetryState::new(policy, qp, qpn.value());
    let peer = SilentPeer::new(*policy, state);
    peer.map(|wait| wait.wait.unwrap().as_nanos()).collect()
}

#[test]
fn a_profile_is_for_all_queue_pairs_and_each_draws_for_itself() {
    let mut pair = silent(traced());
    let before: Vec<_> = (0..8).map(|_| connect(&mut pair, 18, 7)).collect();
    set_profile(&mut pair.sides[A].hca, &named("B"));
    let policy = *pair.sides[A].hca.policy();
    let after: Vec<_> = (0..8).map(|_| connect(&mut pair, 18, 7)).collect();
    let qp = QpTimeouts {
        timeout: 18,
        retry_cnt: 7,
    };
    let mut firsts = Vec::new();
    for qpn in before.into_iter().chain(after) {
        let waits = waits(&mut pair, qpn);
        assert_eq!(waits, model(&policy, qpn, qp), "{qpn:?}");
        firsts.push(waits[0]);
    }
    firsts.sort_unstable();
    firsts.dedup();
    assert_eq!(
        firsts,
        [1_024_000, 2_048_000, 4_096_000],
        "all that can be drawn"
    );
}

//= D22: the running timer finishes, then the queue pair draws from the new profile.
#[test]
fn a_new_profile_starts_after_the_running_timer() {
    let mut pair = silent(traced());
    set_profile(&mut pair.sides[A].hca, &named("A"));
    let qpn = connect(&mut pair, 20, 7);
    let start = pair.now;
    send(&mut pair, qpn);
    pair.run_until(start.after(Span::from_nanos(600_000_000)));
    assert_eq!(pair.sides[A].expiries().len(), 2);
    let epoch = pair.sides[A].hca.policy().epoch;
    set_profile(&mut pair.sides[A].hca, &named("B"));
    let policy = *pair.sides[A].hca.policy();
    assert_eq!(policy.epoch, epoch + 1);
    // The third of profile A's first waits of 262144 us.
    pair.run_until(start.after(Span::from_nanos(786_431_999)));
    assert_eq!(pair.sides[A].expiries().len(), 2);
    pair.run_until(start.after(Span::from_nanos(786_432_000)));
    assert_eq!(pair.sides[A].expiries().len(), 3);
    pair.run();
    let waits: Vec<_> = pair.sides[A].expiries()[3..]
        .iter()
        .map(|expiry| expiry.wait.as_nanos())
        .collect();
    let qp = QpTimeouts {
        timeout: 20,
        retry_cnt: 7,
    };
    let expected = model(&policy, qpn, qp);
    assert_eq!(waits[..10], expected[..10], "from the new draw on");
    assert_eq!(pair.sides[A].state(qpn), QpState::Err);
}

#[test]
fn a_new_profile_is_drawn_from_anew_each_time() {
    let mut pair = silent(traced());
    let qpn = connect(&mut pair, 18, 7);
    let mut draws = Vec::new();
    for round in 0..16 {
        let name = if round % 2 == 0 { "B" } else { "D" };
        set_profile(&mut pair.sides[A].hca, &named(name));
        send(&mut pair, qpn);
        pair.run_for(1);
        let retry = pair.sides[A].hca.qp(qpn).unwrap().retry();
        if name == "B" {
            draws.push(retry.draw());
        }
        // Start again with nothing in flight.
        pair.sides[A].move_to(qpn, QpState::Reset);
        let dest = pair.sides[B].address;
        let attr = QpAttr {
            timeout: 18,
            ..attr()
        };
        pair.sides[A].connect(qpn, dest, attr);
    }
    draws.sort_unstable();
    draws.dedup();
    assert!(draws.len() > 1, "{draws:?}");
}

//= D21
#[test]
fn a_reset_gives_queue_pairs_the_firmware_ladder_back() {
    let mut pair = silent(HcaConfig {
        personality: Personality {
            initial_exponent: Some(11),
            quantiser: false,
            ..Personality::default()
        },
        ..traced()
    });
    set_profile(&mut pair.sides[A].hca, &named("B"));
    disable_floor(&mut pair.sides[A].hca, true);
    let qpn = connect(&mut pair, 14, 7);
    pair.sides[A].hca.reset_registers().unwrap();
    let us: Vec<_> = waits(&mut pair, qpn).iter().map(|ns| ns / 1000).collect();
    assert_eq!(us[..4], [8_388, 8_388, 16_777, 33_554]);
    assert_eq!(us[4..8], [67_108, 134_217, 268_435, 536_870]);
    assert_eq!(us[8..], [536_870; 5]);
    let nothing = vec![0; 4];
    write(&mut pair.sides[A].hca, &nothing).unwrap();
}

#[test]
fn the_device_s_extended_retry_count_replaces_the_attribute() {
    let mut pair = silent(traced());
    let personality = Personality {
        adaptive: false,
        extended_retry_count: Some(20),
        ..Personality::default()
    };
    // As another process sets it, while the device does nothing.
    let state = pair.sides[A].hca.state();
    state.set_personality(personality).unwrap();
    let qpn = connect(&mut pair, 17, 1);
    switch_adaptive(&mut pair.sides[A].hca, false);
    assert_eq!(waits(&mut pair, qpn), [536_870_912; 21]);
    let errors = pair.sides[A].hca.state().errors().last();
    let connection = errors.last().unwrap().connection.unwrap();
    assert_eq!(connection.timeouts.retry_cnt, 20);
}

//= D6: no timeout, no timer.
#[test]
fn without_a_timeout_nothing_runs_and_nothing_fails() {
    for (name, retry_cnt) in [("A", 7), ("E", 0)] {
        let mut pair = silent(traced());
        set_profile(&mut pair.sides[A].hca, &named(name));
        let qpn = connect(&mut pair, 0, retry_cnt);
        send(&mut pair, qpn);
        pair.run();
        assert_eq!(pair.sides[A].state(qpn), QpState::Rts);
        assert_eq!(pair.sides[A].hca.poll_timeout(), None);
        assert_eq!(pair.sides[A].hca.qp(qpn).unwrap().in_flight(), 1);
        pair.sides[A].hca.audit();
    }
}
