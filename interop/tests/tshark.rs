//! tshark reads our captures and understands every packet in them.

use std::fmt::LowerHex;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use ferroce_interop::{build, meta, sample, tshark};
use ferroce_wire::pcapng::{UdpMeta, Writer};
use ferroce_wire::{BthFlags, Headers, Opcode, Packet, Psn, Qpn, Service};
use tempfile::TempDir;

/// 2025-01-01T00:00:00Z and a bit that only fits into nanoseconds.
const START_NS: u64 = 1_735_689_600_000_000_001;
const STEP_NS: u64 = 1_000;

/// Finds every packet that tshark remarks on, except for comments of ours.
const REMARKS: &str = "_ws.malformed || _ws.expert.severity >= note";

const FILE: &str = "packets.pcapng";

/// A capture file and what tshark should find in it.
struct Capture {
    dir: TempDir,
    packets: Vec<Sent>,
}

/// A captured packet.
struct Sent {
    headers: Headers,
    pad: u8,
    meta: UdpMeta,
    icrc: u32,
}

impl Capture {
    /// One packet of each of the opcodes over each family. `payload_len` says how much payload
    /// the packet with this number gets.
    fn new(name: &str, opcodes: &[Opcode], payload_len: impl Fn(u8) -> usize) -> Self {
        let dir = TempDir::with_prefix(name).unwrap();
        let file = BufWriter::new(File::create(dir.path().join(FILE)).unwrap());
        let mut writer = Writer::new(file).unwrap();
        let mut packets = Vec::new();
        for base in [
            meta("192.0.2.1:50001", "192.0.2.2:4791"),
            meta("[2001:db8::1]:50001", "[2001:db8::2]:4791"),
        ] {
            for (&opcode, number) in opcodes.iter().zip(1u8..) {
                let meta = UdpMeta {
                    tos: 0x6a,
                    ip_id: u16::from(number) << 8,
                    ttl: 63,
                    ..base
                };
                let dest_qp = Qpn::new(0x12_0000 + u32::from(number));
                let psn = Psn::new(0xfe_0000 + u32::from(number));
                let headers = sample(opcode, dest_qp, psn);
                let len = if opcode.has_payload() {
                    payload_len(number)
                } else {
                    0
                };
                let bytes = build(headers, &vec![number; len], &meta);
                let packet = Packet::new_checked(&bytes).unwrap();
                let ts_ns = START_NS + STEP_NS * packets.len() as u64;
                let comment = format!("{opcode} to {dest_qp}");
                writer
                    .write_packet_with_comment(ts_ns, &meta, &bytes, &comment)
                    .unwrap();
                packets.push(Sent {
                    headers: *packet.headers(),
                    pad: packet.pad(),
                    meta,
                    icrc: packet.icrc(),
                });
            }
        }
        writer.flush().unwrap();
        Self { dir, packets }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join(FILE)
    }

    /// One row per packet that passes the filter, one column per field.
    fn fields(&self, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
        tshark::fields(&self.path(), filter, fields)
    }

    /// Checks that the fields of every packet read as `expected` prints them.
    fn expect<const N: usize>(
        &self,
        fields: [&str; N],
        expected: impl Fn(usize, &Sent) -> [String; N],
    ) {
        let rows = self.fields("infiniband", &fields);
        assert_eq!(
            rows.len(),
            self.packets.len(),
            "tshark did not take all for InfiniBand"
        );
        for (index, (row, sent)) in rows.iter().zip(&self.packets).enumerate() {
            let opcode = sent.headers.opcode();
            assert_eq!(row[..], expected(index, sent), "{opcode}: {fields:?}");
        }
    }
}

fn every_opcode(name: &str) -> Capture {
    // All pad counts occur. An empty SEND is tested separately.
    Capture::new(name, Opcode::ALL, |number| 64 + usize::from(number % 4))
}

/// tshark 4.0 knows the opcodes of XRC, but nothing of what follows their BTH. The formats of DC and of
/// reports are Ferroce's own.
fn is_dissected(opcode: Opcode) -> bool {
    let is_report = opcode == Opcode::RcAcknowledgeReport;
    !is_report && !matches!(opcode.service(), Service::Xrc | Service::Dc)
}

fn text(value: impl ToString) -> String {
    value.to_string()
}

/// tshark prints most numbers in hexadecimal, with all digits of the field.
fn hex<const DIGITS: usize>(value: impl LowerHex) -> String {
    format!("0x{value:0DIGITS$x}")
}

fn or_empty<T>(value: Option<T>, print: impl Fn(T) -> String) -> String {
    value.map(print).unwrap_or_default()
}

#[test]
fn base_headers_decode() {
    every_opcode("bth").expect(
        [
            "infiniband.bth.opcode",
            "infiniband.bth.psn",
            "infiniband.bth.destqp",
            "infiniband.bth.padcnt",
            "infiniband.bth.tver",
            "infiniband.bth.p_key",
            "infiniband.bth.m",
            "infiniband.bth.se",
            "infiniband.bth.a",
        ],
        |_, sent| {
            let headers = sent.headers;
            let flag = |flag| text(u8::from(headers.flags.contains(flag)));
            [
                text(headers.opcode().as_u8()),
                text(headers.psn),
                hex::<6>(headers.dest_qp.value()),
                text(sent.pad),
                text(0),
                text(headers.pkey),
                flag(BthFlags::MIG_REQ),
                flag(BthFlags::SOLICITED),
                flag(BthFlags::ACK_REQ),
            ]
        },
    );
}

