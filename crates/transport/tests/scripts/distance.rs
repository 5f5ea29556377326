//! What a queue pair remembers stays valid however many packets pass.

use ferroce_transport::{Counter, QpState, QpType};
use ferroce_wire::Opcode;

use crate::common::{A, B, Pair, Setup};

const LAP: u32 = 1 << 24;

/// Around a quarter, a half and all of the PSNs, and beyond.
fn distances() -> impl Iterator<Item = u32> {
    let about = |distance: u32| [distance - 2, distance - 1, distance, distance + 1];
    let laps = [LAP / 4, LAP / 2, LAP / 4 * 3, LAP, LAP / 2 * 3, 2 * LAP];
    laps.into_iter().flat_map(about)
}

fn age(pair: &mut Pair, messages: u32) {
    assert!(pair.age(A, messages), "something is under way");
    pair.log.clear();
}

/// One READ or atomic, then many WRITEs, of which the last acknowledgement is lost.
#[test]
fn an_old_read_or_atomic_does_not_block_acknowledging_a_write() {
    for distance in distances() {
        for atomic in [false, true] {
            let mut pair = Setup::default().connect();
            match atomic {
                false => pair.read(A, 0, 10),
                true => pair.fetch_add(A, 0, 1),
            }
            pair.run();
            age(&mut pair, distance);
            pair.lose(1, Opcode::RcAcknowledge);
            pair.write(A, 1, 10);
            pair.run();
            pair.expect_sent(A, [0, 1]);
            assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 1);
            let psn = |p: &crate::common::Packet| p.headers.psn;
            assert!(
                pair.log.iter().all(|p| psn(p) == psn(&pair.log[0])),
                "{distance} later an answer with another PSN: {:?}",
                pair.sent(B)
            );
        }
    }
}

/// After all PSNs were used, an atomic has the PSN of one that is still remembered.
#[test]
fn a_repeated_atomic_gets_its_own_value_after_psn_wraparound() {
    let mut pair = Setup::default().connect();
    let word = pair[B].remote.part(0, 8);
    pair[B].host.fill(word, &40_u64.to_ne_bytes());
    pair.fetch_add(A, 0, 1);
    pair.run();
    for lap in 1..4 {
        age(&mut pair, LAP - 1);
        pair.lose(1, Opcode::RcAtomicAcknowledge);
        pair.fetch_add(A, lap, 1);
        pair.run();
        assert_eq!(pair.sent(A), ["fetch and add 0", "fetch and add 0"]);
        let found = pair.bytes(A, pair[A].local.part(0, 8));
        assert_eq!(found, (40 + lap).to_ne_bytes());
    }
    pair.expect_sent(A, 0..4);
    assert_eq!(pair[B].host.atomics, 4);
}

/// A packet with the PSN of an old READ or atomic that is not a duplicate is not answered.
#[test]
fn old_reads_and_atomics_are_not_answered_after_psn_wraparound() {
    for opcode in [Opcode::RcReadRequest, Opcode::RcFetchAdd] {
        let mut pair = Setup::default().connect();
        pair.read(A, 0, 10);
        pair.fetch_add(A, 1, 1);
        pair.run();
        let old = pair.log.iter().find(|p| p.opcode() == opcode).cloned();
        age(&mut pair, LAP - 2);
        for wr_id in 2..6 {
            pair.write(A, wr_id, 10);
        }
        pair.run();
        let before = pair.log.len();
        pair.forge(B, old.unwrap().headers, &[]);
        assert_eq!(pair.log.len(), before, "{:?}", pair.sent(B));
        assert_eq!(pair[B].qp.state(), QpState::Rts);
    }
}

/// A READ is still known after less than half of the PSNs.
#[test]
fn a_repeated_read_is_answered_up_to_half_a_lap_later() {
    for (distance, known) in [(LAP / 4, true), (LAP / 2 - 1, true), (LAP / 2, false)] {
        let mut pair = Setup::default().connect();
        pair.read(A, 0, 10);
        pair.run();
        let old = pair.log[0].headers;
        age(&mut pair, distance);
        pair.forge(B, old, &[]);
        let answers = pair.count_sent(B, |p| p.opcode().is_read_response());
        assert_eq!(answers, usize::from(known), "{distance}");
    }
}

