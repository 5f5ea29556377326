//! Packets that Scapy made: parsing, ICRC, and writing them again byte by byte.
//!
//! `interop/scapy_packets.py generate` prints the vectors; the interop tests check that it still
//! prints the same.

use ferroce_wire::{
    AtomicEth, BthFlags, Deth, IcrcFlow, IcrcVerifier, IdPolicy, IpPair, Opcode, Packet, Qpn, Reth,
    Srqn, Verdict,
};
use serde_json::Value;

const VECTORS: &str = include_str!("vectors/scapy.json");

/// An IP packet taken apart.
struct Datagram<'a> {
    ip: IpPair,
    /// Identification and Don't Fragment.
    id: Option<(u16, bool)>,
    src_port: u16,
    dst_port: u16,
    payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let be16 = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let (ip, id, udp) = if bytes[0] == 0x45 {
            let [src, dst] = [12, 16].map(|at| *bytes[at..].first_chunk().unwrap());
            (
                IpPair::V4 { src, dst },
                Some((be16(4), bytes[6] & 0x40 != 0)),
                20,
            )
        } else {
            assert_eq!(bytes[0] >> 4, 6);
            let [src, dst] = [8, 24].map(|at| *bytes[at..].first_chunk().unwrap());
            (IpPair::V6 { src, dst }, None, 40)
        };
        assert_eq!(usize::from(be16(udp + 4)), bytes.len() - udp);
        Self {
            ip,
            id,
            src_port: be16(udp),
            dst_port: be16(udp + 2),
            payload: &bytes[udp + 8..],
        }
    }
}

fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2));
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn vectors() -> Vec<(String, Vec<u8>, Value)> {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    let packets = vectors["packets"].as_array().unwrap();
    assert!(!packets.is_empty());
    packets
        .iter()
        .map(|packet| {
            let text = |key: &str| packet[key].as_str().unwrap();
            (
                text("name").to_string(),
                unhex(text("hex")),
                packet["fields"].clone(),
            )
        })
        .collect()
}

#[test]
fn the_vectors_cover_every_opcode() {
    let packets = vectors();
    // Opcodes of the manufacturers' range are Ferroce's own.
    let is_public = |opcode: &&Opcode| opcode.as_u8() < 0xc0;
    for &opcode in Opcode::ALL.iter().filter(is_public) {
        let count = packets
            .iter()
            .filter(|packet| packet.2["opcode"] == opcode.as_u8())
            .count();
        assert!(count >= 4, "{opcode}: {count}");
    }
}

#[test]
fn fields_are_read_as_scapy_wrote_them() {
    for (name, bytes, fields) in vectors() {
        let datagram = Datagram::new(&bytes);
        let packet = Packet::new_checked(datagram.payload).unwrap();
        let headers = packet.headers();
        let flag = |flag| u32::from(headers.flags.contains(flag));
        let number = |key: &str| fields[key].as_u64();
        let number32 = |key: &str| number(key).map(|value| u32::try_from(value).unwrap());
        for (key, got) in [
            ("opcode", u32::from(headers.opcode().as_u8())),
            ("solicited", flag(BthFlags::SOLICITED)),
            ("mig_req", flag(BthFlags::MIG_REQ)),
            ("pad", u32::from(packet.pad())),
            ("pkey", u32::from(headers.pkey)),
            ("fecn", flag(BthFlags::FECN)),
            ("becn", flag(BthFlags::BECN)),
            ("dest_qp", headers.dest_qp.value()),
            ("ack_req", flag(BthFlags::ACK_REQ)),
            ("psn", headers.psn.value()),
        ] {
            assert_eq!(number32(key), Some(got), "{name}: {key}");
        }
        let reth = number("reth_va").map(|va| Reth {
            va,
            rkey: number32("reth_rkey").unwrap(),
            length: number32("reth_length").unwrap(),
        });
        assert_eq!(headers.reth(), reth, "{name}");
        let aeth = headers
            .aeth()
            .map(|aeth| (u32::from(aeth.syndrome.to_u8()), aeth.msn));
        assert_eq!(
            aeth,
            number32("aeth_syndrome").zip(number32("aeth_msn")),
            "{name}"
        );
        let atomic = number("atomic_va").map(|va| AtomicEth {
            va,
            rkey: number32("atomic_rkey").unwrap(),
            swap_or_add: number("atomic_swap_or_add").unwrap(),
            compare: number("atomic_compare").unwrap(),
        });
        assert_eq!(headers.atomic(), atomic, "{name}");
        assert_eq!(headers.atomic_ack(), number("atomic_ack"), "{name}");
        assert_eq!(headers.imm(), number32("imm"), "{name}");
        assert_eq!(headers.ieth(), number32("ieth"), "{name}");
        let deth = number32("deth_qkey").map(|qkey| Deth {
            qkey,
            src_qp: Qpn::new(number32("deth_src_qp").unwrap()),
        });
        assert_eq!(headers.deth(), deth, "{name}");
        assert_eq!(
            headers.xrceth(),
            number32("xrceth").map(Srqn::new),
            "{name}"
        );
        assert_eq!(
            packet.payload(),
            unhex(fields["payload"].as_str().unwrap()),
            "{name}"
        );
    }
}

#[test]
fn icrc_is_the_one_scapy_computed() {
    let mut any = IcrcVerifier::new(IdPolicy::AnyId);
    let mut exact = IcrcVerifier::new(IdPolicy::Exact);
    for (name, bytes, _) in vectors() {
        let Datagram {
            ip,
            id,
            src_port,
            dst_port,
            payload,
        } = Datagram::new(&bytes);
        let flow = IcrcFlow::new(ip, src_port, dst_port);
        let (ip_id, dont_fragment) = id.unwrap_or((0, false));
        let expected = Verdict::Ok {
            ip_id,
            dont_fragment,
        };
        // Told the Identification, and not told.
        for told in [ip_id, 0, 0x5555] {
            assert_eq!(flow.verify(told, payload), expected, "{name}");
            assert_eq!(any.verify(&flow, told, payload), expected, "{name}");
        }
        let accepted = exact.verify(&flow, ip_id, payload).is_ok();
        assert_eq!(accepted, id.is_none() || dont_fragment, "{name}");
    }
}

#[test]
fn emitted_vectors_are_identical() {
    for (name, bytes, _) in vectors() {
        let Datagram {
            ip,
            id,
            src_port,
            dst_port,
            payload,
        } = Datagram::new(&bytes);
        let flow = IcrcFlow::new(ip, src_port, dst_port);
        let packet = Packet::new_checked(payload).unwrap();
        let (ip_id, dont_fragment) = id.unwrap_or((0, true));
        let mut again = vec![0; payload.len()];
        let len = packet
            .headers()
            .emit_packet(packet.payload(), &flow, ip_id, &mut again);
        assert_eq!(len, Ok(payload.len()), "{name}");
        // Our own ICRC is always that of a packet with Don't Fragment.
        let compared = if dont_fragment {
            payload.len()
        } else {
            payload.len() - 4
        };
        assert_eq!(again[..compared], payload[..compared], "{name}");
    }
}
