//! When CNPs are sent, and when they take effect.

use std::net::IpAddr;

use ferroce_device::{Counter, Data, Mtu, Phase, Received};
use ferroce_wire::{BthFlags, Headers, Opcode, PKEY_DEFAULT, Qpn, cnp};

use super::pace::held_at;
use super::{Stream, mark, set};
use ferroce_testing::{A, B};

fn cnp_to(qpn: Qpn) -> Headers {
    cnp::headers(qpn, PKEY_DEFAULT)
}

/// Delivers to A a packet that seems to come from `source`.
fn give_from(stream: &mut Stream, source: IpAddr, headers: &Headers) {
    let pair = &mut stream.pair;
    let received = Received {
        source,
        dest: pair.sides[A].address,
        traffic_class: 0,
        sl: 0,
        headers,
        data: Data::Length(0),
        port: 1,
    };
    pair.sides[A].hca.handle_packet(pair.now, &received);
}

fn heeded(stream: &Stream) -> [u64; 2] {
    [Counter::RpCnpHandled, Counter::RpCnpIgnored].map(|counter| stream.pair.count(A, counter))
}

#[test]
fn a_mark_makes_a_cnp_that_slows_the_sender_down() {
    let mut stream = Stream::new(&[]);
    stream.pair.trace = Some(Vec::new());
    mark(&mut stream.pair, B, 1.0);
    stream.run(100_000, 10_000, 4096);
    let pair = &stream.pair;
    let sent = pair.count(B, Counter::NpCnpSent);
    assert!(sent > 0);
    assert!(pair.count(B, Counter::NpEcnMarkedRocePackets) > sent);
    let [handled, ignored] = heeded(&stream);
    assert!(handled > 0 && handled <= sent && ignored == 0);
    // DSCP 48, not ECN-capable; the data packets are.
    let mut trace = stream.pair.trace.take().unwrap();
    trace.retain(|line| line.contains("traffic_class: "));
    let is_cnp = |line: &&String| line.contains("opcode: Cnp");
    assert!(trace.iter().filter(is_cnp).count() as u64 == sent);
    for line in &trace {
        let class = if is_cnp(&line) { 48 << 2 } else { 2 };
        assert!(line.contains(&format!("traffic_class: {class},")), "{line}");
    }
    let limit = stream.limit_mbps().unwrap();
    assert!(limit < 100_000.0, "{limit}");
}

#[test]
fn cnps_keep_their_distance() {
    let (interval_us, ns) = (50, 1_000_000);
    let mut stream = Stream::new(&[&format!("min_time_between_cnps={interval_us}")]);
    mark(&mut stream.pair, B, 1.0);
    // Fast enough that a marked packet arrives in each interval.
    set(&stream.pair.sides[A].hca, &["rpg_min_rate=1000"]);
    stream.run(ns, 10_000, 1024);
    let sent = stream.pair.count(B, Counter::NpCnpSent);
    let most = ns / (interval_us * 1_000) + 1;
    assert!((most / 2..=most).contains(&sent), "{sent} of {most}");
}

#[test]
fn the_dscp_of_cnps_is_a_parameter() {
    let mut stream = Stream::new(&["cnp_dscp=46"]);
    stream.pair.trace = Some(Vec::new());
    mark(&mut stream.pair, B, 1.0);
    stream.run(10_000, 1_000, 1024);
    let trace = stream.pair.trace.take().unwrap();
    let mut cnps = trace.iter().filter(|line| line.contains("opcode: Cnp"));
    assert!(cnps.next().unwrap().contains("traffic_class: 184,"));
}

#[test]
fn only_cnps_from_the_peer_of_a_live_queue_pair_are_handled() {
    let mut stream = Stream::new(&[]);
    let (peer, qpn) = (stream.pair.sides[B].address, stream.a);
    let stranger = [10, 0, 0, 77].into();
    let idle = stream.pair.sides[A].create_qp();
    let datagrams = stream.pair.sides[A].create_ud(1);

    let without_becn = {
        let mut headers = cnp_to(qpn);
        headers.flags.remove(BthFlags::BECN);
        headers
    };
    for (source, headers) in [
        (stranger, cnp_to(qpn)),
        (peer, without_becn),
        (peer, cnp_to(idle)),
        (peer, cnp_to(datagrams)),
        (peer, cnp_to(Qpn::GSI)),
        (peer, cnp_to(Qpn::MULTICAST)),
        (peer, cnp_to(Qpn::new(0x12_3456))),
        (peer, cnp::headers(qpn, 0x1234)),
    ] {
        let before = heeded(&stream);
        give_from(&mut stream, source, &headers);
        assert_eq!(heeded(&stream), [before[0], before[1] + 1], "{headers:?}");
        assert_eq!(stream.limit_mbps(), None);
    }
    give_from(&mut stream, peer, &cnp_to(qpn));
    assert_eq!(heeded(&stream)[0], 1);
    assert!(stream.limit_mbps().is_some());
    assert_eq!(stream.pair.count(A, Counter::RxWrongService), 0);
}

#[test]
fn a_flood_of_cnps_leaves_a_queue_pair_the_least_rate() {
    let mut stream = Stream::new(&["rpg_min_rate=100"]);
    let (peer, qpn) = (stream.pair.sides[B].address, stream.a);
    let mut bytes = 0;
    for _ in 0..2_000 {
        for _ in 0..20 {
            give_from(&mut stream, peer, &cnp_to(qpn));
        }
        bytes += stream.run(10_000, 10_000, MESSAGE_BYTES);
    }
    let mbps = bytes as f64 * 8.0 / 20_000.0;
    assert!(mbps > 90.0, "{mbps} Mb/s");
    assert_eq!(stream.limit_mbps(), Some(100.0));
}

