//! `ferroce identify` and `ferroce pcap check`.

use std::fs;
use std::path::PathBuf;

use ferroce_wire::pcapng::{UdpMeta, Writer};
use ferroce_wire::{Connection, Headers, IcrcFlow, IpPair, Place, Psn, Qpn, Reth};

use crate::common::{good, good_json, has};

const MS: u64 = 1_000_000;

/// A capture of WRITEs with these PSNs, at these times.
fn capture(packets: &[(u64, u32)]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file).unwrap();
    let meta = UdpMeta::new(
        "10.0.0.1:50000".parse().unwrap(),
        "10.0.0.2:4791".parse().unwrap(),
    );
    let ip = IpPair::new(meta.src.ip(), meta.dst.ip()).unwrap();
    let flow = IcrcFlow::new(ip, meta.src.port(), meta.dst.port());
    for (at, psn) in packets {
        let headers = Headers::write(Connection::Rc, Place::Only, Reth::default(), None);
        let headers = headers.to(Qpn::new(0x11), Psn::new(*psn));
        let mut bytes = [0; 128];
        let len = headers.emit_packet(&[1; 8], &flow, 0, &mut bytes).unwrap();
        writer.write_packet(*at, &meta, &bytes[..len]).unwrap();
    }
    drop(writer);
    file
}

fn file(directory: &tempfile::TempDir, bytes: &[u8]) -> String {
    let path: PathBuf = directory.path().join("file");
    fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_capture_is_told_from_a_log() {
    let directory = tempfile::tempdir().unwrap();
    let mut at = 1000 * MS;
    let mut packets = vec![(at, 7)];
    for wait in [268_435, 268_450, 268_500, 268_440] {
        at += wait * 1000;
        packets.push((at, 7));
    }
    packets.push((at + MS, 8));
    let capture = file(&directory, &capture(&packets));
    let text = good(format!("identify {capture}"));
    has(
        &text,
        [
            "plain InfiniBand",
            "QP timeout 1 to 16 with the enforced minimum of 16",
        ],
    );
    let json = good_json(format!("identify -j {capture}"));
    let policy = &json["queue_pairs"][0]["policies"][0];
    assert_eq!(policy["kind"], "ib");
    assert_eq!(policy["retry_cnt"], serde_json::json!([4, 7]));
    let text = good(format!("pcap check {capture}"));
    has(&text, ["4 packets sent again, 4 times: 4 after a wait"]);
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let json = good_json(format!("pcap check -j {capture}"));
    assert_eq!(json["directions"][0]["repeated"], 4);
}

#[test]
fn a_capture_without_an_outage_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let quiet = file(&directory, &capture(&[(MS, 1), (2 * MS, 2)]));
    let text = good(format!("identify {quiet}"));
    has(&text, ["none was sent again after a wait"]);
    let text = good(format!("pcap check {quiet}"));
    has(&text, ["1 direction without findings"]);
    let text = good(format!("pcap check --all {quiet}"));
    has(&text, ["RC: 2 packets"]);
}

