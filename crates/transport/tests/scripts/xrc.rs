//! XRC: the protocol of RC, with each request for a shared receive queue that it names.

use ferroce_transport::{
    Counter, PostError, QpEvent, QpState, QpType, RecvWr, SendOp, SendTo, SendWr, Sge, Sges,
    WcOpcode, WcStatus, WorkQueue,
};
use ferroce_wire::{ExtensionValues, Headers, Opcode, Service, Srqn};

use crate::common::{A, B, Id, Pair, Setup};

fn xrc() -> Pair {
    Setup {
        qp_type: QpType::XrcSend,
        srq: true,
        ..Setup::default()
    }
    .connect()
}

const SEND: SendOp = SendOp::Send { imm: None };

fn send_to(pair: &Pair, srqn: Srqn, len: u32) -> SendWr {
    SendWr {
        to: SendTo::Srq(srqn),
        ..SendWr::new(1, SEND, pair[A].local.part(0, len))
    }
}

#[test]
fn every_operation_of_rc() {
    let mut pair = xrc();
    let (va, rkey) = pair.target(A);
    let imm = Some(0xfeed);
    for wr_id in 10..14 {
        pair.recv(B, wr_id, 4000);
    }
    pair.send(A, 1, 3000);
    pair.write(A, 2, 3000);
    pair.op(A, 3, SendOp::Write { va, rkey, imm }, 100);
    pair.op(A, 4, SendOp::Send { imm }, 100);
    pair.run();
    pair.expect_same(3000);
    pair.read(A, 5, 3000);
    pair.fetch_add(A, 6, 7);
    let (swap, compare) = (1, 2);
    let op = SendOp::CompareSwap {
        va,
        rkey,
        compare,
        swap,
    };
    pair.op(A, 7, op, 8);
    pair.op(A, 8, SendOp::SendInvalidate { rkey }, 2000);
    pair.run();
    pair.expect_sent(A, 1..9);
    let got = pair.completions(B, WorkQueue::Recv);
    let seen: Vec<_> = got
        .iter()
        .map(|c| (c.wr_id, c.opcode, c.byte_len))
        .collect();
    let write = (11, WcOpcode::RecvRdmaWithImm, 100);
    let [send, with_imm, with_inv] =
        [(10, 3000), (12, 100), (13, 2000)].map(|(id, len)| (id, WcOpcode::Recv, len));
    assert_eq!(seen, [send, write, with_imm, with_inv]);
    assert_eq!(pair[B].host.atomics, 2);
    for packet in &pair.log {
        assert_eq!(packet.opcode().service(), Service::Xrc);
        let named = packet.is_request().then_some(pair[B].host.srqn);
        assert_eq!(packet.headers.xrceth(), named, "{}", packet.opcode());
    }
}

#[test]
fn losses_and_missing_receives_are_retried_as_in_rc() {
    let mut pair = xrc();
    pair.lose_psn(1, A, true, 1);
    pair.lose(1, Opcode::XrcAcknowledge);
    pair.lose(1, Opcode::XrcReadResponseMiddle);
    pair.send(A, 1, 3000);
    pair.read(A, 2, 3000);
    pair.run_for(1_000_000);
    assert!(pair.count(B, Counter::OutOfBuffer) > 0);
    pair.recv(B, 10, 3000);
    pair.run();
    pair.expect_sent(A, 1..3);
    pair.expect_received(B, [10]);
    pair.expect_same(3000);
}

#[test]
fn an_unknown_srq_is_an_invalid_request() {
    let mut pair = xrc();
    pair.recv(B, 10, 3000);
    pair.post(A, send_to(&pair, Srqn::new(1), 3000));
    pair.run();
    assert_eq!(pair.sends(A), [(1, WcStatus::RemInvReqErr)]);
    assert_eq!(pair.recvs(B), []);
    assert_eq!(pair[B].qp.state(), QpState::Err);
    let events = &pair[B].host.events;
    assert!(events.contains(&QpEvent::AccessError), "{events:?}");
    assert!(!events.contains(&QpEvent::LastWqeReached), "{events:?}");
}

fn forged(pair: &Pair, to: Id, opcode: Opcode, psn: u32, srqn: Srqn) -> Headers {
    let expected = pair[to].qp.expected_psn();
    let values = ExtensionValues {
        xrceth: srqn,
        ..ExtensionValues::default()
    };
    Headers::with_values(opcode, &values).to(pair[to].qp.qpn(), expected.wrapping_add(psn))
}

