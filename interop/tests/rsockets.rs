//! rsockets: Debian's rstream, riostream, rcopy and udpong, and iperf3 over librspreload.

use std::fs;
use std::net::UdpSocket;

use ferroce_interop::lab::{Lab, Ready, free_port};
use ferroce_testing::has;

/// Two ends of rstream or riostream, with the same options.
fn stream(program: &str, options: &str) {
    let lab = Lab::new(program);
    let (port, address) = (free_port(), lab.address());
    let port_text = port.to_string();
    let common = format!("{program} -p {port_text} {options}");
    let server = format!("{common} -b {address}");
    let client = format!("{common} -s {address}");
    let [_, output] = lab.pair(&server, Ready::Cm(port), &client);
    has(&output, ["usec/xfer"]);
    assert!(!output.contains("failed"), "{output}");
}

#[test]
fn data_arrives_as_it_was_sent() {
    for size in ["1", "64", "65536", "1000000"] {
        stream("rstream", &format!("-S {size} -C 20 -I 5 -T v"));
    }
}

#[test]
fn sockets_block_or_do_not_and_are_polled() {
    for way in ["b", "n", "a", "r"] {
        stream("rstream", &format!("-S 65536 -C 50 -T {way}"));
    }
}

/// More messages than the peer has receives for, and more bytes than its buffer holds.
#[test]
fn a_sender_waits_for_its_peer() {
    stream("rstream", "-S 16 -C 5000");
    stream("rstream", "-S 4000000 -C 5 -T v");
    stream("rstream", "-S 65536 -C 20 -B 16384 -T v");
}

#[test]
fn memory_is_mapped_for_the_peer() {
    stream("riostream", "-S 65536 -C 50 -T v");
}

/// A server of udpong, which does not exit, and a client that counts what comes back.
fn pong(lab: &Lab, between: impl FnOnce(&str)) {
    let (port, address) = (free_port().to_string(), lab.address());
    let common = format!("udpong -p {port} -T b");
    let served = lab.run(format!("{common} -b {address}"));
    between(&format!("{address}:{port}"));
    let options = format!("-s {address} -S 1000 -C 200 -T e");
    let output = lab.run(format!("{common} {options}")).success();
    served.kill();
    has(&output, ["custom"]);
}

#[test]
fn datagrams_go_both_ways() {
    pong(&Lab::new("udpong"), |_| {});
}

/// A socket keeps a limited number of peers, which get a queue pair. Those are silent, and peers
/// beyond the limit are served over UDP.
#[test]
fn datagrams_come_from_more_peers_than_are_kept() {
    const PEERS: usize = 1100;
    let lab = Lab::new("udpong-peers");
    let ip: std::net::Ipv4Addr = lab.address().parse().unwrap();
    // The header of a message over UDP, without a datagram.
    let mut head = vec![0x55, 0x55, 0x55, 0x55, 4, 7, 16, 0, 0, 0, 1, 2];
    head.extend(ip.octets());
    pong(&lab, |server| {
        for _ in 0..PEERS {
            let peer = UdpSocket::bind((ip, 0)).unwrap();
            peer.send_to(&head, server).unwrap();
        }
    });
}

#[test]
fn a_child_of_a_fork_has_sockets_of_its_own() {
    let lab = Lab::new("rsocket_fork");
    let program = lab.compile("rsocket_fork");
    let output = lab.run([program.to_str().unwrap()]).success();
    assert_eq!(output, "done\n");
}

#[test]
fn a_file_is_copied() {
    let lab = Lab::new("rcopy");
    let port = free_port().to_string();
    let content: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (from, to) = (lab.path().join("from"), lab.path().join("state/to"));
    fs::write(&from, &content).unwrap();
    let server = format!("rcopy -p {port}");
    let target = format!("{}:{}", lab.address(), to.display());
    let client = format!("rcopy {} {target} -p {port}", from.to_str().unwrap());
    // The server does not exit.
    let served = Ready::Cm(port.parse().unwrap()).wait(&lab, lab.run(&server));
    lab.run(&client).success();
    served.kill();
    assert!(fs::read(&to).unwrap() == content, "the copy differs");
}

/// A program written for plain sockets.
#[test]
fn programs_of_sockets_run_preloaded() {
    let mut lab = Lab::new("rspreload");
    let port = free_port();
    let port_text = port.to_string();
    lab.set("LD_PRELOAD", "librspreload.so")
        .set("LD_LIBRARY_PATH", "/usr/lib/x86_64-linux-gnu/rsocket");
    let address = lab.address();
    let server = format!("iperf3 -s -1 -p {port_text} -B {address}");
    let client = format!("iperf3 -c {address} -p {port_text} -n 100M");
    let [served, asked] = lab.pair(&server, Ready::Cm(port), &client);
    for output in [served, asked] {
        has(&output, ["receiver"]);
    }
}
