//! What an input can do to the world.

use ferroce_dcqcn::CongestionPoint;
use ferroce_hca::impair::{Blackout, Bottleneck, BurstLoss};
use ferroce_hca::{
    AccessFlags, Attr, CqId, Direction, Impairment, Method, Mtu, MwBind, Notify, Path, QpAttr,
    QpModify, QpState, QpType, Rate, RecvWr, SendFlags, SendOp, SendTo, SendWr, Sge, Sges, Span,
    SrqId, SrqModify, UdAddress, VerbsError,
};
use ferroce_prm::roce_accl;
use ferroce_wire::{
    Aeth, AtomicEth, BthFlags, Deth, ExtensionValues, HEADERS_LEN_MAX, Headers, ICRC_LEN, IcrcFlow,
    IpPair, Opcode, Packet, Psn, Qpn, ROCE_V2_PORT, Reth, Srqn, Syndrome,
};

use super::ledger::Kind;
use super::side::{QKEY, REGION_BYTES, Side};
use super::world::{Flight, World};
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
pub(super) fn perform(world: &mut World, input: &mut Cursor<'_>) {
    let which = input.below(2);
    if world.has_failed() && input.one_in(3) {
        // Most of what there is to find needs queue pairs that work.
        world.connect(input);
        return;
    }
    // Half of the inputs leave it at what a bad link and well-behaved programs do.
    match input.below(if world.hostile { 24 } else { 13 }) {
        0..=4 => post_send(world, which, input),
        5..=7 => post_recv(world, which, input),
        8..=10 => pass_time(world, input),
        11 => mischief(world, input),
        12 => impair(world, which, input),
        13 | 14 => forge(world, which, input),
        15 => meddle(world, input),
        16 => raw_packet(world, which, input),
        17 => modify(world, which, input),
        18 => write_register(&mut world.sides[which], input),
        19 | 20 if input.one_in(2) => impair(world, which, input),
        19 | 20 => world.deaf[which] = input.one_in(4),
        21 => change_keys(&mut world.sides[which], input),
        22 => reconnect(world, input),
        _ => other_verbs(&mut world.sides[which], input),
    }
}

