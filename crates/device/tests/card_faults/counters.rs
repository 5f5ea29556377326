//! What the counters of both sides show.

use ferroce_device::{AccessFlags, Counter, QpAttr, SendOp};
use ferroce_testing::{A, B, SEND};

use crate::{Pair, measured};

const REQ: [Counter; 2] = [Counter::ReqCqeError, Counter::ReqCqeFlushError];
const RESP: [Counter; 2] = [Counter::RespCqeError, Counter::RespCqeFlushError];

//= F8: every error counts, those with 0xf9 twice.
#[test]
fn errors_of_the_requester() {
    for (requests, expected) in [(32, [32, 31]), (1, [1, 0])] {
        let mut pair = Pair::new(measured());
        pair.world.sides[B].deaf = true;
        pair.post_writes(0..requests);
        pair.move_to_error(A);
        assert_eq!(pair.counts(A, REQ), expected);
    }
    // A NAK and one flush.
    let mut pair = Pair::new(measured());
    let refused = refused_write(&pair);
    pair.post(pair.write(1, 64));
    let sge = pair.memory[A].sge(0, 64);
    pair.post(ferroce_device::SendWr::new(2, refused, sge));
    pair.post(pair.write(3, 64));
    pair.world.run();
    assert_eq!(pair.counts(A, REQ), [2, 1]);
}

//= F9
#[test]
fn errors_of_the_responder() {
    let mut pair = Pair::new(measured());
    let (qpn, memory) = (pair.qpns[B], pair.memory[B].clone());
    for wr_id in 0..3 {
        pair.world.sides[B].recv(qpn, wr_id, &memory);
    }
    pair.move_to_error(B);
    assert_eq!(pair.counts(B, RESP), [3, 3]);
}

//= F10: the NAK that ends it counts as well.
#[test]
fn a_receiver_that_is_never_ready() {
    for (rnr_retry, expected) in [(6, 7), (0, 1)] {
        let mut pair = Pair::new(QpAttr {
            rnr_retry,
            ..measured()
        });
        pair.fate(SEND, 64);
        assert_eq!(pair.counts(A, [Counter::RnrNakRetryErr]), [expected]);
        assert_eq!(pair.counts(B, [Counter::OutOfBuffer]), [expected]);
    }
}

/// A WRITE whose key is not valid.
fn refused_write(pair: &Pair) -> SendOp {
    let info = pair.memory[B].info;
    SendOp::Write {
        va: info.va,
        rkey: info.key.rkey() ^ 0x100,
        imm: None,
    }
}

//= F11, F12: a refused WRITE counts as a request and not as a refusal; a READ is refused.
#[test]
fn refused_requests() {
    const COUNTERS: [Counter; 2] = [Counter::RespRemoteAccessErrors, Counter::RxWriteRequests];
    let fate = |op: fn(&Pair) -> SendOp, attr: QpAttr| {
        let mut pair = Pair::new(attr);
        let op = op(&pair);
        pair.fate(op, 64);
        pair.counts(B, COUNTERS)
    };
    assert_eq!(fate(refused_write, measured()), [0, 1]);
    let beyond = |pair: &Pair| {
        let info = pair.memory[B].info;
        SendOp::Write {
            va: info.va + info.len,
            rkey: info.key.rkey(),
            imm: None,
        }
    };
    assert_eq!(fate(beyond, measured()), [0, 1]);
    let read = |pair: &Pair| SendOp::Read {
        va: 0,
        rkey: pair.memory[B].info.key.rkey(),
    };
    assert_eq!(fate(read, measured()), [1, 0]);
    // An invalid request does not count as a request.
    let forbidden = QpAttr {
        access: AccessFlags::LOCAL_WRITE,
        ..measured()
    };
    assert_eq!(fate(|pair| pair.memory[B].write(), forbidden), [0, 0]);
}

/// A dead peer at retry_cnt 7: as on the card, even before a decision was made.
#[test]
fn timeouts_of_a_dead_peer() {
    let mut pair = Pair::new(measured());
    pair.world.sides[B].deaf = true;
    let op = pair.memory[B].write();
    pair.fate(op, 64);
    assert_eq!(pair.counts(A, [Counter::LocalAckTimeoutErr]), [6]);
    let [adaptive] = pair.counts(A, [Counter::RoceAdpRetrans]);
    assert!((4..=8).contains(&adaptive), "{adaptive}");
}
