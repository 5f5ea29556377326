//! For tests and simulators: whether what a queue pair remembers is consistent and bounded, and a
//! way to make it old.

use ferroce_wire::rnr_timer_ns;

use crate::requester::{Requester, RequesterTimer};
use crate::responder::{ReceiveSource, Responder};
use crate::{Qp, QpCap, Span, Time};

impl Qp {
    /// Checks the books of the queue pair, on a device whose queue pairs may have at most
    /// `rd_atomic_max` READs and atomics outstanding in either direction. Everything is bounded: what
    /// waits, and for how long.
    ///
    /// # Panics
    /// If they are wrong, or something has grown beyond its bound, which is a bug in the queue pair.
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

    /// Makes the connection older by `sent` and `received` messages, as if it had exchanged so many
    /// WRITEs of one packet that all arrived and were acknowledged: what it remembers stays, and lies
    /// so much further back. The peer must be made older by the same, the other way round. False, and
    /// nothing is done, while a request of this queue pair is under way or a message half received.
    pub fn fast_forward(&mut self, sent: u32, received: u32) -> bool {
        if !self.can_fast_forward() {
            return false;
        }
        let (requester, responder) = self.halves_mut();
        requester.fast_forward(sent);
        responder.fast_forward(received);
        true
    }

    /// Whether [`Self::fast_forward`] would do it. Both ends of a connection have to before one is made
    /// older: it would be older than its peer otherwise.
    pub fn can_fast_forward(&self) -> bool {
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
        assert!(self.queue.len() <= max_wr as usize, "{self:?}");
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
    }
}

impl Responder {
    fn audit(&self, rd_atomic_max: u8) {
        self.resources.audit(rd_atomic_max);
        self.answers.audit(rd_atomic_max);
    }
}
