//! The cost of an idle device, and what it leaves behind when it is closed.

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::{
    Node, Other, PATIENCE, Place, address, attr, connect, connect_back, cpu_time, hear, open_files,
    pattern, role, tell, threads,
};
use ferroce_device::{SendWr, WcStatus};
use ferroce_registry::{DeviceSpec, LinkSetting, Registry};
use ferroce_runtime::{Device, DeviceConfig, OpenError};
use ferroce_sockets::BindError;

const LEN: usize = 64 << 10;

/// Runs the test in a process of its own, because the figures are the process's, or because a
/// program that another thread starts has copies of all sockets until it runs.
fn alone(test: &str, hosts: u8, number: u8) -> bool {
    if role().is_some() {
        return true;
    }
    let addresses: Vec<_> = (0..hosts)
        .map(|host| address(44, number, host).to_string())
        .collect();
    Other::start(test, &addresses.join(" ")).finish();
    false
}

fn addresses() -> Vec<std::net::IpAddr> {
    let role = role().unwrap();
    role.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn idle_devices_use_no_cpu() {
    if !alone("idle_devices_use_no_cpu", 6, 0) {
        return;
    }
    let nodes: Vec<_> = addresses()
        .into_iter()
        .map(|address| Node::open(address, LEN))
        .collect();
    // Queue pairs that have worked, with timers that have run, are idle as well; so is a device
    // whose program has polled, and one whose program sleeps in `wait`.
    for pair in nodes.chunks(2) {
        let (at_a, _) = connect(&pair[0], &pair[1], &attr());
        let write = pair[1].remote(0).write();
        pair[0].post(at_a, 1, write, pair[0].sge(0, LEN as u32));
        pair[0].succeed(1);
        pair[1].device.progress();
    }
    thread::sleep(Duration::from_millis(100));
    let (started, before) = (Instant::now(), cpu_time());
    let node = &nodes[0];
    let pause = Duration::from_secs(1);
    let taken = node.device.wait(node.cq, 1, &mut Vec::new(), pause);
    assert_eq!(taken, Ok(0));
    let (took, used) = (started.elapsed(), cpu_time() - before);
    eprintln!("six devices used {used:?} of {took:?}");
    assert!(
        used < took / 10,
        "six idle devices used {used:?} of {took:?}"
    );
}

/// 1 ms after its last packet, a process that has worked over rings uses about as much processor
/// time as one that sleeps.
#[test]
fn idle_rings_use_no_cpu() {
    let test = "idle_rings_use_no_cpu";
    let pause = Duration::from_secs(1);
    let Some(role) = role() else {
        let place = Place::new();
        let path = place.path().display();
        let spec = DeviceSpec {
            link: LinkSetting::Shm,
            ..DeviceSpec::new("a", address(44, 5, 0))
        };
        place.registry().add(&spec).unwrap();
        let used = |role: &str| -> Duration {
            let mut other = Other::start(test, role);
            let used = other.hear().parse().unwrap();
            other.finish();
            Duration::from_nanos(used)
        };
        let bare = used("bare");
        let node = Node::attach(&place.registry(), "a", LEN);
        let mut child = Other::start(test, &format!("{path}"));
        let link = child.connect(&node, &attr());
        assert_eq!(child.hear(), "connected");
        for _ in 0..100 {
            node.post(link.qpn, 1, link.memory.write(), node.sge(0, LEN as u32));
            node.succeed(1);
        }
        child.tell("rest");
        let theirs = Duration::from_nanos(child.hear().parse().unwrap());
        eprintln!("of {pause:?}: rings {theirs:?}, a process that sleeps {bare:?}");
        assert!(
            theirs < bare + pause / 20,
            "used {theirs:?} of {pause:?}, asleep {bare:?}"
        );
        child.finish();
        return;
    };
    if role[0] != "bare" {
        let node = Node::attach(&Registry::at(role[0].as_ref()).unwrap(), "a", LEN);
        connect_back(&node, &attr());
        tell("connected");
        assert_eq!(hear().as_deref(), Some("rest"));
        tell(slept(pause).as_nanos());
        hear();
        return;
    }
    tell(slept(pause).as_nanos());
}

/// Processor time of this process for the same time, from 1 ms on.
fn slept(pause: Duration) -> Duration {
    thread::sleep(Duration::from_millis(1));
    let before = cpu_time();
    thread::sleep(pause);
    cpu_time() - before
}

#[test]
fn nothing_is_left_of_closed_devices() {
    if !alone("nothing_is_left_of_closed_devices", 2, 1) {
        return;
    }
    let [here, there] = addresses()[..] else {
        panic!("two addresses")
    };
    let round = || {
        let (a, b) = (Node::open(here, LEN), Node::open(there, LEN));
        let (at_a, _) = connect(&a, &b, &attr());
        a.post(at_a, 1, b.remote(0).write(), a.sge(0, 10_000));
        a.succeed(1);
    };
    // The first devices create what lasts as long as the process.
    round();
    let (files, before) = (open_files(), threads());
    for _ in 0..50 {
        round();
    }
    assert_eq!(open_files(), files);
    assert_eq!(threads(), before);
    assert!(!before.keys().any(|name| name.starts_with("ferroce")));
}

#[test]
fn a_device_goes_in_the_middle_of_its_work() {
    if !alone("a_device_goes_in_the_middle_of_its_work", 2, 2) {
        return;
    }
    const DEEP: usize = 16;
    let [here, there] = addresses()[..] else {
        panic!("two addresses")
    };
    let b = Node::open(there, 1 << 20);
    b.buffer.write(0, &pattern(1 << 20, 1));
    for round in 0..20_u64 {
        let a = Node::open(here, 1 << 20);
        let (at_a, at_b) = connect(&a, &b, &attr());
        for n in 0..DEEP as u64 {
            let sge = a.sge(0, 1 << 20);
            let read = SendWr::new(n, b.remote(0).read(), sge);
            let write = SendWr::new(n, b.remote(0).write(), sge);
            a.device.post_send(at_a, [read, write]).unwrap();
            b.post(at_b, n, a.remote(0).write(), b.sge(0, 1 << 20));
        }
        a.succeed(1 + round as usize % 3);
        let started = Instant::now();
        drop(a);
        assert!(started.elapsed() < PATIENCE / 4, "dropping took long");
        // The requests of the other device are flushed with its queue pair.
        b.device.with(|hca| hca.destroy_qp(at_b)).unwrap();
        let mut late = Vec::new();
        b.device.wait(b.cq, 100, &mut late, Duration::ZERO).unwrap();
        assert!(late.iter().all(|c| c.status == WcStatus::Success));
    }
    // The other device still works.
    let a = Node::open(here, 1 << 20);
    let qps = connect(&a, &b, &attr());
    common::check_all_kinds(&a, &b, qps, 200_000, 2);
}

#[test]
fn a_second_device_at_an_address_is_refused_with_a_remedy() {
    let address = address(44, 3, 0);
    let _first = Node::open(address, LEN);
    let error = Device::open(DeviceConfig::new(address)).unwrap_err();
    let in_use = BindError::AddressInUse {
        address: (address, 4791).into(),
    };
    assert!(matches!(&error, OpenError::Bind(bind) if bind.to_string() == in_use.to_string()));
    let text = error.to_string();
    for part in [&address.to_string(), ":4791", "in use", "ss -ulnp"] {
        assert!(text.contains(part), "{text}");
    }
}

/// The device is closed when it is dropped, not some time later.
#[test]
fn an_address_is_free_at_once() {
    if !alone("an_address_is_free_at_once", 1, 4) {
        return;
    }
    for _ in 0..100 {
        drop(Device::open(DeviceConfig::new(addresses()[0])).unwrap());
    }
}
