use ferroce_adp::Expiry;
use ferroce_wire::{Headers, NakCode, Opcode, Psn, Qpn, Syndrome, rnr_timer_ns};

use crate::recv::scatter;
use crate::requester::{Requester, RequesterTimer};
use crate::{Counter, Data, Host, QpAttr, SendOp, Time, TimerExpiry, WcStatus};

/// Why the queue pair must fail: the status of the oldest WQE's completion.
pub(crate) type Verdict = Result<(), WcStatus>;

/// The half of the requester that listens: acknowledgements, responses, timeouts.
impl Requester {
    /// Takes a response packet. An error fails the queue pair.
    pub(crate) fn handle_response<H: Host>(
        &mut self,
        now: Time,
        headers: &Headers,
        data: Data<'_>,
        attr: &QpAttr,
        qpn: Qpn,
        host: &mut H,
    ) -> Verdict {
        let psn = headers.bth.psn;
        if psn.is_before(self.una) || !psn.is_before(self.high) {
            return self.handle_stale(psn, headers, host);
        }
        let una_before = self.una;
        let verdict = match headers.bth.opcode {
            Opcode::RcAcknowledge => self.handle_acknowledge(now, headers, attr, qpn, host),
            _ => self.handle_data(now, headers, data, attr, qpn, host),
        };
        if verdict.is_ok() && self.una != una_before {
            self.retry.on_progress(host.policy(), now.as_nanos());
            if !self.waits_for_receiver() {
                self.arm(now, host.policy());
            }
        }
        verdict
    }

    /// A response to something already done may still bring credits; one to something never
    /// sent is forged or damaged.
    fn handle_stale<H: Host>(&mut self, psn: Psn, headers: &Headers, host: &mut H) -> Verdict {
        let newest_done = psn.next() == self.una;
        match headers.aeth {
            Some(aeth) if newest_done && headers.bth.opcode == Opcode::RcAcknowledge => {
                if let Syndrome::Ack { credit } = aeth.syndrome {
                    self.grant(aeth.msn, credit.credits());
                }
            }
            _ if psn.is_before(self.una) => {}
            _ => host.count(Counter::RxUnexpectedResponse, 1),
        }
        Ok(())
    }

    fn handle_acknowledge<H: Host>(
        &mut self,
        now: Time,
        headers: &Headers,
        attr: &QpAttr,
        qpn: Qpn,
        host: &mut H,
    ) -> Verdict {
        let psn = headers.bth.psn;
        let Some(aeth) = headers.aeth else {
            return Ok(());
        };
        match aeth.syndrome {
            Syndrome::Ack { credit } => {
                self.grant(aeth.msn, credit.credits());
                self.acknowledge(now, psn, qpn, host)
            }
            Syndrome::Rnr { timer } => {
                self.acknowledge(now, psn.wrapping_sub(1), qpn, host)?;
                if self.una != psn || self.waits_for_receiver() {
                    return Ok(());
                }
                self.wait_for_receiver(now, timer, attr, host)
            }
            Syndrome::Nak(code) => {
                self.acknowledge(now, psn.wrapping_sub(1), qpn, host)?;
                if self.una != psn {
                    return Ok(());
                }
                self.handle_nak(now, code, host)
            }
            Syndrome::Reserved(_) => {
                host.count(Counter::RxUnexpectedResponse, 1);
                Ok(())
            }
        }
    }

    fn handle_nak<H: Host>(&mut self, now: Time, code: NakCode, host: &mut H) -> Verdict {
        match code {
            // What is missing goes out again when the RNR timer has run out.
            NakCode::SequenceError if self.waits_for_receiver() => Ok(()),
            NakCode::SequenceError => {
                host.count(Counter::PacketSeqErr, 1);
                self.retry_after_nak(now, host)
            }
            NakCode::RemoteAccess => {
                host.count(Counter::ReqRemoteAccessErrors, 1);
                Err(WcStatus::RemAccessErr)
            }
            NakCode::RemoteOperational => Err(WcStatus::RemOpErr),
            _ => {
                host.count(Counter::ReqRemoteInvalidRequest, 1);
                Err(WcStatus::RemInvReqErr)
            }
        }
    }

    fn waits_for_receiver(&self) -> bool {
        matches!(self.timer, RequesterTimer::Rnr { .. })
    }

    fn wait_for_receiver<H: Host>(
        &mut self,
        now: Time,
        timer_code: u8,
        attr: &QpAttr,
        host: &mut H,
    ) -> Verdict {
        if !self.may_retry_rnr(attr.rnr_retry) {
            host.count(Counter::ReqRnrRetriesExceeded, 1);
            return Err(WcStatus::RnrRetryExcErr);
        }
        host.count(Counter::RnrNakRetryErr, 1);
        self.go_back();
        self.timer = RequesterTimer::Rnr {
            until: now.after(rnr_timer_ns(timer_code)),
        };
        Ok(())
    }

