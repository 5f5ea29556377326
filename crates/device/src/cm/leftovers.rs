//! Remnants of connections that programs have released, and room for requests of peers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferroce_transport::{Counter, Time};

use super::bounds::{
    CONNECTIONS_MAX, EVENTS_MAX, OF_SOURCE_MAX, OUTBOX_MAX, PATIENCE_MAX, WAIT_MAX,
};
use super::{Cm, CommId, Overload};

/// Connections that no program owns any more, by age, and how much is kept of each source.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    next: u64,
    by_age: BTreeMap<u64, CommId>,
    of_source: BTreeSet<(IpAddr, u64)>,
    /// With the waiting requests.
    kept: BTreeMap<IpAddr, u32>,
}

impl Leftovers {
    /// A request begins to wait.
    pub(super) fn request(&mut self, source: IpAddr) {
        *self.kept.entry(source).or_default() += 1;
    }

    /// A request waits no more.
    pub(super) fn no_request(&mut self, source: IpAddr) {
        if let Some(kept) = self.kept.get_mut(&source) {
            *kept -= 1;
            if *kept == 0 {
                self.kept.remove(&source);
            }
        }
    }

    /// A program lets a connection go. Returns its place in the order.
    pub(super) fn add(&mut self, source: IpAddr, comm: CommId) -> u64 {
        let age = self.next;
        self.next += 1;
        self.by_age.insert(age, comm);
        self.of_source.insert((source, age));
        self.request(source);
        age
    }

    pub(super) fn remove(&mut self, source: IpAddr, age: u64) {
        if self.by_age.remove(&age).is_some() {
            self.of_source.remove(&(source, age));
            self.no_request(source);
        }
    }

    fn kept_of(&self, source: IpAddr) -> u32 {
        self.kept.get(&source).copied().unwrap_or(0)
    }

    fn oldest(&self) -> Option<CommId> {
        self.by_age.values().next().copied()
    }

    fn oldest_of(&self, source: IpAddr) -> Option<CommId> {
        let (_, age) = self
            .of_source
            .range((source, 0)..=(source, u64::MAX))
            .next()?;
        self.by_age.get(age).copied()
    }
}

impl Cm {
    /// Makes room for a request of `source`.
    pub(super) fn make_room_for(&mut self, source: IpAddr) -> Result<(), Overload> {
        if self.leftovers.kept_of(source) >= OF_SOURCE_MAX {
            let oldest = self.leftovers.oldest_of(source);
            self.forget_early(oldest.ok_or(Overload::Source)?);
        }
        self.make_room()
    }

    /// Whether a request of `source` is taken, for a listener that may have room for it.
    pub(super) fn admit(&mut self, source: IpAddr, has_room: bool) -> Result<(), Overload> {
        if !has_room {
            return Err(Overload::Backlog);
        }
        self.make_room_for(source)
    }

    /// Makes room for a connection.
    pub(super) fn make_room(&mut self) -> Result<(), Overload> {
        if self.connections.len() >= CONNECTIONS_MAX {
            let oldest = self.leftovers.oldest();
            self.forget_early(oldest.ok_or(Overload::Table)?);
        }
        Ok(())
    }

    fn forget_early(&mut self, comm: CommId) {
        self.state.count(Counter::CmForgotten, 1);
        self.remove(comm);
    }

    /// Asserts that every bound holds; see [`crate::Hca::audit`].
    pub(super) fn audit_bounds(&self, now: Time) {
        let count = self.connections.len();
        assert!(count <= CONNECTIONS_MAX, "{count} connections");
        assert!(self.timers.len() <= count && self.by_origin.len() <= count);
        assert!(self.by_remote_qp.len() <= count);
        assert!(
            self.outbox.len() <= OUTBOX_MAX,
            "{} messages",
            self.outbox.len()
        );
        assert!(
            self.events.len() <= EVENTS_MAX * count,
            "{} events",
            self.events.len()
        );
        assert!(self.ends.len() <= count, "{} ends", self.ends.len());
        if let Some((last, comm)) = self.timers.last() {
            let ahead = last.since(now);
            assert!(ahead <= WAIT_MAX + PATIENCE_MAX, "{comm:?} waits {ahead}");
        }
        let mut kept: BTreeMap<IpAddr, u32> = BTreeMap::new();
        for (comm, connection) in &self.connections {
            let leftover = connection.left.map(|age| self.leftovers.by_age.get(&age));
            assert!(leftover.is_none_or(|known| known == Some(comm)), "{comm:?}");
            if connection.state.is_request() || leftover.is_some() {
                *kept.entry(connection.path.dest).or_default() += 1;
            }
        }
        assert_eq!(kept, self.leftovers.kept);
        assert!(kept.values().all(|kept| *kept <= OF_SOURCE_MAX), "{kept:?}");
        assert_eq!(self.leftovers.by_age.len(), self.leftovers.of_source.len());
        assert!(self.leftovers.by_age.len() <= count);
    }
}