const MESSAGE_BYTES: u32 = 4096;

#[test]
fn no_cnp_is_sent_or_handled_while_disabled() {
    // The priority of traffic class 2 is 0.
    let mut stream = Stream::new(&["enable/0=0"]);
    mark(&mut stream.pair, B, 1.0);
    stream.run(100_000, 10_000, 4096);
    assert!(stream.pair.count(B, Counter::NpEcnMarkedRocePackets) > 0);
    assert_eq!(stream.pair.count(B, Counter::NpCnpSent), 0);
    let peer = stream.pair.sides[B].address;
    let to = stream.a;
    give_from(&mut stream, peer, &cnp_to(to));
    assert_eq!(heeded(&stream), [0, 1]);
    assert_eq!(stream.limit_mbps(), None);
}

#[test]
fn the_two_points_are_enabled_separately() {
    for (off, sent, heeds) in [
        ("roce_np/enable/0=0", false, true),
        ("roce_rp/enable/0=0", true, false),
    ] {
        let mut stream = Stream::new(&["enable/0=1", off]);
        mark(&mut stream.pair, B, 1.0);
        // A's packets leave ECN-capable only where A reacts to CNPs; the impairment requires
        // neither.
        stream.run(100_000, 10_000, 4096);
        assert_eq!(stream.pair.count(B, Counter::NpCnpSent) > 0, sent, "{off}");
        let (peer, to) = (stream.pair.sides[B].address, stream.a);
        give_from(&mut stream, peer, &cnp_to(to));
        assert_eq!(heeded(&stream)[0] > 0, heeds, "{off}");
        assert_eq!(stream.limit_mbps().is_some(), heeds, "{off}");
    }
}

#[test]
fn a_sample_lists_limited_queue_pairs_and_their_cnps() {
    let mut stream = Stream::new(&["rpg_min_rate=100"]);
    let (peer, to) = (stream.pair.sides[B].address, stream.a);
    let look = |stream: &Stream| {
        let flows = stream.pair.sides[A].hca.look_at_flows(stream.pair.now);
        flows.collect::<Vec<_>>()
    };
    assert_eq!(look(&stream), []);
    for _ in 0..3 {
        give_from(&mut stream, peer, &cnp_to(to));
        stream.pair.run_for(10_000);
    }
    let [flow] = look(&stream)[..] else {
        panic!("one flow");
    };
    assert_eq!((flow.qpn, flow.dest_qpn, flow.peer), (to, stream.b, peer));
    assert_eq!((flow.cnps, flow.priority), (3, 0));
    let limit = flow.limit.unwrap();
    assert_eq!(Some(limit.rate.bps() as f64 / 1e6), stream.limit_mbps());
    assert!(limit.target >= limit.rate && limit.alpha > 0.5);
    assert_eq!((limit.phase, limit.stages), (Phase::FastRecovery, (0, 0)));
    stream.pair.run_for(10_000_000_000);
    let [recovered] = look(&stream)[..] else {
        panic!("one flow");
    };
    assert_eq!((recovered.cnps, recovered.limit), (3, None));
}

#[test]
fn limits_are_listed_while_they_last_and_again_later() {
    let mut stream = Stream::new(&["rpg_min_rate=100"]);
    let (peer, to) = (stream.pair.sides[B].address, stream.a);
    let limits = |stream: &mut Stream| {
        let mut limits = Vec::new();
        let now = stream.pair.now;
        let hca = &mut stream.pair.sides[A].hca;
        hca.look_at_limits(now, |qpn, rate| limits.push((qpn, rate)));
        let flows = hca.look_at_flows(now);
        let all = flows.filter_map(|it| Some((it.qpn, it.limit?.rate)));
        assert_eq!(limits, all.collect::<Vec<_>>());
        hca.audit();
        limits.len()
    };
    assert_eq!(limits(&mut stream), 0);
    for _ in 0..2 {
        give_from(&mut stream, peer, &cnp_to(to));
        assert_eq!(limits(&mut stream), 1);
        stream.pair.run_for(10_000_000_000);
        assert_eq!(limits(&mut stream), 0);
    }
    give_from(&mut stream, peer, &cnp_to(to));
    stream.pair.sides[A].hca.destroy_qp(to).unwrap();
    assert_eq!(limits(&mut stream), 0);
}

#[test]
fn switching_it_off_releases_a_queue_pair_that_waits() {
    let mut stream = held_at(1, Mtu::Mtu1024);
    let slow = stream.run(50_000_000, 1_000_000, 4096);
    set(&stream.pair.sides[A].hca, &["enable/0=0"]);
    let fast = stream.run(50_000_000, 100_000, 4096);
    assert!(fast > 50 * slow, "{slow} bytes, then {fast}");
    assert_eq!(stream.limit_mbps(), None);
}

#[test]
fn a_cnp_is_not_answered() {
    let mut stream = Stream::new(&[]);
    mark(&mut stream.pair, A, 1.0);
    let (peer, qpn) = (stream.pair.sides[B].address, stream.a);
    give_from(&mut stream, peer, &cnp_to(qpn));
    let packet = stream.pair.sides[A].hca.poll_transmit(stream.pair.now);
    let opcode = packet.map(|packet| packet.headers.opcode());
    assert_eq!(opcode, None::<Opcode>);
}
