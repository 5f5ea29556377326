//! Checks invariants of a device.

use ferroce_transport::QpCap;
use ferroce_wire::Qpn;

use super::Hca;
use super::link::Link;
use crate::event::Event;
use crate::impair::Impairment;
use crate::limits;
use crate::queue_pair::QpEntry;

/// Events that an object can cause until the program does something with it: each state of a queue
/// pair has one, and what is announced once waits to be armed again.
const EVENTS_OF_OBJECT: usize = 8;

impl Hca {
    /// Compares the books of the device with each other and with their bounds, in time proportional to
    /// the number of its objects; for tests and simulators. The bounds are those of
    /// `docs/design/bounds.md`, and hold for a host that sends nothing, too.
    ///
    /// # Panics
    /// Panics if they do not agree, or something has grown beyond its bound, which is a bug in the
    /// device.
    pub fn audit(&self) {
        for (index, entry) in self.qps.iter() {
            let is_own = self.qp_index(entry.qp.qpn()) == Some(index);
            assert_eq!(is_own, entry.is_shown());
            self.audit_qp(entry);
        }
        let responders = self.qps.iter().filter(|(_, entry)| !entry.is_shown());
        let responders = responders.map(|(index, entry)| (index, entry.qp.qpn()));
        self.connections.audit(responders.collect());
        self.scheduler.audit(self.common.now, &self.qps);
        self.audit_users();
        self.audit_bounds();
        self.congestion.audit();
        self.groups.audit();
        if let Some(cm) = self.cm.get() {
            cm.audit(self.common.now);
        }
    }

    fn audit_qp(&self, entry: &QpEntry) {
        let (deadline, timer_at) = (entry.deadline(), entry.timer_at);
        assert!(
            deadline.is_none_or(|deadline| timer_at <= deadline),
            "{:?} waits until {deadline:?}, its timer runs until {timer_at:?}",
            entry.qp.qpn()
        );
        entry.qp.audit(self.common.now, limits::MAX_RD_ATOMIC);
        if let Some(limiter) = &entry.limiter {
            limiter.audit(self.common.now);
        }
        // A completion that was not polled takes the room of its request.
        let QpCap { max_send_wr, .. } = entry.qp.config().cap;
        let used = entry.qp.send_queue_len() + entry.unpolled.sends as usize;
        assert!(
            used <= max_send_wr as usize,
            "{used} of {max_send_wr} requests"
        );
    }

    fn audit_bounds(&self) {
        self.pds.audit();
        self.xrcds.audit();
        self.common.keys.entries.audit();
        self.common.cqs.audit();
        self.common.srqs.audit();
        self.qps.audit();
        for (index, cq) in self.common.cqs.iter() {
            assert!(
                cq.len() <= cq.capacity() as usize,
                "CQ {index}: {}",
                cq.len()
            );
        }
        for (index, srq) in self.common.srqs.iter() {
            let max_wr = srq.attr().max_wr as usize;
            assert!(srq.len() <= max_wr, "SRQ {index}: {}", srq.len());
        }
        let kept = self.qps.iter().map(|(_, entry)| entry.qp.kept_bytes());
        assert_eq!(kept.sum::<u32>(), self.common.kept_bytes);
        for held in self.links().flat_map(Link::held) {
            assert!(held <= Impairment::HELD_MAX, "{held} packets on the link");
        }
        // Not by peers alone come the trace of timers, which has an entry for each that runs out, the
        // news that the connection manager has some, once for each time that all were taken, and those
        // of the port.
        let by_peers = |event: &&Event| {
            !matches!(
                event,
                Event::TimerExpired { .. }
                    | Event::ConnectionManager
                    | Event::PortActive { .. }
                    | Event::PortError { .. }
                    | Event::GidChange { .. }
            )
        };
        let objects = self.qps.indices() + self.common.cqs.indices() + self.common.srqs.indices();
        let events_max = EVENTS_OF_OBJECT * (objects + self.groups.len() + 1);
        let events = self.common.events.iter().filter(by_peers).count();
        assert!(events <= events_max, "{events} events");
    }

    /// Makes a connection older by `sent` and `received` messages; see
    /// [`Qp::age`](ferroce_transport::Qp::age). False, and nothing is done, while
    /// anything is under way in the device.
    pub fn age(&mut self, qpn: Qpn, sent: u32, received: u32) -> bool {
        if self.links().flat_map(Link::held).sum::<usize>() > 0 {
            return false;
        }
        self.qp_entry_mut(qpn)
            .is_some_and(|entry| entry.qp.age(sent, received))
    }

    /// Takes packets out of the WRITE that a queue pair sends, see
    /// [`Qp::shorten_write`](ferroce_transport::Qp::shorten_write). Returns whether it did.
    pub fn shorten_write(&mut self, qpn: Qpn, packets: u32) -> bool {
        let entry = self.qp_entry_mut(qpn);
        entry.is_some_and(|entry| entry.qp.shorten_write(packets))
    }

    /// Takes packets out of the WRITE that arrives at a queue pair, see
    /// [`Qp::shorten_arriving`](ferroce_transport::Qp::shorten_arriving). Returns whether it did.
    pub fn shorten_arriving(&mut self, qpn: Qpn, packets: u32) -> bool {
        let entry = self.qp_entry_mut(qpn);
        entry.is_some_and(|entry| entry.qp.shorten_arriving(packets))
    }
}
