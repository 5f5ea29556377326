//! Rings of many processes, of which some stop, die, come and go, and of many queue pairs. The
//! devices have `shm`, so packets have no other way from one queue pair to another.

mod common;

use common::echo::exchange;
use common::rings::{alone, rings, wait_for_rings};
use common::{
    Link, Node, Place, attr, check_all_kinds, connect, impatient_attr, nothing_was_lost,
    patient_attr, pattern,
};
use ferroce_device::WcStatus;
use ferroce_registry::LinkSetting;

const LEN: usize = 256 << 10;
/// Beside the test's own.
const PROCESSES: usize = 8;
const STOPS: usize = 0;
const DIES: usize = 1;
/// How many times the process that comes and goes does so.
const COMES: usize = 5;
const QUEUE_PAIRS: usize = 4_000;

/// A registry with devices `a` and `b`.
fn place(test: u8) -> Place {
    Place::with_links(84, test, &[LinkSetting::Shm; 2])
}

fn write(node: &Node, link: &Link, len: usize) {
    node.post(link.qpn, 1, link.memory.write(), node.sge(0, len as u32));
}

#[test]
fn eight_processes_one_stops_one_dies_one_comes_and_goes() {
    let _alone = alone();
    let place = place(0);
    let start = |number: usize, task| place.start(["a", "b"][number % 2], LEN, task);
    let node = place.attach("a", LEN);
    let connected = |number| {
        let mut other = start(number, "target");
        let link = other.meet(&node, &impatient_attr());
        write(&node, &link, 8);
        node.succeed(1);
        (other, link)
    };
    let mut others: Vec<_> = (0..PROCESSES - 1).map(connected).collect();
    // Each process has one to this process, and one from it.
    assert_eq!(rings().len(), 2 * (PROCESSES - 1));

    others[STOPS].0.stop();
    others[DIES].0.kill();
    for (_, link) in &others[..2] {
        write(&node, link, LEN);
    }
    let failed = node.completions(2);
    assert!(
        failed.iter().all(|it| it.status == WcStatus::RetryExcErr),
        "{failed:?}"
    );
    for round in 0..COMES {
        let mut comer = start(round, "echo");
        exchange(&node, &mut comer, &patient_attr());
        comer.finish();
        let rest = &others[2..];
        for (_, link) in rest {
            write(&node, link, LEN);
        }
        node.succeed(rest.len());
    }
    // Its queue pair has failed at this end; other peers find it unchanged.
    others[STOPS].0.resume();
    let (at_node, _) = connect(&node, &node, &attr());
    node.buffer.write(0, &pattern(1000, 1));
    node.post(at_node, 1, node.remote(LEN / 2).write(), node.sge(0, 1000));
    node.succeed(1);
    assert_eq!(node.bytes(LEN / 2, 1000), pattern(1000, 1));
    for (number, (other, _)) in others.into_iter().enumerate() {
        if number != DIES {
            other.finish();
        }
    }
    // Only the rings to itself.
    wait_for_rings(2);
}

#[test]
fn thousands_of_queue_pairs_share_a_ring() {
    let _alone = alone();
    let place = place(1);
    let [a, b] = ["a", "b"].map(|name| place.attach(name, LEN));
    let links: Vec<_> = (0..QUEUE_PAIRS)
        .map(|_| connect(&a, &b, &patient_attr()))
        .collect();
    for (number, (at_a, at_b)) in (0..).zip(&links) {
        // Lengths of one packet and of several.
        let len = 8 + number % 3 * 5000;
        a.post(*at_a, number.into(), b.remote(0).write(), a.sge(0, len));
        b.post(
            *at_b,
            number.into(),
            a.remote(LEN / 2).write(),
            b.sge(LEN / 2, len),
        );
    }
    a.succeed(QUEUE_PAIRS);
    b.succeed(QUEUE_PAIRS);
    // Both ends of both rings.
    assert_eq!(rings().len(), 4);
    let last = *links.last().unwrap();
    check_all_kinds(&a, &b, last, 10_000, 1);
    [&a, &b].into_iter().for_each(nothing_was_lost);
}
