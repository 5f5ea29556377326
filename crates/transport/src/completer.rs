//! The receiving half of the requester: acknowledgements, responses and timeouts.

use ferroce_adp::{Expiry, PolicyKind};
use ferroce_base::time::{Span, Time};
use ferroce_wire::{Aeth, Headers, NakCode, Opcode, Psn, Qpn, Syndrome, rnr_timer_ns};

use crate::attr::QpAttr;
use crate::counter::Counter;
use crate::fault::Fault;
use crate::memory::{Data, Key};
use crate::recv::scatter;
use crate::repair::Repair;
use crate::requester::{Requester, RequesterTimer};
use crate::services::{Services, TimerExpiry};
use crate::work::{SendOp, WcStatus};

/// Why the queue pair must fail: what the oldest WQE's completion says.
pub(crate) type Verdict = Result<(), Fault>;

/// What a response asks of the requester, apart from what it acknowledges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Demand {
    Nothing,
    /// A READ or atomic response before it is lost.
    Repeat,
    /// The request at `una` was refused.
    Nak(NakCode),
    /// The peer has no receive WQE for the request at `una`.
    Wait {
        timer_code: u8,
    },
}

/// The half of the requester that listens: acknowledgements, responses, timeouts.
impl Requester {
    /// Takes a response packet. An error fails the queue pair.
    pub(crate) fn handle_response<H: Services>(
        &mut self,
        now: Time,
        headers: &Headers,
        data: Data<'_>,
        attr: &QpAttr,
        qpn: Qpn,
        host: &mut H,
    ) -> Verdict {
        let psn = headers.psn;
        if psn.is_before(self.una) || !psn.is_before(self.high) {
            self.handle_stale(psn, headers, host);
            return Ok(());
        }
        if headers.aeth().is_some() {
            host.heard();
        }
        let is_report = headers.opcode() == Opcode::RcAcknowledgeReport;
        if is_report && !self.selective.hear_report() {
            host.count(Counter::RxUnexpectedResponse, 1); // nobody has asked for it
            return Ok(());
        }
        let una_before = self.una;
        let demand = match headers.opcode().operation() {
            Opcode::RcAcknowledge | Opcode::RcAcknowledgeReport => {
                self.take_acknowledge(headers, attr, qpn, host)
            }
            _ => self.take_data(headers, data, attr, qpn, host)?,
        };
        self.pass_done(qpn, host);
        // Progress comes first: it resets the counts that the demand then draws on. It also ends
        // the wait for a receiver, which turns out to have been ready.
        if self.una != una_before {
            self.retry.on_progress(host.policy(), now);
            self.recovery.on_progress(self.una, self.high);
            let is_gap = demand == Demand::Nak(NakCode::SequenceError);
            self.conclude_asking(is_gap, attr);
            self.arm(now, host);
            if let Some(rtt) = self.take_round_trip(now) {
                self.selective.note_round_trip(rtt);
                host.round_trip(rtt, self.retry.wait(host.policy(), now));
            }
        }
        match demand {
            Demand::Nothing | Demand::Repeat if self.selective.is_repairing() => {
                self.repeat_missing(now, false, attr, host);
                Ok(())
            }
            Demand::Nothing => Ok(()),
            Demand::Repeat => self.repeat_lost(now, host),
            Demand::Nak(NakCode::SequenceError) if !self.selective.is_off() => {
                self.handle_gap(now, psn, is_report.then_some(data), attr, host)
            }
            Demand::Nak(code) => self.handle_nak(now, code, host),
            Demand::Wait { timer_code } => self.wait_for_receiver(now, timer_code, attr, host),
        }
    }

    /// A response to something already done may still bring credits; one to something never
    /// sent is forged or damaged.
    fn handle_stale<H: Services>(&mut self, psn: Psn, headers: &Headers, host: &mut H) {
        let is_ack = matches!(
            headers.aeth(),
            Some(Aeth {
                syndrome: Syndrome::Ack { .. },
                ..
            })
        ) && headers.opcode().operation() == Opcode::RcAcknowledge;
        if psn.is_before(self.una) && self.recovery.is_spurious(psn, is_ack) {
            host.count(Counter::SpuriousRetransmissions, 1);
            host.repeated_for_nothing();
        }
        let newest_done = psn.next() == self.una;
        match headers.aeth() {
            Some(aeth) if newest_done && headers.opcode().operation() == Opcode::RcAcknowledge => {
                if let Syndrome::Ack { credit } = aeth.syndrome {
                    self.grant(aeth.msn, credit.credits());
                }
            }
            _ if psn.is_before(self.una) => {}
            _ => host.count(Counter::RxUnexpectedResponse, 1),
        }
    }

