//! A port that flaps while eight more processes share its device: one leaves meanwhile, one with
//! thousands of queue pairs is killed, and one is stopped.

mod common;

use std::thread;
use std::time::Duration;

use common::flaps::{flaps, watch_flaps};

use common::{Link, Node, Other, Place, address, attr, connect_back, hear, role, tell, wait_until};
use ferroce_registry::Registry;

const FLAPS: u32 = 40;
const OTHERS: usize = 8;
const LEAVES: usize = 0;
const DIES: usize = 1;
const STOPS: usize = 2;
/// Queue pairs of the process that is killed.
const MANY: usize = 4_000;
const BYTES: usize = 4096;

/// One of the other processes.
fn other(path: &str, number: usize) {
    let node = Node::attach(&Registry::at(path.as_ref()).unwrap(), "a", BYTES);
    let many = if number == DIES { MANY } else { 0 };
    for _ in 0..many {
        node.qp();
    }
    connect_back(&node, &attr());
    tell("connected");
    if number != LEAVES {
        watch_flaps(&node, FLAPS);
        tell("seen");
    }
    hear();
}

#[test]
fn each_flap_is_told_while_processes_leave_die_or_stop() {
    let test = "each_flap_is_told_while_processes_leave_die_or_stop";
    if let Some(role) = role() {
        return other(&role[0], role[1].parse().unwrap());
    }
    let place = Place::with_device(address(83, 0, 1));
    let registry = place.registry();
    let node = Node::attach(&registry, "a", BYTES);
    let mut others: Vec<(Other, Link)> = (0..OTHERS)
        .map(|number| {
            let mut other = Other::start(test, &format!("{} {number}", place.path().display()));
            let link = other.meet(&node, &attr());
            (other, link)
        })
        .collect();
    let cores = thread::available_parallelism().unwrap().get();
    wait_until("the processes are counted", || {
        node.device.progress();
        node.device.is_crowded() == (OTHERS + 1 > cores)
    });
    let observer = registry.observe("a").unwrap();
    observer.set_schedule(flaps(FLAPS)).unwrap();

    thread::sleep(Duration::from_millis(50));
    others[STOPS].0.stop();
    others[DIES].0.kill();
    let rest = others.split_off(1);
    for (leaves, _) in others {
        leaves.finish();
    }
    watch_flaps(&node, FLAPS);
    let (mut rest, mut stopped): (Vec<_>, Vec<_>) = rest
        .into_iter()
        .enumerate()
        .filter(|(place, _)| place + 1 != DIES)
        .partition(|(place, _)| place + 1 != STOPS);
    for (number, (other, link)) in &mut rest {
        assert_eq!(other.hear(), "seen", "{number}");
        write(&node, link);
    }
    // It is told of all of them, late.
    for (_, (other, link)) in &mut stopped {
        other.resume();
        assert_eq!(other.hear(), "seen");
        write(&node, link);
    }
    let port = observer.port();
    assert_eq!((port.is_up, port.downed), (true, FLAPS.into()));
    for (_, (other, _)) in rest.into_iter().chain(stopped) {
        other.finish();
    }
}

fn write(node: &Node, link: &Link) {
    node.post(link.qpn, 1, link.memory.write(), node.sge(0, 64));
    node.succeed(1);
}
