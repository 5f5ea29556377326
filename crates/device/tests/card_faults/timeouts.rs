//! How long it takes until a program learns of a peer that does not answer.

use ferroce_device::{Counter, HcaConfig, Personality, QpAttr};
use ferroce_testing::register::{disable_floor, switch_adaptive};
use ferroce_testing::{A, B, SEND};

use crate::{Pair, RETRY_EXC, measured};

const TIMEOUTS: [Counter; 2] = [Counter::LocalAckTimeoutErr, Counter::RoceAdpRetrans];

/// The time from a WRITE that is not answered to its error, in microseconds.
fn error_us(pair: &mut Pair) -> u64 {
    pair.world.sides[B].deaf = true;
    let op = pair.memory[B].write();
    let started = pair.world.now;
    assert_eq!(pair.fate(op, 64), RETRY_EXC);
    pair.completed_at(A).since(started).as_nanos() / 1000
}

fn dead_peer_ms(config: HcaConfig, attr: QpAttr, prepare: impl FnOnce(&mut Pair)) -> f64 {
    let mut pair = Pair::with(config, attr);
    prepare(&mut pair);
    error_us(&mut pair) as f64 / 1000.0
}

/// The same for several devices, in ascending order.
fn dead_peers_ms(attr: QpAttr, prepare: impl Fn(&mut Pair)) -> Vec<f64> {
    let device = |seed| HcaConfig {
        seed,
        ..HcaConfig::default()
    };
    let times = (1..=99).map(|seed| dead_peer_ms(device(seed), attr, &prepare));
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    times
}

//= F14: 3,495 to 3,756 ms at R=7, T=14, with default settings; on other hosts up to 3,764.
#[test]
fn a_dead_peer_is_given_up_within_the_measured_band() {
    let times = dead_peers_ms(measured(), |_| ());
    assert!((3_490.0..3_510.0).contains(&times[0]), "{times:?}");
    assert!((3_740.0..3_764.0).contains(&times[98]), "{times:?}");
    assert!(
        times
            .windows(2)
            .any(|two| two[0] <= 3_558.0 && two[1] >= 3_558.0)
    );
    // And exactly R * 2 * N(16) if the timers are exact.
    let exact = HcaConfig {
        personality: Personality {
            quantiser: false,
            ..Personality::default()
        },
        ..HcaConfig::default()
    };
    assert_eq!(dead_peer_ms(exact, measured(), |_| ()), 3_758.096);
}

//= F15: R + 2 timeouts, the first of which sends nothing. 575 ms at T=14; 9.5 at T=8; 105 at R=0, T=14.
#[test]
fn without_the_enforced_minimum_there_is_one_more_wait() {
    for (timeout, retry_cnt, measured_ms) in [(14, 7, 575.0), (8, 7, 9.5), (14, 0, 105.0)] {
        let attr = QpAttr {
            timeout,
            retry_cnt,
            ..measured()
        };
        let off = |pair: &mut Pair| disable_floor(&mut pair.world.sides[A].hca, true);
        let times = dead_peers_ms(attr, off);
        assert!(
            times[0] <= measured_ms && measured_ms <= times[98],
            "{times:?}"
        );
        let n = 0.004_096 * f64::from(1 << timeout);
        let waits = times
            .iter()
            .map(|time| time / n - f64::from(retry_cnt) - 1.0);
        assert!(waits.clone().all(|wait| (0.509..1.161).contains(&wait)));

        let mut pair = Pair::new(attr);
        off(&mut pair);
        error_us(&mut pair);
        assert_eq!(pair.counts(A, TIMEOUTS), [u64::from(retry_cnt) + 2, 0]);
        let resent = pair.counts(A, [Counter::RetransmittedPackets]);
        assert_eq!(resent, [u64::from(retry_cnt)]);
    }
}

//= F16: not as in an older set of measurements, until that is confirmed.
#[test]
fn without_adaptive_retransmission_every_timeout_is_the_same() {
    for (retry_cnt, ms) in [(0, 268.435), (3, 1_073.741)] {
        let attr = QpAttr {
            retry_cnt,
            ..measured()
        };
        let off = |pair: &mut Pair| switch_adaptive(&mut pair.world.sides[A].hca, false);
        assert_eq!(dead_peer_ms(HcaConfig::default(), attr, off), ms);
    }
}

//= F17: six waits for code 12 took 12.1 to 13.0 ms on the card; by the standard they take 3.84.
#[test]
fn rnr_waits_are_rounded_up_to_ticks_if_configured() {
    let six_waits_us = |rnr_ticks| {
        let config = HcaConfig {
            personality: Personality {
                rnr_ticks,
                ..Personality::default()
            },
            ..HcaConfig::default()
        };
        let mut pair = Pair::with(config, measured());
        let started = pair.world.now;
        pair.fate(SEND, 64);
        pair.completed_at(A).since(started).as_nanos() / 1000
    };
    // Seven round trips.
    assert_eq!(six_waits_us(false), 3_840 + 14);
    let ticks = six_waits_us(true);
    assert!((12_100..13_000).contains(&ticks), "{ticks}");
}

//= F13: one for each timeout except the fatal one, in both counters, though no CNP has arrived.
#[test]
fn retransmissions_count_as_slow_restarts() {
    const COUNTERS: [Counter; 4] = [
        Counter::RpCnpHandled,
        Counter::RoceSlowRestartCnps,
        Counter::RoceSlowRestart,
        Counter::RoceSlowRestartTrans,
    ];
    let mut pair = Pair::new(measured());
    error_us(&mut pair);
    let timeouts: u64 = pair.counts(A, TIMEOUTS).iter().sum();
    let repeats = timeouts - 1;
    assert_eq!(pair.counts(A, COUNTERS), [repeats, repeats, 0, 0]);
    // A peer that comes back in time: nothing is subtracted.
    let mut pair = Pair::new(measured());
    pair.world.sides[B].deaf = true;
    pair.post(pair.write(1, 64));
    pair.world.run_for(300_000_000);
    pair.world.sides[B].deaf = false;
    pair.world.run();
    let timeouts: u64 = pair.counts(A, TIMEOUTS).iter().sum();
    assert_eq!(pair.counts(A, COUNTERS), [timeouts, timeouts, 0, 0]);

    let off = HcaConfig {
        personality: Personality {
            slow_restart: false,
            ..Personality::default()
        },
        ..HcaConfig::default()
    };
    let mut pair = Pair::with(off, measured());
    error_us(&mut pair);
    assert_eq!(pair.counts(A, COUNTERS), [0; 4]);
}
