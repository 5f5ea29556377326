//! What verbs show of a fault, and the memory after it.

use ferroce_device::{Event, QpAttr, QpEvent, QpState, SendOp, SendWr, WcStatus};
use ferroce_testing::{A, B, SEND};
use ferroce_wire::Psn;

use crate::{Pair, measured};

/// The next PSN to expect and the next to send, as `ibv_query_qp` says.
fn psns(pair: &Pair, id: usize) -> [Psn; 2] {
    let (_, attr, _) = pair.world.sides[id].hca.query_qp(pair.qpns[id]).unwrap();
    [attr.rq_psn, attr.sq_psn]
}

//= F18: the next one expected, also in ERR.
#[test]
fn rq_psn_is_live() {
    let mut pair = Pair::new(measured());
    let [first, _] = psns(&pair, B);
    pair.post(pair.write(1, 4096));
    pair.world.run();
    assert_eq!(psns(&pair, B)[0], first.wrapping_add(4));
    pair.move_to_error(B);
    assert_eq!(psns(&pair, B)[0], first.wrapping_add(4));
}

//= F19: after an error of this side, or without an answer, it follows what was sent; after a NAK,
//= it is the refused packet.
#[test]
fn sq_psn_is_live() {
    let sent_before = |act: fn(&mut Pair)| {
        let mut pair = Pair::new(measured());
        let [_, first] = psns(&pair, A);
        pair.post(pair.write(1, 4096));
        pair.world.run();
        act(&mut pair);
        pair.world.run();
        psns(&pair, A)[1].since(first)
    };
    assert_eq!(sent_before(|_| ()), 4);
    let lost = |pair: &mut Pair| {
        pair.world.sides[B].deaf = true;
        pair.post(pair.write(2, 4096));
    };
    assert_eq!(sent_before(lost), 8);
    let stopped = |pair: &mut Pair| {
        pair.world.sides[B].deaf = true;
        pair.post(pair.write(2, 4096));
        pair.world.settle();
        pair.move_to_error(A);
    };
    assert_eq!(sent_before(stopped), 8);
    let refused = |pair: &mut Pair| {
        let sge = pair.memory[A].sge(0, 4096);
        let op = SendOp::Write {
            va: pair.memory[B].info.va,
            rkey: 0xdead,
            imm: None,
        };
        pair.post(SendWr::new(2, op, sge));
    };
    assert_eq!(sent_before(refused), 4);
}

//= F18, F19: a side that is set up again with the PSNs of the other one continues.
#[test]
fn a_side_set_up_with_the_queried_psns_continues() {
    let mut pair = Pair::new(measured());
    pair.post(pair.write(1, 4096));
    pair.world.run();
    let [expected, next] = psns(&pair, B);
    pair.move_to_error(A);
    let (qpn, dest) = (pair.qpns[A], pair.world.sides[B].address);
    pair.world.sides[A].move_to(qpn, QpState::Reset);
    let attr = QpAttr {
        dest_qpn: pair.qpns[B],
        rq_psn: next,
        sq_psn: expected,
        ..measured()
    };
    pair.world.sides[A].connect(qpn, dest, attr);
    let before = pair.world.now;
    pair.post(pair.write(2, 4096));
    pair.world.run();
    assert_eq!(pair.told(A).last(), Some(&(2, WcStatus::Success, 0)));
    // On the card 3.5 to 4.5 us.
    let took = pair.completed_at(A).since(before).as_nanos();
    assert!(took < 10_000, "{took} ns");
}

//= F20: 2,048 of 4,096 bytes at an MTU of 1,024.
#[test]
fn whole_packets_before_the_end_of_a_region_land() {
    let mut pair = Pair::new(measured());
    pair.memory[A].fill(1);
    let info = pair.memory[B].info;
    // 2.5 packets before the end.
    let offset = info.len - 2_560;
    let op = SendOp::Write {
        va: info.va + offset,
        rkey: info.key.rkey(),
        imm: None,
    };
    let [_, first] = psns(&pair, A);
    assert_eq!(pair.fate(op, 4096), (1, WcStatus::RemAccessErr, 0x88));
    let (sent, landed) = (pair.memory[A].bytes(), pair.memory[B].bytes());
    let landed = &landed[offset as usize..];
    assert_eq!(landed[..2_048], sent[..2_048]);
    assert!(landed[2_048..].iter().all(|byte| *byte == 0));
    //= F19
    assert_eq!(psns(&pair, A)[1], first.wrapping_add(2));
}

/// Events: at the responder only, as before a decision was made.
#[test]
fn events_of_a_refusal() {
    let events = |op: fn(&Pair) -> SendOp, attr: QpAttr| {
        let mut pair = Pair::new(attr);
        let op = op(&pair);
        pair.fate(op, 64);
        let of_qps = |id: usize| -> Vec<QpEvent> {
            let events = pair.world.sides[id].events.iter();
            let event = |event: &Event| match event {
                Event::Qp(_, event) => Some(*event),
                _ => None,
            };
            events.filter_map(event).collect()
        };
        assert_eq!(of_qps(A), [], "nothing at the requester");
        of_qps(B)
    };
    let unknown = |_: &Pair| SendOp::Read {
        va: 0,
        rkey: 0xdead,
    };
    assert_eq!(events(unknown, measured()), [QpEvent::AccessError]);
    let forbidden = QpAttr {
        access: ferroce_device::AccessFlags::LOCAL_WRITE,
        ..measured()
    };
    let write = |pair: &Pair| pair.memory[B].write();
    assert_eq!(events(write, forbidden), [QpEvent::RequestError]);
    assert_eq!(events(|_| SEND, measured()), [], "not ready is no event");
}
