//! The bound holds, and requests that wait for it complete.

use ferroce_admission::{Bounds, Window};
use ferroce_device::{Counter, SendWr, WcStatus};

use crate::link::{Link, Receiver, without_timeout};
use ferroce_testing::{A, B, Region, SEND, config, recv_wr};

const LEN: usize = 64 << 10;

fn small(peer_bytes: u32) -> Bounds {
    Bounds {
        peer_bytes,
        window: Window::Fixed(peer_bytes),
        response_bytes: peer_bytes / 2,
    }
}

fn write(remote: &Region, own: &Region) -> SendWr {
    SendWr::new(0, remote.write(), own.whole())
}

fn read(remote: &Region, own: &Region) -> SendWr {
    SendWr::new(0, remote.read(), own.whole())
}

/// All queue pairs at once, without timeouts that would retransmit lost packets.
fn run(to: usize, qps: usize, bound: u32, wr: fn(&Region, &Region) -> SendWr) {
    run_with(Window::Fixed(bound), to, qps, bound, wr);
}

fn run_with(window: Window, to: usize, qps: usize, bound: u32, wr: fn(&Region, &Region) -> SendWr) {
    let receiver = Receiver {
        buffer: (2 * u64::from(bound)).max(8 << 10),
        ..Receiver::default()
    };
    let bounds = Bounds {
        window,
        ..small(bound)
    };
    let mut link = Link::new(config(), bounds, [receiver; 2]);
    let pairs = link.connect(to, qps, without_timeout());
    let [own, remote] = link.regions(to, LEN);
    let receives = wr(&remote, &own).op == SEND;
    for [a, b] in &pairs {
        if receives {
            let request = recv_wr(1, &remote);
            link.pair.sides[to].hca.post_recv(*b, request).unwrap();
        }
        link.post(*a, wr(&remote, &own));
    }
    link.run();
    let sent = |wc: &&ferroce_device::Completion| wc.wr_id == 0;
    let done = link.side().completions.iter().filter(sent);
    assert_eq!(done.clone().count(), qps, "{} drops", link.drops());
    assert!(done.clone().all(|wc| wc.status == WcStatus::Success));
    assert_eq!(link.drops(), 0, "{qps} queue pairs, bound {bound}");
    assert_eq!(link.count(Counter::RetransmittedPackets), 0);
    assert!(link.peak() <= receiver.buffer);
    link.pair.sides[A].hca.audit();
}

#[test]
fn no_packet_is_lost_with_any_number_of_writers() {
    for qps in [1, 2, 63, 1_000, 4_096] {
        run(B, qps, 1 << 20, write);
    }
}

#[test]
fn a_window_that_grows_stays_below_the_bound() {
    for to in [A, B] {
        run_with(Window::Auto, to, 1_000, 256 << 10, write);
        run_with(Window::Auto, to, 300, 256 << 10, read);
    }
}

#[test]
fn the_smallest_bound_is_enough() {
    for qps in [1, 100] {
        run(B, qps, 4_608, write);
        run(B, qps, 1, write);
    }
}

#[test]
fn a_device_does_not_overload_itself() {
    for qps in [1, 1_000] {
        run(A, qps, 1 << 20, write);
        run(A, qps, 1 << 20, read);
    }
}

#[test]
fn no_packet_is_lost_with_any_number_of_senders_and_readers() {
    for qps in [1, 7, 1_000] {
        run(B, qps, 1 << 20, read);
        run(B, qps, 1 << 20, |_, own| SendWr::new(0, SEND, own.whole()));
    }
}

/// Two peers at a time: the responses of both arrive at one socket.
#[test]
fn responses_from_two_peers_fit_the_receive_buffer() {
    let bound = 256 << 10;
    let bounds = Bounds {
        response_bytes: bound / 4,
        ..small(bound)
    };
    let receiver = Receiver {
        buffer: u64::from(bound) / 2,
        packet_ns: 500,
        stalls: None,
    };
    let mut link = Link::new(config(), bounds, [receiver; 2]);
    for to in [A, B] {
        let pairs = link.connect(to, 200, without_timeout());
        let [own, remote] = link.regions(to, LEN);
        for [a, _] in &pairs {
            link.post(*a, read(&remote, &own));
        }
    }
    link.run();
    assert_eq!(link.drops(), 0);
    assert_eq!(link.side().completions.len(), 400);
}
