//! Shares of a peer's capacity, for the processes of a device.
//!
//! Each process accounts for what it has in flight. The sum over all processes stays below the
//! bound because a process that wants more than a small amount leases it first, from one total per
//! peer. A process that finds nothing left still has [`FLOOR_BYTES`], so no process has to wait for
//! another, or be woken by one.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Leased at a time, at least, and kept beyond what is in use.
pub(crate) const QUANTUM_BYTES: u64 = crate::TURN_BYTES;
/// What a process may have on the wire to a peer without a lease: two packets of any size.
pub(crate) const FLOOR_BYTES: u64 = 16 << 10;
/// Peers share a total if their addresses come to the same number.
pub(crate) const BUCKETS: usize = 64;

/// What the processes of a function have leased. Zeros, as a new file has them, are valid.
#[derive(Debug)]
#[repr(C)]
pub struct LeaseTable {
    totals: Row,
    /// By slot. Only the slot's owner writes to its row; when the owner has died, the process that
    /// reclaims the slot does.
    slots: [Row; 256],
}

/// In bytes, by bucket; in cache lines of its own.
#[derive(Debug)]
#[repr(C, align(128))]
struct Row([AtomicU64; BUCKETS]);

impl Row {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl Default for LeaseTable {
    fn default() -> Self {
        Self {
            totals: Row::new(),
            slots: [const { Row::new() }; 256],
        }
    }
}

impl LeaseTable {
    /// Leases up to `wanted` bytes of the `bound` at a peer, and tells how many. Half of what is left
    /// is for others, unless that is little.
    ///
    /// A process killed during this or [`Self::give_back`] may leave the total too large, never too small.
    pub fn take(&self, slot: u8, peer: IpAddr, wanted: u64, bound: u64) -> u64 {
        let bucket = bucket(peer);
        let grant = |total| {
            let left = bound.saturating_sub(total);
            wanted.min(left).min((left / 2).max(QUANTUM_BYTES))
        };
        let more = |total| (grant(total) > 0).then(|| total + grant(total));
        let total = &self.totals.0[bucket];
        let Ok(before) = total.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more) else {
            return 0;
        };
        let cell = &self.slots[usize::from(slot)].0[bucket];
        let held = cell.load(Ordering::Relaxed);
        cell.store(held.saturating_add(grant(before)), Ordering::Release);
        grant(before)
    }

    /// Ends the lease of `bytes`.
    pub fn give_back(&self, slot: u8, peer: IpAddr, bytes: u64) {
        let bucket = bucket(peer);
        let cell = &self.slots[usize::from(slot)].0[bucket];
        let held = cell.load(Ordering::Relaxed);
        cell.store(held.saturating_sub(bytes), Ordering::Relaxed);
        self.subtract(bucket, bytes);
    }

    fn subtract(&self, bucket: usize, bytes: u64) {
        let less = |total: u64| Some(total.saturating_sub(bytes));
        // Never an error: there is always a new value.
        let _ = self.totals.0[bucket].fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
    }

    /// Whether the owner of a slot has leased anything.
    pub fn is_held(&self, slot: u8) -> bool {
        let cells = &self.slots[usize::from(slot)].0;
        cells.iter().any(|cell| cell.load(Ordering::Acquire) > 0)
    }

    /// Ends all leases of a slot whose owner is dead.
    pub fn reclaim(&self, slot: u8) {
        for (bucket, cell) in self.slots[usize::from(slot)].0.iter().enumerate() {
            let held = cell.swap(0, Ordering::AcqRel);
            if held > 0 {
                self.subtract(bucket, held);
            }
        }
    }

    /// Ends all leases, for a process that is alone on the device.
    pub fn clear(&self) {
        let rows = self.slots.iter().chain([&self.totals]);
        let cells = rows.flat_map(|row| &row.0);
        cells.for_each(|cell| cell.store(0, Ordering::Relaxed));
    }

    fn held(&self, slot: u8, bucket: usize) -> u64 {
        self.slots[usize::from(slot)].0[bucket].load(Ordering::Relaxed)
    }
}

