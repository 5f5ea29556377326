//! Captures: who may read them, and what is in them when something goes wrong.

mod common;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::{env, process};

use common::{Node, address, attr, check_all_kinds, connect};
use ferroce_udp::{DeviceConfig, Tap};

struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        Self(env::temp_dir().join(format!("ferroce-{name}-{}.pcapng", process::id())))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn mode(path: &Temporary) -> u32 {
    fs::metadata(&path.0).unwrap().permissions().mode() & 0o777
}

fn exchange(test: u8, tap: &Tap) {
    let node = |host| {
        let tap = Some(tap.clone());
        let config = DeviceConfig::new(address(48, test, host));
        Node::with_config(DeviceConfig { tap, ..config }, 256 << 10)
    };
    let (a, b) = (node(0), node(1));
    let qps = connect(&a, &b, &attr());
    check_all_kinds(&a, &b, qps, 50_000, 1);
}

#[test]
fn only_the_owner_reads_a_capture() {
    let path = Temporary::new("mode");
    drop(Tap::create(&path.0).unwrap());
    assert_eq!(mode(&path), 0o600);
    fs::set_permissions(&path.0, Permissions::from_mode(0o644)).unwrap();
    let tap = Tap::create(&path.0).unwrap();
    assert_eq!(mode(&path), 0o600, "of a file that was there before");
    exchange(0, &tap);
    tap.finish().unwrap();
    assert!(fs::metadata(&path.0).unwrap().len() > 4 * 50_000);
}

/// A disk that is full costs the capture, not the traffic, and whoever asks is told each time.
#[test]
fn a_full_disk_is_reported() {
    let full = "/dev/full".as_ref();
    if File::open(full).is_err() {
        return eprintln!("skipped: no /dev/full here");
    }
    let before = fs::metadata(full).unwrap().permissions();
    let tap = Tap::create(full).unwrap();
    exchange(1, &tap);
    for _ in 0..2 {
        let error = tap.finish().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }
    assert_eq!(fs::metadata(full).unwrap().permissions(), before);
}