    /// An ACK or NAK. Both acknowledge: a NAK everything before its PSN.
    fn take_acknowledge<H: Services>(
        &mut self,
        headers: &Headers,
        attr: &QpAttr,
        qpn: Qpn,
        host: &mut H,
    ) -> Demand {
        let psn = headers.psn;
        let (through, demand) = match headers.aeth().map(|aeth| (aeth.syndrome, aeth.msn)) {
            Some((Syndrome::Ack { credit }, msn)) => {
                self.grant(msn, credit.credits());
                (psn, Demand::Nothing)
            }
            Some((Syndrome::Rnr { timer: timer_code }, _)) => {
                (psn.wrapping_sub(1), Demand::Wait { timer_code })
            }
            Some((Syndrome::Nak(code), _)) => (psn.wrapping_sub(1), Demand::Nak(code)),
            Some((Syndrome::Reserved(_), _)) | None => {
                host.count(Counter::RxUnexpectedResponse, 1);
                return Demand::Nothing;
            }
        };
        let is_gap = demand == Demand::Nak(NakCode::SequenceError);
        if !self.acknowledge(through, qpn, host) {
            self.note_executed(through, attr);
            match is_gap && self.selective.is_on() {
                true => demand,
                false => Demand::Repeat,
            }
        } else if demand != Demand::Nothing && self.una != psn {
            // Refused in the middle of a READ whose responses up to there are lost.
            Demand::Repeat
        } else {
            demand
        }
    }

    /// A READ response or atomic acknowledgement; both acknowledge everything before them.
    fn take_data<H: Services>(
        &mut self,
        headers: &Headers,
        data: Data<'_>,
        attr: &QpAttr,
        qpn: Qpn,
        host: &mut H,
    ) -> Result<Demand, Fault> {
        let (psn, opcode) = (headers.psn, headers.opcode());
        match headers.aeth().map(|aeth| (aeth.syndrome, aeth.msn)) {
            Some((Syndrome::Ack { credit }, msn)) => self.grant(msn, credit.credits()),
            None if !opcode.has_aeth() => {}
            _ => {
                host.count(Counter::RxUnexpectedResponse, 1);
                return Ok(Demand::Nothing);
            }
        }
        if !self.acknowledge(psn.wrapping_sub(1), qpn, host) || self.una != psn {
            if !self.selective.is_off() {
                self.take_early(headers, data, attr, host);
            }
            return Ok(Demand::Repeat);
        }
        self.place_response(0, headers, data, attr, host)?;
        if psn == self.queue[0].last_psn() {
            self.complete_front(host, qpn);
        }
        self.advance(psn.next());
        Ok(Demand::Nothing)
    }

    /// Writes a response to the memory that the WQE at `at` gives for it.
    pub(crate) fn place_response<H: Services>(
        &mut self,
        at: usize,
        headers: &Headers,
        data: Data<'_>,
        attr: &QpAttr,
        host: &mut H,
    ) -> Verdict {
        let opcode = headers.opcode();
        let wqe = &self.queue[at];
        let index = headers.psn.since(wqe.first_psn);
        let is_last = index + 1 == wqe.packets;
        let written = match (wqe.op, headers.atomic_ack()) {
            (SendOp::Read { .. }, None) if opcode.is_read_response() => {
                let mtu = attr.path_mtu.bytes();
                let offset = index * mtu;
                let expected = (wqe.length - offset).min(mtu);
                let ends = is_last || (index + 1).is_multiple_of(self.read_packets(attr));
                // Some of a piece may have been asked for again.
                let any_end = self.selective.may_split_reads() && !ends;
                if data.len() != expected || opcode.ends_message() != ends && !any_end {
                    return Err(WcStatus::BadRespErr.into());
                }
                scatter(&wqe.sges, Key::Local, host, offset, data)
            }
            (op, Some(original)) if op.is_atomic() => scatter(
                &wqe.sges,
                Key::Local,
                host,
                0,
                Data::Bytes(&original.to_ne_bytes()),
            ),
            _ => return Err(WcStatus::BadRespErr.into()),
        };
        written.map_err(|_| Fault::RESPONSE)
    }

    /// Completes everything up to and including `through`, as far as no READ or atomic in there
    /// still misses its response; false if one does, which is an implied NAK.
    pub(crate) fn acknowledge<H: Services>(
        &mut self,
        through: Psn,
        qpn: Qpn,
        host: &mut H,
    ) -> bool {
        while self.started > 0 && !through.is_before(self.una) {
            let front = &self.queue[0];
            let last = front.last_psn();
            if last.is_after(through) {
                if !front.op.needs_response() {
                    self.advance(through.next());
                }
                break;
            }
            if front.op.needs_response() {
                return false;
            }
            self.complete_front(host, qpn);
            self.advance(last.next());
        }
        true
    }

    /// The response at `una` is lost: ask again, once for each PSN.
    fn repeat_lost<H: Services>(&mut self, now: Time, host: &mut H) -> Verdict {
        if self.implied_nak_at == Some(self.una) || self.waits_for_receiver() {
            return Ok(());
        }
        self.implied_nak_at = Some(self.una);
        host.count(Counter::ImpliedNakSeqErr, 1);
        self.retry_after_nak(now, host)
    }

