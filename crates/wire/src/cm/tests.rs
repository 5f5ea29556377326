//! Golden bytes and round trips.

use core::net::{IpAddr, SocketAddr};

use proptest::prelude::*;

use super::*;

/// A REQ with every field distinct.
fn req() -> Req {
    Req {
        local_comm_id: 0x0112_1314,
        vendor_id: Bits::saturating(0x81_8283),
        vendor_options: 0x9192_9394,
        service_id: ServiceId::new(PortSpace::Tcp, 7174),
        ca_guid: 0x2122_2324_2526_2728,
        qkey: 0x3132_3334,
        qpn: Qpn::new(0x41_4243),
        responder_resources: 0x51,
        initiator_depth: 0x52,
        remote_response_timeout: Bits::saturating(20),
        transport: Bits::saturating(3),
        flow_control: true,
        starting_psn: Psn::new(0x61_6263),
        local_response_timeout: Bits::saturating(21),
        retry_count: Bits::saturating(5),
        pkey: 0xffff,
        mtu: Bits::saturating(5),
        rnr_retry_count: Bits::saturating(6),
        max_cm_retries: Bits::saturating(15),
        srq: true,
        extended_transport: Bits::saturating(1),
        local_lid: 0xffff,
        remote_lid: 0xfffe,
        local_gid: Gid::from(IpAddr::from([127, 13, 0, 1])),
        remote_gid: Gid::from(IpAddr::from([127, 13, 0, 2])),
        flow_label: Bits::saturating(0x9_abcd),
        rate: Bits::saturating(18),
        traffic_class: 0x68,
        hop_limit: 64,
        service_level: Bits::saturating(3),
        subnet_local: true,
        ack_timeout: Bits::saturating(19),
        private: Private::new(b"hello").unwrap(),
    }
}

fn bytes_of(message: impl Into<Message>) -> [u8; MAD_LEN] {
    let message = message.into();
    let mad = Mad { tid: 7, message };
    let bytes = mad.emit();
    assert_eq!(Mad::parse(&bytes), Ok(mad));
    bytes
}

#[test]
fn golden_header() {
    let mad = Mad {
        tid: 0x0102_0304_0506_0708,
        message: Drep::default().into(),
    };
    let mut expected = [0; MAD_LEN];
    expected[..4].copy_from_slice(&[1, 7, 2, 3]);
    expected[8..16].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    expected[17] = 0x16;
    assert_eq!(mad.emit(), expected);
}

#[test]
fn golden_req() {
    let bytes = bytes_of(req());
    let (body, mut expected) = (&bytes[20..], [0; BODY_LEN]);
    #[rustfmt::skip]
    let fixed = [
        0x91, 0x92, 0x93, 0x94,
        0x01, 0x12, 0x13, 0x14, 0, 0x81, 0x82, 0x83,
        0, 0, 0, 0, 0x01, 0x06, 0x1c, 0x06,
        0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28,
        0, 0, 0, 0, 0x31, 0x32, 0x33, 0x34,
        0x41, 0x42, 0x43, 0x51, 0, 0, 0, 0x52,
        0, 0, 0, 20 << 3 | 3 << 1 | 1, 0x61, 0x62, 0x63, 21 << 3 | 5,
        0xff, 0xff, 5 << 4 | 6, 15 << 4 | 1 << 3 | 1, 0xff, 0xff, 0xff, 0xfe,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 13, 0, 1,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 13, 0, 2,
        0x9a, 0xbc, 0xd0, 18, 0x68, 64, 3 << 4 | 1 << 3, 19 << 3,
    ];
    expected[..fixed.len()].copy_from_slice(&fixed);
    expected[144..149].copy_from_slice(b"hello");
    assert_eq!(body, expected);
}

