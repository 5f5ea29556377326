//! Messages that Linux 6.1 sent to another Linux 6.1, captured between two guests with soft-RoCE:
//! what each field means to somebody who does not share our code. Trailing zeros are left out.

use std::net::IpAddr;

use ferroce_wire::cm::{
    AddressHeader, Answered, Bits, Drep, Dreq, Gid, MAD_LEN, Mad, Message, PortSpace, Private, Rej,
    RejectReason, Rep, Req, Rtu, ServiceId, SidrRep, SidrReq,
};
use ferroce_wire::{Psn, Qpn};

/// ucmatose asks: one READ each way, 5 retries, no RNR retries.
const REQ: &str = "\
    0107020300000000000000028680135b00100000000000005b1380860000000000000000\
    01061d2f505400fffe12345100000000000000000000130100000001000000a0c02de4a5\
    ffff50f0ffffffff00000000000000000000ffff0a08000300000000000000000000ffff\
    0a0800026fd6600000400098000000000000000000000000000000000000000000000000\
    00000000000000000000000000000000000000000040bce9000000000000000000000000\
    0a0800030000000000000000000000000a080002";
/// rdma_server accepts, with as many READs as its device has.
const REP: &str = "\
    01070203000000000000000286801358001300000000000071868ff35813808600000000\
    00001200000000003a6bae00808078e0505400fffe123450";
/// ucmatose is ready.
const RTU: &str = "\
    0107020300000000000000028680135b00140000000000005b13808677868ff3";
/// ucmatose's server ends the connection.
const DREQ: &str = "\
    010702030000000000000002f38f8677001500000000000077868ff35b138086000013";
/// And its client agrees.
const DREP: &str = "\
    010702030000000000000002f38f867700160000000000005b13808677868ff3";
/// No listener.
const REJ: &str = "\
    0107020300000000000000028680135a0012000000000000000000005a13808600000008";
/// udaddy asks.
const SIDR_REQ: &str = "\
    0107020300000000000000028680135d00170000000000005d138086ffff000000000000\
    01111c060040e9240000000000000000000000000a080003000000000000000000000000\
    0a080002";
/// And gets an answer.
const SIDR_REP: &str = "\
    0107020300000000000000028680135d00180000000000005d1380860000000000001400\
    0000000001111c0601234567";

fn bytes(hex: &str) -> [u8; MAD_LEN] {
    let mut bytes = [0; MAD_LEN];
    for (n, byte) in bytes.iter_mut().enumerate() {
        if let Some(digits) = hex.get(2 * n..2 * n + 2) {
            *byte = u8::from_str_radix(digits, 16).unwrap();
        }
    }
    bytes
}

/// Linux's bytes are read as this message, and written as these bytes.
fn is(hex: &str, tid: u64, message: impl Into<Message>) {
    let (bytes, message) = (bytes(hex), message.into());
    let mad = Mad { tid, message };
    assert_eq!(Mad::parse(&bytes), Ok(mad));
    assert_eq!(mad.emit(), bytes);
}

const ACTIVE: u32 = 0x5b13_8086;
const PASSIVE: u32 = 0x7786_8ff3;
const TID: u64 = 0x2_8680_135b;
const CLIENT: [u8; 4] = [10, 8, 0, 3];
const SERVER: [u8; 4] = [10, 8, 0, 2];

fn header(port: u16) -> AddressHeader {
    AddressHeader {
        source: (CLIENT, port).into(),
        dest: SERVER.into(),
    }
}

#[test]
fn a_request() {
    let gid = |ip: [u8; 4]| Gid::from(IpAddr::from(ip));
    let req = Req {
        local_comm_id: ACTIVE,
        service_id: ServiceId::new(PortSpace::Tcp, 7471),
        ca_guid: 0x5054_00ff_fe12_3451,
        qpn: Qpn::new(0x13),
        responder_resources: 1,
        initiator_depth: 1,
        remote_response_timeout: Bits::saturating(20),
        starting_psn: Psn::new(0xc0_2de4),
        local_response_timeout: Bits::saturating(20),
        retry_count: Bits::saturating(5),
        pkey: 0xffff,
        mtu: Bits::saturating(5),
        rnr_retry_count: Bits::saturating(0),
        max_cm_retries: Bits::saturating(15),
        local_lid: 0xffff,
        remote_lid: 0xffff,
        local_gid: gid(CLIENT),
        remote_gid: gid(SERVER),
        flow_label: Bits::saturating(0x6_fd66),
        hop_limit: 64,
        ack_timeout: Bits::saturating(19),
        private: Private::new(&header(0xbce9).emit()).unwrap(),
        ..Req::default()
    };
    assert_eq!(AddressHeader::parse(&req.private.0), Some(header(0xbce9)));
    is(REQ, TID, req);
}

#[test]
fn an_answer_and_its_confirmation() {
    let rep = Rep {
        local_comm_id: 0x7186_8ff3,
        remote_comm_id: 0x5813_8086,
        qpn: Qpn::new(0x12),
        starting_psn: Psn::new(0x3a_6bae),
        responder_resources: 128,
        initiator_depth: 128,
        target_ack_delay: Bits::saturating(15),
        rnr_retry_count: Bits::saturating(7),
        ca_guid: 0x5054_00ff_fe12_3450,
        ..Rep::default()
    };
    is(REP, 0x2_8680_1358, rep);
    let rtu = Rtu {
        local_comm_id: ACTIVE,
        remote_comm_id: PASSIVE,
        ..Rtu::default()
    };
    is(RTU, TID, rtu);
}

#[test]
fn an_end() {
    let dreq = Dreq {
        local_comm_id: PASSIVE,
        remote_comm_id: ACTIVE,
        remote_qpn: Qpn::new(0x13),
        ..Dreq::default()
    };
    is(DREQ, 0x2_f38f_8677, dreq);
    let drep = Drep {
        local_comm_id: ACTIVE,
        remote_comm_id: PASSIVE,
        ..Drep::default()
    };
    is(DREP, 0x2_f38f_8677, drep);
}

#[test]
fn a_rejection() {
    let rej = Rej {
        remote_comm_id: 0x5a13_8086,
        answered: Answered::Req.into(),
        reason: RejectReason::INVALID_SERVICE_ID,
        ..Rej::default()
    };
    is(REJ, 0x2_8680_135a, rej);
}

#[test]
fn a_datagram_service() {
    let service_id = ServiceId::new(PortSpace::Udp, 7174);
    let req = SidrReq {
        request_id: 0x5d13_8086,
        pkey: 0xffff,
        service_id,
        private: Private::new(&header(0xe924).emit()).unwrap(),
    };
    is(SIDR_REQ, 0x2_8680_135d, req);
    let rep = SidrRep {
        request_id: 0x5d13_8086,
        qpn: Qpn::new(0x14),
        service_id,
        qkey: 0x0123_4567,
        ..SidrRep::default()
    };
    is(SIDR_REP, 0x2_8680_135d, rep);
}
