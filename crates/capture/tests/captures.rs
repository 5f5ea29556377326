//! Captures of every kind, cut anywhere, of anything.

use std::net::IpAddr;

use etherparse::PacketBuilder;
use ferroce_capture::{Analysis, FileEnd, ReadError, analyse};
use ferroce_wire::pcapng::{UdpMeta, Writer};
use ferroce_wire::{
    Aeth, Connection, Headers, IcrcFlow, IpPair, NakCode, Place, Psn, Qpn, Reth, Syndrome,
};
use proptest::prelude::*;

const RESPONDER: u32 = 0x11;
const REQUESTER: u32 = 0x22;

fn addresses(is_v6: bool) -> [IpAddr; 2] {
    let texts = match is_v6 {
        false => ["10.0.0.1", "10.0.0.2"],
        true => ["2001:db8::1", "2001:db8::2"],
    };
    texts.map(|text| text.parse().unwrap())
}

/// BTH to ICRC of a packet from one address to the other.
fn packet(headers: Headers, payload: &[u8], from: IpAddr, to: IpAddr, ip_id: u16) -> Vec<u8> {
    let flow = IcrcFlow::new(IpPair::new(from, to).unwrap(), 50_000, 4791);
    let mut bytes = vec![0; payload.len() + 64];
    let len = headers
        .emit_packet(payload, &flow, ip_id, &mut bytes)
        .unwrap();
    bytes.truncate(len);
    bytes
}

fn write(psn: u32, place: Place) -> Headers {
    let headers = Headers::write(Connection::Rc, place, Reth::default(), None);
    headers.to(Qpn::new(RESPONDER), Psn::new(psn))
}

fn answer(psn: u32, syndrome: Syndrome) -> Headers {
    let headers = Headers::acknowledge(Aeth { syndrome, msn: 0 });
    headers.to(Qpn::new(REQUESTER), Psn::new(psn))
}

/// A request, and its acknowledgement.
fn pair(is_v6: bool) -> [(Vec<u8>, IpAddr, IpAddr); 2] {
    let [a, b] = addresses(is_v6);
    let ack = answer(7, Syndrome::default());
    [
        (packet(write(7, Place::Only), &[1; 100], a, b, 0), a, b),
        (packet(ack, &[], b, a, 0), b, a),
    ]
}

/// What is around IP.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Around {
    Nothing,
    Ethernet,
    Vlan,
    TwoVlans,
    Cooked,
    Cooked2,
    Gre,
    GreBridged,
    Loopback,
}

const AROUND: [Around; 9] = [
    Around::Nothing,
    Around::Ethernet,
    Around::Vlan,
    Around::TwoVlans,
    Around::Cooked,
    Around::Cooked2,
    Around::Gre,
    Around::GreBridged,
    Around::Loopback,
];

impl Around {
    fn link(self) -> u32 {
        match self {
            Self::Nothing => 101,
            Self::Cooked => 113,
            Self::Cooked2 => 276,
            Self::Loopback => 0,
            _ => 1,
        }
    }

    fn frame(self, payload: &[u8], from: IpAddr, to: IpAddr) -> Vec<u8> {
        let mut meta = UdpMeta::new((from, 50_000).into(), (to, 4791).into());
        meta.tos = 3;
        let mut ip = Vec::new();
        meta.write_datagram(payload, &mut ip).unwrap();
        let protocol: [u8; 2] = if from.is_ipv4() { [8, 0] } else { [0x86, 0xdd] };
        let ethernet = |tags: &[u8], protocol: [u8; 2], inner: &[u8]| {
            [&[2; 12][..], tags, &protocol[..], inner].concat()
        };
        match self {
            Self::Nothing => ip,
            Self::Loopback => [&[2, 0, 0, 0][..], &ip].concat(),
            Self::Ethernet => ethernet(&[], protocol, &ip),
            Self::Vlan => ethernet(&[0x81, 0, 0, 5], protocol, &ip),
            Self::TwoVlans => ethernet(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6], protocol, &ip),
            Self::Cooked => [&[0; 14][..], &protocol[..], &ip].concat(),
            Self::Cooked2 => [&protocol[..], &[0; 18][..], &ip].concat(),
            Self::Gre | Self::GreBridged => {
                let (kind, inner) = match self {
                    Self::Gre => (protocol, ip),
                    _ => ([0x65, 0x58], ethernet(&[], protocol, &ip)),
                };
                // With a key.
                let gre = [&[0x20, 0][..], &kind[..], &[9; 4][..], &inner].concat();
                let mut frame = Vec::new();
                let builder = PacketBuilder::ethernet2([2; 6], [2; 6]);
                let builder = builder.ipv4([172, 16, 0, 1], [172, 16, 0, 2], 64);
                builder.write(&mut frame, 47.into(), &gre).unwrap();
                frame
            }
        }
    }
}

