//! Packets of arbitrary bytes.

use ferroce_wire::{
    Aeth, AtomicEth, BthFlags, DcConnect, Dceth, Deth, ExtensionValues, HEADERS_LEN_MAX, Headers,
    ICRC_LEN, IcrcFlow, IcrcVerifier, IdPolicy, IpPair, Opcode, Packet, Psn, Qpn, ROCE_V2_PORT,
    Reth, Srqn, Syndrome, Verdict, cnp,
};

use crate::Cursor;

/// Offset in the BTH of the byte that the ICRC does not cover.
const CONGESTION: usize = 4;

/// Parsing, writing and the ICRC of single packets.
pub fn packet(data: &[u8]) {
    let mut input = Cursor::new(data);
    let flow = flow(&mut input);
    let ip_id = input.u16();
    if input.one_in(2) {
        emit(&mut input, &flow, ip_id);
    } else {
        parse(input.rest(), &flow, ip_id);
    }
}

fn flow(input: &mut Cursor<'_>) -> IcrcFlow {
    let ip = if input.one_in(2) {
        let (src, dst) = ([input.u8(); 16], [input.u8(); 16]);
        IpPair::V6 { src, dst }
    } else {
        let (src, dst) = ([127, 0, 0, input.u8()], [127, 0, 0, input.u8()]);
        IpPair::V4 { src, dst }
    };
    IcrcFlow::new(ip, 0xc000 | input.u16(), ROCE_V2_PORT)
}

