//! Waiting queue pairs get their turns, whatever happens to those before them.

use ferroce_admission::{Bounds, Window};
use ferroce_device::{Data, Outgoing, QpState, SendWr, Span};
use ferroce_wire::Qpn;

use crate::link::{Link, Receiver, without_timeout};
use ferroce_testing::{A, B, attr, config};

const BOUND: u32 = 256 << 10;

fn link() -> Link {
    let bounds = Bounds {
        window: Window::Fixed(BOUND),
        response_bytes: BOUND,
        ..Bounds::default()
    };
    Link::new(config(), bounds, [Receiver::default(); 2])
}

#[test]
fn any_number_of_queue_pairs_get_equal_shares() {
    for qps in [2, 16, 100] {
        let mut link = link();
        let pairs = link.connect(B, qps, without_timeout());
        let [own, remote] = link.regions(B, 64 << 20);
        let sent = |link: &Link| -> Vec<u32> {
            let psn = |a| link.side().hca.qp(a).unwrap().next_psn().value();
            pairs.iter().map(|[a, _]| psn(*a)).collect()
        };
        for [a, _] in &pairs {
            link.post(*a, SendWr::new(0, remote.write(), own.whole()));
            // The first ones have a head start that the others do not make up for at once.
            let soon = link.pair.now.after(Span::from_nanos(2_000));
            link.run_until(soon);
        }
        let before = sent(&link);
        let later = link
            .pair
            .now
            .after(Span::from_nanos(qps as u64 * 1_000_000));
        link.run_until(later);
        let shares: Vec<u32> = sent(&link)
            .iter()
            .zip(&before)
            .map(|(now, before)| now - before)
            .collect();
        let (least, most) = (shares.iter().min(), shares.iter().max());
        let ratio = f64::from(*most.unwrap()) / f64::from(*least.unwrap());
        assert!(ratio < 1.3, "{qps} queue pairs: {shares:?}");
    }
}

/// Three queue pairs that hold all the room at a silent peer, and two that wait.
fn held_up() -> (Link, Vec<[Qpn; 2]>) {
    let mut link = link();
    let pairs = link.connect(B, 5, without_timeout());
    let [own, remote] = link.regions(B, 1 << 20);
    for [a, _] in &pairs {
        link.post(*a, SendWr::new(0, remote.write(), own.whole()));
    }
    assert_eq!(sending(&mut link, &pairs), [true, true, true, false, false]);
    (link, pairs)
}

/// Sends what can be sent, and tells which queue pairs have something on the wire.
fn sending(link: &mut Link, pairs: &[[Qpn; 2]]) -> Vec<bool> {
    let now = link.pair.now;
    while link.pair.sides[A].hca.poll_transmit(now).is_some() {}
    link.pair.sides[A].hca.audit();
    let qp = |qpn| link.side().hca.qp(qpn);
    let sends = |[a, _]: &[Qpn; 2]| qp(*a).is_some_and(|qp| qp.in_flight() > 0);
    pairs.iter().map(sends).collect()
}

#[test]
fn a_leaving_queue_pair_gives_its_room_to_waiting_ones() {
    let ways: [fn(&mut Link, Qpn); 3] = [
        |link, qpn| link.pair.sides[A].hca.destroy_qp(qpn).unwrap(),
        |link, qpn| link.pair.sides[A].move_to(qpn, QpState::Err),
        |link, qpn| link.pair.sides[A].move_to(qpn, QpState::Reset),
    ];
    for way in ways {
        let (mut link, pairs) = held_up();
        for (goes, comes) in [(0, 3), (1, 4)] {
            way(&mut link, pairs[goes][0]);
            link.pair.sides[A].hca.audit();
            assert!(sending(&mut link, &pairs)[comes], "it is still waiting");
        }
    }
}

/// Two devices with room for more packets than responses.
fn reading_link() -> Link {
    let bounds = Bounds {
        window: Window::Fixed(4 * BOUND),
        peer_bytes: 4 * BOUND,
        response_bytes: BOUND,
    };
    Link::new(config(), bounds, [Receiver::default(); 2])
}

/// The first in the queue is called when there is room again, and destroyed before its turn.
#[test]
fn a_destroyed_reader_passes_its_turn_to_the_next() {
    let mut link = reading_link();
    let pairs = link.connect(B, 3, without_timeout());
    let [own, remote] = link.regions(B, 1 << 20);
    for [a, _] in &pairs {
        link.post(*a, SendWr::new(0, remote.read(), own.whole()));
    }
    assert_eq!(sending(&mut link, &pairs), [true, false, false]);
    for [a, _] in &pairs[..2] {
        link.pair.sides[A].hca.destroy_qp(*a).unwrap();
    }
    assert_eq!(sending(&mut link, &pairs), [false, false, true]);
}

/// A queue pair that waits for an answer need not request one; of a READ, that is the last
/// response.
#[test]
fn a_reader_requests_no_extra_share_while_responses_arrive() {
    let mut link = reading_link();
    let pairs = link.connect(B, 2, without_timeout());
    let [[reader, _], [waits, _]] = pairs[..] else {
        panic!("two pairs")
    };
    let [own, remote] = link.regions(B, 1 << 20);
    let read = |len| SendWr::new(0, remote.read(), own.sge(0, len));
    link.post(reader, read(64 << 10));
    let request = polled(&mut link, A).unwrap();
    assert!(polled(&mut link, A).is_none(), "its turn is not over");
    link.post(waits, read(1 << 20));
    link.post(reader, read(64 << 10));
    let due = |link: &mut Link| {
        sending(link, &pairs);
        link.side().hca.qp(reader).unwrap().responses_on_wire()
    };
    assert_eq!(due(&mut link), 64);
    give(&mut link, B, &request);
    let first = polled(&mut link, B).unwrap();
    give(&mut link, A, &first);
    assert_eq!(due(&mut link), 63);
}

