//! The operations that an input can perform.

use ferroce_dcqcn::CongestionPoint;
use ferroce_device::impair::{Blackout, Bottleneck, BurstLoss};
use ferroce_device::{
    AccessFlags, Attr, Bytes, CqId, Data, Direction, Impairment, Method, Mtu, MwBind, Notify, Path,
    QpAttr, QpModify, QpState, QpType, Rate, RecvWr, SendFlags, SendOp, SendTo, SendWr, Sge, Sges,
    Span, SrqId, SrqModify, UdAddress, VerbsError,
};
use ferroce_prm::roce_accl;
use ferroce_testing::flight::Content;
use ferroce_wire::{
    Aeth, AtomicEth, BthFlags, Deth, ExtensionValues, HEADERS_LEN_MAX, Headers, ICRC_LEN, IcrcFlow,
    IpPair, NakCode, Opcode, Packet, Psn, Qpn, ROCE_V2_PORT, Reth, Srqn, Syndrome,
};

use super::ledger::Kind;
use super::side::{End as _, QKEY, REGION_BYTES, Side};
use super::world::Stage;
use crate::Cursor;
use crate::register::sensible_bytes;

const LENGTHS: [u32; 16] = [
    8,
    0,
    1,
    7,
    64,
    255,
    256,
    257,
    1024,
    1025,
    4096,
    5000,
    8192,
    8193,
    1 << 31,
    u32::MAX,
];

/// Performs the next operation of the input.
pub(super) fn perform(stage: &mut Stage, input: &mut Cursor<'_>) {
    let which = input.below(2);
    if stage.has_failed() && input.one_in(3) {
        // Most of what there is to find needs queue pairs that work.
        stage.connect(input);
        return;
    }
    // Half of the inputs leave it at what a bad link and well-behaved programs do.
    match input.below(if stage.hostile { 24 } else { 13 }) {
        0..=4 => post_send(stage, which, input),
        5..=7 => post_recv(stage, which, input),
        8..=10 => pass_time(stage, input),
        11 => mischief(stage, input),
        12 => impair(stage, which, input),
        13 | 14 => forge(stage, which, input),
        15 => meddle(stage, input),
        16 => raw_packet(stage, which, input),
        17 => modify(stage, which, input),
        18 => write_register(&mut stage.world.sides[which], input),
        19 | 20 if input.one_in(2) => impair(stage, which, input),
        19 | 20 => stage.world.sides[which].deaf = input.one_in(4),
        21 => change_keys(&mut stage.world.sides[which], input),
        22 => reconnect(stage, input),
        _ => other_verbs(&mut stage.world.sides[which], input),
    }
}

/// A key and address in one of a side's regions, most of the time good for `length` bytes.
fn place(side: &Side, length: u32, hostile: bool, input: &mut Cursor<'_>) -> (u32, u64) {
    let choices: &[usize] = if hostile { &[0, 0, 1, 2, 3, 4] } else { &[0] };
    let region = &side.own.regions[input.pick(choices)];
    let room = (REGION_BYTES as u64).saturating_sub(length.into());
    let offset = match input.below(8) {
        0..=3 => 0,
        4 | 5 => 8 * (u64::from(input.u16()) % (room / 8 + 1)),
        6 => u64::from(input.u16()) % (room + 1),
        _ if !hostile => room,
        _ if input.one_in(2) => u64::from(input.u16()) % (REGION_BYTES as u64 + 2),
        _ => input.u64(),
    };
    let key = if hostile && input.one_in(32) {
        match input.u32() {
            number if number % 2 == 0 => number,
            _ => side.window_key(),
        }
    } else {
        region.info.key.rkey()
    };
    (key, region.info.va.wrapping_add(offset))
}

