//! Refused requests: the NAK, both sides' completions, events and counters.

use ferroce_transport::{
    AccessFlags, Counter, QpEvent, QpState, SendOp, SendWr, Sge, WcStatus, WorkQueue,
};

use crate::common::{A, B, Pair, Setup};

/// A gets `status`, and after this NAK both sides are in the error state.
#[track_caller]
fn expect_refused(pair: &mut Pair, nak: &str, status: WcStatus, event: QpEvent) {
    pair.run();
    assert_eq!(pair.sent(B).last().map(String::as_str), Some(nak));
    let done = pair.completions(A, WorkQueue::Send);
    assert_eq!(done[0].status, status);
    assert_eq!(done[0].vendor_err, status.vendor_err());
    assert!(done[1..].iter().all(|wc| wc.status == WcStatus::WrFlushErr));
    assert_eq!(pair[A].qp.state(), QpState::Err);
    assert_eq!(pair[B].qp.state(), QpState::Err);
    assert_eq!(pair[B].host.events, [event]);
    assert!(pair[A].host.events.is_empty());
    //= F8: the flushed ones count as well.
    assert_eq!(pair.count(A, Counter::ReqCqeError), done.len() as u64);
    let flushed = pair.count(A, Counter::ReqCqeFlushError);
    assert_eq!(flushed, done.len() as u64 - 1);
}

fn access_ops(va: u64, rkey: u32) -> [SendOp; 5] {
    [
        SendOp::Write {
            va,
            rkey,
            imm: None,
        },
        SendOp::Write {
            va,
            rkey,
            imm: Some(1),
        },
        SendOp::Read { va, rkey },
        SendOp::FetchAdd { va, rkey, add: 1 },
        SendOp::CompareSwap {
            va,
            rkey,
            compare: 1,
            swap: 1,
        },
    ]
}

fn expect_no_access(place: impl Fn(&mut Pair) -> (u64, u32)) {
    for index in 0..5 {
        let mut pair = Setup::default().connect();
        let (va, rkey) = place(&mut pair);
        let op = access_ops(va, rkey)[index];
        pair.recv(B, 7, 0);
        pair.recv(B, 8, 0);
        pair.op(A, 1, op, 8);
        pair.write(A, 2, 8);
        expect_refused(
            &mut pair,
            "NAK access 0",
            WcStatus::RemAccessErr,
            QpEvent::AccessError,
        );
        assert_eq!(pair.count(A, Counter::ReqRemoteAccessErrors), 1);
        //= F11, F12: a WRITE counts as a request, and not as a refusal.
        let is_write = matches!(op, SendOp::Write { .. });
        let refused = pair.count(B, Counter::RespRemoteAccessErrors);
        assert_eq!(refused, u64::from(!is_write));
        assert_eq!(pair.count(B, Counter::RxWriteRequests), u64::from(is_write));
        // Immediate data consumes a receive before the key is checked.
        let first = match op.consumes_receive() {
            true => WcStatus::LocAccessErr,
            false => WcStatus::WrFlushErr,
        };
        assert_eq!(pair.recvs(B), [(7, first), (8, WcStatus::WrFlushErr)]);
    }
}

#[test]
fn an_unknown_key_is_refused() {
    expect_no_access(|pair| (pair.target(A).0, 0xdead));
}

#[test]
fn a_range_outside_the_region_is_refused() {
    expect_no_access(|pair| {
        let (va, rkey) = pair.target(A);
        (va + u64::from(pair[B].remote.len), rkey)
    });
    expect_no_access(|pair| {
        let (va, rkey) = pair.target(A);
        (va - 8, rkey)
    });
    expect_no_access(|pair| (!7, pair.target(A).1));
}

#[test]
fn a_region_without_the_permission_is_refused() {
    expect_no_access(|pair| {
        let mr = pair[B].host.register(64, AccessFlags::LOCAL_WRITE);
        (mr.va, mr.key)
    });
}

//= F20: whole packets of a WRITE that ends outside are written, and nothing of the one that crosses
//= it.
#[test]
fn a_long_write_is_checked_packet_by_packet() {
    let mut pair = Setup::default().connect();
    let mr = pair[B].host.register(2000, AccessFlags::all());
    let behind = pair.bytes(B, mr.part(1024, 976));
    let (va, rkey) = (mr.va, mr.key);
    pair.op(
        A,
        1,
        SendOp::Write {
            va,
            rkey,
            imm: None,
        },
        2001,
    );
    expect_refused(
        &mut pair,
        "NAK access 1",
        WcStatus::RemAccessErr,
        QpEvent::AccessError,
    );
    let sent = pair.bytes(A, pair[A].local.part(0, 1024));
    assert_eq!(pair.bytes(B, mr.part(0, 1024)), sent);
    assert_eq!(pair.bytes(B, mr.part(1024, 976)), behind);
}

