//! rsockets: Debian's rstream, riostream and rcopy, and iperf3 over librspreload.

use std::fs;

use ferroce_interop::lab::{Lab, Ready, free_port};

/// Two ends of rstream or riostream, with the same options.
fn stream(program: &str, options: &[&str]) {
    let lab = Lab::new(program);
    let (port, address) = (free_port(), lab.address());
    let port_text = port.to_string();
    let common = [&[program, "-p", &port_text], options].concat();
    let server = [&common[..], &["-b", &address]].concat();
    let client = [&common[..], &["-s", &address]].concat();
    let [_, output] = lab.pair(&server, Ready::Cm(port), &client);
    assert!(output.contains("usec/xfer"), "{output}");
    assert!(!output.contains("failed"), "{output}");
}

#[test]
fn data_arrives_as_it_was_sent() {
    for size in ["1", "64", "65536", "1000000"] {
        stream("rstream", &["-S", size, "-C", "20", "-I", "5", "-T", "v"]);
    }
}

#[test]
fn sockets_block_or_do_not_and_are_polled() {
    for way in ["b", "n", "a", "r"] {
        stream("rstream", &["-S", "65536", "-C", "50", "-T", way]);
    }
}

/// More messages than the peer has receives for, and more bytes than its buffer holds.
#[test]
fn a_sender_waits_for_its_peer() {
    stream("rstream", &["-S", "16", "-C", "5000"]);
    stream("rstream", &["-S", "4000000", "-C", "5", "-T", "v"]);
    stream(
        "rstream",
        &["-S", "65536", "-C", "20", "-B", "16384", "-T", "v"],
    );
}

#[test]
fn memory_is_mapped_for_the_peer() {
    stream("riostream", &["-S", "65536", "-C", "50", "-T", "v"]);
}

#[test]
fn a_file_is_copied() {
    let lab = Lab::new("rcopy");
    let port = free_port().to_string();
    let content: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (from, to) = (lab.path().join("from"), lab.path().join("state/to"));
    fs::write(&from, &content).unwrap();
    let server = ["rcopy", "-p", &port];
    let target = format!("{}:{}", lab.address(), to.display());
    let client = ["rcopy", from.to_str().unwrap(), &target, "-p", &port];
    // It serves for ever.
    let served = Ready::Cm(port.parse().unwrap()).wait(&lab, lab.run(&server));
    lab.run(&client).success();
    served.kill();
    assert!(fs::read(&to).unwrap() == content, "the copy differs");
}

/// A program that knows nothing of it.
#[test]
fn programs_of_sockets_run_preloaded() {
    let mut lab = Lab::new("rspreload");
    let port = free_port();
    let port_text = port.to_string();
    lab.set("LD_PRELOAD", "librspreload.so")
        .set("LD_LIBRARY_PATH", "/usr/lib/x86_64-linux-gnu/rsocket");
    let address = lab.address();
    let server = ["iperf3", "-s", "-1", "-p", &port_text, "-B", &address];
    let client = ["iperf3", "-c", &address, "-p", &port_text, "-n", "100M"];
    let [served, asked] = lab.pair(&server, Ready::Cm(port), &client);
    for output in [served, asked] {
        assert!(output.contains("receiver"), "{output}");
    }
}
