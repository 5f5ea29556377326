//! UC: what arrives intact arrives once, and the rest is not retransmitted.

use std::collections::HashMap;

use ferroce_transport::{
    AccessFlags, Attr, Completion, Counter, PostError, QpAttr, QpEvent, QpModify, QpState, QpType,
    SendOp, SendWr, Sge, WcOpcode, WcStatus, WorkQueue,
};
use ferroce_wire::{BthFlags, Connection, Headers, Opcode, Place, Psn, Qpn};

use crate::common::{A, B, Dice, Fate, Mr, Pair, Setup};

/// A SEND of one packet.
fn only(connection: Connection) -> Headers {
    Headers::send(connection, Place::Only, None)
}

fn uc() -> Setup {
    Setup {
        qp_type: QpType::Uc,
        ..Setup::default()
    }
}

#[test]
fn messages_of_all_lengths_arrive_without_acknowledgements() {
    let mut pair = uc().connect();
    for (wr_id, len) in (0..).zip([0, 1, 1023, 1024, 1025, 5000]) {
        pair.recv(B, wr_id, 5000);
        pair.send(A, wr_id, len);
        pair.run();
        let [got] = pair.completions(B, WorkQueue::Recv)[..] else {
            panic!("one receive")
        };
        assert_eq!((got.wr_id, got.byte_len), (wr_id, len));
        let [a, b] = [A, B].map(|id| pair.bytes(id, pair[id].local.part(0, len)));
        assert!(a == b, "{len} bytes");
    }
    pair.expect_sent(A, 0..6);
    assert_eq!(pair.count_sent(B, |_| true), 0);
    assert_eq!(
        pair.count_sent(A, |packet| packet.headers.asks_for_ack()),
        0
    );
    assert_eq!(pair[A].qp.in_flight(), 0);
    assert_eq!(pair[A].qp.poll_timeout(), None);
}

#[test]
fn writes_and_immediates() {
    let mut pair = uc().connect();
    pair.write(A, 1, 3000);
    pair.run();
    pair.expect_same(3000);
    let (va, rkey) = pair.target(A);
    let imm = Some(0xfeed);
    pair.recv(B, 7, 0);
    pair.op(A, 2, SendOp::Write { va, rkey, imm }, 2000);
    pair.recv(B, 8, 100);
    pair.op(A, 3, SendOp::Send { imm }, 100);
    pair.run();
    pair.expect_sent(A, 1..4);
    let got = pair.completions(B, WorkQueue::Recv);
    let seen: Vec<_> = got
        .iter()
        .map(|c| (c.wr_id, c.opcode, c.imm, c.byte_len))
        .collect();
    let write = (7, WcOpcode::RecvRdmaWithImm, 0xfeed, 2000);
    assert_eq!(seen, [write, (8, WcOpcode::Recv, 0xfeed, 100)]);
    let lines = ["WRITE first 0", "WRITE middle 1", "WRITE last 2"];
    assert_eq!(pair.sent(A)[..3], lines.map(|line| format!("RDMA {line}")));
}

/// Whichever packet of three is lost, the message is dropped, and its receive serves the next one.
#[test]
fn a_message_with_a_lost_packet_is_dropped_whole() {
    for lost in 0..3 {
        let mut pair = uc().connect();
        pair.lose_psn(1, A, true, lost);
        pair.recv(B, 7, 4000);
        pair.send(A, 1, 3000);
        pair.run();
        pair.expect_sent(A, 1..2);
        assert_eq!(pair.recvs(B), []);
        pair.send(A, 2, 2500);
        pair.run();
        let [got] = pair.completions(B, WorkQueue::Recv)[..] else {
            panic!("one receive, with packet {lost} lost")
        };
        assert_eq!((got.wr_id, got.byte_len), (7, 2500));
        let gaps = pair.count(B, Counter::OutOfSequence);
        assert_eq!(gaps, 1, "packet {lost} lost");
    }
}