fn write_with_imm(va: u64, rkey: u32) -> SendOp {
    SendOp::Write {
        va,
        rkey,
        imm: Some(1),
    }
}

/// Of a long WRITE, only the last packet carries the immediate data and consumes a receive, but the
/// first one carries the key.
#[test]
fn a_refused_long_write_with_immediate_consumes_no_receive() {
    let mut pair = Setup::default().connect();
    pair.recv(B, 7, 0);
    let va = pair.target(A).0;
    pair.op(A, 1, write_with_imm(va, 0xdead), 3000);
    expect_refused(
        &mut pair,
        "NAK access 0",
        WcStatus::RemAccessErr,
        QpEvent::AccessError,
    );
    assert_eq!(pair.recvs(B), [(7, WcStatus::WrFlushErr)]);
}

/// The memory is deregistered between the first packet and the last one, which consumes a receive.
#[test]
fn a_receive_consumed_by_immediate_data_completes_in_any_case() {
    use WcStatus::*;
    let mut pair = Setup::default().connect();
    pair.recv(B, 7, 0);
    pair.recv(B, 8, 0);
    let (va, rkey) = pair.target(A);
    pair.op(A, 1, write_with_imm(va, rkey), 3000);
    pair.lose_psn(1, A, true, 2);
    pair.run_for(25_000);
    let remote = pair[B].remote;
    pair[B].host.deregister(remote);
    expect_refused(
        &mut pair,
        "NAK access 2",
        RemAccessErr,
        QpEvent::AccessError,
    );
    assert_eq!(pair.recvs(B), [(7, LocAccessErr), (8, WrFlushErr)]);
    //= F9: the flushed one counts as well.
    assert_eq!(pair.count(B, Counter::RespCqeError), 2);
    assert_eq!(pair.count(B, Counter::RespCqeFlushError), 1);
}

#[test]
fn without_a_receive_the_key_is_not_checked() {
    let mut pair = Setup {
        rnr_retry: 0,
        ..Setup::default()
    }
    .connect();
    let va = pair.target(A).0;
    pair.op(A, 1, write_with_imm(va, 0xdead), 8);
    pair.run();
    assert_eq!(pair.sends(A), [(1, WcStatus::RnrRetryExcErr)]);
    assert_eq!(pair[B].qp.state(), QpState::Rts);
}

#[test]
fn operations_that_a_queue_pair_does_not_allow_are_refused() {
    let allowed_without = [
        AccessFlags::REMOTE_WRITE,
        AccessFlags::REMOTE_WRITE,
        AccessFlags::REMOTE_READ,
        AccessFlags::REMOTE_ATOMIC,
        AccessFlags::REMOTE_ATOMIC,
    ];
    for (index, missing) in allowed_without.into_iter().enumerate() {
        let mut pair = Setup {
            access: AccessFlags::all() - missing,
            ..Setup::default()
        }
        .connect();
        let (va, rkey) = pair.target(A);
        pair.op(A, 1, access_ops(va, rkey)[index], 8);
        expect_refused(
            &mut pair,
            "NAK invalid 0",
            WcStatus::RemInvReqErr,
            QpEvent::RequestError,
        );
        assert_eq!(pair.count(A, Counter::ReqRemoteInvalidRequest), 1);
    }
}

/// No memory is accessed, so no key is needed.
#[test]
fn operations_on_nothing_need_no_valid_key() {
    let mut pair = Setup::default().connect();
    let (va, rkey) = (0, 0xdead);
    pair.op(
        A,
        1,
        SendOp::Write {
            va,
            rkey,
            imm: None,
        },
        0,
    );
    pair.op(A, 2, SendOp::Read { va, rkey }, 0);
    pair.run();
    pair.expect_sent(A, [1, 2]);
}

#[test]
fn a_message_longer_than_the_receive_buffer_fails_both() {
    for (len, psn) in [(101, 0), (1500, 0), (5000, 2)] {
        let mut pair = Setup::default().connect();
        let buffer = if psn == 0 { 100 } else { 2500 };
        pair.recv(B, 1, buffer);
        pair.recv(B, 2, buffer);
        pair.send(A, 1, len);
        expect_refused(
            &mut pair,
            &format!("NAK invalid {psn}"),
            WcStatus::RemInvReqErr,
            QpEvent::RequestError,
        );
        let received = pair.recvs(B);
        assert_eq!(
            received,
            [(1, WcStatus::LocLenErr), (2, WcStatus::WrFlushErr)]
        );
        assert_eq!(pair.count(B, Counter::RespLocalLengthError), 1);
    }
}

