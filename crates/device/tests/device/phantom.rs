//! Memory without bytes, packets with lengths.

use ferroce_device::{
    AccessFlags, Counter, Direction, Impairment, Memory, MrInfo, Payload, RecvWr, SendOp, SendWr,
    Sge, Sges, Span, Time, WcOpcode, WcStatus,
};

use ferroce_testing::{A, B, World};

const LEN: u32 = 1 << 20;

fn region(pair: &mut World, id: usize, addr: u64) -> MrInfo {
    let memory = Memory::Phantom {
        addr,
        len: LEN.into(),
    };
    let side = &mut pair.sides[id];
    side.hca
        .reg_mr(side.pd, memory, AccessFlags::all())
        .unwrap()
}

fn sge(info: &MrInfo, offset: u32, length: u32) -> Sge {
    Sge {
        addr: info.va + u64::from(offset),
        length,
        lkey: info.key.lkey(),
    }
}

/// Every operation, with lengths only; returns when the last one is done.
fn exchange(link: &Impairment) -> (World, Time) {
    let (mut pair, [a, b]) = World::connected();
    pair.carries_bytes = false;
    let (own, remote) = (
        region(&mut pair, A, 0x1000),
        region(&mut pair, B, 0x10_0000),
    );
    for id in [A, B] {
        let hca = &mut pair.sides[id].hca;
        for direction in [Direction::Egress, Direction::Ingress] {
            hca.set_impairment(direction, link.clone()).unwrap();
        }
    }
    let (va, rkey) = (remote.va, remote.key.rkey());
    let ops = [
        (SendOp::Send { imm: Some(7) }, 10_000),
        (
            SendOp::Write {
                va,
                rkey,
                imm: None,
            },
            LEN,
        ),
        (
            SendOp::Write {
                va: va + 5,
                rkey,
                imm: Some(1),
            },
            100_001,
        ),
        (SendOp::Read { va, rkey }, 300_000),
        (SendOp::FetchAdd { va, rkey, add: 1 }, 8),
        (
            SendOp::CompareSwap {
                va: va + 8,
                rkey,
                compare: 0,
                swap: 1,
            },
            8,
        ),
        (SendOp::Send { imm: None }, 0),
    ];
    for wr_id in 0..3 {
        let wr = RecvWr {
            wr_id,
            sges: Sges::from_vec(vec![sge(&remote, 0, 4000), sge(&remote, 9000, 6000)]),
        };
        pair.sides[B].hca.post_recv(b, wr).unwrap();
    }
    for (wr_id, (op, len)) in ops.into_iter().enumerate() {
        pair.post(A, a, SendWr::new(wr_id as u64, op, sge(&own, 0, len)));
    }
    pair.run();
    let done: Vec<_> = pair.sides[A]
        .completions
        .iter()
        .map(|wc| (wc.wr_id, wc.status, wc.byte_len))
        .collect();
    let read = [0, 0, 0, 300_000, 8, 8, 0];
    let all = (0..7)
        .zip(read)
        .map(|(id, len)| (id, WcStatus::Success, len));
    assert_eq!(done, all.collect::<Vec<_>>());
    let received: Vec<_> = pair.sides[B]
        .completions
        .iter()
        .map(|wc| (wc.opcode, wc.byte_len, wc.imm))
        .collect();
    assert_eq!(
        received,
        [
            (WcOpcode::Recv, 10_000, 7),
            (WcOpcode::RecvRdmaWithImm, 100_001, 1),
            (WcOpcode::Recv, 0, 0)
        ]
    );
    let now = pair.now;
    (pair, now)
}

#[test]
fn two_devices_exchange_lengths_only() {
    let (pair, _) = exchange(&Impairment::default());
    let sent = [A, B].map(|id| pair.count(id, Counter::RdmaTxBytes));
    assert_eq!(sent, [10_000 + 1_048_576 + 100_001, 300_000]);
    assert_eq!(pair.count(B, Counter::RdmaRxBytes), sent[A]);
    assert_eq!(pair.count(A, Counter::RdmaRxBytes), sent[B]);
    assert_eq!(pair.count(A, Counter::RetransmittedPackets), 0);
}

#[test]
fn two_devices_exchange_lengths_over_a_bad_link() {
    let link = Impairment {
        loss: 0.02,
        duplicate: 0.02,
        corrupt: 0.02,
        delay: Span::from_nanos(5_000),
        jitter: Span::from_nanos(3_000),
        reorder: 0.02,
        reorder_by: Span::from_nanos(20_000),
        ..Impairment::default()
    };
    let (pair, _) = exchange(&link);
    assert!(pair.count(A, Counter::RetransmittedPackets) > 0);
}

#[test]
fn packets_that_a_link_holds_back_carry_no_zeros() {
    let (mut pair, [a, _]) = World::connected();
    pair.carries_bytes = false;
    let (own, remote) = (region(&mut pair, A, 0), region(&mut pair, B, 0));
    let link = Impairment {
        delay: Span::from_nanos(5_000),
        ..Impairment::default()
    };
    let hca = &mut pair.sides[A].hca;
    hca.set_impairment(Direction::Egress, link).unwrap();
    let op = SendOp::Write {
        va: remote.va,
        rkey: remote.key.rkey(),
        imm: None,
    };
    pair.post(A, a, SendWr::new(0, op, sge(&own, 0, 500)));
    let now = pair.now;
    assert!(pair.sides[A].hca.poll_transmit(now).is_none());
    // The packet is already on its way, even if the memory goes away.
    pair.sides[A].hca.dereg_mr(own.key).unwrap();
    let later = now.after(Span::from_nanos(5_000));
    let packet = pair.sides[A].hca.poll_transmit(later).unwrap();
    assert!(matches!(packet.payload, Payload::Empty));
    assert_eq!(packet.payload_len, 500);
    let mut bytes = vec![1; 500];
    assert!(pair.sides[A].hca.gather(&packet, &mut bytes));
    assert_eq!(bytes, [0; 500]);
}
