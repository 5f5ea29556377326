//! Slow restart: what has to be sent again, and the end of a silence, slow a queue pair down as a CNP
//! does.

use ferroce_device::{Counter, WcStatus};
use ferroce_prm::Field;
use ferroce_prm::roce_accl as reg;
use ferroce_testing::flight::Flight;
use ferroce_testing::register::{image, write};
use ferroce_testing::{A, B, Fate};

use super::{MESSAGE, Stream, set};

const MS: u64 = 1_000_000;

/// The counters that slow restart moves, and CNPs on the wire.
fn counts(stream: &Stream) -> [u64; 5] {
    let of_a = [
        Counter::RpCnpHandled,
        Counter::RoceSlowRestartCnps,
        Counter::RoceSlowRestart,
        Counter::RoceSlowRestartTrans,
    ];
    let [handled, cnps, used, changes] = of_a.map(|counter| stream.pair.count(A, counter));
    let sent = stream.pair.count(B, Counter::NpCnpSent);
    [handled, cnps, used, changes, sent]
}

/// Writes a switch of ROCE_ACCL at A.
fn switch(stream: &mut Stream, select: &'static Field, field: &'static Field, on: bool) {
    let register = image(&[(select, 1), (field, on.into())]);
    write(&mut stream.pair.sides[A].hca, &register).unwrap();
}

fn switch_after_losses(stream: &mut Stream, on: bool) {
    let (select, field) = (
        &reg::ROCE_SLOW_RESTART_FIELD_SELECT,
        &reg::ROCE_SLOW_RESTART_EN,
    );
    switch(stream, select, field, on);
}

fn switch_after_silence(stream: &mut Stream, on: bool) {
    let (select, field) = (
        &reg::ROCE_SLOW_RESTART_IDLE_FIELD_SELECT,
        &reg::ROCE_SLOW_RESTART_IDLE_EN,
    );
    switch(stream, select, field, on);
}

/// Loses one packet of a stream that goes on: a NAK asks for it. Returns the limit right after it.
fn lose_one(stream: &mut Stream) -> Option<f64> {
    stream.run(MS, 10_000, MESSAGE);
    let from_a = |flight: &Flight| flight.from == A;
    stream.pair.net().rules.strike(1, Fate::Lost, from_a);
    let naks = stream.pair.count(A, Counter::PacketSeqErr);
    while stream.pair.count(A, Counter::PacketSeqErr) == naks {
        stream.run(1_000, 1_000, MESSAGE);
    }
    // The cut comes at the end of a period of 4 us.
    stream.run(5_000, 1_000, MESSAGE);
    stream.limit_mbps()
}

#[test]
fn a_nak_slows_the_sender_down_like_a_cnp() {
    let mut stream = Stream::new(&[]);
    let cut = lose_one(&mut stream).unwrap();
    // What the first CNP leaves of 100 Gb/s: 1045 / 2048.
    assert!((51_000.0..51_100.0).contains(&cut), "{cut}");
    assert_eq!(counts(&stream), [1, 1, 0, 0, 0]);

    stream.run(50 * MS, 100_000, MESSAGE);
    assert_eq!(stream.limit_mbps(), None, "DCQCN brings the rate back");
    assert_eq!(counts(&stream), [1, 1, 0, 0, 0]);
}

#[test]
fn a_timeout_slows_the_sender_down_like_a_cnp() {
    let mut stream = Stream::new(&["rpg_time_reset=100000"]);
    stream.pair.sides[B].deaf = true;
    stream.post(MESSAGE);
    stream.pair.run_for(300 * MS);
    stream.pair.sides[B].deaf = false;
    stream.pair.run_for(300 * MS);
    assert_eq!(
        stream.pair.sides[A].completions[0].status,
        WcStatus::Success
    );
    let timeouts = [Counter::LocalAckTimeoutErr, Counter::RoceAdpRetrans];
    let timeouts = timeouts.map(|counter| stream.pair.count(A, counter));
    let timeouts = timeouts.iter().sum();
    assert!(timeouts > 1, "{timeouts}");
    assert_eq!(counts(&stream), [timeouts, timeouts, 0, 0, 0]);
    assert!(stream.limit_mbps().unwrap() < 100_000.0);
}

#[test]
fn without_slow_restart_losses_leave_the_rate_alone() {
    let mut stream = Stream::new(&[]);
    switch_after_losses(&mut stream, false);
    assert_eq!(lose_one(&mut stream), None);
    assert_eq!(counts(&stream), [0; 5]);
    switch_after_losses(&mut stream, true);
    assert!(lose_one(&mut stream).is_some());
}

/// Without a reaction point there is nothing to restart.
#[test]
fn without_congestion_control_nothing_restarts_slowly() {
    let mut stream = Stream::new(&[]);
    set(&stream.pair.sides[A].hca, &["roce_cc_prio_mask=0"]);
    switch_after_silence(&mut stream, true);
    assert_eq!(lose_one(&mut stream), None);
    stream.pair.run_for(100 * MS);
    stream.run(MS, 10_000, MESSAGE);
    assert_eq!((stream.limit_mbps(), counts(&stream)), (None, [0; 5]));
}

#[test]
fn silence_slows_the_sender_down_if_configured() {
    let mut stream = Stream::new(&[]);
    let restarts = |stream: &mut Stream, silent_ns: u64| {
        stream.pair.run_for(silent_ns);
        stream.run(10_000, 1_000, MESSAGE);
        let [handled, cnps, used, changes, sent] = counts(stream);
        assert_eq!((handled, cnps, sent), (0, 0, 0));
        assert_eq!(used, changes);
        (used, stream.limit_mbps().is_some())
    };
    assert_eq!(restarts(&mut stream, 100 * MS), (0, false), "off");
    switch_after_silence(&mut stream, true);
    assert_eq!(restarts(&mut stream, MS / 2), (0, false), "too short");
    assert_eq!(restarts(&mut stream, 2 * MS), (1, true));
    // Still below the port's speed: it is slow already.
    assert_eq!(restarts(&mut stream, 2 * MS), (1, true));
    assert_eq!(restarts(&mut stream, 100 * MS), (2, true));
}

#[test]
fn a_queue_pair_that_never_sent_has_not_been_silent() {
    let mut stream = Stream::new(&[]);
    switch_after_silence(&mut stream, true);
    stream.pair.run_for(100 * MS);
    stream.run(MS, 10_000, MESSAGE);
    assert_eq!((stream.limit_mbps(), counts(&stream)), (None, [0; 5]));
}