    fn handle_nak<H: Services>(&mut self, now: Time, code: NakCode, host: &mut H) -> Verdict {
        match code {
            // What is missing goes out again when the RNR timer has run out.
            NakCode::SequenceError if self.waits_for_receiver() => Ok(()),
            NakCode::SequenceError => {
                host.count(Counter::PacketSeqErr, 1);
                self.retry_after_nak(now, host)
            }
            NakCode::RemoteAccess => {
                host.count(Counter::ReqRemoteAccessErrors, 1);
                Err(WcStatus::RemAccessErr.into())
            }
            NakCode::RemoteOperational => Err(WcStatus::RemOpErr.into()),
            NakCode::InvalidRequest | NakCode::InvalidRdRequest | NakCode::Other(_) => {
                host.count(Counter::ReqRemoteInvalidRequest, 1);
                Err(WcStatus::RemInvReqErr.into())
            }
        }
    }

    pub(crate) fn retry_after_nak<H: Services>(&mut self, now: Time, host: &mut H) -> Verdict {
        if !self.retry.on_sequence_nak(host.policy()) {
            host.count(Counter::ReqTransportRetriesExceeded, 1);
            return Err(WcStatus::RetryExcErr.into());
        }
        self.go_back();
        host.lost(None);
        self.arm(now, host);
        Ok(())
    }

    fn wait_for_receiver<H: Services>(
        &mut self,
        now: Time,
        timer_code: u8,
        attr: &QpAttr,
        host: &mut H,
    ) -> Verdict {
        if self.waits_for_receiver() {
            return Ok(()); // the same NAK again
        }
        //= F10: the last one counts, too.
        host.count(Counter::RnrNakRetryErr, 1);
        if !self.may_retry_rnr(attr.rnr_retry) {
            host.count(Counter::ReqRnrRetriesExceeded, 1);
            return Err(WcStatus::RnrRetryExcErr.into());
        }
        // A wait without end must not fail for sequence NAKs that come late, a few in a second:
        // some responders refuse what follows in the burst by one of those.
        self.retry.on_receiver_not_ready(host.policy());
        // What it kept it has forgotten.
        self.selective.forget();
        self.selective.stop_asking();
        self.go_back();
        let wait = Span::from_nanos(rnr_timer_ns(timer_code));
        self.timer = RequesterTimer::Rnr {
            until: now.after(host.policy().receiver_wait(wait)),
        };
        Ok(())
    }

    /// Lets the timer run out if it is due, and looks after packets that others have overtaken. An error
    /// fails the queue pair.
    pub(crate) fn handle_timeout<H: Services>(
        &mut self,
        now: Time,
        attr: &QpAttr,
        host: &mut H,
    ) -> Verdict {
        let overtaken = self.selective.repair().and_then(Repair::due);
        if overtaken.is_some_and(|due| due <= now) {
            self.repeat_missing(now, false, attr, host);
        }
        match self.timer {
            RequesterTimer::Rnr { until } if now >= until => {
                // The peer is alive: waiting for it counts as a fresh start (D5).
                self.retry.start(host.policy(), now);
                self.arm(now, host);
                Ok(())
            }
            RequesterTimer::Ack { armed, wait } if now >= armed.after(wait) => {
                self.handle_ack_timeout(now, wait, host)
            }
            _ => Ok(()),
        }
    }

    fn handle_ack_timeout<H: Services>(&mut self, now: Time, wait: Span, host: &mut H) -> Verdict {
        let expiry = self.retry.on_timeout(host.policy(), now);
        host.timer_expired(TimerExpiry {
            wait,
            adaptive: expiry == Expiry::Retransmit { adaptive: true },
            fatal: expiry == Expiry::Fatal,
        });
        host.count(
            match expiry {
                Expiry::Retransmit { adaptive: true } => Counter::RoceAdpRetrans,
                Expiry::Fatal if matches!(host.policy().kind, PolicyKind::Profile(_)) => {
                    Counter::RoceAdpRetransTo
                }
                _ => Counter::LocalAckTimeoutErr,
            },
            1,
        );
        match expiry {
            Expiry::Fatal => {
                host.count(Counter::ReqTransportRetriesExceeded, 1);
                return Err(WcStatus::RetryExcErr.into());
            }
            Expiry::Initial => {
                self.arm(now, host);
                return Ok(());
            }
            Expiry::Retransmit { .. } => {}
        }
        self.implied_nak_at = None;
        self.selective.stop_asking();
        let mut recovery = self.recovery;
        self.go_back();
        host.lost(Some(wait));
        recovery.on_timeout(self.una, self.high);
        self.recovery = recovery;
        self.arm(now, host);
        Ok(())
    }
}
