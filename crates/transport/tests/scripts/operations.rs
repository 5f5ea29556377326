//! Every operation on a good wire: bytes, packets, completions.

use ferroce_transport::{
    AccessFlags, Bytes, Mtu, PostError, QpCap, SendFlags, SendOp, SendWr, Sge, Sges, WcFlags,
    WcOpcode, WorkQueue,
};

use crate::common::{A, B, Pair, Setup};

fn pair() -> Pair {
    Setup::default().connect()
}

/// Lengths around every edge of a packet.
fn lengths(mtu: u32) -> impl Iterator<Item = u32> {
    let around = move |packets: u32| [-1, 0, 1].map(|d| (packets * mtu).saturating_add_signed(d));
    (0..4).flat_map(around).chain([2, 3, 5, 5 * mtu + 7])
}

fn each_length(check: impl Fn(&mut Pair, u32, usize)) {
    for mtu in Mtu::ALL {
        let mut pair = Setup {
            mtu,
            ..Setup::default()
        }
        .connect();
        for len in lengths(mtu.bytes()) {
            pair.log.clear();
            let packets = len.div_ceil(mtu.bytes()).max(1) as usize;
            check(&mut pair, len, packets);
        }
    }
}

#[test]
fn a_send_fills_the_receive_buffer_at_every_length() {
    each_length(|pair, len, packets| {
        let remote = pair[B].remote.part(0, len);
        let before = pair.bytes(B, pair[B].remote.part(len, 1));
        pair.recv_into(B, 9, &[remote]);
        pair.send(A, 1, len);
        pair.run();
        pair.expect_same(len);
        assert_eq!(pair.bytes(B, pair[B].remote.part(len, 1)), before);
        assert_eq!(pair.count_sent(A, |p| p.opcode().is_send()), packets);
        pair.expect_sent(A, [1]);
        let received = pair.completions(B, WorkQueue::Recv);
        assert_eq!(received.len(), 1);
        assert_eq!((received[0].wr_id, received[0].byte_len), (9, len));
        assert_eq!(received[0].opcode, WcOpcode::Recv);
        assert_eq!(received[0].flags, WcFlags::empty());
    });
}

#[test]
fn a_write_lands_at_every_length() {
    each_length(|pair, len, packets| {
        let before = pair.bytes(B, pair[B].remote.part(len, 1));
        pair.write(A, 1, len);
        pair.run();
        pair.expect_same(len);
        assert_eq!(pair.bytes(B, pair[B].remote.part(len, 1)), before);
        assert_eq!(pair.count_sent(A, |p| p.opcode().is_write()), packets);
        pair.expect_sent(A, [1]);
        pair.expect_received(B, []);
    });
}

#[test]
fn a_write_with_immediate_consumes_a_receive_but_not_its_buffer() {
    each_length(|pair, len, packets| {
        let buffer = pair[B].local.part(0, 8);
        let before = pair.bytes(B, buffer);
        pair.recv(B, 9, 8);
        let (va, rkey) = pair.target(A);
        let imm = Some(0xfeed_f00d);
        pair.op(A, 1, SendOp::Write { va, rkey, imm }, len);
        pair.run();
        pair.expect_same(len);
        assert_eq!(pair.bytes(B, buffer), before);
        assert_eq!(pair.count_sent(A, |p| p.opcode().is_write()), packets);
        let received = pair.completions(B, WorkQueue::Recv);
        assert_eq!(received[0].opcode, WcOpcode::RecvRdmaWithImm);
        assert_eq!((received[0].imm, received[0].byte_len), (0xfeed_f00d, len));
        assert_eq!(received[0].flags, WcFlags::WITH_IMM);
    });
}

#[test]
fn a_read_brings_the_bytes_at_every_length() {
    each_length(|pair, len, packets| {
        pair.read(A, 1, len);
        pair.run();
        pair.expect_same(len);
        assert_eq!(pair.count_sent(A, |_| true), 1);
        assert_eq!(
            pair.count_sent(B, |p| p.opcode().is_read_response()),
            packets
        );
        let done = pair.completions(A, WorkQueue::Send);
        assert_eq!(done[0].opcode, WcOpcode::RdmaRead);
        assert_eq!(done[0].byte_len, len);
    });
}

