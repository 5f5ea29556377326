//! A process of the device that is stopped (SIGSTOP): the others go on, and those that come later.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ferroce_interop::lab::{Lab, Ready, Running, free_port};

/// A program that has the device open and waits, and its process, which is not that of
/// `ferroce run`.
fn holder(lab: &Lab) -> (Running, String) {
    let running = lab.run(&["ibv_asyncwatch"]);
    let mut pid = None;
    wait_until(|| {
        let shown = lab.ferroce(&["-j", "res", "show", "ctx"]).success();
        let rows: serde_json::Value = serde_json::from_str(&shown).unwrap();
        pid = rows[0]["pid"].as_u64();
        pid.is_some()
    });
    (running, pid.unwrap().to_string())
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(20), "waited long");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The letter of proc(5).
fn state(pid: &str) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let behind_name = stat.rsplit_once(") ").unwrap().1;
    behind_name[..1].to_owned()
}

fn signal(name: &str, pid: &str) {
    let sent = Command::new("kill").args([name, pid]).status().unwrap();
    assert!(sent.success());
}

/// Two programs in a conversation on the lab's device.
fn converse(lab: &Lab, program: &str) {
    let port = free_port();
    let (text, address) = (port.to_string(), lab.address());
    let server = [program, "-g", "1", "-p", &text];
    let client = [&server[..], &[&address]].concat();
    let output = lab.pair(&server, Ready::Tcp(port), &client);
    for text in output {
        assert!(text.contains("1000 iters"), "{text}");
    }
}

#[test]
fn others_go_on_beside_a_stopped_process() {
    let lab = Lab::new("stopped");
    let (running, pid) = holder(&lab);
    signal("-STOP", &pid);
    let stopped = || state(&pid) == "T";
    wait_until(stopped);
    // Until it is known which socket is the stopped one's, packets may come to that and are lost;
    // these programs send them again, unlike ibv_ud_pingpong.
    for program in ["ibv_rc_pingpong", "ibv_srq_pingpong"] {
        converse(&lab, program);
    }
    assert!(stopped());
    signal("-CONT", &pid);
    converse(&lab, "ibv_rc_pingpong");
    running.kill();
}
