//! Serialization and propagation, to the picosecond.

use ferroce_fabric::topology::CableSpec;
use ferroce_fabric::{Span, Time};

use crate::net::*;

fn link(mbps: u32, delay_ns: u64) -> CableSpec {
    CableSpec::new(
        ferroce_fabric::Rate::from_mbps(mbps),
        Span::from_nanos(delay_ns),
    )
}

/// Paths of one to six cables, with rates that are and are not a whole number of picoseconds per
/// byte.
fn ways() -> Vec<Vec<CableSpec>> {
    let all = [
        link(100_000, 1_000),
        link(40_000, 0),
        link(400_000, 17),
        link(25_000, 999),
        link(3_333, 123_456),
        link(7, 1),
    ];
    (1..=all.len()).map(|count| all[..count].to_vec()).collect()
}

/// A packet is forwarded when it has arrived completely, and takes its time on every cable.
#[test]
fn a_packet_takes_its_time_on_every_cable() {
    for way in ways() {
        for bytes in [1, 64, 1_021, 4_096] {
            let [wire] = packets(bytes, 4_096)[..] else {
                panic!("{bytes} bytes are one packet")
            };
            let over = |bytes: u64, link: &CableSpec| serialization(bytes, link.rate) + link.delay;
            let there = way.iter().map(|link| over(wire, link));
            let there = there.fold(Span::ZERO, |sum, it| sum + it);
            let back = way.iter().map(|link| over(ACK_WIRE, link));
            let back = back.fold(Span::ZERO, |sum, it| sum + it);

            let mut write = transfer(0, 1, bytes as u32);
            write.at = micros(5);
            let seen = Net::new(chain(&way)).play(vec![write], job()).outcome(0);
            assert_eq!(seen.started, micros(5));
            assert_eq!(seen.delivered.since(seen.started), there, "{}", way.len());
            assert_eq!(seen.acknowledged.since(seen.delivered), back);
        }
    }
}

/// Packets follow each other without gaps, and cables work in parallel.
#[test]
fn packets_are_a_pipeline() {
    for links in 1..=6 {
        for bytes in [4_097, 8_192, 65_536, 1_000_001] {
            let way = vec![LINK; links];
            let wire = packets(bytes, 4_096);
            let expected = pipeline(&wire, links as u64, LINK.rate, LINK.delay);
            let played = Net::new(chain(&way)).play(vec![transfer(0, 1, bytes as u32)], job());
            assert_eq!(played.took(0), expected, "{bytes} bytes over {links}");
            assert_eq!(played.timeouts(), 0);
        }
    }
}

/// Before it cuts a frame through, a switch waits for 64 bytes, with preamble and gap.
#[test]
fn a_switch_that_cuts_through_waits_for_64_bytes() {
    for links in 1..=6 {
        for bytes in [4_096, 1_000_000] {
            let mut net = Net::new(chain(&vec![LINK; links]));
            net.switch.cuts_through = true;
            let wire = packets(bytes, 4_096);
            let whole = wire.iter().map(|bytes| serialization(*bytes, LINK.rate));
            let whole = whole.fold(Span::ZERO, |sum, it| sum + it);
            let links = links as u64;
            let head = serialization(64, LINK.rate);
            let expected = whole + head.times(links - 1) + LINK.delay.times(links);
            let played = net.play(vec![transfer(0, 1, bytes as u32)], job());
            assert_eq!(played.took(0), expected, "{bytes} bytes over {links}");
        }
    }
}

/// A frame cannot be cut through into a faster cable: the cable would run dry.
#[test]
fn no_frame_is_cut_through_into_a_faster_cable() {
    let (slow, fast) = (link(10_000, 500), link(100_000, 500));
    let [wire] = packets(4_096, 4_096)[..] else {
        panic!()
    };
    let took = |way: &[CableSpec], net: &dyn Fn(&mut Net)| {
        let mut it = Net::new(chain(way));
        it.switch.cuts_through = true;
        net(&mut it);
        let mut write = transfer(0, 1, 4_096);
        write.at = Time::from_nanos(10);
        it.play(vec![write], job()).took(0)
    };
    let delays = slow.delay + fast.delay;
    let all_of_it = serialization(wire, slow.rate) + serialization(wire, fast.rate) + delays;
    assert_eq!(took(&[slow, fast], &|_| {}), all_of_it);
    // From a faster cable it can, if the switch has no port that is faster still.
    let head = serialization(64, fast.rate) + serialization(wire, slow.rate) + delays;
    assert_eq!(took(&[fast, slow], &|_| {}), head);
    // And it cannot if the previous cable has become slower.
    let degraded = |net: &mut Net| {
        let slower = ferroce_fabric::Fault::Rate(0, slow.rate);
        net.faults = vec![(Time::ZERO, slower)];
    };
    assert_eq!(took(&[fast, fast], &degraded), all_of_it);
}

/// As many messages as fit into the time leave one after the other, without gaps.
#[test]
fn messages_of_a_queue_pair_leave_back_to_back() {
    let count = 100;
    let mut each = job();
    each.qp_per_transfer = false;
    let writes = (0..count).map(|_| transfer(0, 1, 10_000)).collect();
    let played = Net::new(chain(&[LINK; 2])).play(writes, each);
    let one = packets(10_000, 4_096);
    let all: Vec<u64> = (0..count).flat_map(|_| one.iter().copied()).collect();
    let expected = pipeline(&all, 2, LINK.rate, LINK.delay);
    assert_eq!(played.end().since(Time::ZERO), expected);
}
