//! Captures: their permissions, and their content when something goes wrong.

mod common;

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use common::{Node, Place, address, attr, check_all_kinds, connect};
use ferroce_os::{Tap, TapDirection};
use ferroce_runtime::{AttachOptions, Device, DeviceConfig};
use tempfile::TempPath;

/// A file for a capture that is removed after the test.
fn temporary() -> TempPath {
    tempfile::NamedTempFile::new().unwrap().into_temp_path()
}

fn mode(path: &TempPath) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn node(test: u8, host: u8, tap: &Tap) -> Node {
    let tap = Some(tap.clone());
    let config = DeviceConfig::new(address(48, test, host));
    Node::with_config(DeviceConfig { tap, ..config }, 256 << 10)
}

fn exchange(test: u8, taps: [&Tap; 2]) {
    let (a, b) = (node(test, 0, taps[0]), node(test, 1, taps[1]));
    let qps = connect(&a, &b, &attr());
    check_all_kinds(&a, &b, qps, 50_000, 1);
}

const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// How many times a capture has each packet of one direction, by its bytes from the BTH on.
type Counts = HashMap<(u32, Vec<u8>), usize>;

fn captured(path: &TempPath) -> Counts {
    let file = fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(*file[at..].first_chunk().unwrap());
    let mut counts = Counts::new();
    let mut at = 0;
    while at < file.len() {
        let len = word(at + 4) as usize;
        if word(at) == 6 {
            let packet = word(at + 20) as usize;
            let flags = at + 28 + packet.next_multiple_of(4);
            assert_eq!(word(flags), 4 << 16 | 2, "a flags option of four bytes");
            let headers = 20 + 8;
            let bytes = file[at + 28 + headers..][..packet - headers].to_vec();
            *counts.entry((word(flags + 4), bytes)).or_default() += 1;
        }
        at += len;
    }
    counts
}

/// How many packets went in one direction.
fn total(counts: &Counts, way: u32) -> usize {
    let of_way = |((of, _), count): (&(u32, Vec<u8>), &usize)| (*of == way).then_some(*count);
    counts.iter().filter_map(of_way).sum()
}

#[test]
fn only_the_owner_reads_a_capture() {
    let path = temporary();
    drop(Tap::create(&path, TapDirection::Sent).unwrap());
    assert_eq!(mode(&path), 0o600);
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let tap = Tap::create(&path, TapDirection::Sent).unwrap();
    assert_eq!(mode(&path), 0o600, "of a file that was there before");
    exchange(0, [&tap; 2]);
    tap.finish().unwrap();
    assert!(fs::metadata(&path).unwrap().len() > 4 * 50_000);
}

/// A full disk costs the capture, not the traffic, and each query reports it.
#[test]
fn a_full_disk_is_reported() {
    let full = "/dev/full".as_ref();
    let before = fs::metadata(full).unwrap().permissions();
    let tap = Tap::create(full, TapDirection::Sent).unwrap();
    exchange(1, [&tap; 2]);
    for _ in 0..2 {
        let error = tap.finish().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }
    assert_eq!(fs::metadata(full).unwrap().permissions(), before);
}

#[test]
fn the_other_device_receives_what_is_sent() {
    let paths = [(); 2].map(|()| temporary());
    let taps = paths
        .each_ref()
        .map(|path| Tap::create(path, TapDirection::Both).unwrap());
    exchange(2, taps.each_ref());
    taps.iter().for_each(|tap| tap.finish().unwrap());
    let [a, b] = paths.each_ref().map(captured);
    for (from, to) in [(&a, &b), (&b, &a)] {
        assert!(total(to, INBOUND) > 10);
        for ((way, packet), received) in to {
            let sent = from.get(&(OUTBOUND, packet.clone())).copied();
            assert!(*way == OUTBOUND || sent.unwrap_or(0) >= *received);
        }
    }
}

#[test]
fn devices_with_one_tap_record_a_packet_once() {
    let path = temporary();
    let tap = Tap::create(&path, TapDirection::Both).unwrap();
    exchange(3, [&tap; 2]);
    let myself = node(4, 0, &tap);
    let qps = connect(&myself, &myself, &attr());
    myself.post(
        qps.0,
        1,
        myself.remote(60_000).write(),
        myself.sge(0, 50_000),
    );
    myself.succeed(1);
    tap.finish().unwrap();
    let counts = captured(&path);
    assert_eq!(total(&counts, INBOUND), 0);
    assert!(total(&counts, OUTBOUND) > 50);
}

/// All packets arrive at the last process that attached, which forwards those of the other one.
#[test]
fn a_packet_is_captured_by_the_process_it_is_for() {
    let place = Place::on_the_wire(address(48, 5, 0));
    let paths = [(); 2].map(|()| temporary());
    let taps = paths
        .each_ref()
        .map(|path| Tap::create(path, TapDirection::Both).unwrap());
    let [a, b] = taps.each_ref().map(|tap| {
        let options = AttachOptions {
            tap: Some(tap.clone()),
            ..AttachOptions::default()
        };
        let device = Device::attach(&place.registry(), "a", options);
        Node::on(device.unwrap(), 256 << 10)
    });
    check_all_kinds(&a, &b, connect(&a, &b, &attr()), 50_000, 1);
    let slots = [&a, &b].map(|node| node.device.slot());
    drop((a, b));
    taps.iter().for_each(|tap| tap.finish().unwrap());
    for (path, slot) in paths.iter().zip(slots) {
        let counts = captured(path);
        let to = |packet: &[u8]| packet[5]; // the top byte of the destination
        assert!(total(&counts, INBOUND) > 10 && total(&counts, OUTBOUND) > 10);
        for (way, packet) in counts.keys() {
            assert_eq!(*way == INBOUND, to(packet) == slot);
        }
    }
}