/// A pcap file of either byte order and resolution.
fn pcap(link: u32, is_big: bool, is_nano: bool, frames: &[Vec<u8>], snap: usize) -> Vec<u8> {
    let u32_of = |value: u32| match is_big {
        true => value.to_be_bytes(),
        false => value.to_le_bytes(),
    };
    let magic = if is_nano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
    let version = if is_big { [0, 2, 0, 4] } else { [2, 0, 4, 0] };
    let mut file = u32_of(magic).to_vec();
    file.extend(version);
    for value in [0, 0, 262_144, link] {
        file.extend(u32_of(value));
    }
    for (at, frame) in frames.iter().enumerate() {
        let kept = &frame[..frame.len().min(snap)];
        let (at, kept_len) = (at as u32, kept.len() as u32);
        for value in [1_700_000_000, at, kept_len, frame.len() as u32] {
            file.extend(u32_of(value));
        }
        file.extend(kept);
    }
    file
}

#[track_caller]
fn assert_pair(analysis: &Analysis) {
    let said = &analysis.conversations;
    assert_eq!(said.packets, 2, "{:?}", analysis.totals);
    assert_eq!(said.ways.len(), 2);
    assert_eq!(said.ways[0].requests.acknowledged, Some(Psn::new(7)));
    assert_eq!(said.ways[0].src_qp, Some(Qpn::new(REQUESTER)));
    assert_eq!(said.ways[0].bytes, 100);
    assert_eq!(said.ways[0].marked, 1);
    assert_eq!(said.ways[1].responses.acks, 1);
}

#[test]
fn every_link_byte_order_and_resolution_is_read() {
    for around in AROUND {
        for bits in 0..8 {
            let (is_v6, is_big, is_nano) = (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0);
            let frames = pair(is_v6).map(|(bytes, from, to)| around.frame(&bytes, from, to));
            let file = pcap(around.link(), is_big, is_nano, &frames, usize::MAX);
            let analysis = analyse(&file[..]).unwrap();
            assert_pair(&analysis);
            assert_eq!(analysis.end, FileEnd::Whole);
            assert_eq!(analysis.conversations.icrc_right, 2, "{around:?} {bits}");
            let unit = if is_nano { 1 } else { 1000 };
            let start = 1_700_000_000_000_000_000;
            assert_eq!(analysis.totals.time, Some((start, start + unit)));
        }
    }
}

#[test]
fn a_snap_length_cuts_only_the_payload() {
    let frames = pair(false).map(|(bytes, from, to)| Around::Ethernet.frame(&bytes, from, to));
    let file = pcap(1, false, false, &frames, 72);
    let analysis = analyse(&file[..]).unwrap();
    assert_pair(&analysis);
    assert_eq!(analysis.conversations.icrc_unknown, 1);
}

/// Packets one after the other, a millisecond apart, as pcapng.
fn pcapng(packets: &[(u64, Vec<u8>, IpAddr, IpAddr)]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file).unwrap();
    for (ms, bytes, from, to) in packets {
        let meta = UdpMeta::new((*from, 50_000).into(), (*to, 4791).into());
        writer.write_packet(ms * 1_000_000, &meta, bytes).unwrap();
    }
    file
}

