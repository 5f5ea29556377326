//! `ferroce identify` and `ferroce pcap check`.

mod common;

use std::fs;
use std::path::PathBuf;

use common::{bad, good, good_json};
use ferroce_wire::pcapng::{UdpMeta, Writer};
use ferroce_wire::{Connection, Headers, IcrcFlow, IpPair, Place, Psn, Qpn, Reth};

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
    let text = good(&["identify", &capture]);
    assert!(text.contains("plain InfiniBand"), "{text}");
    assert!(
        text.contains("QP timeout 1 to 16 with the enforced minimum of 16"),
        "{text}"
    );
    let json = good_json(&["identify", "-j", &capture]);
    let policy = &json["queue_pairs"][0]["policies"][0];
    assert_eq!(policy["kind"], "ib");
    assert_eq!(policy["retry_cnt"], serde_json::json!([4, 7]));
    let text = good(&["pcap", "check", &capture]);
    assert!(
        text.contains("4 packets sent again, 4 times: 4 after a wait"),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let json = good_json(&["pcap", "check", "-j", &capture]);
    assert_eq!(json["directions"][0]["repeated"], 4);
}

#[test]
fn a_capture_without_an_outage_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let quiet = file(&directory, &capture(&[(MS, 1), (2 * MS, 2)]));
    let text = good(&["identify", &quiet]);
    assert!(text.contains("none was sent again after a wait"), "{text}");
    let text = good(&["pcap", "check", &quiet]);
    assert!(text.contains("1 direction without findings"), "{text}");
    let text = good(&["pcap", "check", "--all", &quiet]);
    assert!(text.contains("RC: 2 packets"), "{text}");
}

#[test]
fn bad_files_are_refused_with_what_is_expected() {
    let directory = tempfile::tempdir().unwrap();
    let prose = file(&directory, b"nothing to see here");
    assert!(bad(&["identify", &prose]).contains("neither a capture"));
    assert!(
        bad(&["pcap", "check", &prose]).contains("expected a file in the format pcap or pcapng")
    );
    let untimed = file(&directory, b"transport retry counter exceeded");
    assert!(bad(&["identify", &untimed]).contains("1 line with the error, none with a time"));
    let missing = directory.path().join("absent");
    assert!(bad(&["identify", missing.to_str().unwrap()]).contains("cannot open"));
    let folder = directory.path().to_str().unwrap();
    assert!(bad(&["pcap", "check", folder]).contains("cannot open"));
}

#[test]
fn bad_times_are_refused_with_what_is_expected() {
    for (args, expected) in [
        (&["identify"][..], "required"),
        (&["identify", "--waits", "5"], "must be a time"),
        (
            &["identify", "--times", "5ms,3ms"],
            "times count from the first send and only grow",
        ),
        (
            &["identify", "--times", "5ms", "--waits", "5ms"],
            "cannot be used",
        ),
    ] {
        let said = bad(args);
        assert!(said.contains(expected), "{args:?}: {said}");
    }
}
