//! What headers of each opcode carry.

use super::*;
use crate::lengths::HEADERS_LEN_MAX;
use crate::testing::{flow_v4, sample};

fn emitted(headers: &Headers) -> Vec<u8> {
    let mut buffer = [0xee; HEADERS_LEN_MAX];
    let len = headers.emit(0, &mut buffer).unwrap();
    assert!(
        buffer[len..].iter().all(|&byte| byte == 0xee),
        "wrote behind the headers"
    );
    buffer[..len].to_vec()
}

#[test]
fn golden_bth_bits() {
    let mut zero = sample(Opcode::RcSendFirst).to(Qpn::new(0), Psn::ZERO);
    (zero.pkey, zero.flags) = (0, BthFlags::empty());
    let expect = |headers: Headers, bytes: [u8; BTH_LEN]| {
        assert_eq!(headers.bth(0), bytes);
        let Headers {
            opcode, extensions, ..
        } = headers;
        assert_eq!(Headers::parsed(opcode, extensions, &bytes), headers);
    };
    let with = |flags| Headers { flags, ..zero };
    expect(zero, [0; 12]);
    expect(
        with(BthFlags::SOLICITED),
        [0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    );
    expect(
        with(BthFlags::MIG_REQ),
        [0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    );
    expect(
        with(BthFlags::FECN),
        [0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0],
    );
    expect(
        with(BthFlags::BECN),
        [0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0],
    );
    expect(
        with(BthFlags::ACK_REQ),
        [0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0],
    );
    let pkey = 0x1234;
    expect(
        Headers { pkey, ..zero },
        [0, 0, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0],
    );
    let number = 0x12_3456;
    expect(
        zero.to(Qpn::new(number), Psn::ZERO),
        [0, 0, 0, 0, 0, 0x12, 0x34, 0x56, 0, 0, 0, 0],
    );
    expect(
        zero.to(Qpn::new(0), Psn::new(number)),
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56],
    );
    assert_eq!(zero.bth(3), [0, 0x30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let datagram = sample(Opcode::UdSendOnlyImm);
    assert_eq!(datagram.bth(0)[0], 0x65);
}

#[test]
fn golden_extensions() {
    let bth = [0x40, 0x80, 0x01, 0, 0x12, 0x34, 0x56, 0, 0xab, 0xcd, 0xef];
    let reth = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
    let aeth = [0x1f, 0x11, 0x22, 0x33];
    let imm = [0x61, 0x62, 0x63, 0x64];
    let deth = [0x81, 0x82, 0x83, 0x84, 0, 0x91, 0x92, 0x93];
    let dceth = [0xb0, 0xb1, 0xb2, 0xb3];
    #[rustfmt::skip]
    let connect = [
        0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xd1, 0xd2, 0xd3, 0xd4,
    ];
    #[rustfmt::skip]
    let atomic = [
        0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x2b, 0x2c,
        0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38,
        0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,
    ];
    let original = [0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58];
    for (opcode, extensions) in [
        (Opcode::RcSendOnly, vec![]),
        (Opcode::RcWriteOnly, vec![&reth[..]]),
        (Opcode::RcWriteOnlyImm, vec![&reth, &imm]),
        (Opcode::RcReadRequest, vec![&reth]),
        (Opcode::RcAcknowledge, vec![&aeth]),
        (Opcode::RcAtomicAcknowledge, vec![&aeth, &original]),
        (Opcode::RcFetchAdd, vec![&atomic]),
        (
            Opcode::RcSendLastInvalidate,
            vec![&[0x71, 0x72, 0x73, 0x74]],
        ),
        (Opcode::UcSendLastImm, vec![&imm]),
        (Opcode::UdSendOnlyImm, vec![&deth, &imm]),
        (Opcode::Cnp, vec![&[0; 16]]),
        (Opcode::DcSendOnly, vec![&dceth]),
        (Opcode::DcWriteOnlyImm, vec![&dceth, &reth, &imm]),
        (Opcode::DcAcknowledge, vec![&aeth]),
        (Opcode::DcConnect, vec![&dceth, &connect]),
        (Opcode::DcDisconnect, vec![&dceth]),
    ] {
        let mut expected = vec![opcode.as_u8()];
        expected.extend_from_slice(&bth);
        expected.extend(extensions.concat());
        assert_eq!(emitted(&sample(opcode)), expected, "{opcode}");
    }
}

#[test]
fn every_opcode_emits_its_length_and_refuses_shorter_buffers() {
    for &opcode in Opcode::ALL {
        let headers = sample(opcode);
        assert_eq!(emitted(&headers).len(), opcode.header_len(), "{opcode}");
        for len in 0..opcode.header_len() {
            let mut buffer = vec![0xee; len];
            let expected = opcode.header_len();
            let error = EmitError::BufferTooShort { expected, got: len };
            assert_eq!(headers.emit(0, &mut buffer), Err(error));
            assert!(
                buffer.iter().all(|&byte| byte == 0xee),
                "wrote in spite of the error"
            );
        }
    }
}

/// A value of each kind, told apart from all others, is there if and only if the opcode carries it.
#[test]
fn extensions_are_those_of_the_opcode() {
    for &opcode in Opcode::ALL {
        let headers = sample(opcode);
        let present = [
            headers.reth().is_some(),
            headers.aeth().is_some(),
            headers.atomic().is_some(),
            headers.atomic_ack().is_some(),
            headers.imm().is_some(),
            headers.ieth().is_some(),
            headers.deth().is_some(),
            headers.xrceth().is_some(),
            headers.dceth().is_some(),
            headers.dc_connect().is_some(),
        ];
        let carried = [
            opcode.has_reth(),
            opcode.has_aeth(),
            opcode.has_atomic_eth(),
            opcode.has_atomic_ack(),
            opcode.has_imm(),
            opcode.has_ieth(),
            opcode.has_deth(),
            opcode.has_xrceth(),
            opcode.has_dceth(),
            opcode == Opcode::DcConnect,
        ];
        assert_eq!(present, carried, "{opcode}");
        let mut changed = headers;
        assert_eq!(changed.reth_mut().copied(), headers.reth(), "{opcode}");
        assert_eq!(changed.aeth_mut().copied(), headers.aeth(), "{opcode}");
        assert_eq!(changed.atomic_mut().copied(), headers.atomic(), "{opcode}");
    }
}

/// What the constructors make is the opcode they are about, with its extensions, and together they
/// make every opcode.
#[test]
fn constructors_make_every_opcode() {
    let mut made = vec![crate::cnp::headers(Qpn::GSI, PKEY_DEFAULT)];
    let of = |opcode| sample(opcode);
    let (reth, imm, rkey) = (of(Opcode::RcWriteOnlyImm).reth(), 0x6162_6364, 0x7172_7374);
    let reth = reth.unwrap();
    let atomic = of(Opcode::RcFetchAdd).atomic().unwrap();
    let aeth = of(Opcode::RcAcknowledge).aeth().unwrap();
    let original = of(Opcode::RcAtomicAcknowledge).atomic_ack().unwrap();
    let deth = of(Opcode::UdSendOnly).deth().unwrap();
    let srqn = of(Opcode::XrcSendOnly).xrceth();
    let places = [Place::Only, Place::First, Place::Middle, Place::Last];
    for connection in [Connection::Rc, Connection::Uc, Connection::reliable(srqn)] {
        for (place, imm) in places
            .iter()
            .flat_map(|&place| [(place, None), (place, Some(imm))])
        {
            made.push(Headers::send(connection, place, imm));
            made.push(Headers::write(connection, place, reth, imm));
        }
    }
    for srqn in [None, srqn] {
        made.extend(places.map(|place| Headers::send_invalidate(srqn, place, rkey)));
        made.push(Headers::read(srqn, reth));
        made.push(Headers::compare_swap(srqn, atomic));
        made.push(Headers::fetch_add(srqn, atomic));
    }
    let responses = places.map(|place| Headers::read_response(place, aeth));
    let acknowledges = [
        Headers::acknowledge(aeth),
        Headers::atomic_acknowledge(aeth, original),
    ];
    for response in responses.into_iter().chain(acknowledges) {
        made.extend([response, response.as_xrc_response()]);
    }
    let dceth = of(Opcode::DcSendOnly).dceth().unwrap();
    let connect = of(Opcode::DcConnect).dc_connect().unwrap();
    made.extend(made.clone().iter().map(|packet| packet.as_dc(dceth)));
    made.push(Headers::acknowledge_report(aeth));
    made.push(Headers::connect(dceth, connect));
    made.push(Headers::disconnect(dceth));
    made.push(Headers::datagram(deth, None));
    made.push(Headers::datagram(deth, Some(imm)));
    for headers in &made {
        let opcode = headers.opcode();
        assert_eq!(headers.extensions, of(opcode).extensions, "{opcode}");
    }
    for &opcode in Opcode::ALL {
        assert!(made.iter().any(|it| it.opcode() == opcode), "{opcode}");
    }
    let send = Headers::send(Connection::Uc, Place::Last, None);
    assert_eq!(send.as_xrc_response(), send, "not a response");
    assert_eq!(send.as_dc(dceth), send, "not of RC");
}

#[test]
fn pad_completes_to_four() {
    for len in 0..20 {
        let pad = pad_len(len);
        assert!(pad < 4 && (len + usize::from(pad)).is_multiple_of(4));
    }
}

#[test]
fn whole_packets() {
    let headers = sample(Opcode::RcSendOnly);
    let mut buffer = [0xee; 64];
    let len = headers
        .emit_packet(b"hello", &flow_v4(), 0, &mut buffer)
        .unwrap();
    assert_eq!(len, 24);
    assert_eq!(buffer[1], 0x70);
    assert_eq!(buffer[12..20], *b"hello\0\0\0");
    assert_eq!(
        buffer[20..24],
        flow_v4().compute(0, &buffer[..20]).to_le_bytes()
    );
    assert!(buffer[24..].iter().all(|&byte| byte == 0xee));

    let error = EmitError::BufferTooShort {
        expected: 24,
        got: 23,
    };
    assert_eq!(
        headers.emit_packet(b"hello", &flow_v4(), 0, &mut buffer[..23]),
        Err(error)
    );
    let opcode = Opcode::RcAcknowledge;
    let error = EmitError::UnexpectedPayload { opcode, got: 1 };
    assert_eq!(
        sample(opcode).emit_packet(b"x", &flow_v4(), 0, &mut buffer),
        Err(error)
    );
}