#[test]
fn the_last_packet_carries_immediate_data_or_the_key() {
    let mut pair = pair();
    let key = pair[B].host.register(8, AccessFlags::all()).key;
    pair.recv(B, 1, 4096);
    pair.recv(B, 2, 4096);
    pair.op(A, 1, SendOp::Send { imm: Some(5) }, 3000);
    pair.op(A, 2, SendOp::SendInvalidate { rkey: key }, 2000);
    pair.run();
    assert_eq!(
        pair.sent(A),
        [
            "SEND first 0",
            "SEND middle 1",
            "SEND last with immediate 2",
            "SEND first 3",
            "SEND last with invalidate 4",
        ]
    );
    let received = pair.completions(B, WorkQueue::Recv);
    assert_eq!((received[0].imm, received[0].flags), (5, WcFlags::WITH_IMM));
    assert_eq!(
        (received[1].imm, received[1].flags),
        (key, WcFlags::WITH_INV)
    );
    // The key is invalid now: using it is an access error.
    let (va, rkey) = (0, key);
    pair.op(
        A,
        3,
        SendOp::Write {
            va,
            rkey,
            imm: None,
        },
        1,
    );
    pair.run();
    assert!(pair.sent(B).contains(&"NAK access 5".to_string()));
}

#[test]
fn atomics_return_what_they_found() {
    let mut pair = pair();
    let word = pair[B].remote.part(0, 8);
    let value = |pair: &Pair| u64::from_ne_bytes(pair.bytes(B, word).try_into().unwrap());
    pair[B].host.fill(word, &7_u64.to_ne_bytes());
    let (va, rkey) = pair.target(A);
    let found = |pair: &Pair, index: u32| {
        let bytes = pair.bytes(A, pair[A].local.part(8 * index, 8));
        u64::from_ne_bytes(bytes.try_into().unwrap())
    };
    let ops = [
        SendOp::FetchAdd { va, rkey, add: 3 },
        SendOp::CompareSwap {
            va,
            rkey,
            compare: 10,
            swap: 99,
        },
        SendOp::CompareSwap {
            va,
            rkey,
            compare: 10,
            swap: 1,
        },
        SendOp::FetchAdd {
            va,
            rkey,
            add: u64::MAX,
        },
    ];
    for (index, op) in (0..).zip(ops) {
        let sge = pair[A].local.part(8 * index, 8);
        pair.post(A, SendWr::new(index.into(), op, sge));
    }
    pair.run();
    let results: Vec<u64> = (0..4).map(|index| found(&pair, index)).collect();
    assert_eq!(results, [7, 10, 99, 99]);
    assert_eq!(value(&pair), 98);
    let done = pair.completions(A, WorkQueue::Send);
    assert!(done.iter().all(|wc| wc.byte_len == 8));
    assert_eq!(done[1].opcode, WcOpcode::CompSwap);
    assert_eq!(done[3].opcode, WcOpcode::FetchAdd);
}

#[test]
fn scatter_gather_lists_need_not_match() {
    let mut pair = pair();
    let (local, remote) = (pair[A].local, pair[B].remote);
    let list = |mr: crate::common::Mr, cuts: &[u32]| {
        let mut at = 0;
        let sge = |&len: &u32| {
            at += len;
            mr.part(at - len, len)
        };
        cuts.iter().map(sge).collect::<Vec<Sge>>()
    };
    pair.recv_into(B, 1, &list(remote, &[1, 1500, 0, 1500]));
    let mut wr = SendWr::new(1, SendOp::Send { imm: None }, local.part(0, 0));
    wr.sges = Sges::from_vec(list(local, &[1023, 2, 0, 1976]));
    pair.post(A, wr);
    pair.run();
    pair.expect_same(3001);
    // And back, into several pieces.
    let (va, rkey) = pair.target(A);
    let mut wr = SendWr::new(2, SendOp::Read { va, rkey }, local.part(0, 0));
    wr.sges = Sges::from_vec(list(local, &[5, 1024, 1972]));
    let zero = vec![0; 3001];
    let whole = local.part(0, 3001);
    pair[A].host.fill(whole, &zero);
    pair.post(A, wr);
    pair.run();
    pair.expect_same(3001);
    pair.expect_sent(A, [1, 2]);
}

