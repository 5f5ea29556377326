//! Devices whose process forks, or ends.

mod common;

use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, process, thread};

use common::{
    Link, Node, Other, Over, Place, address, check_all_kinds, connect, connect_back, hear,
    patient_attr, role, tell,
};
use ferroce_device::{SendOp, SendWr};
use ferroce_os::after_fork_in_child;
use ferroce_registry::{Observer, Registry, ServiceClaim, ServiceError, ServiceScope};
use ferroce_wire::{Qpn, cm::PortSpace};

const LEN: usize = 1 << 16;

fn attach(directory: &Path) -> Node {
    Node::attach(&Registry::at(directory).unwrap(), "a", LEN)
}

fn claim(node: &Node, port: u16) -> Result<ServiceClaim, ServiceError> {
    let device = &node.device;
    device.claim_service(PortSpace::Tcp, port, ServiceScope::Device)
}

fn slots(observer: &Observer) -> Vec<u8> {
    let processes = observer.processes().unwrap();
    processes.iter().map(|process| process.slot).collect()
}

/// Forks during a connection. The child checks what it has, opens devices of its own, and runs
/// until its input ends.
fn parent(directory: &Path) {
    let node = attach(directory);
    let claim = claim(&node, 7471).unwrap();
    let qpn = connect_back(&node, &patient_attr()).qpn;
    // SAFETY: the child calls `after_fork_in_child` first, as required; the test is about what else
    // it does.
    if unsafe { libc::fork() } == 0 {
        after_fork_in_child();
        // A panic would reach the test harness, whose threads do not exist here.
        let looked = catch_unwind(AssertUnwindSafe(|| child(directory, node, qpn)));
        if looked.is_ok() {
            drop(claim);
            tell("child");
            while hear().is_some() {}
        }
        process::exit(looked.is_err().into());
    }
    // If the child ends before the parent is killed, the test has failed.
    // SAFETY: waits for any child, and its status is not asked for.
    unsafe { libc::wait(std::ptr::null_mut()) };
    process::exit(1);
}

fn child(directory: &Path, node: Node, qpn: Qpn) {
    assert!(node.device.is_orphaned());
    let write = SendWr::new(1, SendOp::Send { imm: None }, node.sge(0, 8));
    assert!(node.device.post_send(qpn, [write]).is_err());
    assert!(node.device.poll(node.cq, 1, &mut Vec::new()).is_err());
    assert!(node.device.with(|hca| hca.query_qp(qpn)).is_err());
    assert!(node.device.poll_event().is_none());
    assert!(claim(&node, 0).is_err());
    node.device.progress();
    let socket_of_parent = format!("a.{}", node.device.slot());
    drop(node);
    assert!(!names(directory).contains(&socket_of_parent));

    let (a, b) = (attach(directory), attach(directory));
    assert!(!a.device.is_orphaned());
    let qps = connect(&a, &b, &patient_attr());
    check_all_kinds(&a, &b, qps, 20_000, 1);
    // They are kept until the child ends.
    std::mem::forget((a, b));
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    entries.map(|entry| name(entry.unwrap())).collect()
}

#[test]
fn a_child_keeps_nothing_of_its_parents() {
    if let Some(role) = role() {
        return parent(Path::new(&role[1]));
    }
    let place = Place::with_device(address(141, 0, 0));
    let observer = place.registry().observe("a").unwrap();
    let test = "a_child_keeps_nothing_of_its_parents";
    let mut other = Other::start(test, &format!("parent {}", place.path().display()));
    let node = attach(place.path());
    let attr = patient_attr();
    let Link { qpn, peer, memory } = other.connect(&node, &attr);
    let parent = (peer.qpn.value() >> 16) as u8;
    assert_eq!(other.hear(), "child");

    // The parent works as if nothing had happened.
    for round in 0..10 {
        node.post(qpn, round, memory.write(), node.sge(0, LEN as u32));
        node.succeed(1);
    }
    assert!(claim(&node, 7471).is_err(), "the parent has it");
    assert_eq!(slots(&observer).len(), 4);

    // When the parent dies, nothing of it stays, although its child has copies.
    other.kill();
    let left = slots(&observer);
    assert!(left.len() == 3 && !left.contains(&parent), "{left:?}");
    claim(&node, 7471).unwrap();
    let more = attach(place.path());
    let qps = connect(&node, &more, &attr);
    check_all_kinds(&node, &more, qps, 20_000, 1);
    drop(other);
}