#[test]
fn a_receive_buffer_that_cannot_be_written_fails_both() {
    let mut pair = Setup::default().connect();
    let read_only = pair[B].host.register(100, AccessFlags::empty());
    pair.recv_into(B, 1, &[read_only.part(0, 100)]);
    pair.send(A, 1, 10);
    expect_refused(
        &mut pair,
        "NAK operational 0",
        WcStatus::RemOpErr,
        QpEvent::RequestError,
    );
    assert_eq!(pair.recvs(B), [(1, WcStatus::LocProtErr)]);
}

/// Class J (IBA vol 1, 9.9.6.3): the message has arrived, and answers to earlier ones are sent.
#[test]
fn a_key_that_cannot_be_invalidated_fails_both_without_a_nak() {
    let mut pair = Setup::default().connect();
    pair.silence(A);
    pair.recv(B, 1, 100);
    pair.recv(B, 2, 100);
    pair.read(A, 0, 10);
    pair.op(A, 1, SendOp::SendInvalidate { rkey: 0xdead }, 10);
    pair.send(A, 2, 10);
    pair.transmit();
    for packet in pair.log.clone() {
        pair.deliver(B, &packet.headers, &packet.payload);
    }
    pair.run();
    use WcStatus::{LocAccessErr, RetryExcErr, Success, WrFlushErr};
    assert_eq!(pair.sent(B), ["RDMA READ response only 0"]);
    assert_eq!(pair[B].qp.state(), QpState::Err);
    assert_eq!(pair[B].host.events, [QpEvent::AccessError]);
    assert_eq!(pair.count(B, Counter::RespRemoteAccessErrors), 1);
    assert_eq!(pair.recvs(B), [(1, LocAccessErr), (2, WrFlushErr)]);
    assert_eq!(
        pair.sends(A),
        [(0, Success), (1, RetryExcErr), (2, WrFlushErr)]
    );
}

/// The region is deregistered while its READ is being answered.
#[test]
fn a_read_fails_if_its_memory_is_deregistered_meanwhile() {
    let mut pair = Setup {
        gap_ns: 10_000,
        ..Setup::default()
    }
    .connect();
    pair.recv(B, 7, 10);
    pair.read(A, 1, 10_000);
    pair.run_for(25_000);
    let sent = pair.log.iter().filter(|p| p.from == B).count();
    let remote = pair[B].remote;
    pair[B].host.deregister(remote);
    let nak = format!("NAK access {sent}");
    expect_refused(
        &mut pair,
        &nak,
        WcStatus::RemAccessErr,
        QpEvent::AccessError,
    );
    assert_eq!(pair.count(B, Counter::RespRemoteAccessErrors), 1);
    assert_eq!(pair.recvs(B), [(7, WcStatus::WrFlushErr)]);
}

/// Answers that were due before the refused request are still sent, in order.
#[test]
fn a_refusal_comes_after_the_answers_before_it() {
    let mut pair = Setup::default().connect();
    pair.silence(A);
    pair.write(A, 0, 10);
    pair.read(A, 1, 3000);
    let (va, rkey) = (0, 0xdead);
    pair.op(
        A,
        2,
        SendOp::Write {
            va,
            rkey,
            imm: None,
        },
        8,
    );
    pair.write(A, 3, 10);
    pair.transmit();
    for packet in pair.log.clone() {
        pair.deliver(B, &packet.headers, &packet.payload);
    }
    pair.run_for(10_000);
    use WcStatus::*;
    assert_eq!(
        pair.sends(A),
        [
            (0, Success),
            (1, Success),
            (2, RemAccessErr),
            (3, WrFlushErr)
        ]
    );
}

#[test]
fn a_lost_refusal_ends_in_retry_exceeded() {
    let mut pair = Setup::default().connect();
    pair.silence(B);
    let (va, rkey) = (0, 0xdead);
    pair.op(
        A,
        1,
        SendOp::Write {
            va,
            rkey,
            imm: None,
        },
        8,
    );
    pair.run();
    assert_eq!(pair.sends(A), [(1, WcStatus::RetryExcErr)]);
}

