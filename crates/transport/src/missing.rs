//! Selective repeat at the requester: what it learns of its packets, and what it sends again.
//!
//! Responses to READs and atomics need no agreement with the peer: those that are here are not asked for
//! again.

use ferroce_base::time::Time;
use ferroce_wire::{Headers, Psn, Qpn};

use crate::attr::QpAttr;
use crate::completer::Verdict;
use crate::counter::Counter;
use crate::kept::bits;
use crate::memory::Data;
use crate::repair::Repair;
use crate::requester::Requester;
use crate::selective::{Asked, How, insert_due};
use crate::services::Services;

/// What is sent next.
impl Requester {
    /// A packet has left that stands for `span` PSNs from `first` on.
    pub(crate) fn note_sent(&mut self, first: Psn, span: u32, is_response: bool) {
        let last = first.wrapping_add(span - 1);
        match self.selective.how() {
            How::Asking(None) => self.selective.set(How::Asking(Some(last))),
            How::On(Asked::No) => self.selective.set(How::On(Asked::At(first))),
            _ => {}
        }
        if let Some(repair) = self.selective.repair_mut() {
            repair.on_sent(first.since(self.una), span, is_response);
        }
    }

    /// Passes by what need not be sent again.
    pub(crate) fn skip_arrived(&mut self, attr: &QpAttr) {
        let Some(repair) = self.selective.repair() else {
            return;
        };
        if !self.snd.is_before(self.high) {
            return;
        }
        let lost = repair.next_lost(self.snd.since(self.una));
        let next = lost.map_or(self.high, |offset| self.una.wrapping_add(offset));
        if next != self.snd {
            self.expect_responses(self.snd, next, attr);
            self.go_to(next);
        }
    }

    /// Requests from `psn` to `end` that are not sent again may still be answered.
    fn expect_responses(&mut self, psn: Psn, end: Psn, attr: &QpAttr) {
        let Some(repair) = self.selective.repair() else {
            return;
        };
        let mut psn = psn;
        for (span, is_response) in self.requests(psn, end, attr).collect::<Vec<_>>() {
            let last = psn.wrapping_add(span - 1);
            if is_response && repair.is_awaited(last.since(self.una)) {
                insert_due(&mut self.responses_due, last);
            }
            psn = last.next();
        }
    }

    /// Sends from `psn` on, which has been sent or is the next one.
    fn go_to(&mut self, psn: Psn) {
        self.snd = psn;
        let covers = |at: &usize| self.queue[*at].packets > 0 && self.queue[*at].covers(psn);
        let cursor = (0..self.started).find(covers);
        self.cursor = cursor.unwrap_or(self.started);
        // Found again when the cursor comes back to it.
        self.local_error = None;
    }

    /// How many PSNs from `snd` on go again as one request, of `span`.
    pub(crate) fn lost_span(&self, span: u32) -> u32 {
        match self.selective.repair() {
            Some(repair) if self.snd.is_before(self.high) => {
                repair.lost_run(self.snd.since(self.una), span).max(1)
            }
            _ => span,
        }
    }

    /// Whether nothing else is to be sent again but `span` PSNs: their answer says more.
    pub(crate) fn is_last_lost(&self, span: u32) -> bool {
        let repair = self.selective.repair();
        repair.is_some_and(|repair| repair.lost() <= span && self.snd.is_before(self.high))
    }

    /// Begins to note what arrives out of order, if it has not; `None` if it goes back.
    fn repair(&mut self, attr: &QpAttr) -> Option<&mut Repair> {
        if self.selective.is_off() {
            return None;
        }
        if !self.selective.is_repairing() {
            let requests = self.requests(self.una, self.high, attr);
            let repair = Repair::new(requests);
            self.selective.begin(repair);
        }
        self.selective.repair_mut()
    }

    /// The requests from `psn` to `end`, by the PSNs that they stand for, and whether these are responses.
    fn requests(&self, psn: Psn, end: Psn, attr: &QpAttr) -> impl Iterator<Item = (u32, bool)> {
        let mut psn = psn;
        let mut at = 0;
        let piece = self.read_packets(attr);
        std::iter::from_fn(move || {
            if psn == end {
                return None;
            }
            while self.queue[at].packets == 0 || !self.queue[at].covers(psn) {
                at += 1;
            }
            let wqe = &self.queue[at];
            let index = psn.since(wqe.first_psn);
            let is_response = wqe.op.needs_response();
            let span = match is_response {
                true => (piece - index % piece).min(wqe.packets - index),
                false => 1,
            };
            let span = span.min(end.since(psn));
            psn = psn.wrapping_add(span);
            Some((span, is_response))
        })
    }
}

/// What comes in.
impl Requester {
    /// The peer misses the packet at `psn`. `report` says what behind it is kept; without it, the peer does
    /// not know of reports.
    pub(crate) fn handle_gap<H: Services>(
        &mut self,
        now: Time,
        psn: Psn,
        report: Option<Data<'_>>,
        attr: &QpAttr,
        host: &mut H,
    ) -> Verdict {
        match self.selective.how() {
            // It has seen a packet that asks for reports. If this NAK is not merely late, it makes none.
            How::On(Asked::Heard) if report.is_none() => {
                if self.selective.doubt() == How::GoingBack {
                    self.selective.set(How::GoingBack);
                    return self.go_back_after_nak(now, host);
                }
            }
            How::On(_) => {}
            How::Unknown => {
                self.selective.set(How::Asking(None));
                return self.go_back_after_nak(now, host);
            }
            How::GoingBack | How::Asking(_) => return self.go_back_after_nak(now, host),
        }
        if self.waits_for_receiver() || !psn.is_before(self.high) {
            return Ok(());
        }
        self.recovery.stop_probing();
        let missing = psn.since(self.una);
        let Some(repair) = self.repair(attr) else {
            return Ok(());
        };
        match report {
            Some(Data::Bytes(report)) => {
                repair.on_executed(missing);
                if !repair.on_report(missing + 1, bits(report)) {
                    host.count(Counter::RxUnexpectedResponse, 1);
                }
            }
            _ => repair.lose(missing),
        }
        let is_told = report.is_some();
        self.repeat_missing(now, is_told, attr, host);
        Ok(())
    }

