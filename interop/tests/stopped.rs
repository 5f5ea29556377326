//! While a process of the device is stopped (SIGSTOP), the others continue, and new ones can join.

use std::fs;

use ferroce_interop::lab::{Lab, Ready, Running, free_port, signal, until};
use ferroce_testing::has;

/// A program that has a queue pair on the device and waits for its peer, and its process, which is
/// not that of `ferroce run`.
fn holder(lab: &Lab) -> (Running, String) {
    let port = free_port();
    let server = lab.run(format!("ibv_rc_pingpong -g 1 -p {}", port));
    let running = Ready::Tcp(port).wait(lab, server);
    let pid = until("a process of the device", || lab.process());
    (running, pid.to_string())
}

/// The letter of proc(5).
fn state(pid: &str) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let behind_name = stat.rsplit_once(") ").unwrap().1;
    behind_name[..1].to_owned()
}

/// Two programs that exchange messages on the lab's device.
fn converse(lab: &Lab, program: &str) {
    let port = free_port();
    let (text, address) = (port.to_string(), lab.address());
    let server = format!("{program} -g 1 -p {text}");
    let client = format!("{server} {address}");
    let output = lab.pair(&server, Ready::Tcp(port), &client);
    for text in output {
        has(&text, ["1000 iters"]);
    }
}

#[test]
fn a_stopped_process_does_not_stop_others() {
    let lab = Lab::new("stopped");
    let (running, pid) = holder(&lab);
    assert!(signal("-STOP", &pid));
    let stopped = || state(&pid) == "T";
    until("the stopped process", || stopped().then_some(()));
    for program in ["ibv_rc_pingpong", "ibv_srq_pingpong", "ibv_ud_pingpong"] {
        converse(&lab, program);
    }
    // Requests for connections reach the listener, and answers the requester.
    let address = lab.address();
    let rping = |port: u16, side: &str| {
        let port = port.to_string();
        lab.run(format!("rping -a {address} -p {port} -C 10 -V {side}"))
    };
    let servers: Vec<_> = (0..8)
        .map(|_| free_port())
        .map(|port| (port, rping(port, "-s")))
        .collect();
    // Each query takes a while, since the stopped process does not answer.
    until("the servers", || {
        let shown = lab.ferroce("-j res show cm_id").finish();
        let listens = |port: &u16| shown.to_string().contains(&port.to_string());
        servers.iter().all(|(port, _)| listens(port)).then_some(())
    });
    for (port, server) in servers {
        rping(port, "-c").success();
        // How it ends is a race between its threads.
        server.finish();
    }
    assert!(stopped());
    assert!(signal("-CONT", &pid));
    converse(&lab, "ibv_rc_pingpong");
    running.kill();
}