/// The scatter/gather list of a message; in hostile inputs sometimes of other lengths.
fn sges(side: &Side, length: u32, hostile: bool, input: &mut Cursor<'_>) -> Sges {
    let count = input.pick(if hostile {
        &[1, 1, 2, 3, 0, 5]
    } else {
        &[1, 1, 1, 3]
    });
    let mut left = length;
    (0..count)
        .map(|n| {
            let share = if n + 1 == count { left } else { left / 2 };
            left -= share;
            let length = if hostile && input.one_in(16) {
                input.pick(&LENGTHS)
            } else {
                share
            };
            let (lkey, addr) = place(side, length, hostile, input);
            Sge { addr, length, lkey }
        })
        .collect()
}

fn length(hostile: bool, input: &mut Cursor<'_>) -> u32 {
    // The last ones fit no region.
    let fitting = if hostile {
        LENGTHS.len()
    } else {
        LENGTHS.len() - 3
    };
    input.pick(&LENGTHS[..fitting])
}

fn post_send(stage: &mut Stage, which: usize, input: &mut Cursor<'_>) {
    let hostile = stage.hostile && input.one_in(2);
    let length = length(hostile, input);
    let (rkey, va) = place(&stage.world.sides[1 - which], length, hostile, input);
    let imm = input
        .one_in(3)
        .then(|| stage.world.sides[which].own.ledger.next_id() as u32);
    let op = match input.below(8) {
        0 | 1 => SendOp::Send { imm },
        2 if hostile => SendOp::SendInvalidate { rkey },
        2..=4 => SendOp::Write { va, rkey, imm },
        5 => SendOp::Read { va, rkey },
        6 => SendOp::CompareSwap {
            va: if hostile { va } else { va & !7 },
            rkey,
            compare: input.u64(),
            swap: 1,
        },
        _ => SendOp::FetchAdd {
            va: if hostile { va } else { va & !7 },
            rkey,
            add: 1,
        },
    };
    let length = if op.is_atomic() && !(hostile && input.one_in(8)) {
        8
    } else {
        length
    };
    let side = &stage.world.sides[which];
    let mut flags = SendFlags::from_bits_truncate(input.u8().into());
    let inline = input.one_in(6).then(|| {
        let len = input.pick(&[0, 1, 64, 256, 257]);
        vec![0x5a; len]
    });
    flags.set(
        SendFlags::INLINE,
        inline.is_some() != (hostile && input.one_in(16)),
    );
    let sges = sges(side, length, hostile, input);
    let wr = SendWr {
        wr_id: side.own.ledger.next_id(),
        op,
        flags,
        sges: sges.clone(),
        inline: inline.map(Bytes::from),
        to: send_to(stage, which, hostile, input),
    };
    let side = &mut stage.world.sides[which];
    let signaled = side.signals_all() || flags.contains(SendFlags::SIGNALED);
    match side.hca.post_send(side.own.qpn, wr) {
        Ok(()) => {
            let tagged = op.consumes_receive() && imm.is_some();
            side.own.ledger.accepted(Kind::Send { signaled, tagged });
            if op.needs_response() {
                side.permit(&sges);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The target of a request: in hostile inputs sometimes none, or of the wrong kind.
fn send_to(stage: &Stage, which: usize, hostile: bool, input: &mut Cursor<'_>) -> SendTo {
    let peer = &stage.world.sides[1 - which];
    let stray = hostile && input.one_in(8);
    let as_type = match stage.world.sides[which].qp_type() {
        _ if stray && input.one_in(2) => QpType::Ud,
        own => own,
    };
    match as_type {
        QpType::Ud => SendTo::Datagram(UdAddress {
            path: Path {
                dest: peer.address,
                traffic_class: input.u8(),
                sl: input.u8() & 7,
                port: 1,
            },
            qpn: if stray {
                Qpn::new(input.u8().into())
            } else {
                peer.own.qpn
            },
            qkey: if stray { input.u32() } else { QKEY },
        }),
        QpType::XrcSend => {
            let stray = stray.then(|| Srqn::new(input.u32() & 0xff_ffff));
            stray.or(peer.own.srqn).map_or(SendTo::Peer, SendTo::Srq)
        }
        _ => SendTo::Peer,
    }
}

fn post_recv(stage: &mut Stage, which: usize, input: &mut Cursor<'_>) {
    let hostile = stage.hostile && input.one_in(4);
    let side = &mut stage.world.sides[which];
    for _ in 0..=input.u8() % 8 {
        let length = if hostile { length(true, input) } else { 8192 };
        let sges = sges(side, length, hostile, input);
        let wr = RecvWr {
            wr_id: side.own.ledger.next_id(),
            sges: sges.clone(),
        };
        let (shared, posted) = match side.own.srq {
            Some(srq) => (true, side.hca.post_srq_recv(srq, wr)),
            None => (false, side.hca.post_recv(side.own.qpn, wr)),
        };
        match posted {
            Ok(()) => {
                side.own.ledger.accepted(Kind::Recv { shared });
                side.permit(&sges);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn pass_time(stage: &mut Stage, input: &mut Cursor<'_>) {
    let ns = input.pick(&[
        10_000,
        0,
        1_000,
        100_000,
        1_000_000,
        10_000_000,
        1_000_000_000,
        100_000_000_000,
    ]);
    stage.run_until(stage.world.now.after(Span::from_nanos(ns)));
}

fn mischief(stage: &mut Stage, input: &mut Cursor<'_>) {
    let n = 1 + input.u8() % 5;
    match input.u8() {
        160..208 => age(stage, input),
        208.. => {
            // A host that cannot send, or can again.
            let host = usize::from(n % 2);
            let host = &mut stage.world.sides[host];
            host.blocked = !host.blocked;
        }
        which if which % 3 == 0 => stage.mischief(|it| it.drop = n),
        which if which % 3 == 1 => stage.mischief(|it| it.duplicate = n),
        _ => {
            let delay_ns = input.pick(&[5_000, 500_000, 50_000_000]);
            stage.mischief(|it| (it.delay, it.delay_ns) = (n, delay_ns));
        }
    }
}

/// The connection becomes older by about a part of a lap of the PSNs, or by more.
fn age(stage: &mut Stage, input: &mut Cursor<'_>) {
    let lap = 1 << 24;
    let mark = input.pick(&[lap / 2, lap / 4, lap, lap / 2 * 3, lap / 8]);
    let messages = mark + 64 - u32::from(input.u8() % 128);
    stage.age(input.below(2), messages);
}

/// A packet that the peer never sent, and that says something that it might have.
fn forge(stage: &mut Stage, to: usize, input: &mut Cursor<'_>) {
    let side = &stage.world.sides[to];
    let opcode = input.pick(Opcode::ALL);
    let near = {
        // Requests are near what this side expects, responses near what it has outstanding.
        let source = if opcode.is_response() { 1 - to } else { to };
        let source = &stage.world.sides[source];
        source
            .hca
            .qp(source.own.qpn)
            .expect("it exists")
            .expected_psn()
    };
    let psn = match input.below(8) {
        0..=3 => near,
        4 | 5 => near.wrapping_sub(input.u8().into()),
        6 => near.wrapping_add(input.u8().into()),
        _ => Psn::new(input.u32() & 0xff_ffff),
    };
    let dest_qp = if input.one_in(32) {
        Qpn::new(input.u32() & 0xff_ffff)
    } else {
        side.own.qpn
    };
    let bits = input.u8();
    let length = input.pick(&LENGTHS);
    let (rkey, va) = place(side, length, true, input);
    let pkey = if input.one_in(32) {
        input.u16()
    } else {
        0xffff
    };
    let mut values = ExtensionValues {
        reth: Reth { va, rkey, length },
        ieth: rkey,
        ..ExtensionValues::default()
    };
    if opcode.has_aeth() {
        values.aeth = Aeth {
            syndrome: match opcode {
                Opcode::RcAcknowledgeReport if input.one_in(2) => {
                    Syndrome::Nak(NakCode::SequenceError)
                }
                _ => Syndrome::from_u8(input.u8()),
            },
            msn: input.u32() & 0xff_ffff,
        };
    }
    if opcode.has_atomic_eth() {
        values.atomic = AtomicEth {
            va,
            rkey,
            swap_or_add: input.u64(),
            compare: 0,
        };
    }
    if opcode.has_atomic_ack() {
        values.atomic_ack = input.u64();
    }
    if opcode.has_imm() {
        values.imm = input.u32();
    }
    if opcode.has_deth() {
        values.deth = Deth {
            qkey: if input.one_in(2) { QKEY } else { 0 },
            src_qp: dest_qp,
        };
    }
    if opcode.has_xrceth() {
        values.xrceth = Srqn::new(input.u32());
    }
    let mut headers = Headers::with_values(opcode, &values).to(dest_qp, psn);
    headers.pkey = pkey;
    headers.flags.set(BthFlags::SOLICITED, bits & 1 != 0);
    headers.flags.set(BthFlags::ACK_REQ, bits & 2 != 0);
    let payload_len = if opcode.has_payload() {
        input.pick(&LENGTHS[..13]) as usize
    } else {
        0
    };
    let payload = vec![input.pick(&[0x66, 0, 0xff]); payload_len.min(5000)];
    let mut bytes = vec![0; HEADERS_LEN_MAX + payload.len() + 3 + ICRC_LEN];
    // What counts here is the content; the wire checks ICRCs of its own flights.
    let ip = IpPair::V4 {
        src: [0; 4],
        dst: [0; 4],
    };
    let flow = IcrcFlow::new(ip, 0, ROCE_V2_PORT);
    let len = headers
        .emit_packet(&payload, &flow, 0, &mut bytes)
        .expect("values that fit can be written");
    let packet = Packet::new_checked(&bytes[..len]);
    let packet = packet.expect("what was written parses");
    let data = Data::Bytes(packet.payload());
    stage.world.give(to, input.u8(), packet.headers(), data);
}

/// Changes a packet on the wire and makes its ICRC right again.
fn meddle(stage: &mut Stage, input: &mut Cursor<'_>) {
    let under_way = stage.world.net().under_way().take(256).count();
    if under_way == 0 {
        return;
    }
    let nth = input.below(under_way);
    let flight = stage.world.net().under_way().nth(nth);
    let flight = flight.expect("one of them").1.clone();
    let Content::Bytes(mut bytes) = flight.content else {
        unreachable!("packets cross the wire as bytes");
    };
    match input.below(4) {
        0 => bytes.truncate(usize::from(input.u8())),
        1 => bytes.extend([0; 4]),
        _ => {
            let at = usize::from(input.u8()) % bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= input.u8();
            }
        }
    }
    if input.one_in(2) {
        let mut numbers = 0..;
        let net = stage.world.net();
        net.retain(|_, _| numbers.next() != Some(nth));
    }
    let soon = Span::from_nanos(1000);
    stage
        .world
        .forge(flight.to, flight.traffic_class, bytes, soon);
}

fn raw_packet(stage: &mut Stage, to: usize, input: &mut Cursor<'_>) {
    let len = input.below(96);
    let bytes = input.take(len).to_vec();
    let soon = Span::from_nanos(1000);
    stage.world.forge(to, input.u8(), bytes, soon);
}

fn modify(stage: &mut Stage, which: usize, input: &mut Cursor<'_>) {
    let state = QpState::from_u32(input.u8() as u32 % 8).unwrap_or(QpState::Sqd);
    let mtu = Mtu::ALL[input.below(Mtu::ALL.len())];
    let attr = QpAttr {
        access: AccessFlags::from_bits_truncate(input.u8().into()),
        pkey_index: (input.u8() / 192).into(),
        port: 1 + input.u8() % 2,
        path_mtu: mtu,
        dest_qpn: stage.world.sides[1 - which].own.qpn,
        rq_psn: Psn::new(input.u32() & 0xff_ffff),
        sq_psn: Psn::new(input.u32() & 0xff_ffff),
        max_rd_atomic: input.u8() % 18,
        max_dest_rd_atomic: input.u8() % 18,
        min_rnr_timer: input.u8() % 33,
        timeout: input.u8() % 33,
        retry_cnt: input.u8() % 9,
        rnr_retry: input.u8() % 9,
        sqd_async_notify: input.one_in(2),
        qkey: QKEY,
        path_mig_state: 0,
    };
    use QpState::{Init, Reset, Rtr, Rts};
    let qp_type = stage.world.sides[which].qp_type();
    // The attributes a step of the usual way takes, or any.
    let change = match input.below(8) {
        0 => QpModify::step(qp_type, Reset, Init, attr),
        1 => QpModify::step(qp_type, Init, Rtr, attr),
        2 => QpModify::step(qp_type, Rtr, Rts, attr),
        3 | 4 => QpModify::to(state, Attr::empty(), attr),
        5 => QpModify::to(
            QpState::Sqd,
            Attr::TIMEOUT | Attr::RETRY_CNT | Attr::MAX_QP_RD_ATOMIC,
            attr,
        ),
        _ => QpModify {
            mask: Attr::from_bits_truncate(input.u32()),
            state,
            cur_state: Rts,
            attr,
        },
    };
    let dest = stage.world.sides[1 - which].address;
    let path = change.mask.contains(Attr::AV).then_some(Path {
        dest,
        traffic_class: input.u8(),
        sl: input.u8() & 7,
        port: 1,
    });
    let side = &mut stage.world.sides[which];
    if input.one_in(32) {
        let wrong = if path.is_some() {
            None
        } else {
            Some(Path::to(dest))
        };
        assert!(!side.modify(&change, wrong), "without its address");
    }
    side.modify(&change, path);
}

fn write_register(side: &mut Side, input: &mut Cursor<'_>) {
    let mut bytes = sensible_bytes(input);
    let id = roce_accl::ROCE_ACCL.id();
    if let Err(error) = side.hca.access_register(id, Method::Write, &mut bytes) {
        assert!(!error.to_string().is_empty());
    }
}

fn impair(stage: &mut Stage, which: usize, input: &mut Cursor<'_>) {
    let direction = input.pick(&[Direction::Egress, Direction::Ingress]);
    let mut chance = |n: u8| f64::from(input.u8() % n) / 100.0;
    let mut impairment = Impairment {
        loss: chance(20),
        duplicate: chance(20),
        corrupt: chance(10),
        ecn_mark: chance(101),
        reorder: chance(20),
        ..Impairment::default()
    };
    impairment.burst = input.one_in(4).then(|| BurstLoss {
        enter: 0.01,
        mean_length: f64::from(input.u8()),
    });
    impairment.bottleneck = input.one_in(4).then(|| Bottleneck {
        rate: Rate::from_bps(input.pick(&[0, 1_000, 1_000_000, 10_000_000_000])),
        limit_bytes: input.pick(&[0, 10_000, u32::MAX]),
        red: CongestionPoint::new(0, input.u32(), u32::from(input.u8())).ok(),
    });
    impairment.delay = Span::from_nanos(input.pick(&[0, 1_000, 1_000_000]));
    impairment.jitter = Span::from_nanos(input.pick(&[0, 1_000, 1_000_000]));
    impairment.reorder_by = Span::from_nanos(input.pick(&[0, 10_000, 10_000_000]));
    if input.one_in(4) {
        let (from, length) = (input.u32(), input.u32());
        impairment.blackouts.push(Blackout {
            from: stage.world.now.after(Span::from_nanos(from.into())),
            length: Span::from_nanos(length.into()),
        });
        impairment.carrier = length % 2 == 1;
    }
    if input.one_in(4) {
        impairment = Impairment::default();
    }
    let is_valid = impairment.check().is_ok();
    let hca = &stage.world.sides[which].hca;
    let link = hca.link_state(input.pick(&[1, 2]));
    let state = link.unwrap_or_else(|| hca.state());
    let set = state.set_impairment(direction, impairment);
    assert_eq!(set.is_ok(), is_valid);
}

fn change_keys(side: &mut Side, input: &mut Cursor<'_>) {
    // The region stays in the books: its old key must open nothing any more.
    let region = &side.own.regions[input.below(side.own.regions.len())];
    let key = region.info.key;
    let existed = side.hca.mrs().any(|info| info.key == key);
    match side.hca.dereg_mr(key) {
        Err(VerbsError::Busy { .. }) => assert!(existed && side.hca.mws().any(|mw| mw.bound)),
        result => assert_eq!(result.is_ok(), existed),
    }
}

fn reconnect(stage: &mut Stage, input: &mut Cursor<'_>) {
    if input.one_in(2) {
        let which = input.below(2);
        stage.world.sides[which].replace_qp();
    }
    stage.connect(input);
}

/// Binds or invalidates the side's memory window, as the bits of `dice` say.
fn local_operation(side: &mut Side, dice: u32) {
    let rkey = side.window_key();
    let region = &side.own.regions[dice as usize % side.own.regions.len()].info;
    let op = if dice & 8 == 0 {
        SendOp::LocalInvalidate { rkey }
    } else {
        SendOp::BindMw(MwBind {
            rkey: rkey & !0xff | dice >> 24,
            lkey: region.key.lkey(),
            va: region.va + u64::from(dice >> 5 & 0x1f),
            length: u64::from(dice >> 10 & 0x3fff),
            access: AccessFlags::REMOTE,
            zero_based: dice & 16 == 0,
        })
    };
    let wr = SendWr {
        wr_id: side.own.ledger.next_id(),
        op,
        flags: SendFlags::SIGNALED,
        sges: Sges::new(),
        inline: None,
        to: SendTo::Peer,
    };
    match side.hca.post_send(side.own.qpn, wr) {
        Ok(()) => side.own.ledger.accepted(Kind::Send {
            signaled: true,
            tagged: false,
        }),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn other_verbs(side: &mut Side, input: &mut Cursor<'_>) {
    let [send_cq, recv_cq] = side.cqs();
    let handle = input.u32();
    // An XRC_RECV queue pair is tied to neither.
    let in_use = side.qp_type() != QpType::XrcRecv;
    match input.below(8) {
        0 => side
            .hca
            .req_notify_cq(recv_cq, input.pick(&[Notify::Any, Notify::Solicited])),
        1 => side.hca.req_notify_cq(send_cq, Notify::Any),
        2 => side.own.srq.map_or(Ok(()), |srq| {
            let limit = Some(input.u8().into());
            let change = SrqModify {
                limit,
                max_wr: None,
            };
            side.hca.modify_srq(srq, &change)
        }),
        3 if in_use => {
            assert!(side.hca.destroy_cq(send_cq).is_err(), "it is in use");
            side.hca.destroy_cq(CqId(handle.max(2)))
        }
        4 if in_use => side.own.srq.map_or(Ok(()), |srq| {
            assert!(side.hca.destroy_srq(srq).is_err(), "it is in use");
            side.hca.destroy_srq(SrqId(handle.max(1)))
        }),
        3..=5 => {
            let pd = side.own.regions[0].info.pd;
            side.hca.dealloc_pd(pd)
        }
        6 => side
            .hca
            .create_cq(handle)
            .and_then(|cq| side.hca.destroy_cq(cq)),
        _ if handle.is_multiple_of(2) => {
            local_operation(side, handle >> 1);
            Ok(())
        }
        _ => {
            let wr = SendWr {
                wr_id: 0,
                op: SendOp::Send { imm: None },
                flags: SendFlags::empty(),
                sges: Sges::new(),
                inline: None,
                to: SendTo::Peer,
            };
            side.hca.post_send(Qpn::new(handle & 0xffff), wr)
        }
    }
    .unwrap_or_else(|error| assert!(!error.to_string().is_empty()));
}