#[test]
fn a_write_with_a_lost_packet_is_dropped_silently() {
    let mut pair = uc().connect();
    let (va, rkey) = pair.target(A);
    let imm = Some(1);
    pair.recv(B, 7, 0);
    pair.lose_psn(1, A, true, 1);
    pair.op(A, 1, SendOp::Write { va, rkey, imm }, 3000);
    pair.run();
    assert_eq!(pair.recvs(B), []);
    pair.op(A, 2, SendOp::Write { va, rkey, imm }, 3000);
    pair.run();
    pair.expect_received(B, 7..8);
    pair.expect_same(3000);
}

/// The WRITE that follows a broken SEND does not consume the receive that is left.
#[test]
fn a_write_after_a_broken_send() {
    for srq in [false, true] {
        let mut pair = Setup { srq, ..uc() }.connect();
        pair.recv(B, 7, 4000);
        pair.lose_psn(1, A, true, 2);
        pair.send(A, 1, 3000);
        pair.write(A, 2, 3000);
        pair.send(A, 3, 100);
        pair.run();
        pair.expect_received(B, 7..8);
        pair.expect_same(3000);
    }
}

#[test]
fn without_a_receive_the_message_is_dropped() {
    let mut pair = uc().connect();
    pair.send(A, 1, 3000);
    pair.run();
    assert_eq!(pair.count(B, Counter::OutOfBuffer), 1);
    pair.recv(B, 7, 3000);
    pair.send(A, 2, 3000);
    pair.run();
    pair.expect_sent(A, 1..3);
    pair.expect_received(B, 7..8);
}

#[test]
fn a_message_longer_than_its_receive_fails_the_receiver() {
    let mut pair = uc().connect();
    pair.recv(B, 7, 2000);
    pair.recv(B, 8, 2000);
    pair.send(A, 1, 3000);
    pair.run();
    pair.expect_sent(A, 1..2);
    assert_eq!(
        pair.recvs(B),
        [(7, WcStatus::LocLenErr), (8, WcStatus::WrFlushErr)]
    );
    assert_eq!(pair[B].qp.state(), QpState::Err);
    assert_eq!(pair[A].qp.state(), QpState::Rts);
}

#[test]
fn a_wrong_key_fails_the_receiver() {
    let mut pair = uc().connect();
    let (va, _) = pair.target(A);
    let (rkey, imm) = (0xbad, None);
    pair.op(A, 1, SendOp::Write { va, rkey, imm }, 100);
    pair.run();
    pair.expect_sent(A, 1..2);
    assert_eq!(pair[B].qp.state(), QpState::Err);
    let events = [QpEvent::AccessError];
    assert_eq!(pair[B].host.events, events);
}

#[test]
fn a_write_that_is_not_permitted_is_dropped() {
    let access = AccessFlags::empty();
    let mut pair = Setup { access, ..uc() }.connect();
    pair.write(A, 1, 100);
    pair.recv(B, 7, 100);
    pair.send(A, 2, 100);
    pair.run();
    pair.expect_received(B, 7..8);
    let untouched = pair.bytes(B, pair[B].remote.part(0, 100));
    assert!(untouched != pair.bytes(A, pair[A].local.part(0, 100)));
}

/// The receive that the immediate data consumes reports the error; the peer is not told.
#[test]
fn a_write_with_immediate_and_a_wrong_key_fails_its_receive() {
    let mut pair = uc().connect();
    pair.recv(B, 7, 10);
    pair.recv(B, 8, 10);
    let op = SendOp::Write {
        va: pair.target(A).0,
        rkey: 0xdead,
        imm: Some(1),
    };
    pair.op(A, 1, op, 8);
    pair.run();
    pair.expect_sent(A, 1..2);
    use WcStatus::*;
    assert_eq!(pair.recvs(B), [(7, LocAccessErr), (8, WrFlushErr)]);
}

