//! Which completions report which cause, and in what order.

use ferroce_device::{AccessFlags, Buffer, Counter, Memory, QpAttr, SendOp, SendWr, Sge, WcStatus};
use ferroce_testing::{A, B, SEND};

use crate::{Pair, RETRY_EXC, Told, measured};

fn flushed(wr_id: u64, vendor_err: u32) -> Told {
    (wr_id, WcStatus::WrFlushErr, vendor_err)
}

//= F1, F5: the receive reports memory that its list may not access, the send the peer's error.
#[test]
fn a_send_without_accessible_memory_is_0x32_and_0x89() {
    let mut pair = Pair::new(measured());
    let closed = pair.world.sides[B].register(64, AccessFlags::empty());
    let qpn = pair.qpns[B];
    pair.world.sides[B].recv(qpn, 7, &closed);
    assert_eq!(pair.fate(SEND, 64), (1, WcStatus::RemOpErr, 0x89));
    assert_eq!(pair.told(B), [(7, WcStatus::LocProtErr, 0x32)]);
}

//= F2, F3: two codes for what cannot be read.
#[test]
fn a_length_beyond_the_region_is_0x53_and_a_wrong_key_0x52() {
    let told = |sge: fn(&mut Pair) -> Sge| {
        let mut pair = Pair::new(measured());
        let sge = sge(&mut pair);
        pair.post(SendWr::new(1, pair.memory[B].write(), sge));
        pair.world.run();
        pair.told(A)[0]
    };
    let protection = |vendor_err| (1, WcStatus::LocProtErr, vendor_err);
    let beyond = |pair: &mut Pair| pair.memory[A].sge(1, 1 << 16);
    assert_eq!(told(beyond), protection(0x53));
    let unknown = |pair: &mut Pair| Sge {
        lkey: pair.memory[A].info.key.lkey() ^ 0x100,
        ..pair.memory[A].sge(0, 64)
    };
    assert_eq!(told(unknown), protection(0x52));
    let of_another_domain = |pair: &mut Pair| {
        let hca = &mut pair.world.sides[A].hca;
        let pd = hca.alloc_pd().unwrap();
        let memory = Memory::Buffer(Buffer::zeroed(64));
        let info = hca.reg_mr_iova(pd, memory, 0, AccessFlags::all()).unwrap();
        Sge {
            addr: 0,
            length: 64,
            lkey: info.key.lkey(),
        }
    };
    assert_eq!(told(of_another_domain), protection(0x52));
}

//= F4: the check is made when the response arrives, so the peer has executed the READ.
#[test]
fn a_read_into_read_only_memory_is_executed_and_reports_0x33() {
    let mut pair = Pair::new(measured());
    let closed = pair.world.sides[A].register(64, AccessFlags::empty());
    pair.post(SendWr::new(1, pair.memory[B].read(), closed.whole()));
    pair.world.run();
    assert_eq!(pair.told(A), [(1, WcStatus::LocProtErr, 0x33)]);
    assert_eq!(pair.counts(B, [Counter::RxReadRequests]), [1]);
}

//= F6
#[test]
fn a_read_that_the_queue_pair_may_not_post_is_0x61() {
    let mut pair = Pair::new(QpAttr {
        max_rd_atomic: 0,
        ..measured()
    });
    let read = pair.memory[B].read();
    assert_eq!(pair.fate(read, 64), (1, WcStatus::LocQpOpErr, 0x61));
}

/// The causes on which the cards agreed before a decision was made.
#[test]
fn the_other_causes_have_one_code_each() {
    let mut pair = Pair::new(measured());
    let SendOp::Write { va, rkey, imm } = pair.memory[B].write() else {
        panic!("a WRITE");
    };
    let wrong = rkey ^ 0x100;
    let op = SendOp::Write {
        va,
        rkey: wrong,
        imm,
    };
    assert_eq!(pair.fate(op, 64), (1, WcStatus::RemAccessErr, 0x88));

    let mut pair = Pair::new(QpAttr {
        access: AccessFlags::LOCAL_WRITE,
        ..measured()
    });
    let op = pair.memory[B].write();
    assert_eq!(pair.fate(op, 64), (1, WcStatus::RemInvReqErr, 0x8a));

    let mut pair = Pair::new(measured());
    assert_eq!(pair.fate(SEND, 64), (1, WcStatus::RnrRetryExcErr, 0x87));

    let mut pair = Pair::new(measured());
    pair.world.sides[B].deaf = true;
    let op = pair.memory[B].write();
    assert_eq!(pair.fate(op, 64), RETRY_EXC);
}

//= F7: when a queue pair is moved to ERR, its oldest request gets the code, even if unsignalled;
//= the others follow in their order.
#[test]
fn the_oldest_request_of_a_stopped_queue_pair_is_0xf5() {
    let mut pair = Pair::new(measured());
    pair.move_to_error(A);
    assert_eq!(pair.told(A), [], "nothing was outstanding");

    // As soon as they are posted, and in the middle of retries.
    for waited_ns in [0, 300_000_000] {
        let mut pair = Pair::new(measured());
        pair.world.sides[B].deaf = true;
        pair.post_writes(1..4);
        pair.world.run_for(waited_ns);
        pair.move_to_error(A);
        // Posted in ERR: this one was not interrupted.
        pair.post_writes(4..5);
        pair.world.settle();
        let expected = [
            flushed(1, 0xf5),
            flushed(2, 0xf9),
            flushed(3, 0xf9),
            flushed(4, 0xf9),
        ];
        assert_eq!(pair.told(A), expected);
    }
}

/// After an error the queue pair stops itself, and no flushed request is the first.
#[test]
fn requests_behind_an_error_flush_with_0xf9() {
    let mut pair = Pair::new(measured());
    pair.world.sides[B].deaf = true;
    pair.post_writes(1..4);
    pair.world.run();
    let expected = [RETRY_EXC, flushed(2, 0xf9), flushed(3, 0xf9)];
    assert_eq!(pair.told(A), expected);
}
