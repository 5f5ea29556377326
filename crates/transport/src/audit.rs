//! For tests and simulators: checks that a queue pair's state is consistent and bounded, and a way
//! to age a connection.

use ferroce_base::time::{Span, Time};
use ferroce_wire::rnr_timer_ns;

use crate::config::QpCap;
use crate::qp::Qp;
use crate::requester::{Requester, RequesterTimer};
use crate::responder::{ReceiveSource, Responder};

impl Qp {
    /// Checks the queue pair's state, on a device whose queue pairs may have at most
    /// `rd_atomic_max` READs and atomics outstanding in either direction. Everything is bounded:
    /// the amount of waiting work, and the time it waits.
    ///
    /// # Panics
    /// Panics if the state is inconsistent, or if something has exceeded its bound, which is a bug
    /// in the queue pair.
    pub fn audit(&self, now: Time, rd_atomic_max: u8) {
        let (requester, responder, receives) = self.halves();
        let QpCap {
            max_send_wr,
            max_recv_wr,
            ..
        } = self.config().cap;
        requester.audit(now, max_send_wr, rd_atomic_max);
        responder.audit(rd_atomic_max);
        if let ReceiveSource::Own(queue) = receives {
            // A request that a message did not use comes back to a queue that may be full again.
            assert!(queue.len() <= max_recv_wr as usize + 1, "{queue:?}");
        }
    }

    /// Ages the connection by `sent` and `received` messages, as if it had exchanged this many
    /// WRITEs of one packet that all arrived and were acknowledged: its state stays the same, but
    /// refers to PSNs further back. The peer must be aged by the same amounts in the other
    /// direction. Returns false, without doing anything, while a request of this queue pair is in
    /// progress or a message is half received.
    pub fn age(&mut self, sent: u32, received: u32) -> bool {
        if !self.can_age() {
            return false;
        }
        let (requester, responder) = self.halves_mut();
        requester.age(sent);
        responder.age(received);
        true
    }

    /// Returns whether [`Self::age`] would succeed. It must be possible at both ends of a
    /// connection before either is aged.
    pub fn can_age(&self) -> bool {
        let (requester, responder, _) = self.halves();
        requester.in_flight() == 0 && requester.started == 0 && !responder.in_message()
    }
}

/// The longest ACK timer: four times that of the largest timeout code, which the program sets.
const ACK_WAIT_MAX: Span = Span::from_nanos(4 * (4096 << 31));
/// A packet has left by then that is made now: at 1 Mb/s it takes a third of this.
const DEPARTURE_MAX: Span = Span::from_millis(100);
/// The longest wait for a receiver, whatever the peer asks for.
const RNR_WAIT_MAX: Span = Span::from_nanos(rnr_timer_ns(0));

impl Requester {
    fn audit(&self, now: Time, max_wr: u32, rd_atomic_max: u8) {
        assert!(self.is_consistent(), "{self:?}");
        assert!(self.len() <= max_wr as usize, "{self:?}");
        let responses_max = usize::from(rd_atomic_max.max(1));
        assert!(self.responses_due.len() <= responses_max, "{self:?}");
        let is_bounded = match self.timer {
            RequesterTimer::Idle => true,
            RequesterTimer::Departure => self.in_flight() > 0 && !self.answer_is_due(),
            RequesterTimer::Ack { armed, wait } => {
                armed.since(now) <= DEPARTURE_MAX && wait <= ACK_WAIT_MAX
            }
            RequesterTimer::Rnr { until } => until.since(now) <= RNR_WAIT_MAX,
        };
        assert!(is_bounded, "{self:?}");
        if let Some(repair) = self.selective.repair() {
            repair.audit(self.in_flight());
        }
    }
}

impl Responder {
    fn audit(&self, rd_atomic_max: u8) {
        self.resources.audit(rd_atomic_max);
        self.answers.audit(rd_atomic_max);
        self.kept.audit();
    }
}
