//! Limits on what a queue pair keeps for its peer, even while its turn to send does not come.

use ferroce_transport::Counter;
use ferroce_wire::Headers;

use crate::common::{A, B, Packet, Pair, Setup};

/// A's next `count` one-packet WRITEs, none of which has arrived.
fn writes(pair: &mut Pair, count: u64) -> Vec<Packet> {
    for wr_id in 0..count {
        pair.write(A, wr_id, 10);
    }
    pair.silence(A);
    pair.log.clear();
    pair.transmit();
    pair.log.clone()
}

/// A packet far beyond the expected PSN.
fn early(packet: &Packet) -> Headers {
    let mut headers = packet.headers;
    headers.psn = headers.psn.wrapping_add(1 << 20);
    headers
}

/// Good and early packets alternate: each early one causes a NAK.
#[test]
fn one_nak_replaces_another() {
    let mut pair = Setup::default().connect();
    let writes = writes(&mut pair, 50);
    for packet in &writes {
        pair.deliver(B, &packet.headers, &packet.payload);
        pair.deliver(B, &early(packet), &packet.payload);
        pair[B].qp.audit(pair.now, 4);
    }
    pair.transmit();
    assert_eq!(pair.sent(B), ["ACK 49", "NAK sequence 50"]);
    assert_eq!(pair.count(B, Counter::OutOfSequence), 50);
    pair.run();
    pair.expect_sent(A, 0..50);
}

/// The missing packet arrives, and more: the NAK stays, because the early packet was dropped.
#[test]
fn a_nak_is_not_overtaken_by_an_acknowledgement() {
    let mut pair = Setup::default().connect();
    let writes = writes(&mut pair, 4);
    for index in [0, 2, 1] {
        let Packet {
            headers, payload, ..
        } = &writes[index];
        pair.deliver(B, headers, payload);
    }
    pair.transmit();
    assert_eq!(pair.sent(B), ["ACK 0", "NAK sequence 1", "ACK 1"]);
    pair.heal();
    pair.run();
    pair.expect_sent(A, 0..4);
}

/// The longest possible queue: duplicates of parts of an earlier READ up to the limit, new READs
/// for all resources, and between any two of them every other answer that is possible.
#[test]
fn the_longest_queue_of_answers() {
    let limit = 4;
    let mut pair = Setup::default().connect();
    pair.read(A, 0, 9000);
    pair.run();
    let old = pair.log[0].headers;
    pair.silence(A);
    pair.log.clear();
    for wr_id in 0..limit - 1 {
        pair.write(A, 20 + wr_id, 10);
        pair.read(A, 30 + wr_id, 10);
    }
    pair.write(A, 40, 10);
    pair.transmit();
    for packet in pair.log.clone() {
        pair.deliver(B, &early(&packet), &[]);
        pair.deliver(B, &packet.headers, &packet.payload);
        pair[B].qp.audit(pair.now, 4);
    }
    for round in 0..1000 {
        let mut part = old;
        part.psn = old.psn.wrapping_add(round % 9);
        if let Some(reth) = part.reth_mut() {
            reth.length = 1024;
        }
        pair.deliver(B, &part, &[]);
        pair[B].qp.audit(pair.now, 4);
    }
    pair.log.clear();
    pair.transmit();
    let sent = pair.sent(B);
    let answers = pair.count_sent(B, |p| p.opcode().is_read_response()) as u64;
    assert_eq!(answers, limit + limit - 1, "{sent:?}");
    let naks = sent.iter().filter(|line| line.starts_with("NAK"));
    assert_eq!(naks.count() as u64, limit, "{sent:?}");
}
