//! Adaptive routing on sockets: the kernel's own choice among equal paths (ECMP) spreads the packets.

use std::path::Path;
use std::process::Command;

use ferroce_interop::lab::program;
use ferroce_testing::{said, skip};

/// Packets of `ib_write_bw`.
const PACKETS: u64 = 64_000;

/// What each of four paths has carried, and what the sender has sent; `None` if namespaces are not allowed.
fn carried(setting: &str) -> Option<(Vec<u64>, u64)> {
    let directory = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/equal_paths.sh");
    let (status, stdout, stderr) = said(
        Command::new("unshare")
            .args("--map-root-user --net --pid --fork --kill-child --mount-proc sh".split(' '))
            .args([&script, &program(), directory.path()])
            .arg(setting)
            .output()
            .unwrap(),
    );
    if stderr.contains("unshare") {
        skip("packets_take_several_equal_paths", stderr.trim());
        return None;
    }
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    let number = |text: &str| text.parse::<u64>().unwrap();
    let paths = stdout.lines().filter_map(|line| line.strip_prefix("path "));
    let sent = stdout.split_once("rdma_tx_packets ").unwrap().1;
    let sent = number(sent.split_whitespace().next().unwrap());
    Some((paths.map(number).collect(), sent))
}

#[test]
fn packets_take_several_equal_paths() {
    let Some((paths, sent)) = carried("adaptive_routing_forced_en=1") else {
        return;
    };
    let all: u64 = paths.iter().sum();
    // The kernel hashes 32 ports with a seed of its own.
    let used = paths.iter().filter(|path| **path * 50 > all);
    assert!(used.count() >= 3, "{paths:?}");
    assert!(sent < PACKETS + PACKETS / 20, "{sent} sent");

    let (paths, _) = carried("adaptive_routing_forced_en=0").unwrap();
    let all: u64 = paths.iter().sum();
    assert!(paths.iter().any(|path| path * 10 > all * 9), "{paths:?}");
}
