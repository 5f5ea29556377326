//! Compares the credit used at each peer with the device's queue pairs.

use std::collections::BTreeMap;

use super::{Hca, QpEntry, Turn};
use crate::credit::{BUCKETS, Room, bucket};

/// What the queue pairs of one peer add up to.
#[derive(PartialEq, Eq, Debug, Default)]
struct Sums {
    users: u32,
    busy: u32,
    taken: u64,
    waiting: usize,
}

impl Hca {
    /// Compares what is booked as taken with what the queue pairs have on the wire.
    pub(crate) fn audit_credit(&self) {
        let mut sums: BTreeMap<u32, Sums> = BTreeMap::new();
        let mut home = Sums::default();
        for (index, entry) in self.qps.iter() {
            // What a turn sends is booked when it ends.
            if self.port.in_turn() != Some(index) {
                assert_eq!(entry.turn, Turn::of(entry), "{}", entry.qp.qpn());
            }
            home.taken += entry.turn.responses;
            home.waiting += usize::from(entry.turn.waits_for_responses);
            if let Some(peer) = entry.peer {
                let sums = sums.entry(peer).or_default();
                sums.users += 1;
                sums.busy += u32::from(entry.turn.packets > 0);
                sums.taken += entry.turn.packets;
                sums.waiting += usize::from(entry.turn.waits_for_packets);
            }
        }
        for (index, peer) in self.peers.iter() {
            let found = Sums {
                users: peer.users(),
                busy: peer.busy,
                taken: peer.room.used(),
                waiting: peer.room.waiting(),
            };
            assert_eq!(Some(found), sums.remove(&index), "{peer:?}");
            self.audit_queue(&peer.room, |entry| {
                entry.peer == Some(index) && entry.turn.waits_for_packets
            });
        }
        assert!(sums.is_empty(), "{sums:?}");
        self.audit_leases();
        assert_eq!(self.responses.used(), home.taken, "{:?}", self.responses);
        assert_eq!(self.responses.waiting(), home.waiting);
        self.audit_queue(&self.responses, |entry| entry.turn.waits_for_responses);
    }

    /// What is booked as leased is what the others see.
    fn audit_leases(&self) {
        let Some(table) = self.common.state.leases() else {
            return;
        };
        let mut sums = [0; BUCKETS];
        for (_, peer) in self.peers.iter() {
            sums[bucket(peer.address)] += peer.leased;
        }
        for (bucket, sum) in sums.into_iter().enumerate() {
            assert_eq!(table.held(self.config.slot, bucket), sum, "bucket {bucket}");
        }
    }

    fn audit_queue(&self, room: &Room, waits: impl Fn(&QpEntry) -> bool) {
        let known = |index: &u32| self.qps.get(*index).is_some_and(|entry| waits(entry));
        assert!(room.waiting.iter().all(known), "{room:?}");
        // The first either looks soon, or waits for what others give back.
        let next = room.next().and_then(|next| self.qps.get(next));
        assert!(
            next.is_none_or(|entry| entry.is_ready() || room.used() > 0),
            "nothing calls {next:?}"
        );
    }
}