/// The queue pair's turn began with answers, which need no room; its first request is posted in the
/// middle of them.
#[test]
fn answering_first_gives_no_extra_share() {
    let (mut link, _) = held_up();
    let pairs = link.connect(B, 1, without_timeout());
    let [[a, b]] = pairs[..] else {
        panic!("one pair")
    };
    let [own, remote] = link.regions(B, 1 << 20);
    let now = link.pair.now;
    let read = SendWr::new(0, own.read(), remote.whole());
    let hca = &mut link.pair.sides[B].hca;
    hca.post_send(b, read).unwrap();
    let request = hca.poll_transmit(now).unwrap();
    give(&mut link, A, &request);
    let hca = &mut link.pair.sides[A].hca;
    assert!(hca.poll_transmit(now).is_some(), "an answer");
    hca.post_send(a, SendWr::new(1, remote.write(), own.whole()))
        .unwrap();
    assert_eq!(sending(&mut link, &pairs), [false]);
}

/// The host is interrupted in the middle of a turn, and the queue pair is then connected to another
/// peer.
#[test]
fn a_grant_at_one_peer_is_void_at_another() {
    let (mut link, _) = held_up();
    let pairs = link.connect(A, 1, without_timeout());
    let qpn = pairs[0][0];
    let [own, remote] = link.regions(B, 1 << 20);
    link.post(qpn, SendWr::new(0, own.write(), own.whole()));
    let now = link.pair.now;
    assert!(link.pair.sides[A].hca.poll_transmit(now).is_some());
    let dest = link.pair.sides[B].address;
    link.pair.sides[A].move_to(qpn, QpState::Reset);
    link.pair.sides[A].connect(qpn, dest, without_timeout());
    link.post(qpn, SendWr::new(0, remote.write(), own.whole()));
    assert_eq!(sending(&mut link, &pairs), [false]);
}

/// The host is interrupted after the retransmitted packet, which is not charged. When it resumes,
/// everything that was taken has come back, and nothing is on the wire that could call the queue
/// pair again.
#[test]
fn a_refused_sender_retries_when_the_window_empties() {
    let mut link = link();
    let pairs = link.connect(B, 1, without_timeout());
    let qpn = pairs[0][0];
    let [own, remote] = link.regions(B, 1 << 20);
    let write = |len| SendWr::new(0, remote.write(), own.sge(0, len));
    link.post(qpn, write(1));
    link.post(qpn, write(1));
    let [first, second] = [(); 2].map(|()| polled(&mut link, A).unwrap());
    let others = link.connect(B, 3, without_timeout());
    for [other, _] in &others {
        link.post(*other, write(1 << 20));
    }
    assert_eq!(sending(&mut link, &others), [true; 3]);
    give(&mut link, B, &second);
    let nak = polled(&mut link, B).unwrap();
    give(&mut link, A, &nak);
    link.post(qpn, write(1));
    let again = polled(&mut link, A).unwrap();
    assert_eq!(again.headers, first.headers);
    for packet in [again, second] {
        give(&mut link, B, &packet);
    }
    while let Some(answer) = polled(&mut link, B) {
        give(&mut link, A, &answer);
    }
    for [other, _] in others {
        link.pair.sides[A].hca.destroy_qp(other).unwrap();
    }
    assert_eq!(link.side().hca.qp(qpn).unwrap().in_flight(), 0);
    assert_eq!(sending(&mut link, &pairs), [true]);
}

/// The next packet of a device, whose host is then interrupted.
fn polled(link: &mut Link, from: usize) -> Option<Outgoing> {
    let now = link.pair.now;
    link.pair.sides[from].hca.poll_transmit(now)
}

fn give(link: &mut Link, to: usize, packet: &Outgoing) {
    let (class, data) = (
        packet.path.traffic_class,
        Data::Length(packet.payload_len.into()),
    );
    link.pair.give(to, class, &packet.headers, data);
}

/// The packets of those that hold everything are lost and never retransmitted.
#[test]
fn lost_packets_do_not_hold_up_other_queue_pairs() {
    let (mut link, pairs) = held_up();
    let later = link.pair.now.after(Span::from_nanos(3_000_000_000));
    link.pair.sides[A].hca.handle_timeout(later);
    assert_eq!(sending(&mut link, &pairs), [true; 5]);
}

#[test]
fn a_destroyed_queue_pair_is_removed_from_the_waiting_list() {
    let (mut link, pairs) = held_up();
    link.pair.sides[A].hca.destroy_qp(pairs[4][0]).unwrap();
    link.pair.sides[A].hca.audit();
    for [a, _] in &pairs[..4] {
        link.pair.sides[A].hca.destroy_qp(*a).unwrap();
        link.pair.sides[A].hca.audit();
    }
    assert!(!link.side().hca.wants_transmit());
}

/// A dead peer costs each queue pair its own timeouts, and not the time that others wait.
#[test]
fn a_dead_peer_fails_each_queue_pair_in_its_own_time() {
    let mut link = link();
    let pairs = link.connect(B, 100, attr());
    let [own, remote] = link.regions(B, 1 << 20);
    for [_, b] in &pairs {
        link.pair.sides[B].hca.destroy_qp(*b).unwrap();
    }
    for [a, _] in &pairs {
        link.post(*a, SendWr::new(0, remote.write(), own.whole()));
    }
    link.run();
    for [a, _] in &pairs {
        assert_eq!(link.side().state(*a), QpState::Err);
    }
}
