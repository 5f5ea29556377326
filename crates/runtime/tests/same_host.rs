//! Peers on one host exchange packets through rings in shared memory. With `shm`, packets have no
//! other way from one queue pair to another, so what arrives has come through a ring.

mod common;

use std::time::{Duration, Instant};

use common::datagrams::{datagram, datagrams};
use common::echo::exchange;
use common::{
    Link, Node, Place, attr, check_all_kinds, connect, impatient_attr, nothing_was_lost,
    patient_attr, pattern,
};
use ferroce_capture::analyse;
use ferroce_device::{Counter, Direction, WcStatus};
use ferroce_os::{Tap, TapDirection};
use ferroce_registry::{DeviceSpec, LinkSetting, Observer};
use ferroce_runtime::{AttachOptions, Device};

const LEN: usize = 1 << 20;

/// A registry with a device for each link, `a`, `b` and so on.
fn place(test: u8, links: &[LinkSetting]) -> Place {
    Place::with_links(76, test, links)
}

fn observe(place: &Place, name: &str) -> Observer {
    let registry = place.registry();
    let spec = registry.device(name).unwrap();
    registry.observe_device(spec).unwrap()
}

#[test]
fn two_devices_of_one_process() {
    let place = place(0, &[LinkSetting::Shm, LinkSetting::Auto]);
    let (a, b) = (place.attach("a", LEN), place.attach("b", LEN));
    for round in 0..20 {
        let qps = connect(&a, &b, &patient_attr());
        check_all_kinds(&a, &b, qps, 1 + 25_000 * round as usize, round);
    }
    [&a, &b].into_iter().for_each(nothing_was_lost);
}

#[test]
fn a_queue_pair_that_is_its_own_peer() {
    let place = place(1, &[LinkSetting::Shm]);
    let a = place.attach("a", LEN);
    let qps = connect(&a, &a, &patient_attr());
    a.buffer.write(0, &pattern(100_000, 1));
    a.post(qps.0, 1, a.remote(LEN / 2).write(), a.sge(0, 100_000));
    a.succeed(1);
    assert_eq!(a.bytes(LEN / 2, 100_000), pattern(100_000, 1));
    nothing_was_lost(&a);
}

#[test]
fn two_processes_on_one_device_or_two() {
    let place = place(2, &[LinkSetting::Shm; 2]);
    for device in ["a", "b"] {
        let node = place.attach("a", LEN);
        let mut child = place.start(device, LEN, "echo");
        exchange(&node, &mut child, &patient_attr());
        // The child returned from its last `wait` and ended: its last acknowledgement still
        // arrived.
        child.finish();
        nothing_was_lost(&node);
    }
}

#[test]
fn udp_can_be_asked_for() {
    let all = [LinkSetting::Auto, LinkSetting::Udp, LinkSetting::Shm];
    let place = place(3, &all);
    let [auto, udp, shm] = ["a", "b", "c"].map(|name| place.attach(name, LEN));
    check_all_kinds(&auto, &udp, connect(&auto, &udp, &attr()), 100_000, 1);
    check_all_kinds(&auto, &shm, connect(&auto, &shm, &attr()), 100_000, 1);

    let received = || udp.count(Counter::RdmaRxPackets);
    let before = received();
    let (at_shm, _) = connect(&shm, &udp, &impatient_attr());
    shm.post(at_shm, 1, udp.remote(0).write(), shm.sge(0, 8));
    assert_eq!(shm.completion().status, WcStatus::RetryExcErr);
    assert!(shm.count(Counter::TxDropped) > 0);
    assert_eq!(received(), before);
}

#[test]
fn a_stopped_peer_loses_only_its_own_packets() {
    let place = place(5, &[LinkSetting::Shm; 3]);
    let (node, third) = (place.attach("a", LEN), place.attach("c", LEN));
    let mut child = place.start("b", LEN, "target");
    let Link { qpn, memory, .. } = child.meet(&node, &impatient_attr());
    node.post(qpn, 0, memory.write(), node.sge(0, 8));
    node.succeed(1);
    child.stop();
    node.post(qpn, 1, memory.write(), node.sge(0, LEN as u32));
    let qps = connect(&node, &third, &attr());
    node.post(qps.0, 2, third.remote(0).write(), node.sge(0, LEN as u32));
    let done = node.completions(2);
    let status = |id| done.iter().find(|c| c.wr_id == id).unwrap().status;
    assert_eq!(status(1), WcStatus::RetryExcErr);
    assert_eq!(status(2), WcStatus::Success);
    child.resume();
    // The packets in the ring are for a queue pair that it still has; the answers come too late.
    check_all_kinds(&node, &third, connect(&node, &third, &attr()), 10_000, 3);
}