    /// Completes everything up to and including `through`. A READ or atomic in there whose
    /// response has not come is an implied NAK.
    fn acknowledge<H: Host>(&mut self, now: Time, through: Psn, qpn: Qpn, host: &mut H) -> Verdict {
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
                return self.response_lost(now, host);
            }
            self.complete_front(host, qpn);
            self.advance(last.next());
        }
        Ok(())
    }

    /// A READ response or atomic acknowledgement; both acknowledge everything before them.
    fn handle_data<H: Host>(
        &mut self,
        now: Time,
        headers: &Headers,
        data: Data<'_>,
        attr: &QpAttr,
        qpn: Qpn,
        host: &mut H,
    ) -> Verdict {
        let psn = headers.bth.psn;
        if let Some(aeth) = headers.aeth
            && let Syndrome::Ack { credit } = aeth.syndrome
        {
            self.grant(aeth.msn, credit.credits());
        }
        let before = psn.wrapping_sub(1);
        if !self.queue[0].covers(psn) {
            self.acknowledge(now, before, qpn, host)?;
        }
        if self.una != psn {
            // Either an earlier READ or this one misses a response; `acknowledge` has seen the
            // first case, and asking twice for the same PSN changes nothing.
            return self.response_lost(now, host);
        }
        let wqe = &self.queue[0];
        let index = psn.since(wqe.first_psn);
        let offset = index * attr.path_mtu.bytes();
        let is_last = index + 1 == wqe.packets;
        let written = match (wqe.op, headers.atomic_ack) {
            (SendOp::Read { .. }, None) => {
                let expected = (wqe.length - offset).min(attr.path_mtu.bytes());
                if !headers.bth.opcode.is_read_response() || data.len() != expected {
                    return Err(WcStatus::BadRespErr);
                }
                scatter(&wqe.sges, host, offset, data)
            }
            (op, Some(original)) if op.is_atomic() => {
                scatter(&wqe.sges, host, 0, Data::Bytes(&original.to_ne_bytes()))
            }
            _ => return Err(WcStatus::BadRespErr),
        };
        written.map_err(|_| WcStatus::LocProtErr)?;
        if is_last {
            self.complete_front(host, qpn);
        }
        self.advance(psn.next());
        Ok(())
    }

    /// The response at `una` is lost: ask again, once for each PSN.
    fn response_lost<H: Host>(&mut self, now: Time, host: &mut H) -> Verdict {
        if self.implied_nak_at == Some(self.una) {
            return Ok(());
        }
        self.implied_nak_at = Some(self.una);
        host.count(Counter::ImpliedNakSeqErr, 1);
        self.retry_after_nak(now, host)
    }

    fn retry_after_nak<H: Host>(&mut self, now: Time, host: &mut H) -> Verdict {
        if !self.retry.on_sequence_nak(host.policy()) {
            host.count(Counter::ReqTransportRetriesExceeded, 1);
            return Err(WcStatus::RetryExcErr);
        }
        self.go_back();
        self.arm(now, host.policy());
        Ok(())
    }

    /// Lets the timer run out if it is due. An error fails the queue pair.
    pub(crate) fn handle_timeout<H: Host>(&mut self, now: Time, host: &mut H) -> Verdict {
        match self.timer {
            RequesterTimer::Rnr { until } if now >= until => {
                // The peer is alive: waiting for it counts as a fresh start (D5).
                self.timer = RequesterTimer::Idle;
                self.retry.start(host.policy(), now.as_nanos());
                self.arm(now, host.policy());
                Ok(())
            }
            RequesterTimer::Ack { armed, wait_ns } if now >= armed.after(wait_ns) => {
                self.handle_ack_timeout(now, wait_ns, host)
            }
            _ => Ok(()),
        }
    }

    fn handle_ack_timeout<H: Host>(&mut self, now: Time, wait_ns: u64, host: &mut H) -> Verdict {
        match self.retry.on_timeout(host.policy(), now.as_nanos()) {
            Expiry::Retransmit { adaptive } => {
                let counter = if adaptive {
                    Counter::RoceAdpRetrans
                } else {
                    Counter::LocalAckTimeoutErr
                };
                host.count(counter, 1);
                host.timer_expired(TimerExpiry {
                    wait_ns,
                    adaptive,
                    fatal: false,
                });
                self.implied_nak_at = None;
                self.go_back();
                self.arm(now, host.policy());
                Ok(())
            }
            Expiry::Fatal => {
                host.count(Counter::ReqTransportRetriesExceeded, 1);
                host.timer_expired(TimerExpiry {
                    wait_ns,
                    adaptive: false,
                    fatal: true,
                });
                Err(WcStatus::RetryExcErr)
            }
        }
    }
}
