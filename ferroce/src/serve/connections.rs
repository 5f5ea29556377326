//! The open connections, and which of them makes room for a new one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::task::AbortHandle;

/// Connections at a time.
pub(super) const CONNECTIONS_MAX: usize = 32;

/// The open connections. A new client always gets in: if there are as many connections as there may
/// be, the one that has been idle for longest is closed, or if none is idle, the one whose request has
/// taken longest. Every one of them waits for its client, because an answer itself is made at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Rc<RefCell<Open>>);

#[derive(Debug, Default)]
struct Open {
    /// The first one makes room.
    by_rank: BTreeMap<Rank, AbortHandle>,
    turns: u64,
}

/// Idle ones rank before others, those that have waited for longest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Rank {
    is_busy: bool,
    since: u64,
}

/// A connection's place among them, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    connections: Connections,
    rank: Rank,
}

impl Connections {
    /// Starts a connection with `start`, which is given its place.
    pub(super) fn admit(&self, start: impl FnOnce(Place) -> AbortHandle) {
        let rank = self.0.borrow_mut().rank(false);
        let place = Place {
            connections: self.clone(),
            rank,
        };
        let task = start(place);
        let mut open = self.0.borrow_mut();
        if open.by_rank.len() == CONNECTIONS_MAX
            && let Some((_, oldest)) = open.by_rank.pop_first()
        {
            oldest.abort();
        }
        open.by_rank.insert(rank, task);
    }
}

impl Open {
    fn rank(&mut self, is_busy: bool) -> Rank {
        self.turns += 1;
        let since = self.turns;
        Rank { is_busy, since }
    }
}

impl Place {
    /// A request has come, or has been answered.
    pub(super) fn set_busy(&mut self, is_busy: bool) {
        let mut open = self.connections.0.borrow_mut();
        // It has been given to another client otherwise.
        if let Some(task) = open.by_rank.remove(&self.rank) {
            self.rank = open.rank(is_busy);
            open.by_rank.insert(self.rank, task);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.0.borrow_mut().by_rank.remove(&self.rank);
    }
}