#[test]
fn a_local_protection_error_waits_for_its_turn() {
    let mut pair = Setup::default().connect();
    let closed = pair[A].host.register(100, AccessFlags::LOCAL_WRITE);
    pair[A].host.deregister(closed);
    pair.write(A, 1, 3000);
    pair.read(A, 2, 3000);
    let (va, rkey) = pair.target(A);
    let write = SendOp::Write {
        va,
        rkey,
        imm: None,
    };
    pair.post(A, SendWr::new(3, write, closed.part(0, 8)));
    pair.write(A, 4, 10);
    // And the earlier ones are lost once.
    pair.lose_psn(1, A, true, 0);
    pair.lose_psn(2, B, false, 3);
    pair.run();
    use WcStatus::*;
    assert_eq!(
        pair.sends(A),
        [(1, Success), (2, Success), (3, LocProtErr), (4, WrFlushErr)]
    );
    assert_eq!(pair[A].qp.state(), QpState::Err);
    assert_eq!(pair[B].qp.state(), QpState::Rts);
}

#[test]
fn a_local_protection_error_half_way_is_found() {
    let mut pair = Setup {
        window_bytes: 4 << 10,
        ..Setup::default()
    }
    .connect();
    let local = pair[A].local;
    pair.write(A, 1, 20_000);
    pair.run_for(1_500);
    pair[A].host.deregister(local);
    pair.run();
    assert_eq!(pair.sends(A), [(1, WcStatus::LocProtErr)]);
}

/// As on cards, which check the memory when they write to it.
#[test]
fn a_read_into_unwritable_memory_fails_at_its_response() {
    for index in 2..5 {
        for deregistered in [false, true] {
            let mut pair = Setup::default().connect();
            let closed = pair[A].host.register(100, AccessFlags::empty());
            if deregistered {
                pair[A].host.deregister(closed);
            }
            let (va, rkey) = pair.target(A);
            let op = access_ops(va, rkey)[index];
            pair.post(A, SendWr::new(1, op, closed.part(0, 8)));
            pair.write(A, 2, 8);
            pair.run();
            let done = pair.completions(A, WorkQueue::Send);
            let told = |index: usize| (done[index].status, done[index].vendor_err);
            assert_eq!(told(0), (WcStatus::LocProtErr, 0x33));
            assert_eq!(told(1), (WcStatus::WrFlushErr, 249));
            let counter = match op {
                SendOp::Read { .. } => Counter::RxReadRequests,
                _ => Counter::RxAtomicRequests,
            };
            assert_eq!(pair.count(B, counter), 1, "{op:?}");
            assert_eq!(pair[A].qp.state(), QpState::Err);
            assert_eq!(pair[B].qp.state(), QpState::Rts);
        }
    }
}

/// Memory that is registered by then is sufficient.
#[test]
fn response_memory_may_be_registered_after_the_request_is_sent() {
    let mut pair = Setup::default().connect();
    let late = pair[A].host.register(100, AccessFlags::LOCAL_WRITE);
    pair[A].host.deregister(late);
    let (va, rkey) = pair.target(A);
    pair.post(
        A,
        SendWr::new(1, SendOp::Read { va, rkey }, late.part(0, 8)),
    );
    pair.transmit();
    assert_eq!(pair[A].host.register(100, AccessFlags::LOCAL_WRITE), late);
    pair.run();
    pair.expect_sent(A, [1]);
}

#[test]
fn protection_errors_have_the_vendor_errors_of_a_card() {
    let vendor = |sge: fn(&mut Pair) -> Sge| {
        let mut pair = Setup::default().connect();
        let sge = sge(&mut pair);
        let (va, rkey) = pair.target(A);
        let imm = None;
        pair.post(A, SendWr::new(1, SendOp::Write { va, rkey, imm }, sge));
        pair.run();
        let done = pair.completions(A, WorkQueue::Send);
        assert_eq!(done[0].status, WcStatus::LocProtErr);
        done[0].vendor_err
    };
    let beyond = |pair: &mut Pair| {
        let mr = pair[A].host.register(100, AccessFlags::LOCAL_WRITE);
        Sge {
            length: 101,
            ..mr.part(0, 100)
        }
    };
    assert_eq!(vendor(beyond), 0x53);
    let unknown = |_: &mut Pair| Sge {
        addr: 0x1000,
        length: 8,
        lkey: 0xdead,
    };
    assert_eq!(vendor(unknown), 0x52);
}

#[test]
fn a_read_into_memory_that_is_closed_meanwhile_fails() {
    let mut pair = Setup::default().connect();
    pair.read(A, 1, 3000);
    pair.run_for(500);
    let local = pair[A].local;
    pair[A].host.deregister(local);
    pair.run();
    assert_eq!(pair.sends(A), [(1, WcStatus::LocProtErr)]);
    assert_eq!(pair[A].qp.state(), QpState::Err);
}