#[test]
fn a_message_stays_with_its_srq() {
    let mut pair = xrc();
    pair.recv(B, 10, 3000);
    let srqn = pair[B].host.srqn;
    pair.forge(
        B,
        forged(&pair, B, Opcode::XrcSendFirst, 0, srqn),
        &[1; 1024],
    );
    pair[B].host.srqn = Srqn::new(5);
    pair.forge(
        B,
        forged(&pair, B, Opcode::XrcSendLast, 0, Srqn::new(5)),
        &[2; 24],
    );
    assert_eq!(pair.sent(B), ["NAK invalid 1"]);
    assert_eq!(pair.recvs(B), [(10, WcStatus::RemInvReqErr)]);
    assert_eq!(pair[B].qp.state(), QpState::Err);
}

#[test]
fn a_message_under_way_is_flushed() {
    let mut pair = xrc();
    pair.recv(B, 10, 3000);
    pair.recv(B, 11, 3000);
    let srqn = pair[B].host.srqn;
    pair.forge(
        B,
        forged(&pair, B, Opcode::XrcSendFirst, 0, srqn),
        &[1; 1024],
    );
    pair.move_to(B, QpState::Err);
    // The other receive stays for other queue pairs.
    assert_eq!(pair.recvs(B), [(10, WcStatus::WrFlushErr)]);
    assert_eq!(pair[B].host.srq.as_ref().unwrap().len(), 1);
}

#[test]
fn a_read_fails_when_the_srq_of_its_domain_is_destroyed() {
    let mut pair = xrc();
    pair.sides[B as usize].host.srqn = Srqn::new(9);
    pair.read(A, 1, 20_000);
    pair.transmit();
    let request = pair.log.last().unwrap().clone();
    assert_eq!(request.opcode(), Opcode::XrcReadRequest);
    pair.deliver(B, &request.headers, &[]);
    pair[B].host.srqn = Srqn::new(1);
    pair.run();
    assert_eq!(pair.sends(A), [(1, WcStatus::RemAccessErr)]);
    assert_eq!(pair[B].qp.state(), QpState::Err);
}

#[test]
fn each_end_takes_what_is_meant_for_it() {
    let mut pair = xrc();
    pair.recv(B, 10, 100);
    let srqn = pair[B].host.srqn;
    pair.forge(A, forged(&pair, A, Opcode::XrcSendOnly, 0, srqn), &[]);
    pair.forge(A, forged(&pair, A, Opcode::RcAcknowledge, 0, srqn), &[]);
    pair.forge(B, forged(&pair, B, Opcode::RcSendOnly, 0, srqn), &[]);
    pair.forge(
        B,
        forged(&pair, B, Opcode::XrcReadResponseOnly, 0, srqn),
        &[],
    );
    assert!(pair.log.is_empty());
    for id in [A, B] {
        assert_eq!(pair[id].host.completions, []);
        assert_eq!(pair[id].qp.state(), QpState::Rts);
    }
}

#[test]
fn only_the_sender_posts_requests_and_neither_end_receives() {
    let mut pair = xrc();
    let sge = pair[A].local.part(0, 10);
    let [to_peer, to_srq] = [SendTo::Peer, SendTo::Srq(Srqn::new(1))].map(|to| SendWr {
        to,
        ..SendWr::new(1, SEND, sge)
    });
    let mut post = |id: Id, wr: &SendWr| {
        let side = &mut pair[id];
        side.qp.post_send(wr.clone(), &mut side.host)
    };
    let [send, recv] = [QpType::XrcSend, QpType::XrcRecv];
    let wrong = PostError::WrongAddress { qp_type: send };
    assert_eq!(post(A, &to_peer), Err(wrong));
    assert_eq!(post(A, &to_srq), Ok(()));
    let unsupported = PostError::Unsupported {
        qp_type: recv,
        operation: "SEND",
    };
    for wr in [&to_peer, &to_srq] {
        assert_eq!(post(B, wr), Err(unsupported));
    }
    for (id, qp_type) in [(A, send), (B, recv)] {
        let wr = RecvWr {
            wr_id: 1,
            sges: Sges::from_slice(&[] as &[Sge]),
        };
        let side = &mut pair[id];
        let refused = side.qp.post_recv(wr, &mut side.host);
        assert_eq!(refused, Err(PostError::NoReceiveQueue { qp_type }));
    }
    let mut rc = Setup::default().connect();
    let side = &mut rc[A];
    let wrong = PostError::WrongAddress {
        qp_type: QpType::Rc,
    };
    assert_eq!(side.qp.post_send(to_srq, &mut side.host), Err(wrong));
}