/// A key and address in one of a side's regions, most of the time good for `length` bytes.
fn place(side: &Side, length: u32, hostile: bool, input: &mut Cursor<'_>) -> (u32, u64) {
    let choices: &[usize] = if hostile { &[0, 0, 1, 2, 3, 4] } else { &[0] };
    let region = &side.regions[input.pick(choices)];
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

fn post_send(world: &mut World, which: usize, input: &mut Cursor<'_>) {
    let hostile = world.hostile && input.one_in(2);
    let length = length(hostile, input);
    let (rkey, va) = place(&world.sides[1 - which], length, hostile, input);
    let imm = input
        .one_in(3)
        .then(|| world.sides[which].ledger.next_id() as u32);
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
    let side = &world.sides[which];
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
        wr_id: side.ledger.next_id(),
        op,
        flags,
        sges: sges.clone(),
        inline,
        to: send_to(world, which, hostile, input),
    };
    let side = &mut world.sides[which];
    let signaled = side.signals_all() || flags.contains(SendFlags::SIGNALED);
    match side.hca.post_send(side.qpn, wr) {
        Ok(()) => {
            let tagged = op.consumes_receive() && imm.is_some();
            side.ledger.accepted(Kind::Send { signaled, tagged });
            if op.needs_response() {
                side.permit(&sges);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Whom a request is for: in hostile inputs sometimes nobody, or of the wrong kind.
fn send_to(world: &World, which: usize, hostile: bool, input: &mut Cursor<'_>) -> SendTo {
    let peer = &world.sides[1 - which];
    let stray = hostile && input.one_in(8);
    let as_type = match world.sides[which].qp_type() {
        _ if stray && input.one_in(2) => QpType::Ud,
        own => own,
    };
    match as_type {
        QpType::Ud => SendTo::Datagram(UdAddress {
            path: Path {
                dest: peer.address,
                traffic_class: input.u8(),
            },
            qpn: if stray {
                Qpn::new(input.u8().into())
            } else {
                peer.qpn
            },
            qkey: if stray { input.u32() } else { QKEY },
        }),
        QpType::XrcSend => {
            let stray = stray.then(|| Srqn::new(input.u32() & 0xff_ffff));
            stray.or(peer.srqn).map_or(SendTo::Peer, SendTo::Srq)
        }
        _ => SendTo::Peer,
    }
}

fn post_recv(world: &mut World, which: usize, input: &mut Cursor<'_>) {
    let hostile = world.hostile && input.one_in(4);
    let side = &mut world.sides[which];
    for _ in 0..=input.u8() % 8 {
        let length = if hostile { length(true, input) } else { 8192 };
        let sges = sges(side, length, hostile, input);
        let wr = RecvWr {
            wr_id: side.ledger.next_id(),
            sges: sges.clone(),
        };
        let (shared, posted) = match side.srq {
            Some(srq) => (true, side.hca.post_srq_recv(srq, wr)),
            None => (false, side.hca.post_recv(side.qpn, wr)),
        };
        match posted {
            Ok(()) => {
                side.ledger.accepted(Kind::Recv { shared });
                side.permit(&sges);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn pass_time(world: &mut World, input: &mut Cursor<'_>) {
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
    world.run_until(world.now.after(Span::from_nanos(ns)));
}

fn mischief(world: &mut World, input: &mut Cursor<'_>) {
    let n = 1 + input.u8() % 5;
    match input.u8() {
        160..208 => age(world, input),
        208.. => {
            // A host that cannot send, or can again.
            let host = usize::from(n % 2);
            world.blocked[host] = !world.blocked[host];
        }
        which if which % 3 == 0 => world.mischief.drop = n,
        which if which % 3 == 1 => world.mischief.duplicate = n,
        _ => {
            world.mischief.delay = n;
            world.mischief.delay_ns = input.pick(&[5_000, 500_000, 50_000_000]);
        }
    }
}

/// The connection becomes older by about a part of a lap of the PSNs, or by more.
fn age(world: &mut World, input: &mut Cursor<'_>) {
    let lap = 1 << 24;
    let mark = input.pick(&[lap / 2, lap / 4, lap, lap / 2 * 3, lap / 8]);
    let messages = mark + 64 - u32::from(input.u8() % 128);
    world.age(input.below(2), messages);
}

/// A packet that the peer never sent, and that says something that it might have.
fn forge(world: &mut World, to: usize, input: &mut Cursor<'_>) {
    let side = &world.sides[to];
    let opcode = input.pick(Opcode::ALL);
    let near = {
        // Requests are near what this side expects, responses near what it has outstanding.
        let source = if opcode.is_response() { 1 - to } else { to };
        let source = &world.sides[source];
        source.hca.qp(source.qpn).expect("it exists").expected_psn()
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
        side.qpn
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
            syndrome: Syndrome::from_u8(input.u8()),
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
    let payload = vec![0x66; payload_len.min(5000)];
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
    world.deliver_packet(to, input.u8(), &packet.expect("what was written parses"));
}

/// Changes a packet on the wire and makes its ICRC right again.
fn meddle(world: &mut World, input: &mut Cursor<'_>) {
    if world.flights.is_empty() {
        return;
    }
    let nth = input.below(world.flights.len().min(256));
    let Some((&key, flight)) = world.flights.iter().nth(nth) else {
        return;
    };
    let mut flight = flight.clone();
    match input.below(4) {
        0 => flight.bytes.truncate(usize::from(input.u8())),
        1 => flight.bytes.extend([0; 4]),
        _ => {
            let at = usize::from(input.u8()) % flight.bytes.len().max(1);
            if let Some(byte) = flight.bytes.get_mut(at) {
                *byte ^= input.u8();
            }
        }
    }
    world.seal(flight.to, &mut flight.bytes);
    if input.one_in(2) {
        world.flights.remove(&key);
    }
    world.launch(world.now.after(Span::from_nanos(1000)), flight);
}

fn raw_packet(world: &mut World, to: usize, input: &mut Cursor<'_>) {
    let len = input.below(96);
    let mut bytes = input.take(len).to_vec();
    world.seal(to, &mut bytes);
    let flight = Flight {
        to,
        traffic_class: input.u8(),
        bytes,
    };
    world.launch(world.now.after(Span::from_nanos(1000)), flight);
}

fn modify(world: &mut World, which: usize, input: &mut Cursor<'_>) {
    let state = QpState::from_u32(input.u8() as u32 % 8).unwrap_or(QpState::Sqd);
    let mtu = Mtu::ALL[input.below(Mtu::ALL.len())];
    let attr = QpAttr {
        access: AccessFlags::from_bits_truncate(input.u8().into()),
        pkey_index: (input.u8() / 192).into(),
        port: 1 + input.u8() % 2,
        path_mtu: mtu,
        dest_qpn: world.sides[1 - which].qpn,
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
    let qp_type = world.sides[which].qp_type();
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
    let dest = world.sides[1 - which].address;
    let path = change.mask.contains(Attr::AV).then_some(Path {
        dest,
        traffic_class: input.u8(),
    });
    let side = &mut world.sides[which];
    if input.one_in(32) {
        let wrong = if path.is_some() {
            None
        } else {
            Some(Path {
                dest,
                traffic_class: 0,
            })
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

fn impair(world: &mut World, which: usize, input: &mut Cursor<'_>) {
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
    impairment.delay_ns = input.pick(&[0, 1_000, 1_000_000]);
    impairment.jitter_ns = input.pick(&[0, 1_000, 1_000_000]);
    impairment.reorder_ns = input.pick(&[0, 10_000, 10_000_000]);
    if input.one_in(4) {
        impairment.blackouts.push(Blackout {
            from: world.now.after(Span::from_nanos(input.u32().into())),
            length_ns: input.u32().into(),
        });
    }
    if input.one_in(4) {
        impairment = Impairment::default();
    }
    let is_valid = impairment.check().is_ok();
    let hca = &mut world.sides[which].hca;
    assert_eq!(hca.set_impairment(direction, impairment).is_ok(), is_valid);
}

fn change_keys(side: &mut Side, input: &mut Cursor<'_>) {
    // The region stays in the books: its old key must open nothing any more.
    let region = &side.regions[input.below(side.regions.len())];
    let key = region.info.key;
    let existed = side.hca.mrs().any(|info| info.key == key);
    match side.hca.dereg_mr(key) {
        Err(VerbsError::Busy { .. }) => assert!(existed && side.hca.mws().any(|mw| mw.bound)),
        result => assert_eq!(result.is_ok(), existed),
    }
}

fn reconnect(world: &mut World, input: &mut Cursor<'_>) {
    if input.one_in(2) {
        let which = input.below(2);
        world.sides[which].replace_qp();
    }
    world.connect(input);
}

/// Binds or invalidates the side's memory window, as the bits of `dice` say.
fn local_operation(side: &mut Side, dice: u32) {
    let rkey = side.window_key();
    let region = &side.regions[dice as usize % side.regions.len()].info;
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
        wr_id: side.ledger.next_id(),
        op,
        flags: SendFlags::SIGNALED,
        sges: Sges::new(),
        inline: None,
        to: SendTo::Peer,
    };
    match side.hca.post_send(side.qpn, wr) {
        Ok(()) => side.ledger.accepted(Kind::Send {
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
        2 => side.srq.map_or(Ok(()), |srq| {
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
        4 if in_use => side.srq.map_or(Ok(()), |srq| {
            assert!(side.hca.destroy_srq(srq).is_err(), "it is in use");
            side.hca.destroy_srq(SrqId(handle.max(1)))
        }),
        3..=5 => {
            let pd = side.regions[0].info.pd;
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