/// Requests with these PSNs, and what answers them.
fn talk(steps: &[(u64, Headers)]) -> Analysis {
    let [a, b] = addresses(false);
    let packets: Vec<_> = steps
        .iter()
        .map(|(at, headers)| {
            let (from, to) = match headers.opcode().is_request() {
                true => (a, b),
                false => (b, a),
            };
            let payload = match headers.opcode() {
                opcode if !opcode.is_request() => 0,
                opcode if opcode.ends_message() => 8,
                _ => 1024,
            };
            (
                *at,
                packet(*headers, &vec![1; payload], from, to, 0),
                from,
                to,
            )
        })
        .collect();
    analyse(&pcapng(&packets)[..]).unwrap()
}

#[test]
fn missing_packets_are_named_and_nak_resends_are_not_timeouts() {
    let nak = answer(11, Syndrome::Nak(NakCode::SequenceError));
    let analysis = talk(&[
        (1, write(10, Place::First)),
        (2, write(12, Place::Middle)),
        (3, nak),
        (4, write(11, Place::Middle)),
        (5, write(12, Place::Middle)),
        (6, write(13, Place::Last)),
        (7, answer(13, Syndrome::default())),
    ]);
    let requests = &analysis.conversations.ways[0].requests;
    assert_eq!((requests.missing, requests.late), (1, 1));
    assert_eq!(requests.first_missing, Some((Psn::new(11), 2_000_000)));
    assert_eq!((requests.repeated, requests.rounds), (1, 1));
    assert_eq!(requests.rounds_after_nak, 1);
    assert!(requests.ladders.is_empty());
    assert_eq!(requests.mtu, Some(1024));
    assert_eq!(requests.unanswered(), Some(0));
    assert_eq!(analysis.conversations.ways[1].responses.sequence_naks, 1);
}

#[test]
fn waits_of_a_silent_peer_are_a_ladder() {
    let analysis = talk(&[
        (100, write(10, Place::Only)),
        (110, write(10, Place::Only)),
        (130, write(10, Place::Only)),
        (131, answer(10, Syndrome::default())),
        (200, write(11, Place::Only)),
    ]);
    let ladders = &analysis.conversations.ways[0].requests.ladders;
    assert_eq!(ladders.len(), 1);
    let ms: Vec<u64> = ladders[0]
        .waits
        .iter()
        .map(|it| it.as_nanos() / 1_000_000)
        .collect();
    assert_eq!(ms, [10, 20]);
}

/// Many short outages do not hide the long one, and what is left out is counted.
#[test]
fn the_longest_outages_are_kept() {
    let mut steps = Vec::new();
    let mut at = 0;
    for psn in 0..400 {
        let waits: &[u64] = if psn == 300 {
            &[8, 16, 32, 64, 128]
        } else {
            &[8]
        };
        at += 1000;
        steps.push((at, write(psn, Place::Only)));
        for wait in waits {
            at += wait;
            steps.push((at, write(psn, Place::Only)));
        }
        steps.push((at + 1, answer(psn, Syndrome::default())));
    }
    let analysis = talk(&steps);
    let requests = &analysis.conversations.ways[0].requests;
    assert_eq!(
        requests.ladders.len() as u64 + requests.ladders_dropped,
        400
    );
    assert!(requests.ladders_dropped > 0);
    let longest = requests
        .ladders
        .iter()
        .map(|ladder| ladder.waits.len())
        .max();
    assert_eq!(longest, Some(5));
}

/// A ladder at the beginning of a capture may have begun before it, unless there was time to see that it
/// did not.
#[test]
fn a_ladder_may_have_begun_before_the_capture() {
    let requests = [(10_000, 10), (10_500, 10), (11_000, 10), (11_500, 10)];
    let requests = requests.map(|(at, psn)| (at, write(psn, Place::Only)));
    let is_midway = |steps: &[(u64, Headers)]| {
        let analysis = talk(steps);
        let ladders = &analysis.conversations.ways.last().unwrap().requests.ladders;
        ladders[0].is_midway
    };
    assert!(is_midway(&requests));
    let other = |at| (at, write(5, Place::Only).to(Qpn::new(0x77), Psn::new(5)));
    assert!(is_midway(&[&[other(9_800)], &requests[..]].concat()));
    assert!(!is_midway(&[&[other(9_000)], &requests[..]].concat()));
}