#[test]
fn extension_headers_decode() {
    let dissected = Opcode::ALL.iter().copied().filter(|o| is_dissected(*o));
    let dissected: Vec<_> = dissected.collect();
    let payload_len = |number| 64 + usize::from(number % 4);
    Capture::new("extensions", &dissected, payload_len).expect(
        [
            "infiniband.reth.va",
            "infiniband.reth.r_key",
            "infiniband.reth.dmalen",
            "infiniband.atomiceth.swapdt",
            "infiniband.atomiceth.cmpdt",
            "infiniband.aeth.syndrome",
            "infiniband.aeth.msn",
            "infiniband.atomicacketh.origremdt",
            "infiniband.immdt",
            "infiniband.ieth",
            "infiniband.deth.q_key",
            "infiniband.deth.srcqp",
        ],
        |_, sent| {
            let headers = &sent.headers;
            let (reth, atomic, aeth) = (headers.reth(), headers.atomic(), headers.aeth());
            let deth = headers.deth();
            // tshark gives address and key of an atomic their names in a RETH.
            let target = match (reth, atomic) {
                (Some(reth), _) => Some((reth.va, reth.rkey)),
                (None, atomic) => atomic.map(|atomic| (atomic.va, atomic.rkey)),
            };
            [
                or_empty(target, |(va, _)| hex::<16>(va)),
                or_empty(target, |(_, rkey)| hex::<8>(rkey)),
                or_empty(reth, |reth| text(reth.length)),
                or_empty(atomic, |atomic| text(atomic.swap_or_add)),
                or_empty(atomic, |atomic| text(atomic.compare)),
                or_empty(aeth, |aeth| text(aeth.syndrome.to_u8())),
                or_empty(aeth, |aeth| text(aeth.msn)),
                or_empty(headers.atomic_ack(), text),
                or_empty(headers.imm(), |imm| format!("{imm:08x}")),
                or_empty(headers.ieth(), |rkey| format!("{rkey:08x}")),
                or_empty(deth, |deth| hex::<16>(deth.qkey)),
                or_empty(deth, |deth| hex::<8>(deth.src_qp.value())),
            ]
        },
    );
}

#[test]
fn envelope_decodes() {
    every_opcode("envelope").expect(
        [
            "frame.time_epoch",
            "frame.comment",
            "frame.interface_name",
            "ip.dsfield",
            "ip.id",
            "ip.ttl",
            "ip.flags.df",
            "ip.checksum.status",
            "ipv6.tclass",
            "ipv6.hlim",
            "udp.srcport",
            "udp.checksum.status",
            "infiniband.invariant.crc",
        ],
        |index,
         Sent {
             headers,
             meta,
             icrc,
             ..
         }| {
            let ns = START_NS + STEP_NS * index as u64;
            let v4 = |value: &str| {
                if meta.src.is_ipv4() {
                    text(value)
                } else {
                    text("")
                }
            };
            let v6 = |value: &str| {
                if meta.src.is_ipv6() {
                    text(value)
                } else {
                    text("")
                }
            };
            const GOOD: &str = "1";
            const ABSENT: &str = "3";
            [
                format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000),
                format!("{} to {}", headers.opcode(), headers.dest_qp),
                text("fr0"),
                v4("0x6a"),
                v4(&hex::<4>(meta.ip_id)),
                v4("63"),
                v4("1"),
                v4(GOOD),
                v6("0x0000006a"),
                v6("63"),
                text("50001"),
                text(if meta.src.is_ipv4() { ABSENT } else { GOOD }),
                // tshark shows the bytes in wire order, and does not dissect a CNP.
                if headers.opcode() == Opcode::Cnp || !is_dissected(headers.opcode()) {
                    text("")
                } else {
                    hex::<8>(icrc.swap_bytes())
                },
            ]
        },
    );
}

/// Only our own comments are remarked on, neither as a field nor in the text.
#[test]
fn nothing_is_malformed() {
    let capture = every_opcode("malformed");
    let remarks = capture.fields(REMARKS, &["frame.comment", "_ws.expert.message"]);
    assert_eq!(remarks, Vec::<Vec<String>>::new());
    let details = tshark::run(&capture.path(), &["-V"]);
    let datagrams = details.lines().filter(|line| *line == "InfiniBand").count();
    assert_eq!(datagrams, capture.packets.len());
    for line in details.lines() {
        assert!(
            !line.contains("Malformed") && !line.contains("Bogus"),
            "{line}"
        );
    }
}

/// tshark 4.0 takes an empty SEND for damaged. That is a bug, and the only one to exempt.
#[test]
fn empty_payload_is_well_formed_except_for_sends() {
    let only: Vec<_> = Opcode::ALL
        .iter()
        .copied()
        .filter(|opcode| opcode.is_only() && opcode.service() != Service::Dc)
        .collect();
    let capture = Capture::new("empty", &only, |_| 0);
    assert_eq!(
        capture.fields("infiniband", &["frame.number"]).len(),
        capture.packets.len()
    );
    for row in capture.fields(REMARKS, &["infiniband.bth.opcode", "_ws.expert.message"]) {
        let opcode = row[0].parse().ok().and_then(Opcode::from_u8);
        assert!(opcode.is_some_and(Opcode::is_send), "{row:?}");
    }
}

/// tshark 4.0 has no name for a CNP, so it has to be found by its number.
#[test]
fn cnps_are_found_by_their_number() {
    let capture = every_opcode("cnp");
    let found = capture.fields("infiniband.bth.opcode==0x81", &["infiniband.bth.destqp"]);
    let cnps = capture
        .packets
        .iter()
        .filter(|sent| sent.headers.opcode() == Opcode::Cnp);
    let expected: Vec<_> = cnps
        .map(|sent| vec![hex::<6>(sent.headers.dest_qp.value())])
        .collect();
    assert_eq!(found, expected);
    assert_eq!(found.len(), 2);
}