#[test]
fn golden_rep() {
    let rep = Rep {
        local_comm_id: 0x0102_0304,
        remote_comm_id: 0x0506_0708,
        qkey: 0x1112_1314,
        qpn: Qpn::new(0x21_2223),
        vendor_id_high: 0x81,
        vendor_id_middle: 0x82,
        vendor_id_low: 0x83,
        vendor_options: 0x9192_9394,
        eecn: Qpn::new(0x71_7273),
        starting_psn: Psn::new(0x31_3233),
        responder_resources: 0x41,
        initiator_depth: 0x42,
        target_ack_delay: Bits::saturating(16),
        failover: Bits::saturating(1),
        flow_control: true,
        rnr_retry_count: Bits::saturating(7),
        srq: true,
        ca_guid: 0x5152_5354_5556_5758,
        private: Private([0x61; 196]),
    };
    #[rustfmt::skip]
    let fixed = [
        0x91, 0x92, 0x93, 0x94, 1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14,
        0x21, 0x22, 0x23, 0x81, 0x71, 0x72, 0x73, 0x82, 0x31, 0x32, 0x33, 0x83,
        0x41, 0x42, 16 << 3 | 1 << 1 | 1, 7 << 5 | 1 << 4,
        0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58,
    ];
    let bytes = bytes_of(rep);
    assert_eq!(bytes[20..60], fixed);
    assert_eq!(bytes[60..], [0x61; 196]);
}

#[test]
fn golden_short_messages() {
    let ids = [1, 2, 3, 4, 5, 6, 7, 8];
    let (local_comm_id, remote_comm_id) = (0x0102_0304, 0x0506_0708);
    let bytes = bytes_of(Mra {
        local_comm_id,
        remote_comm_id,
        answered: Answered::Rep.into(),
        service_timeout: Bits::saturating(24),
        private: Private([9; 222]),
    });
    assert_eq!(bytes[24..34], [&ids[..], &[1 << 6, 24 << 3]].concat());
    assert_eq!(bytes[34..], [9; 222]);

    let bytes = bytes_of(Rej {
        local_comm_id,
        remote_comm_id,
        answered: Answered::Other.into(),
        info_len: Bits::saturating(72),
        reason: RejectReason::CONSUMER,
        info: Private([8; 72]),
        private: Private([9; 148]),
    });
    assert_eq!(
        bytes[24..36],
        [&ids[..], &[2 << 6, 72 << 1, 0, 28]].concat()
    );
    assert_eq!(bytes[36..108], [8; 72]);
    assert_eq!(bytes[108..], [9; 148]);

    // Who gives up says who it is: table 108 of IBA vol 1, reason 4.
    let bytes = bytes_of(Rej::gave_up(local_comm_id, 0x5152_5354_5556_5758));
    #[rustfmt::skip]
    let fixed = [
        1, 2, 3, 4, 0, 0, 0, 0, 0, 8 << 1, 0, 4,
        0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58,
    ];
    assert_eq!(bytes[24..44], fixed);
    assert_eq!(bytes[44..], [0; 212]);

    let bytes = bytes_of(Rtu {
        local_comm_id,
        remote_comm_id,
        private: Private([9; 224]),
    });
    assert_eq!((&bytes[24..32], &bytes[32..]), (&ids[..], &[9; 224][..]));

    let bytes = bytes_of(Dreq {
        local_comm_id,
        remote_comm_id,
        remote_qpn: Qpn::new(0x11_1213),
        private: Private([9; 220]),
    });
    assert_eq!(bytes[24..36], [&ids[..], &[0x11, 0x12, 0x13, 0]].concat());
    assert_eq!(bytes[36..], [9; 220]);
}

#[test]
fn golden_datagram_service() {
    let bytes = bytes_of(SidrReq {
        request_id: 0x0102_0304,
        pkey: 0xffff,
        service_id: ServiceId::new(PortSpace::Udp, 0x1234),
        private: Private([9; 216]),
    });
    let fixed = [
        1, 2, 3, 4, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 1, 0x11, 0x12, 0x34,
    ];
    assert_eq!((&bytes[24..40], &bytes[40..]), (&fixed[..], &[9; 216][..]));

    let bytes = bytes_of(SidrRep {
        request_id: 0x0102_0304,
        status: SidrRep::REJECTED,
        info_len: 3,
        qpn: Qpn::new(0x21_2223),
        service_id: ServiceId(0x3132_3334_3536_3738),
        qkey: 0x4142_4344,
        info: Private([8; 72]),
        private: Private([9; 136]),
    });
    #[rustfmt::skip]
    let fixed = [
        1, 2, 3, 4, 2, 3, 0, 0, 0x21, 0x22, 0x23, 0,
        0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x41, 0x42, 0x43, 0x44,
    ];
    assert_eq!(bytes[24..48], fixed);
    assert_eq!(
        (&bytes[48..120], &bytes[120..]),
        (&[8; 72][..], &[9; 136][..])
    );
}

