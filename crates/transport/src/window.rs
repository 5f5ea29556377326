//! Limits on the amount of data that a requester has in flight.

use ferroce_base::time::{Span, Time};
use ferroce_wire::Psn;

use crate::attr::QpAttr;
use crate::config::{Allowance, HeldBack};
use crate::kept::KEPT_MAX;
use crate::requester::Requester;

/// Largest window. Everything in flight must fit in less than half of the PSN circle, with room
/// to tell old from new.
const WINDOW_PACKETS_MAX: u32 = 1 << 22;

impl Requester {
    /// Changes the window for now; it never exceeds the one the QP was made with.
    #[inline]
    pub(crate) fn share_window(&mut self, bytes: u32) {
        self.share_bytes = bytes.min(self.window_bytes);
    }

    /// Changes what may be on the wire for now.
    pub(crate) fn allow(&mut self, allowance: Allowance) {
        self.allowance = allowance;
    }

    /// What the last request wanted that was not sent for lack of an allowance.
    pub(crate) fn held_back(&self) -> Option<HeldBack> {
        self.held_back
    }

    /// PSNs on the wire that count against the allowance: after going back, those that have been
    /// sent again, except the first packet, which is never held back; and those which may never have
    /// been lost.
    #[inline]
    pub(crate) fn on_wire(&self) -> u32 {
        self.on_wire_up_to(self.snd)
    }

    /// The same if everything before `next` has been sent.
    #[inline]
    fn on_wire_up_to(&self, next: Psn) -> u32 {
        let first = self.first_on_wire();
        let unsettled = self.recovery.unsettled();
        let unsettled = unsettled.filter(|end| end.is_after(first));
        let unsettled = unsettled.map_or(0, |end| end.since(first));
        let arrived = self.selective.arrived();
        next.since(first).saturating_sub(arrived).max(unsettled)
    }

    /// Those of them that stand for responses, and what lies between such.
    #[inline]
    pub(crate) fn responses_on_wire(&self) -> u32 {
        let first = self.first_on_wire();
        let last = self.responses_due.back();
        last.filter(|last| !last.is_before(first))
            .map_or(0, |last| last.since(first) + 1)
    }

    fn first_on_wire(&self) -> Psn {
        match self.repeated.is_after(self.una) {
            true => self.repeated,
            false => self.una,
        }
    }

    #[inline]
    pub(crate) fn window_packets(&self, attr: &QpAttr) -> u32 {
        let max = match self.selective.is_on() {
            true => KEPT_MAX,
            false => WINDOW_PACKETS_MAX,
        };
        (self.share_bytes / attr.path_mtu.bytes()).clamp(2, max)
    }

    /// Whether `span` more PSNs may be outstanding, which stand for responses if the request
    /// `reads`. They always may if no answer is due that could open the window: it may have shrunk
    /// after the last one was asked for. And the oldest packet is repeated in any case, so that a
    /// queue pair finds out in its own time that its peer is dead, and then leaves what it was
    /// charged for to the others.
    #[inline]
    pub(crate) fn window_is_open(
        &mut self,
        span: u32,
        reads: bool,
        attr: &QpAttr,
        in_bursts: bool,
    ) -> bool {
        if self.selective.is_repairing() && self.snd.is_before(self.high) {
            return true; // it takes the place of what is lost
        }
        let window = self.window_packets(attr);
        let in_flight = self.snd.since(self.una);
        // What has arrived out of order is not on the wire, but takes a place among what is noted.
        let outstanding = in_flight.saturating_sub(self.selective.arrived());
        let is_noted = self.selective.is_repairing();
        if is_noted && in_flight + span > KEPT_MAX && in_flight > 0 {
            return false;
        }
        let full = if self.window_shut && in_bursts {
            outstanding > window / 2
        } else {
            outstanding + span > window
        };
        self.window_shut = full && self.answer_is_due();
        if self.window_shut {
            return false;
        }
        self.held_back = self.lacks(span, reads).filter(|_| {
            let must_ask = outstanding > 0 && !self.answer_is_due();
            !self.is_repetition() && !must_ask
        });
        self.held_back.is_none()
    }

    /// Notes when the request at `snd` leaves, which will be answered, for the length of a round
    /// trip. Of what is sent again it is unknown which copy is answered.
    pub(crate) fn time(&mut self, now: Time) {
        if self.timed.is_none() && self.snd == self.high {
            self.timed = Some((self.snd, now));
        }
    }

    /// How long the answer took that has just come, if that is known.
    #[inline]
    pub(crate) fn take_round_trip(&mut self, now: Time) -> Option<Span> {
        let (_, sent) = self.timed.filter(|(psn, _)| psn.is_before(self.una))?;
        self.timed = None;
        Some(now.since(sent))
    }

    /// Whether the packet at `snd` is the oldest one, once more.
    pub(crate) fn is_repetition(&self) -> bool {
        self.snd == self.una && self.una != self.high
    }

    /// What of its allowance the packet at `snd` lacks.
    #[inline]
    fn lacks(&self, span: u32, reads: bool) -> Option<HeldBack> {
        let Allowance {
            packets,
            alone,
            responses,
            alone_reading,
        } = self.allowance;
        let lacks =
            |now: u32, then: u32, allowed: u32, alone: bool| then > allowed && !(now == 0 && alone);
        // At most what is outstanding is on the wire, and most often there is room for that.
        let next = self.snd.wrapping_add(span);
        let may_lack = next.since(self.una) > packets;
        if may_lack && lacks(self.on_wire(), self.on_wire_up_to(next), packets, alone) {
            return Some(HeldBack::Packets);
        }
        let due = self.responses_on_wire();
        let lacks_responses =
            reads && lacks(due, due.saturating_add(span), responses, alone_reading);
        lacks_responses.then_some(HeldBack::Responses)
    }
}