/// Loss of each kind of packet, far from the beginning.
#[test]
fn losses_are_recovered_from_at_any_distance() {
    for distance in distances() {
        for lost in [
            Opcode::RcSendOnly,
            Opcode::RcWriteOnly,
            Opcode::RcReadRequest,
            Opcode::RcReadResponseOnly,
            Opcode::RcFetchAdd,
            Opcode::RcAtomicAcknowledge,
            Opcode::RcAcknowledge,
        ] {
            let mut pair = Setup::default().connect();
            for round in [0, 10] {
                pair.recv(B, round, 10);
                pair.fetch_add(A, round, 1);
                pair.send(A, round + 1, 10);
                pair.read(A, round + 2, 10);
                pair.write(A, round + 3, 10);
                pair.run();
                pair.expect_sent(A, round..round + 4);
                pair.expect_received(B, [round]);
                if round == 0 {
                    age(&mut pair, distance);
                    pair.lose(1, lost);
                }
            }
            assert_eq!(pair[B].host.atomics, 2);
        }
    }
}

/// Credits keep counting when message sequence numbers wrap.
#[test]
fn credits_count_on_where_message_sequence_numbers_wrap() {
    for distance in distances().chain([LAP - 4]) {
        let mut pair = Setup {
            rnr_retry: 0,
            ..Setup::default()
        }
        .connect();
        // Credit that was granted earlier.
        pair.recv(B, 0, 3000);
        pair.send(A, 0, 3000);
        pair.run();
        age(&mut pair, distance);
        for wr_id in 1..9 {
            pair.recv(B, wr_id, 3000);
        }
        // The first one requests an answer, because it does not know of the new receives.
        for wr_id in 1..9 {
            pair.log.clear();
            pair.send(A, wr_id, 3000);
            pair.transmit();
            let at_once = if wr_id == 1 { 1 } else { 3 };
            assert_eq!(pair.log.len(), at_once, "{distance}, message {wr_id}");
            pair.run();
        }
        pair.expect_sent(A, 0..9);
        pair.expect_received(B, 0..9);
        // The next one has no receive: it requests an answer again.
        pair.log.clear();
        pair.send(A, 9, 3000);
        pair.transmit();
        assert_eq!(pair.log.len(), 1);
        assert_eq!(pair.count(A, Counter::RnrNakRetryErr), 0);
    }
}

/// An answer that waits while its queue pair's turn does not come keeps its place.
#[test]
fn answers_keep_their_order_across_psn_wraparound() {
    let mut pair = Setup {
        psn: [LAP - 3, 0],
        ..Setup::default()
    }
    .connect();
    for wr_id in [0, 2, 4] {
        pair.write(A, wr_id, 10);
        pair.read(A, wr_id + 1, 10);
    }
    pair.silence(A);
    pair.transmit();
    let requests = pair.log.clone();
    for packet in &requests {
        pair.deliver(B, &packet.headers, &packet.payload);
    }
    pair.deliver(B, &requests[0].headers, &requests[0].payload);
    pair.run();
    let read = |psn| format!("RDMA READ response only {psn}");
    let ack = |psn| format!("ACK {psn}");
    assert_eq!(
        pair.sent(B),
        [ack(0), read(1), ack(2), read(3), ack(4), read(5)]
    );
    pair.expect_sent(A, 0..6);
}

/// An unreliable receiver follows its sender at any distance.
#[test]
fn unreliable_messages_arrive_at_any_distance() {
    for distance in distances() {
        let mut pair = Setup {
            qp_type: QpType::Uc,
            ..Setup::default()
        }
        .connect();
        for wr_id in 0..4 {
            pair.recv(B, wr_id, 3000);
        }
        pair.send(A, 0, 3000);
        pair.run();
        age(&mut pair, distance);
        pair.send(A, 1, 3000);
        pair.run();
        // A whole message is lost, and a packet is repeated.
        pair.lose(1, Opcode::UcSendOnly);
        pair.send(A, 2, 10);
        pair.rule(1, crate::common::Fate::Twice(0), |_| true);
        pair.send(A, 3, 3000);
        pair.run();
        pair.expect_sent(A, 0..4);
        pair.expect_received(B, 0..3);
        assert_eq!(pair.count(B, Counter::DuplicateRequest), 1);
    }
}