#[test]
fn inline_data_is_copied_while_posting() {
    let mut pair = pair();
    let sge = pair[A].local.part(0, 200);
    let bytes = pair.bytes(A, sge);
    let (va, rkey) = pair.target(A);
    let mut wr = SendWr::new(
        1,
        SendOp::Write {
            va,
            rkey,
            imm: None,
        },
        sge,
    );
    wr.flags |= SendFlags::INLINE;
    wr.sges.clear();
    wr.inline = Some(bytes.clone().into());
    pair.post(A, wr);
    pair[A].host.fill(sge, &[0; 200]);
    pair.run();
    assert_eq!(pair.bytes(B, pair[B].remote.part(0, 200)), bytes);
}

#[test]
fn inline_data_longer_than_a_packet_is_cut() {
    let mut pair = Setup {
        mtu: Mtu::Mtu256,
        cap: QpCap {
            max_inline_data: 1000,
            ..QpCap::default()
        },
        ..Setup::default()
    }
    .connect();
    let mut wr = SendWr::new(1, SendOp::Send { imm: None }, pair[A].local.part(0, 0));
    wr.flags |= SendFlags::INLINE;
    wr.inline = Some(pair.bytes(A, pair[A].local.part(0, 1000)).into());
    let sge = pair[B].remote.part(0, 1000);
    pair.recv_into(B, 1, &[sge]);
    pair.post(A, wr);
    pair.run();
    pair.expect_same(1000);
    assert_eq!(pair.log.iter().filter(|p| p.from == A).count(), 4);
}

#[test]
fn inline_data_has_its_rules() {
    let mut pair = pair();
    let (va, rkey) = pair.target(A);
    let sge = pair[A].local.part(0, 8);
    let mut post = |op, inline: Option<Vec<u8>>, flags| {
        let mut wr = SendWr::new(1, op, sge);
        wr.inline = inline.map(Bytes::from);
        wr.flags |= flags;
        let side = &mut pair[A];
        side.qp.post_send(wr, &mut side.host)
    };
    let send = SendOp::Send { imm: None };
    let too_long = PostError::InlineTooLong { got: 257, max: 256 };
    let inline = SendFlags::INLINE;
    assert_eq!(post(send, Some(vec![0; 257]), inline), Err(too_long));
    assert_eq!(post(send, None, inline), Err(PostError::InlineMismatch));
    let unflagged = post(send, Some(vec![0; 8]), SendFlags::empty());
    assert_eq!(unflagged, Err(PostError::InlineMismatch));
    let read = post(SendOp::Read { va, rkey }, Some(vec![0; 8]), inline);
    assert_eq!(read, Err(PostError::InlineMismatch));
    assert_eq!(post(send, Some(vec![0; 256]), inline), Ok(()));
}

#[test]
fn lists_and_queues_and_messages_have_limits() {
    let mut pair = Setup {
        cap: QpCap {
            max_send_wr: 2,
            max_send_sge: 2,
            ..QpCap::default()
        },
        ..Setup::default()
    }
    .connect();
    let sge = |length| Sge {
        addr: 0,
        length,
        lkey: 0,
    };
    let mut post = |lengths: &[u32]| {
        let mut wr = SendWr::new(1, SendOp::Send { imm: None }, sge(0));
        wr.sges = lengths.iter().map(|&length| sge(length)).collect();
        let side = &mut pair[A];
        side.qp.post_send(wr, &mut side.host)
    };
    let sges = PostError::TooManySges { got: 3, max: 2 };
    assert_eq!(post(&[0, 0, 0]), Err(sges));
    let long = PostError::MessageTooLong { got: (1 << 31) + 1 };
    assert_eq!(post(&[1 << 31, 1]), Err(long));
    assert_eq!(post(&[]), Ok(()));
    assert_eq!(post(&[1 << 30, 1 << 30]), Ok(()));
    assert_eq!(post(&[]), Err(PostError::QueueFull { max: 2 }));
}

