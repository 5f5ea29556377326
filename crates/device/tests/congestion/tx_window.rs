//! Transmission windows by ROCE_ACCL: what a queue pair has in flight follows the path and its losses.

use ferroce_device::impair::Bottleneck;
use ferroce_device::{Counter, Direction, Impairment, Mtu, PathLook, QpAttr, QpState, Rate};
use ferroce_prm::roce_accl as reg;
use ferroce_testing::flight::Flight;
use ferroce_testing::register::{image, write};
use ferroce_testing::{A, B, Fate, LATENCY_NS, attr, card};

use super::{MESSAGE, Stream};

const MTU: u64 = 4096;

/// Between two cards of 100 Gb/s, without congestion control: no rate follows from losses.
fn stream() -> Stream {
    let attr = QpAttr {
        path_mtu: Mtu::Mtu4096,
        ..attr()
    };
    Stream::between(card(100_000), attr, &["roce_cc_prio_mask=0"])
}

fn switch(stream: &mut Stream, on: bool) {
    let register = image(&[
        (&reg::ROCE_TX_WINDOW_FIELD_SELECT, 1),
        (&reg::ROCE_TX_WINDOW_EN, on.into()),
    ]);
    write(&mut stream.pair.sides[A].hca, &register).unwrap();
}

fn look(stream: &Stream) -> Option<PathLook> {
    let hca = &stream.pair.sides[A].hca;
    hca.look_at_qps().next().unwrap().window
}

/// From now on, a tenth of the port's speed passes to the receiver, whatever the queue takes.
fn bottleneck(stream: &mut Stream) {
    let link = Impairment {
        bottleneck: Some(Bottleneck {
            rate: Rate::from_mbps(10_000),
            limit_bytes: 16 << 20,
            red: None,
        }),
        ..Impairment::default()
    };
    let hca = &mut stream.pair.sides[B].hca;
    hca.set_impairment(Direction::Ingress, link).unwrap();
}

/// Bytes in flight after the sender has had its turn.
fn in_flight(stream: &mut Stream) -> u64 {
    stream.run(20_000, 1_000, MESSAGE);
    u64::from(stream.pair.sides[A].hca.qp(stream.a).unwrap().in_flight()) * MTU
}

/// A queue in front of the receiver holds all that is in flight, unless a window bounds that.
#[test]
fn the_window_is_two_round_trips_of_the_port() {
    let mut stream = stream();
    switch(&mut stream, true);
    stream.run(1_000_000, 1_000, MESSAGE);
    let rtt = look(&stream).unwrap().rtt_ns.unwrap();
    // Two ways, and a packet or two that leave first.
    assert!((2 * LATENCY_NS..3 * LATENCY_NS).contains(&rtt), "{rtt}");

    bottleneck(&mut stream);
    stream.run(1_000_000, 1_000, MESSAGE);
    let window = look(&stream).unwrap().window_bytes;
    // 100 Gb/s are 12.5 bytes in a nanosecond.
    assert!(
        window <= 25 * (rtt + 1) && window >= 50 * LATENCY_NS,
        "{window}"
    );
    let bytes = in_flight(&mut stream);
    assert!(
        bytes <= window && bytes + MTU > window,
        "{bytes} of {window}"
    );

    switch(&mut stream, false);
    assert_eq!(look(&stream), None);
    stream.run(1_000_000, 1_000, MESSAGE);
    let permanent = in_flight(&mut stream);
    assert!(permanent > 900_000, "{permanent} of 1 MiB");
    stream.pair.sides[A].hca.audit();
}

#[test]
fn a_loss_halves_the_window_and_round_trips_open_it() {
    let mut stream = stream();
    switch(&mut stream, true);
    stream.run(1_000_000, 1_000, MESSAGE);
    let whole = look(&stream).unwrap().window_bytes;
    let from_a = |flight: &Flight| flight.from == A;
    stream.pair.net().rules.strike(1, Fate::Lost, from_a);
    while stream.pair.count(A, Counter::PacketSeqErr) == 0 {
        stream.run(100, 100, MESSAGE);
    }
    let halved = look(&stream).unwrap().window_bytes;
    assert_eq!(halved, (whole / 2).max(2 * MTU));
    stream.run(1_000_000, 1_000, MESSAGE);
    assert_eq!(look(&stream).unwrap().window_bytes, whole);
}

/// Another peer is another path.
#[test]
fn a_new_path_has_a_new_window() {
    let mut stream = stream();
    switch(&mut stream, true);
    stream.run(1_000_000, 1_000, MESSAGE);
    assert!(look(&stream).unwrap().rtt_ns.is_some());
    for (side, qpn) in [(A, stream.a), (B, stream.b)] {
        stream.pair.sides[side].move_to(qpn, QpState::Reset);
    }
    assert_eq!(look(&stream), None);
    stream.pair.connect([stream.a, stream.b], attr());
    let window = look(&stream).unwrap();
    assert_eq!((window.window_bytes, window.rtt_ns), (32 << 10, None));
}