/// Packets of 1 KiB with these PSNs, as one frame of segmentation offload.
fn offloaded(psns: std::ops::Range<u32>) -> Vec<u8> {
    let ip = IpPair::new("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()).unwrap();
    let flow = IcrcFlow::new(ip, 50_000, 4791);
    let mut frame = Vec::new();
    for (index, psn) in psns.enumerate() {
        let headers = Headers::write(Connection::Rc, Place::Middle, Reth::default(), None);
        let headers = headers.to(Qpn::new(0x11), Psn::new(psn));
        let mut bytes = [0; 1200];
        let len = headers.emit_packet(&[1; 1024], &flow, index as u16, &mut bytes);
        frame.extend_from_slice(&bytes[..len.unwrap()]);
    }
    frame
}

/// A pcap of raw IP packets, of which at most `snap` bytes each were captured.
fn pcap(payloads: &[Vec<u8>], snap: usize) -> Vec<u8> {
    let mut file = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    for value in [0x0004_0002, 0, 0, 262_144, 101_u32] {
        file.extend(value.to_le_bytes());
    }
    let meta = UdpMeta::new(
        "10.0.0.1:50000".parse().unwrap(),
        "10.0.0.2:4791".parse().unwrap(),
    );
    for (payload, at) in payloads.iter().zip(0u32..) {
        let mut frame = Vec::new();
        meta.write_datagram(payload, &mut frame).unwrap();
        let kept = &frame[..frame.len().min(snap)];
        for value in [at, 0, kept.len() as u32, frame.len() as u32] {
            file.extend(value.to_le_bytes());
        }
        file.extend(kept);
    }
    file
}

#[test]
fn offloaded_frames_and_probes_are_explained() {
    let directory = tempfile::tempdir().unwrap();
    let mut probe = vec![0; 16];
    probe[0] = 0xfe;
    let payloads = [probe, offloaded(0..8), offloaded(8..20)];
    let whole = file(&directory, &pcap(&payloads, usize::MAX));
    let text = good(format!("pcap check {whole}"));
    has(
        &text,
        ["ICRC: 20 right, 0 wrong", "1 datagrams of Ferroce's links"],
    );
    assert!(!text.contains("malformed"), "{text}");
    let split = "2 frames of segmentation offload, split into 20 packets";
    has(&text, [split]);
    for snap in [60, 128, 1500, 5000] {
        let cut = file(&directory, &pcap(&payloads, snap));
        for command in [format!("pcap check {cut}"), format!("identify {cut}")] {
            let text = good(command);
            has(&text, ["2 of these are cut off"]);
            assert!(!text.contains("malformed"), "{snap}: {text}");
        }
    }
}

/// Among 300 single losses there is an outage of a second: it decides, but not with certainty.
#[test]
fn the_longest_of_many_outages_decides() {
    let directory = tempfile::tempdir().unwrap();
    let (mut at, mut packets) = (1000 * MS, Vec::new());
    for psn in 0..300 {
        at += 1000 * MS;
        packets.push((at, psn));
        let waits = if psn == 200 { 60 } else { 1 };
        for _ in 0..waits {
            at += 16_420_000;
            packets.push((at, psn));
        }
    }
    let capture = file(&directory, &capture(&packets));
    let text = good(format!("identify {capture}"));
    has(
        &text,
        [
            "a profile of adaptive retransmission",
            "likely:",
            "16.4 ms x60",
            "shorter outages are left out",
        ],
    );
    let json = good_json(format!("identify -j {capture}"));
    assert_eq!(json["queue_pairs"][0]["outages_left_out"], 236);
}

/// A timeout that cuts off all waits of an outage hides a profile, but single losses show it: no
/// timer of 268 ms expires after 262 ms.
#[test]
fn single_waits_that_are_too_short_show_a_profile() {
    let directory = tempfile::tempdir().unwrap();
    let plain = ["likely:", "policy       plain InfiniBand"];
    let profile = [
        "certain:",
        "policy       a profile of adaptive retransmission",
    ];
    for (single, expected) in [(268_450, plain), (262_150, profile)] {
        let (mut at, mut packets) = (1000 * MS, Vec::new());
        for psn in 0..9 {
            at += 1000 * MS;
            packets.push((at, psn));
            let waits = if psn == 8 {
                vec![268_450; 6]
            } else {
                vec![single]
            };
            for wait in waits {
                at += wait * 1000;
                packets.push((at, psn));
            }
        }
        packets.push((at + MS, 9));
        let text = good(format!("identify {}", file(&directory, &capture(&packets))));
        let is_said = expected.iter().all(|words| text.contains(words));
        assert!(is_said, "{single}: {text}");
        let is_open = text.contains("or           a profile of adaptive retransmission");
        assert_eq!(is_open, expected == plain, "{single}: {text}");
    }
}