#[test]
fn only_signalled_requests_complete_and_sq_sig_all_signals_all() {
    for signal_all in [false, true] {
        let mut pair = Setup {
            signal_all,
            ..Setup::default()
        }
        .connect();
        for wr_id in 0..4 {
            let (va, rkey) = pair.target(A);
            let sge = pair[A].local.part(0, 10);
            let mut wr = SendWr::new(
                wr_id,
                SendOp::Write {
                    va,
                    rkey,
                    imm: None,
                },
                sge,
            );
            wr.flags.set(SendFlags::SIGNALED, wr_id == 2);
            pair.post(A, wr);
        }
        pair.run();
        let expected = if signal_all {
            vec![0, 1, 2, 3]
        } else {
            vec![2]
        };
        pair.expect_sent(A, expected);
        assert_eq!(pair[A].qp.send_queue_len(), 0);
    }
}

#[test]
fn a_solicited_event_comes_with_the_last_packet() {
    let mut pair = pair();
    for (wr_id, solicited) in [(1, true), (2, false)] {
        pair.recv(B, wr_id, 4096);
        let sge = pair[A].local.part(0, 2000);
        let mut wr = SendWr::new(wr_id, SendOp::Send { imm: None }, sge);
        wr.flags.set(SendFlags::SOLICITED, solicited);
        pair.post(A, wr);
    }
    pair.run();
    let marks: Vec<bool> = pair
        .completions(B, WorkQueue::Recv)
        .iter()
        .map(|wc| wc.solicited)
        .collect();
    assert_eq!(marks, [true, false]);
    assert_eq!(pair.count_sent(A, |p| p.headers.is_solicited()), 1);
}

#[test]
fn sequence_numbers_wrap() {
    let mut pair = Setup {
        psn: [0xff_fffd, 0xff_ffff],
        ..Setup::default()
    }
    .connect();
    for wr_id in 0..10 {
        for (id, peer) in [(A, B), (B, A)] {
            pair.recv(peer, wr_id, 4000);
            pair.send(id, wr_id, 1 + 300 * wr_id as u32);
            pair.read(id, 100 + wr_id, 3000);
        }
    }
    pair.run();
    for id in [A, B] {
        pair.expect_sent(id, (0..10).flat_map(|n| [n, 100 + n]));
        pair.expect_received(id, 0..10);
    }
    for id in [A, B] {
        let expected = pair[id].qp.expected_psn().value();
        assert!((1..1000).contains(&expected), "{expected}");
    }
}

#[test]
fn messages_of_both_directions_share_the_wire() {
    let mut pair = pair();
    for id in [A, B] {
        for wr_id in 0..20 {
            pair.write(id, wr_id, 10_000);
            pair.read(id, 100 + wr_id, 10_000);
        }
    }
    pair.run();
    for id in [A, B] {
        pair.expect_sent(id, (0..20).flat_map(|n| [n, 100 + n]));
    }
}

/// 2^31 bytes in packets of 256: half of all PSNs.
#[test]
fn the_longest_message_at_the_smallest_mtu_gets_under_way() {
    let cap = QpCap {
        max_send_sge: 1 << 15,
        max_recv_sge: 1 << 15,
        ..QpCap::default()
    };
    let mut pair = Setup {
        mtu: Mtu::Mtu256,
        cap,
        ..Setup::default()
    }
    .connect();
    let sges = |mr: crate::common::Mr| Sges::from_elem(mr.part(0, 1 << 16), 1 << 15);
    let buffer = sges(pair[B].remote);
    pair.recv_into(B, 1, &buffer);
    let mut wr = SendWr::new(1, SendOp::Send { imm: None }, pair[A].local.part(0, 0));
    wr.sges = sges(pair[A].local);
    pair.post(A, wr);
    pair.lose_psn(1, A, true, 300);
    pair.lose_psn(1, B, false, 127);
    while pair[B].qp.expected_psn().since(pair.attr(A).sq_psn) < 600 {
        assert!(pair.step(None));
    }
    assert!(pair.sends(A).is_empty() && pair.recvs(B).is_empty());
    pair.expect_same(1 << 16);
}