#[test]
fn other_mads_are_named() {
    let good = bytes_of(req());
    let parse = |change: fn(&mut [u8; MAD_LEN])| {
        let mut bytes = good;
        change(&mut bytes);
        Mad::parse(&bytes).unwrap_err().to_string()
    };
    assert_eq!(Mad::parse(&good[1..]), Err(MadError::Length { got: 255 }));
    assert_eq!(parse(|b| b[0] = 2), "MAD base version is 2, expected 1");
    assert_eq!(parse(|b| b[1] = 3), "MAD management class is 3, expected 7");
    assert_eq!(parse(|b| b[2] = 1), "MAD class version is 1, expected 2");
    assert_eq!(parse(|b| b[3] = 1), "MAD method is 1, expected 3");
    assert_eq!(
        parse(|b| b[17] = 0x19),
        "attribute 0x19 is not a message that is answered here"
    );
}

#[test]
fn private_data_must_fit() {
    assert_eq!(Private::<4>::new(b"ab").unwrap().0, *b"ab\0\0");
    let error = Private::<4>::new(b"abcde").unwrap_err();
    assert_eq!(
        error.to_string(),
        "5 bytes of private data, the message has room for 4"
    );
}

#[test]
fn services_have_names() {
    let service = ServiceId::new(PortSpace::Udp, 7174);
    assert_eq!(service, ServiceId(0x0111_1c06));
    assert_eq!(service.to_string(), "Udp port 7174");
    assert_eq!(
        (service.space(), service.port()),
        (Some(PortSpace::Udp), 7174)
    );
    assert_eq!(ServiceId(1 << 63).to_string(), "0x8000000000000000");
}

#[test]
fn golden_address_header() {
    let header = AddressHeader {
        source: "127.13.0.1:4660".parse().unwrap(),
        dest: "127.13.0.2".parse().unwrap(),
    };
    let mut expected = [0; 36];
    expected[..4].copy_from_slice(&[0, 0x40, 0x12, 0x34]);
    expected[16..20].copy_from_slice(&[127, 13, 0, 1]);
    expected[32..].copy_from_slice(&[127, 13, 0, 2]);
    assert_eq!(header.emit(), expected);
    assert_eq!(AddressHeader::parse(&expected), Some(header));
    for (at, value) in [(0, 1), (1, 0x50)] {
        let mut other = expected;
        other[at] = value;
        assert_eq!(AddressHeader::parse(&other), None);
    }
    assert_eq!(AddressHeader::parse(&expected[..35]), None);
}

proptest! {
    #[test]
    fn any_body_survives_a_round_trip(
        tid: u64,
        attribute in 0x0f_u16..0x1c,
        body in prop::collection::vec(any::<u8>(), BODY_LEN),
    ) {
        let mut bytes = Mad { tid, message: Drep::default().into() }.emit();
        bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
        bytes[20..].copy_from_slice(&body);
        let parsed = Mad::parse(&bytes);
        prop_assert_eq!(parsed.is_ok(), (0x10..=0x18).contains(&attribute));
        if let Ok(mad) = parsed {
            prop_assert_eq!((mad.tid, mad.message.attribute()), (tid, attribute));
            prop_assert_eq!(Mad::parse(&mad.emit()), Ok(mad));
        }
    }

    #[test]
    fn any_address_survives_a_round_trip(source: SocketAddr, dest: IpAddr) {
        let header = AddressHeader { source, dest };
        let parsed = AddressHeader::parse(&header.emit()).unwrap();
        prop_assert_eq!(parsed.source.port(), source.port());
        prop_assert_eq!(parsed.source.ip().to_canonical(), source.ip().to_canonical());
        prop_assert_eq!(parsed.dest.to_canonical(), dest.to_canonical());
        prop_assert_eq!(Gid::from(dest).ip(), dest.to_canonical());
    }
}