/// What a process has of the leases of all processes on its device.
#[derive(Clone, Debug)]
pub struct Leases {
    /// The leases of all.
    pub table: &'static LeaseTable,
    /// The slot of this process.
    pub slot: u8,
    /// Set when there was nothing to lease: others have everything, or had it when they died.
    pub lacking: Arc<AtomicBool>,
}

impl Leases {
    pub(crate) fn take(&self, peer: IpAddr, wanted: u64, bound: u64) -> u64 {
        let granted = self.table.take(self.slot, peer, wanted, bound);
        if granted == 0 {
            self.lacking.store(true, Ordering::Relaxed);
        }
        granted
    }

    pub(crate) fn give_back(&self, peer: IpAddr, bytes: u64) {
        self.table.give_back(self.slot, peer, bytes);
    }

    pub(crate) fn held(&self, bucket: usize) -> u64 {
        self.table.held(self.slot, bucket)
    }
}

/// All processes must come to the same number, whatever compiler they were built with.
pub(crate) fn bucket(peer: IpAddr) -> usize {
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let hash = match peer {
        IpAddr::V4(address) => address.octets().iter().fold(0xcbf2_9ce4_8422_2325, fnv),
        IpAddr::V6(address) => address.octets().iter().fold(0xcbf2_9ce4_8422_2325, fnv),
    };
    // The last byte has come as far as that.
    (hash >> 40) as usize % BUCKETS
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const BOUND: u64 = 1 << 20;

    fn take_all(table: &LeaseTable, slot: u8) -> u64 {
        std::iter::repeat_with(|| table.take(slot, PEER, BOUND, BOUND))
            .take_while(|granted| *granted > 0)
            .sum()
    }

    #[test]
    fn all_together_never_have_more_than_there_is() {
        let table = LeaseTable::default();
        let first = table.take(1, PEER, u64::MAX, BOUND);
        assert_eq!(first, BOUND / 2, "the rest is for others");
        let rest = take_all(&table, 2);
        assert_eq!(first + rest, BOUND);
        assert_eq!(table.take(3, PEER, 1, BOUND), 0);
        table.give_back(1, PEER, 1000);
        assert_eq!(take_all(&table, 3), 1000);
        table.give_back(1, PEER, first - 1000);
        assert!(!table.is_held(1));
        assert_eq!(take_all(&table, 1), first - 1000);
    }

    #[test]
    fn leases_of_the_dead_come_back_once() {
        let table = LeaseTable::default();
        let others = table.take(2, PEER, 100_000, BOUND);
        assert_eq!(take_all(&table, 1), BOUND - others);
        table.reclaim(1);
        table.reclaim(1);
        assert!(!table.is_held(1));
        assert_eq!(take_all(&table, 3), BOUND - others);
    }

    #[test]
    fn a_total_that_is_too_large_is_right_for_the_next_who_is_alone() {
        let table = LeaseTable::default();
        table.totals.0[bucket(PEER)].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(take_all(&table, 1), 0);
        table.clear();
        assert_eq!(take_all(&table, 1), BOUND);
    }

    #[test]
    fn processes_that_take_at_a_time_count_right() {
        const TIMES: u64 = if cfg!(miri) { 20 } else { 20_000 };
        let table = LeaseTable::default();
        std::thread::scope(|scope| {
            for slot in 1..4 {
                let table = &table;
                scope.spawn(move || {
                    for wanted in 0..TIMES {
                        let granted = table.take(slot, PEER, 100_000 + wanted, BOUND);
                        table.give_back(slot, PEER, granted);
                    }
                });
            }
        });
        assert!((1..4).all(|slot| !table.is_held(slot)));
        assert_eq!(take_all(&table, 1), BOUND);
    }

    #[test]
    fn neighbours_rarely_share_a_total() {
        let of = |host| bucket(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)));
        let buckets: std::collections::BTreeSet<_> = (0..64).map(of).collect();
        assert!(buckets.len() >= 48, "{buckets:?}");
    }

    #[test]
    fn the_floor_is_two_packets_of_any_size() {
        assert!(crate::room::cost(2, ferroce_transport::Mtu::Mtu4096) <= FLOOR_BYTES);
    }
}