#[test]
fn opcodes_out_of_sequence_are_counted() {
    let analysis = talk(&[
        (1, write(10, Place::Only)),
        (2, write(11, Place::Middle)),
        (3, write(12, Place::Last)),
        (4, write(13, Place::First)),
        (5, write(14, Place::Only)),
    ]);
    let requests = &analysis.conversations.ways[0].requests;
    assert_eq!(requests.out_of_sequence, 2);
}

#[test]
fn sequence_numbers_wrap() {
    let top = 0xff_ffff;
    let analysis = talk(&[
        (1, write(top - 1, Place::Only)),
        (2, write(top, Place::Only)),
        (3, write(0, Place::Only)),
        (4, answer(0, Syndrome::default())),
    ]);
    let requests = &analysis.conversations.ways[0].requests;
    assert_eq!((requests.missing, requests.repeated), (0, 0));
    assert_eq!(requests.unanswered(), Some(0));
}

#[test]
fn a_file_cut_anywhere_is_read_up_to_there() {
    let [a, b] = addresses(false);
    let packets: Vec<_> = (0..3)
        .map(|psn| (1, packet(write(psn, Place::Only), &[1; 8], a, b, 0), a, b))
        .collect();
    let file = pcapng(&packets);
    let mut counts = Vec::new();
    for len in 0..=file.len() {
        match analyse(&file[..len]) {
            Ok(analysis) => counts.push(analysis.conversations.packets),
            Err(ReadError::NotACapture) => assert!(len < 200),
            Err(error) => panic!("{len}: {error}"),
        }
    }
    assert!(counts.is_sorted());
    assert_eq!(counts.last(), Some(&3));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_read_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        head in 0usize..5,
    ) {
        let whole = pcapng(&[]);
        let heads = [
            Vec::new(),
            whole.clone(),
            pcap(1, false, false, &[], 0),
            pcap(276, true, true, &[], 0),
            pcap(101, false, true, std::slice::from_ref(&bytes), usize::MAX),
        ];
        let file = [&heads[head][..], &bytes].concat();
        let _ = analyse(&file[..]);
        let _ = ferroce_capture::Log::read(&file[..]);
    }

    #[test]
    fn damaged_packets_do_no_harm(
        damage in prop::collection::vec((0usize..400, any::<u8>()), 1..8),
        around in 0usize..AROUND.len(),
    ) {
        let around = AROUND[around];
        let mut frames = pair(false).map(|(bytes, from, to)| around.frame(&bytes, from, to));
        for (at, value) in damage {
            let frame = &mut frames[at % 2];
            let at = at / 2 % frame.len();
            frame[at] ^= value;
        }
        let _ = analyse(&pcap(around.link(), false, false, &frames, 300)[..]);
    }
}

#[test]
fn other_links_are_named() {
    let file = pcap(147, false, false, &[vec![0; 60]], 100);
    let analysis = analyse(&file[..]).unwrap();
    assert_eq!(analysis.totals.links.get(&147), Some(&1));
}

/// Thousands of queue pairs between two hosts, all with the same sequence numbers: none can be told
/// from the others, and looking for their other ends ends.
#[test]
fn queue_pairs_that_look_alike_stay_apart() {
    const COUNT: u32 = 1000;
    let [a, b] = addresses(false);
    let mut packets = Vec::new();
    for psn in 0..40 {
        for qp in 0..COUNT {
            let request = write(psn, Place::Only).to(Qpn::new(0x1000 + qp), Psn::new(psn));
            packets.push((1, packet(request, &[1; 8], a, b, 0), a, b));
        }
        for qp in 0..COUNT {
            let ack = answer(psn, Syndrome::default()).to(Qpn::new(0x8000 + qp), Psn::new(psn));
            packets.push((1, packet(ack, &[], b, a, 0), b, a));
        }
    }
    let analysis = analyse(&pcapng(&packets)[..]).unwrap();
    let ways = &analysis.conversations.ways;
    assert_eq!(ways.len(), 2 * COUNT as usize);
    assert!(ways.iter().all(|way| way.src_qp.is_none()));
    assert!(
        ways.iter()
            .all(|way| way.requests.repeated + way.requests.missing == 0)
    );
}