/// Arbitrary bytes from the link.
fn parse(bytes: &[u8], flow: &IcrcFlow, ip_id: u16) {
    let any_id = flow.verify(ip_id, bytes);
    let mut verifier = IcrcVerifier::new(IdPolicy::AnyId);
    for memory in ["empty", "warm"] {
        assert_eq!(verifier.verify(flow, ip_id, bytes), any_id, "{memory}");
    }
    let exact = IcrcVerifier::new(IdPolicy::Exact).verify(flow, ip_id, bytes);
    assert!(any_id.is_ok() || !exact.is_ok());

    let packet = match Packet::new_checked(bytes) {
        Ok(packet) => packet,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert_eq!(packet.bytes(), bytes);
    let headers = packet.headers();
    let header_len = headers.header_len();
    assert!(header_len <= HEADERS_LEN_MAX);
    assert_eq!(
        header_len + packet.payload().len() + usize::from(packet.pad()) + ICRC_LEN,
        bytes.len()
    );
    if let Verdict::Ok {
        ip_id: id,
        dont_fragment: true,
    } = any_id
    {
        let covered = &bytes[..bytes.len() - ICRC_LEN];
        assert_eq!(
            flow.compute(id, covered),
            packet.icrc(),
            "explained by {id:#x}"
        );
    }
    let is_notification = cnp::recognise(&packet).is_some();
    assert!(!is_notification || headers.opcode() == Opcode::Cnp);
    round_trip(headers, packet.payload(), flow, ip_id);
}

/// Header values of every kind.
fn emit(input: &mut Cursor<'_>, flow: &IcrcFlow, ip_id: u16) {
    let opcode = input.pick(Opcode::ALL);
    let bits = input.u8();
    let pkey = input.u16();
    let dest_qp = Qpn::new(input.u32() & 0xff_ffff);
    let psn = Psn::new(input.u32() & 0xff_ffff);
    let mut values = ExtensionValues::default();
    if opcode.has_reth() {
        values.reth = Reth {
            va: input.u64(),
            rkey: input.u32(),
            length: input.u32(),
        };
    }
    if opcode.has_aeth() {
        values.aeth = Aeth {
            syndrome: Syndrome::from_u8(input.u8()),
            msn: input.u32() & 0xff_ffff,
        };
    }
    if opcode.has_atomic_eth() {
        values.atomic = AtomicEth {
            va: input.u64(),
            rkey: input.u32(),
            swap_or_add: input.u64(),
            compare: input.u64(),
        };
    }
    if opcode.has_atomic_ack() {
        values.atomic_ack = input.u64();
    }
    if opcode.has_imm() {
        values.imm = input.u32();
    }
    if opcode.has_ieth() {
        values.ieth = input.u32();
    }
    if opcode.has_deth() {
        values.deth = Deth {
            qkey: input.u32(),
            src_qp: Qpn::new(input.u32() & 0xff_ffff),
        };
    }
    if opcode.has_xrceth() {
        values.xrceth = Srqn::new(input.u32());
    }
    if opcode.has_dceth() {
        values.dceth = Dceth {
            connection: input.u32() as u8,
            initiator: Qpn::new(input.u32()),
        };
        values.dc_connect = DcConnect {
            key: input.u32().into(),
            incarnation: input.u32(),
        };
    }
    let mut headers = Headers::with_values(opcode, &values).to(dest_qp, psn);
    headers.pkey = pkey;
    for (bit, flag) in [
        (1, BthFlags::SOLICITED),
        (2, BthFlags::MIG_REQ),
        (4, BthFlags::FECN),
        (8, BthFlags::BECN),
        (16, BthFlags::ACK_REQ),
    ] {
        headers.flags.set(flag, bits & bit != 0);
    }
    refuses_what_does_not_fit(headers, input);
    let payload = if opcode.has_payload() {
        input.rest()
    } else {
        &[]
    };
    round_trip(&headers, payload, flow, ip_id);
}

/// Too little room, or payload where there is none.
fn refuses_what_does_not_fit(headers: Headers, input: &mut Cursor<'_>) {
    let mut room = [0xa5; HEADERS_LEN_MAX];
    let opcode = headers.opcode();
    let (len, payload_len) = if opcode.has_payload() || input.one_in(2) {
        (input.below(headers.header_len()), 0)
    } else {
        (HEADERS_LEN_MAX, 1 + input.below(5000))
    };
    let error = headers.emit(payload_len, &mut room[..len]).unwrap_err();
    assert!(!error.to_string().is_empty());
    assert_eq!(room, [0xa5; HEADERS_LEN_MAX], "touched on an error");
}

fn round_trip(headers: &Headers, payload: &[u8], flow: &IcrcFlow, ip_id: u16) {
    let mut buffer = vec![0; HEADERS_LEN_MAX + payload.len() + 3 + ICRC_LEN];
    let len = headers.emit_packet(payload, flow, ip_id, &mut buffer);
    let len = len.expect("values that fit can be written");
    buffer.truncate(len);
    assert!(flow.verify(ip_id, &buffer).is_ok());
    let packet = Packet::new_checked(&buffer).expect("what was written parses");
    assert_eq!(packet.payload(), payload);
    assert_eq!(packet.headers(), headers);

    let pad = packet.pad();
    let (head, tail) = buffer[..len - ICRC_LEN - usize::from(pad)].split_at(headers.header_len());
    let pieces = [&tail[..tail.len() / 2], &tail[tail.len() / 2..]];
    assert_eq!(
        flow.compute_gathered(ip_id, head, pieces, pad),
        packet.icrc()
    );
    flipped_bits_show(&mut buffer, flow, ip_id);
}

/// No single flipped bit goes unnoticed, but in the byte that switches may change.
fn flipped_bits_show(buffer: &mut [u8], flow: &IcrcFlow, ip_id: u16) {
    let bits = 8 * buffer.len();
    let mut verifier = IcrcVerifier::new(IdPolicy::Exact);
    for bit in (0..bits).step_by((bits / 64).max(1)) {
        let (at, mask) = (bit / 8, 1 << (bit % 8));
        buffer[at] ^= mask;
        let is_ok = verifier.verify(flow, ip_id, buffer).is_ok();
        assert_eq!(is_ok, at == CONGESTION, "bit {bit}");
        buffer[at] ^= mask;
    }
}
