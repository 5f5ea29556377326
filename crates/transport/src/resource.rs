//! Responder resources: READs and atomics that may be requested again.

use std::collections::VecDeque;

use crate::serial::Serial;

/// What the responder remembers of a READ or atomic it has executed, so that a duplicate can be
/// answered again (IBA vol 1, 9.4.5: responder resources).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Resource {
    /// PSN of the request.
    pub(crate) psn: Serial,
    /// PSNs its response takes.
    pub(crate) packets: u32,
    /// The value an atomic found, to be replayed; `None` for a READ, which is executed again.
    pub(crate) atomic_result: Option<u64>,
}

impl Resource {
    fn covers(&self, psn: Serial, packets: u32) -> bool {
        self.psn <= psn && psn + packets <= self.psn + self.packets
    }
}

/// The last `max_dest_rd_atomic` resources; the oldest makes room for a new one. They have no age:
/// one may be many laps around the circle of PSNs behind, and is then found by no packet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resources {
    ring: VecDeque<Resource>,
}

impl Resources {
    pub(crate) fn push(&mut self, resource: Resource, limit: u8) {
        while self.ring.len() >= limit.max(1) as usize {
            self.ring.pop_front();
        }
        self.ring.push_back(resource);
    }

    /// The READ whose response range holds `packets` PSNs from `psn` on.
    pub(crate) fn find_read(&self, psn: Serial, packets: u32) -> Option<&Resource> {
        self.ring
            .iter()
            .find(|r| r.atomic_result.is_none() && r.covers(psn, packets))
    }

    /// The result of the atomic with this PSN.
    pub(crate) fn find_atomic(&self, psn: Serial) -> Option<u64> {
        self.ring
            .iter()
            .find(|r| r.psn == psn)
            .and_then(|r| r.atomic_result)
    }

    /// PSN of the first remembered request after `psn`.
    pub(crate) fn first_after(&self, psn: Serial) -> Option<Serial> {
        self.ring.iter().map(|r| r.psn).find(|p| *p > psn)
    }

    pub(crate) fn audit(&self, limit: u8) {
        assert!(self.ring.len() <= usize::from(limit.max(1)), "{self:?}");
        assert!(self.ring.iter().map(|r| r.psn).is_sorted(), "{self:?}");
    }

    pub(crate) fn shrink(&mut self) {
        self.ring.shrink_to_fit();
    }

    pub(crate) fn clear(&mut self) {
        self.ring.clear();
    }
}
