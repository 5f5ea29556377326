//! What `ferroce run --pcap` records, as tshark reads it.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ferroce_interop::lab::{Lab, Ready, free_port};
use ferroce_interop::tshark::fields;

/// The destination queue pairs of all packets; every one must be a whole RoCE packet.
fn queue_pairs(capture: &Path) -> HashSet<String> {
    let rows = fields(capture, "frame", "infiniband.bth.destqp _ws.malformed");
    let qp = |row: Vec<String>| {
        assert!(!row[0].is_empty() && row[1].is_empty(), "{row:?}");
        row[0].clone()
    };
    rows.into_iter().map(qp).collect()
}

/// Removes the block that a killed process has written in part: the kernel ends a `write` of
/// several pages after any of them. The rest is less than a packet.
fn keep_whole_blocks(capture: &Path) {
    const PACKET_BLOCK_MAX: usize = 8 << 10;
    let bytes = fs::read(capture).unwrap();
    let mut whole = 0;
    while let Some(len) = bytes[whole..].get(4..8) {
        let end = whole + u32::from_le_bytes(len.try_into().unwrap()) as usize;
        if end == whole || end > bytes.len() {
            break;
        }
        whole = end;
    }
    let cut = bytes.len() - whole;
    assert!(cut < PACKET_BLOCK_MAX, "{cut} bytes belong to no packet");
    fs::write(capture, &bytes[..whole]).unwrap();
}

#[test]
fn a_capture_replaces_an_older_one() {
    let lab = Lab::new("pcap");
    let state = lab.path().join("state");
    let captures = ["server.pcapng", "client.pcapng"];
    for capture in captures {
        fs::write(state.join(capture), "an older capture").unwrap();
    }
    let port = free_port();
    let port_text = port.to_string();
    let server = format!("ibv_rc_pingpong -g 1 -p {port_text}");
    let running = lab.run_with(format!("--pcap {}", captures[0]), &server);
    let running = Ready::Tcp(port).wait(&lab, running);
    let client = format!("{server} 127.0.0.1");
    lab.run_with(format!("--pcap {}", captures[1]), &client)
        .success();
    running.success();
    let seen = captures.map(|capture| queue_pairs(&state.join(capture)));
    assert_eq!(seen[0].len(), 2, "what is sent and what arrives");
    assert_eq!(seen[0], seen[1], "of the same two queue pairs");
}

#[test]
fn a_killed_program_leaves_its_capture() {
    let lab = Lab::new("pcap-kill");
    let capture = lab.path().join("state/killed.pcapng");
    let port = free_port();
    let port_text = port.to_string();
    let server = format!("ibv_rc_pingpong -g 1 -n 100000000 -p {port_text}");
    let server_running = lab.run_with("--pcap killed.pcapng", &server);
    let server_running = Ready::Tcp(port).wait(&lab, server_running);
    let client = lab.run(format!("{server} 127.0.0.1"));
    let started = Instant::now();
    let written = || fs::metadata(&capture).map_or(0, |file| file.len());
    while written() < 1 << 20 {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "nothing is written"
        );
        thread::sleep(Duration::from_millis(50));
    }
    server_running.kill();
    client.kill();
    keep_whole_blocks(&capture);
    assert_eq!(queue_pairs(&capture).len(), 2, "sent and received");
}
