//! Compares what is booked at each peer with the device's queue pairs.

use std::collections::BTreeMap;

use ferroce_device::Audited;

use crate::lease::{BUCKETS, Leases, bucket};
use crate::peers::Peers;
use crate::room::Room;
use crate::shares::{Shares, seat_of};

/// What the queue pairs of one peer add up to.
#[derive(PartialEq, Eq, Debug, Default)]
struct Sums {
    users: u32,
    busy: u32,
    taken: u64,
    waiting: usize,
}

/// Compares what is booked as taken with what the queue pairs have in flight.
pub(crate) fn audit(shares: &Shares, queue_pairs: &[Audited<'_>]) {
    let (peers, responses, leases) = shares.parts();
    let mut sums: BTreeMap<u32, Sums> = BTreeMap::new();
    let mut home = Sums::default();
    for it in queue_pairs {
        // What a turn sends is booked when it ends.
        if !it.is_in_turn {
            assert_eq!(*it.seat, seat_of(it.qp, it.seat), "{}", it.qp.qpn());
        }
        home.taken += it.seat.responses;
        home.waiting += usize::from(it.seat.waits_for_responses);
        if let Some(peer) = it.seat.peer {
            let sums = sums.entry(peer).or_default();
            sums.users += 1;
            sums.busy += u32::from(it.seat.packets > 0);
            sums.taken += it.seat.packets;
            sums.waiting += usize::from(it.seat.waits_for_packets);
        }
    }
    for (index, peer) in peers.iter() {
        let found = Sums {
            users: peer.users(),
            busy: peer.busy,
            taken: peer.room.used(),
            waiting: peer.room.waiting(),
        };
        assert_eq!(Some(found), sums.remove(&index), "{peer:?}");
        audit_queue(&peer.room, queue_pairs, |it| {
            it.seat.peer == Some(index) && it.seat.waits_for_packets
        });
    }
    assert!(sums.is_empty(), "{sums:?}");
    if let Some(leases) = leases {
        audit_leases(peers, leases);
    }
    assert_eq!(responses.used(), home.taken, "{responses:?}");
    assert_eq!(responses.waiting(), home.waiting);
    audit_queue(responses, queue_pairs, |it| it.seat.waits_for_responses);
}

/// What is booked as leased is what the others see.
fn audit_leases(peers: &Peers, leases: &Leases) {
    let mut sums = [0; BUCKETS];
    for (_, peer) in peers.iter() {
        sums[bucket(peer.address)] += peer.leased;
    }
    for (bucket, sum) in sums.into_iter().enumerate() {
        let held = leases.held(bucket);
        assert_eq!(held, sum, "bucket {bucket}");
    }
}

fn audit_queue(room: &Room, queue_pairs: &[Audited<'_>], waits: impl Fn(&Audited<'_>) -> bool) {
    let known = |index: u32| queue_pairs.iter().find(|it| it.index == index);
    assert!(
        room.waiting
            .iter()
            .all(|index| known(*index).is_some_and(&waits)),
        "{room:?}"
    );
    // The first either looks soon, or waits for what others give back.
    let next = room.next().and_then(known);
    assert!(
        next.is_none_or(|it| it.is_ready || room.used() > 0),
        "nothing calls {next:?}"
    );
}
