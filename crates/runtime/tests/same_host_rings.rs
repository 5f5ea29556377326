//! The rings: how many there are, when they are removed, and the effect of a faulty peer. Tests
//! here inspect the memory of the whole process, so they run one at a time.

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;

use common::datagrams::{datagram, datagrams};
use common::rings::{Mapped, alone, rings, wait_for_rings, wait_for_rings_that};
use common::{Link, Node, Place, attr, check_all_kinds, connect, impatient_attr, open_files};
use ferroce_device::Counter;
use ferroce_registry::LinkSetting;

const LEN: usize = 1 << 20;

/// Rings that a process writes, and that it reads, for each device.
const RINGS_MAX: usize = 64;

/// A registry with devices `a` and `b`.
fn place(test: u8) -> Place {
    Place::with_links(78, test, &[LinkSetting::Auto; 2])
}

#[test]
fn a_killed_peer_is_noticed_and_its_rings_go() {
    let _alone = alone();
    let place = place(0);
    let node = place.attach("a", LEN);
    // The second process gets a ring of its own.
    for _ in 0..2 {
        let mut child = place.start("b", LEN, "target");
        let both = || assert_eq!(rings().len(), 2);
        child.meet_and_die(&node, &impatient_attr(), LEN as u32, both);
        wait_for_rings(0);
    }
}

/// More peers than there are rings: the rest use UDP.
#[test]
fn rings_are_bounded_and_gone_when_their_ends_are() {
    let _alone = alone();
    let place = place(1);
    let files = open_files();
    let target = place.attach("b", LEN);
    let senders: Vec<Node> = (0..RINGS_MAX + 3)
        .map(|n| {
            let sender = place.attach("a", 4096);
            let (at_sender, _) = connect(&sender, &target, &attr());
            let write = target.remote(n * 64).write();
            sender.post(at_sender, 1, write, sender.sge(0, 64));
            sender.succeed(1);
            sender
        })
        .collect();
    // Both ends are in this process, and each acknowledges through a ring of its own.
    assert_eq!(rings().len(), 4 * RINGS_MAX);
    drop(senders);
    wait_for_rings(0);
    // There is room for others now.
    let sender = place.attach("a", LEN);
    let qps = connect(&sender, &target, &attr());
    check_all_kinds(&sender, &target, qps, 1000, 1);
    wait_for_rings(4);
    drop((sender, target));
    wait_for_rings(0);
    assert_eq!(open_files(), files);
}

/// Pages are allocated with traffic, as many as it needs, and most of them are freed when it stops.
#[test]
fn memory_of_rings_comes_and_goes_with_traffic() {
    let _alone = alone();
    let place = place(3);
    let node = place.attach("a", LEN);
    assert!(rings().is_empty());
    let mut child = place.start("b", LEN, "target");
    let Link { qpn, peer, memory } = child.meet(&node, &attr());
    assert!(rings().is_empty());
    node.post(qpn, 0, memory.write(), node.sge(0, 8));
    node.succeed(1);
    let few = |kib| move |rings: &[Mapped]| rings.iter().all(|ring| ring.used_kib <= kib);
    assert!(rings().len() == 2 && few(64)(&rings()), "{:?}", rings());

    // As much as the ring holds, for a stopped process.
    child.stop();
    let own = datagrams(&node);
    let flood = (0..1024).map(|_| datagram(&node, peer));
    node.device.post_send(own, flood).unwrap();
    node.succeed(1024);
    assert!(
        rings().iter().any(|ring| ring.used_kib > 3 << 10),
        "{:?}",
        rings()
    );
    child.resume();
    // When this is acknowledged, all of that has been read; the sender then has nothing to do.
    node.post(qpn, 0, memory.write(), node.sge(0, 8));
    node.succeed(1);
    wait_for_rings_that(few(512));
    // The remaining memory still works.
    node.post(qpn, 0, memory.write(), node.sge(0, LEN as u32));
    node.succeed(1);
    child.finish();
    wait_for_rings(0);
}

/// A process writes anything anywhere in its rings: it loses the rings and their packets. Its other
/// traffic continues over UDP.
#[test]
fn a_peer_that_corrupts_a_ring_loses_only_its_own_packets() {
    let _alone = alone();
    let place = place(2);
    let memory = File::options().write(true).open("/proc/self/mem").unwrap();
    // The places and values: positions, a header, the word that identifies the memory.
    let scribbles = [
        (128, u64::MAX),
        (128, 64),
        (256, u64::MAX),
        (256, 1 << 40),
        (4096, u64::MAX),
        (0, 0),
    ];
    for (round, (offset, word)) in scribbles.into_iter().enumerate() {
        let (a, b) = (place.attach("a", LEN), place.attach("b", LEN));
        let qps = connect(&a, &b, &attr());
        check_all_kinds(&a, &b, qps, 10_000, round as u64);
        for ring in rings() {
            let at = ring.start + offset;
            memory.write_at(&word.to_ne_bytes(), at).unwrap();
        }
        for more in 1..4 {
            check_all_kinds(&a, &b, connect(&a, &b, &attr()), 400_000, more);
        }
        let malformed = [&a, &b].map(|node| node.count(Counter::RxMalformed));
        assert!(malformed[0] + malformed[1] <= 2 * (round as u64 + 1));
        drop((a, b));
        wait_for_rings(0);
    }
}