/// More than a ring holds, for a stopped process: that is lost, and others soon get their packets.
#[test]
fn a_permanently_full_ring_does_not_delay_others() {
    let place = place(8, &[LinkSetting::Shm; 3]);
    let (node, third) = (place.attach("a", LEN), place.attach("c", LEN));
    let mut child = place.start("b", LEN, "target");
    let Link { qpn, peer, memory } = child.meet(&node, &attr());
    node.post(qpn, 0, memory.write(), node.sge(0, 8));
    node.succeed(1);

    child.stop();
    // Twice what a ring holds.
    const FLOOD: usize = 2048;
    let own = datagrams(&node);
    let flood = (0..FLOOD).map(|_| datagram(&node, peer));
    node.device.post_send(own, flood).unwrap();
    let qps = connect(&node, &third, &attr());
    let small = node.sge(0, 8);
    node.post(qps.0, 2, third.remote(0).write(), small);
    node.succeed(FLOOD + 1);
    assert_eq!(node.count(Counter::TxDropped), 0);

    // The process takes what the ring holds, and then the ring takes more. The kernel has lost
    // nothing.
    child.resume();
    node.post(qpn, 0, memory.write(), small);
    node.succeed(1);
    check_all_kinds(&node, &third, qps, 10_000, 3);
    let counted = |counter| observe(&place, "b").state().counter(counter);
    let dropped = counted(Counter::RxRingOverflow);
    // A ring holds at most 1024.
    assert!(
        (FLOOD as u64 / 2..FLOOD as u64).contains(&dropped),
        "{dropped}"
    );
    assert_eq!(counted(Counter::RxSocketOverflow), 0);
}

/// A window fits the ring, wherever the ring was when it was found empty: a process that does not
/// run for a while loses nothing.
#[test]
fn a_window_fits_a_ring() {
    let place = place(9, &[LinkSetting::Shm; 2]);
    let registry = place.registry();
    let window = "2MiB".parse().unwrap();
    let spec = registry.device("a").unwrap();
    registry.replace(&DeviceSpec { window, ..spec }).unwrap();
    let node = place.attach("a", LEN);
    let mut child = place.start("b", LEN, "target");
    let Link { qpn, memory, .. } = child.meet(&node, &patient_attr());
    // 64 of them take the ring to where it starts again the next time that it is empty.
    for packets in 61..68 {
        for _ in 0..packets {
            node.post(qpn, 0, memory.write(), node.sge(0, 4096));
            node.succeed(1);
        }
        child.stop();
        for _ in 0..3 {
            node.post(qpn, 0, memory.write(), node.sge(0, LEN as u32));
        }
        // Ten times as long as packets wait for room.
        let stopped = Instant::now();
        while stopped.elapsed() < Duration::from_millis(20) {
            node.device.progress();
        }
        child.resume();
        node.succeed(3);
        let dropped = observe(&place, "b")
            .state()
            .counter(Counter::RxRingOverflow);
        assert_eq!(dropped, 0, "after {packets} packets");
    }
    nothing_was_lost(&node);
}

#[test]
fn a_bad_link_is_as_bad_through_a_ring() {
    let place = place(6, &[LinkSetting::Shm; 2]);
    let (a, b) = (place.attach("a", LEN), place.attach("b", LEN));
    a.impair(Direction::Egress, "loss=1%,corrupt=2%");
    for round in 0..10 {
        check_all_kinds(&a, &b, connect(&a, &b, &attr()), 400_000, round);
    }
    assert!(b.count(Counter::RxIcrcEncapsulated) > 0);
    assert_eq!(a.count(Counter::TxDropped), 0);
}

/// Both captures look as from a wire: the packets of one are those of the other, with valid ICRCs.
#[test]
fn captures_are_as_from_a_wire() {
    let place = place(7, &[LinkSetting::Shm; 2]);
    let paths = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap().into_temp_path());
    let [sent, received] = [TapDirection::Sent, TapDirection::Both];
    for directions in [[sent, sent], [received, received]] {
        let taps = [0, 1].map(|n| Tap::create(&paths[n], directions[n]).unwrap());
        let [a, b] = [0, 1].map(|n| {
            let options = AttachOptions {
                tap: Some(taps[n].clone()),
                ..AttachOptions::default()
            };
            let device = Device::attach(&place.registry(), ["a", "b"][n], options);
            Node::on(device.unwrap(), LEN)
        });
        check_all_kinds(&a, &b, connect(&a, &b, &patient_attr()), 50_000, 1);
        nothing_was_lost(&a);
        drop((a, b));
        taps.iter().for_each(|tap| tap.finish().unwrap());
        for path in &paths {
            let capture = analyse(std::fs::File::open(path).unwrap()).unwrap();
            let said = &capture.conversations;
            assert_eq!((said.malformed, said.icrc_wrong), (0, 0));
            assert!(said.icrc_right > 20, "{} packets", said.icrc_right);
            let bytes: u64 = said.ways.iter().map(|way| way.bytes).sum();
            assert!(bytes >= 50_000, "{bytes} bytes of payload");
            for way in &said.ways {
                let requests = &way.requests;
                let wrong = [
                    requests.missing,
                    requests.repeated,
                    requests.out_of_sequence,
                ];
                assert_eq!(wrong, [0; 3], "{:?}", way.key);
            }
        }
    }
}