/// A program that a child executes has none of the library's files.
#[test]
fn a_program_that_is_started_inherits_nothing() {
    let place = Place::with_device(address(141, 1, 0));
    let count = || {
        let mut command = Command::new("ls");
        command.arg("/proc/self/fd").stdin(process::Stdio::null());
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().count()
    };
    let before = count();
    let node = attach(place.path());
    let observer = place.registry().observe("a").unwrap();
    assert_eq!(count(), before);
    drop((node, observer));
}

#[test]
fn the_last_acknowledgement_leaves_with_the_process() {
    if let Some(role) = role() {
        let node = attach(Path::new(&role[1]));
        let qpn = connect_back(&node, &patient_attr()).qpn;
        node.post_recv(qpn, 0, 0, 64);
        tell("connected");
        let mut out = Vec::new();
        while node.device.poll(node.cq, 1, &mut out).unwrap() == 0 {}
        node.device.finish();
        process::exit(0);
    }
    let place = Place::with_device(address(141, 2, 0));
    let test = "the_last_acknowledgement_leaves_with_the_process";
    for _ in 0..5 {
        let mut other = Other::start(test, &format!("exit {}", place.path().display()));
        let node = attach(place.path());
        let qpn = other.connect(&node, &patient_attr()).qpn;
        assert_eq!(other.hear(), "connected");
        node.post(qpn, 1, SendOp::Send { imm: None }, node.sge(0, 8));
        node.succeed(1);
        other.finish();
    }
}

/// Ends the process where a panic would leave it without the thread that waits for its end.
struct ExitOnPanic;

impl Drop for ExitOnPanic {
    fn drop(&mut self) {
        process::exit(1);
    }
}

/// A descriptor that the library used is not reused for something else while the library still
/// considers it its own.
#[test]
fn a_child_gets_other_descriptors_than_its_parents_devices() {
    if let Some(role) = role() {
        let node = attach(Path::new(&role[1]));
        let before = fs::read_dir("/proc/self/fd").unwrap().count();
        // SAFETY: as in `parent`.
        if unsafe { libc::fork() } == 0 {
            after_fork_in_child();
            let _exit = ExitOnPanic;
            let sockets = || {
                let links = fs::read_dir("/proc/self/fd").unwrap();
                let link = |entry: fs::DirEntry| fs::read_link(entry.path()).ok();
                let links: Vec<_> = links.filter_map(|entry| link(entry.unwrap())).collect();
                let ours = |link: &&std::path::PathBuf| {
                    let link = link.to_string_lossy();
                    link.starts_with("socket:") || link.ends_with(".state")
                };
                (links.len(), links.iter().filter(ours).count())
            };
            assert_eq!(sockets(), (before, 0));
            let file = fs::File::open("/dev/null").unwrap();
            drop(node);
            assert!(file.as_raw_fd() >= 0 && file.metadata().is_ok());
            tell("good");
            process::exit(0);
        }
        while hear().is_some() {}
        process::exit(0);
    }
    let place = Place::with_device(address(141, 3, 0));
    let test = "a_child_gets_other_descriptors_than_its_parents_devices";
    let mut other = Other::start(test, &format!("numbers {}", place.path().display()));
    assert_eq!(other.hear(), "good");
    other.finish();
}

/// Until a new program runs, its process has copies of all sockets.
#[test]
fn programs_may_start_meanwhile() {
    let place = Place::with_device(address(141, 4, 0));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    assert!(Command::new("true").status().unwrap().success());
                }
            });
        }
        let _over = Over(&over);
        (0..300).for_each(|_| drop(attach(place.path())));
    });
}