    /// Takes a response that comes before its turn, or one that was here.
    pub(crate) fn take_early<H: Services>(
        &mut self,
        headers: &Headers,
        data: Data<'_>,
        attr: &QpAttr,
        host: &mut H,
    ) {
        let psn = headers.psn;
        let covers = |at: &usize| self.queue[*at].packets > 0 && self.queue[*at].covers(psn);
        let Some(at) = (0..self.started).find(covers) else {
            return;
        };
        // One that cannot be placed is asked for again, and fails its request when its turn comes.
        let is_placed = self.place_response(at, headers, data, attr, host).is_ok();
        let (offset, next) = (psn.since(self.una), self.snd.since(self.una));
        let begins = !self.selective.is_repairing();
        if let Some(repair) = self.repair(attr) {
            if begins {
                // It may be going back, after a timeout: what that was to repeat leaves before anything new.
                repair.lose_from(next);
            }
            repair.on_executed(offset);
            if is_placed {
                repair.on_response(offset);
            }
        }
    }

    /// The peer has executed everything through `through`, whose responses have been sent.
    pub(crate) fn note_executed(&mut self, through: Psn, attr: &QpAttr) {
        let count = through.since(self.una) + 1;
        if let Some(repair) = self.repair(attr) {
            repair.on_executed(count);
        }
    }

    /// Something has been acknowledged, by the report of a gap or otherwise. What was asked may be known
    /// now.
    pub(crate) fn conclude_asking(&mut self, is_gap: bool, attr: &QpAttr) {
        let How::Asking(Some(probe)) = self.selective.how() else {
            return;
        };
        if !self.una.is_after(probe) {
            return;
        }
        // A peer that keeps nothing has seen nothing behind the packet that went alone.
        let keeps = is_gap || self.una.is_after(probe.next());
        let was_read = self.responses_due.front() == Some(&probe);
        let how = match keeps {
            true => How::On(Asked::No),
            // Nothing was behind it, or the answer to that comes for itself.
            false if self.una == self.high || was_read => How::Unknown,
            false => self.selective.doubt(),
        };
        self.selective.set(how);
        if self.selective.is_off() {
            self.selective.forget();
        }
        if keeps && self.una != self.high {
            self.repair(attr);
            self.expect_responses(self.una, self.high, attr);
            self.go_to(self.high);
        }
    }

    /// Completes what is done at the front.
    pub(crate) fn pass_done<H: Services>(&mut self, qpn: Qpn, host: &mut H) {
        while let Some(repair) = self.selective.repair()
            && repair.done() > 0
        {
            let is_last = self.una == self.queue[0].last_psn();
            if is_last {
                self.complete_front(host, qpn);
            }
            self.advance(self.una.next());
        }
    }

    /// Sends again what has turned out to be lost. `is_told`: the peer has just told what it has.
    pub(crate) fn repeat_missing<H: Services>(
        &mut self,
        now: Time,
        is_told: bool,
        attr: &QpAttr,
        host: &mut H,
    ) {
        let tolerance = self.selective.tolerance();
        let Some(repair) = self.selective.repair_mut() else {
            return;
        };
        let lost = repair.find_lost(now, tolerance, is_told);
        let Some(first) = repair.next_lost(0) else {
            return;
        };
        let first = self.una.wrapping_add(first);
        if self.snd.is_after(first) && !self.recovery.is_waiting() {
            self.forget_due(attr);
            self.go_to(first);
        }
        if lost.packets > 0 {
            if lost.responses {
                host.count(Counter::ImpliedNakSeqErr, 1);
            }
            // Once for each flight, as a NAK of the first missing packet would.
            if lost.is_new {
                host.lost(None);
            }
            self.timed = None;
            self.arm(now, host);
        }
    }

    /// READs and atomics of which a response is to be asked for again are not on their way.
    fn forget_due(&mut self, attr: &QpAttr) {
        let Some(repair) = self.selective.repair() else {
            return;
        };
        let (una, piece) = (self.una, self.read_packets(attr));
        let started = || self.queue.iter().take(self.started);
        self.responses_due.retain(|last| {
            let wqe = started().find(|wqe| wqe.packets > 0 && wqe.covers(*last));
            // As many of its piece as have not come.
            let of_piece = wqe.map_or(0, |wqe| last.since(wqe.first_psn) % piece);
            let last = last.since(una);
            let lost = repair.next_lost(last.saturating_sub(of_piece));
            lost.is_none_or(|lost| lost > last)
        });
    }

    fn go_back_after_nak<H: Services>(&mut self, now: Time, host: &mut H) -> Verdict {
        self.selective.forget();
        host.count(Counter::PacketSeqErr, 1);
        self.retry_after_nak(now, host)
    }
}
