//! Programs that listen, and the requests that wait for them.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// A program that listens on a service.
#[derive(Debug)]
pub(super) struct Listener {
    /// The most requests that may wait for the program at a time.
    backlog: u32,
    /// Requests that wait.
    waiting: u32,
    /// The same by source.
    of_source: BTreeMap<IpAddr, u32>,
}

impl Listener {
    /// One for which no request waits.
    pub(super) fn new(backlog: u32) -> Self {
        Self {
            backlog,
            waiting: 0,
            of_source: BTreeMap::new(),
        }
    }

    /// Whether a request of a source may wait.
    ///
    /// Beyond the backlog, one of each source may, up to as many again: otherwise a source that asks without pause
    /// would keep all others out.
    pub(super) fn has_room_for(&self, source: IpAddr) -> bool {
        let is_first = || !self.of_source.contains_key(&source);
        self.waiting < self.backlog || self.waiting < self.backlog.saturating_mul(2) && is_first()
    }

    /// A request begins to wait.
    pub(super) fn add(&mut self, source: IpAddr) {
        self.waiting += 1;
        *self.of_source.entry(source).or_default() += 1;
    }

    /// A request that was added waits no more.
    pub(super) fn remove(&mut self, source: IpAddr) {
        let Some(of_source) = self.of_source.get_mut(&source) else {
            return;
        };
        self.waiting -= 1;
        *of_source -= 1;
        if *of_source == 0 {
            self.of_source.remove(&source);
        }
    }

    /// Asserts that exactly these requests wait, and that none of them does beyond the bound.
    pub(super) fn audit(&self, waiting: &BTreeMap<IpAddr, u32>) {
        assert_eq!(self.of_source, *waiting);
        assert_eq!(self.waiting, waiting.values().sum::<u32>());
    }
}