/// The send queue stops at its own error, in the middle of a message; the receiver drops that
/// message.
#[test]
fn a_local_error_stops_the_send_queue_only() {
    let mut pair = uc().connect();
    for wr_id in 0..2 {
        pair.recv(B, wr_id, 4000);
    }
    let local = pair[A].local;
    let mut wr = SendWr::new(1, SendOp::Send { imm: None }, local.part(0, 1024));
    wr.sges.push(Sge {
        lkey: 0xbad,
        ..local.part(0, 1024)
    });
    pair.post(A, wr);
    pair.send(A, 2, 10);
    pair.recv(A, 9, 10);
    pair.run();
    assert_eq!(
        pair.sends(A),
        [(1, WcStatus::LocProtErr), (2, WcStatus::WrFlushErr)]
    );
    assert_eq!(pair[A].qp.state(), QpState::Sqe);
    pair.send(A, 3, 10);
    assert_eq!(pair.sends(A), [(3, WcStatus::WrFlushErr)]);
    // It still receives.
    pair.send(B, 4, 10);
    pair.run();
    pair.expect_received(A, 9..10);
    assert_eq!(pair.recvs(B), []);

    let attr = pair.attr(A);
    let mut back = QpModify::to(QpState::Rts, Attr::ACCESS_FLAGS | Attr::CUR_STATE, attr);
    back.cur_state = QpState::Sqe;
    pair.modify(A, &back);
    pair.send(A, 5, 2000);
    pair.run();
    pair.expect_sent(A, 5..6);
    pair.expect_received(B, 0..1);
}

#[test]
fn repeated_and_overtaken_packets_are_dropped() {
    let mut pair = uc().connect();
    for wr_id in 0..4 {
        pair.recv(B, wr_id, 4000);
    }
    pair.rule(1, Fate::Twice(0), |p| p.opcode() == Opcode::UcSendOnly);
    pair.send(A, 0, 100);
    pair.run();
    pair.expect_received(B, 0..1);
    assert_eq!(pair.count(B, Counter::DuplicateRequest), 1);
    pair.rule(1, Fate::Late(500_000), |p| {
        p.opcode() == Opcode::UcSendMiddle
    });
    pair.send(A, 1, 3000);
    pair.send(A, 2, 100);
    pair.run();
    let [got] = pair.completions(B, WorkQueue::Recv)[..] else {
        panic!("the one that was not overtaken")
    };
    assert_eq!((got.wr_id, got.byte_len), (1, 100));
}

/// After a long silence, the PSNs may have any value.
#[test]
fn the_receiver_follows_wherever_the_sender_is() {
    let mut pair = uc().connect();
    let send = |pair: &mut Pair, psn: Psn, wr_id| {
        pair.recv(B, wr_id, 100);
        let headers = only(Connection::Uc).to(Qpn::new(0x12), psn);
        pair.forge(B, headers, b"hello");
        pair.expect_received(B, wr_id..wr_id + 1);
        assert_eq!(pair[B].qp.expected_psn(), psn.next());
    };
    let start = pair[B].qp.expected_psn();
    send(&mut pair, start, 0);
    send(&mut pair, start.wrapping_add(1 << 22), 1);
    send(&mut pair, start.wrapping_sub(1 << 20), 2);
}

#[test]
fn unsupported_operations_cannot_be_posted() {
    let mut pair = uc().connect();
    let (va, rkey) = pair.target(A);
    let qp_type = QpType::Uc;
    for (op, operation) in [
        (SendOp::Read { va, rkey }, "RDMA READ"),
        (SendOp::FetchAdd { va, rkey, add: 1 }, "fetch and add"),
        (SendOp::SendInvalidate { rkey }, "SEND with invalidate"),
    ] {
        let side = &mut pair[A];
        let wr = SendWr::new(1, op, side.local.part(0, 8));
        let refused = PostError::Unsupported { qp_type, operation };
        assert_eq!(side.qp.post_send(wr, &mut side.host), Err(refused));
    }
}

#[test]
fn packets_of_other_services_and_ack_requests_are_ignored() {
    let mut pair = uc().connect();
    pair.recv(B, 7, 100);
    let psn = pair[B].qp.expected_psn();
    let forge = |pair: &mut Pair, headers: Headers, psn| {
        let mut headers = headers.to(Qpn::new(0x12), psn);
        headers.flags |= BthFlags::ACK_REQ;
        pair.forge(B, headers, b"hello");
    };
    forge(&mut pair, only(Connection::Rc), psn);
    assert_eq!(pair.recvs(B), []);
    forge(&mut pair, only(Connection::Uc), psn);
    pair.expect_received(B, 7..8);
    let middle = Headers::send(Connection::Uc, Place::Middle, None);
    forge(&mut pair, middle, psn.next());
    assert!(!pair[B].qp.has_answers());
    assert_eq!(pair.count_sent(B, |_| true), 0);
}

