//! Limits on the state that the connection manager keeps for peers, and on how long it keeps it.
//!
//! State that a program owns is bounded by the program. The rest comes from peers: requests that
//! the program has not answered, and remnants of connections that the program has released, which stay
//! until their packets cannot arrive any more. The amount for each source is limited, and if there
//! is no room, the oldest remnant is dropped. It exists to answer repeated messages, which also get
//! an answer if no remnant of their connection is left.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferroce_transport::{Counter, Span, Time};

use super::{Cm, CommId, Overload};

/// Connections at a time.
pub(crate) const CONNECTIONS_MAX: usize = 1 << 16;
/// Waiting requests and leftovers of one source at a time.
pub(super) const OF_SOURCE_MAX: u32 = 1 << 12;
/// Messages that wait for the link. More are lost, as on the link itself.
pub(super) const OUTBOX_MAX: usize = 1 << 12;
/// Events of one connection that the program has not taken: each state tells of one.
const EVENTS_MAX: usize = 8;

/// The longest wait before a message is sent again, whatever a peer asks for.
pub(super) const WAIT_MAX: Span = Span::from_secs(60);
/// The longest time that a REP or a DREQ goes without an answer, with all its repetitions and
/// whatever the peer asks for. Linux's numbers make 103 s.
pub(super) const HALF_OPEN_MAX: Span = Span::from_secs(120);
/// The longest time that a connection which is over is remembered.
pub(super) const TIME_WAIT_MAX: Span = Span::from_secs(60);
/// The longest time that a peer's program may think on top: what Linux asks for, 4.096 µs · 2^24.
pub(super) const PATIENCE_MAX: Span = Span::from_nanos(4_096 << 24);

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

    /// Whether a request of `source` is taken, for a listener that has no room if it is `full`.
    pub(super) fn admit(&mut self, source: IpAddr, full: bool) -> Result<(), Overload> {
        if full {
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
                *kept.entry(connection.peer).or_default() += 1;
            }
        }
        assert_eq!(kept, self.leftovers.kept);
        assert!(kept.values().all(|kept| *kept <= OF_SOURCE_MAX), "{kept:?}");
        assert_eq!(self.leftovers.by_age.len(), self.leftovers.of_source.len());
        assert!(self.leftovers.by_age.len() <= count);
    }
}