#[test]
fn a_drain_ends_with_the_message_under_way() {
    let mut pair = Setup {
        gap_ns: 1000,
        ..uc()
    }
    .connect();
    pair.send(A, 1, 3000);
    pair.send(A, 2, 100);
    pair.transmit();
    let attr = QpAttr {
        sqd_async_notify: true,
        ..QpAttr::default()
    };
    pair.modify(
        A,
        &QpModify::to(QpState::Sqd, Attr::EN_SQD_ASYNC_NOTIFY, attr),
    );
    pair.run();
    pair.expect_sent(A, 1..2);
    assert_eq!(pair[A].host.events, [QpEvent::SendQueueDrained]);
    pair.move_to(A, QpState::Rts);
    pair.run();
    pair.expect_sent(A, 2..3);
}

#[test]
fn the_first_packet_tells_a_waiting_receiver() {
    let mut pair = uc().build();
    pair.connect(A);
    let attr = pair.attr(B);
    for (from, to) in [
        (QpState::Reset, QpState::Init),
        (QpState::Init, QpState::Rtr),
    ] {
        pair.modify(B, &QpModify::step(QpType::Uc, from, to, attr));
    }
    pair.recv(B, 7, 100);
    pair.send(A, 1, 100);
    pair.run();
    pair.expect_received(B, 7..8);
    assert_eq!(pair[B].host.events, [QpEvent::CommunicationEstablished]);
}

/// Random messages over a wire that loses, repeats and delays: each arrives whole and at most
/// once, in the order in which they were sent.
#[test]
fn seeded_runs() {
    for seed in 0..300 {
        play(seed);
    }
}

fn play(seed: u64) {
    const MESSAGES: u64 = 40;
    let mut rng = Dice::new(seed);
    let mut pair = Setup {
        srq: rng.per_mille(300),
        psn: [rng.next() as u32, rng.next() as u32],
        ..uc()
    }
    .connect();
    let [loss, late, twice] = [0; 3].map(|_| rng.below(150) as u32);
    let mut dice = Dice::new(!seed);
    pair.net().rules.add(move |_| {
        let copies = match dice.per_mille(loss) {
            true => 0,
            false => 1 + usize::from(dice.per_mille(twice)),
        };
        let mut delay = || match dice.per_mille(late) {
            true => dice.below(20_000),
            false => 0,
        };
        Some(Fate::Copies(
            [0, 1].map(|nth| (nth < copies).then(&mut delay)),
        ))
    });
    // Each message has memory of its own on both sides, and carries its number.
    let mut sinks: HashMap<u64, Mr> = HashMap::new();
    let mut sources = Vec::new();
    for number in 0..MESSAGES {
        let sink = pair[B].host.register(8000, AccessFlags::LOCAL_WRITE);
        pair.recv_into(B, number, &[sink.part(0, 8000)]);
        sinks.insert(number, sink);
        let len = 8 + rng.below(6000) as u32;
        let source = pair[A].host.register(len, AccessFlags::LOCAL_WRITE);
        let imm = Some(number as u32);
        pair.post(
            A,
            SendWr::new(number, SendOp::Send { imm }, source.part(0, len)),
        );
        sources.push(source);
        if rng.per_mille(200) {
            pair.run();
        }
    }
    pair.run();
    pair.expect_sent(A, 0..MESSAGES);
    let got: Vec<Completion> = pair.completions(B, WorkQueue::Recv);
    assert!(got.is_sorted_by_key(|c| c.imm), "order, seed {seed}");
    assert!(
        got.windows(2).all(|two| two[0].imm != two[1].imm),
        "seed {seed}"
    );
    assert!(
        got.iter().zip(0..).all(|(c, n)| c.wr_id == n),
        "receives in order, seed {seed}"
    );
    for completion in got {
        let (source, sink) = (sources[completion.imm as usize], sinks[&completion.wr_id]);
        assert_eq!(completion.byte_len, source.len, "seed {seed}");
        let sent = pair.bytes(A, source.part(0, source.len));
        let arrived = pair.bytes(B, sink.part(0, source.len));
        assert!(sent == arrived, "seed {seed}");
    }
    assert_eq!(pair[B].qp.state(), QpState::Rts, "seed {seed}");
}
