//! The queue pair: one state machine around a requester and a responder. Packets, timeouts and verbs
//! go in; packets, completions and events come out.

use ferroce_adp::{Policy, QpTimeouts, RetryState};
use ferroce_base::time::Time;
use ferroce_wire::{Dceth, Headers, Psn, Qpn, Service};

use crate::attr::{AccessFlags, Attr, ModifyError, QpAttr, QpModify, QpState};
use crate::completer::Verdict;
use crate::config::{Allowance, HeldBack, QpConfig};
use crate::counter::Counter;
use crate::dc::Initiator;
use crate::fault::Fault;
use crate::memory::Data;
use crate::packet::Outgoing;
use crate::recv::ReceiveQueue;
use crate::requester::Requester;
use crate::responder::{Context, Failed, ReceiveSource, Responder};
use crate::selective::{Asked, How, Selective};
use crate::service::{Path, QpType, UdAddress};
use crate::services::{QpEvent, Services};
use crate::work::{PostError, RecvWr, SendFlags, SendWr};

/// Packets a QP sends of one kind (answers, requests) before the other kind gets its turn.
const TURN_PACKETS: u8 = 16;

const _: () = assert!(
    size_of::<Qp>() <= 1024,
    "a million QPs at rest are kept in memory"
);

/// A queue pair. The fields that both halves need for each packet come first.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Qp {
    state: QpState,
    communication_established: bool,
    /// Which half sends next, and how many more packets.
    turn: SendTurn,
    config: QpConfig,
    attr: QpAttr,
    requester: Requester,
    responder: Responder,
    receives: ReceiveSource,
    /// A DCI has one.
    initiator: Option<Box<Initiator>>,
}

#[derive(Clone, Copy, Debug)]
struct SendTurn {
    responder: bool,
    left: u8,
}

impl SendTurn {
    /// Requests begin: an answer is shorter than most of them, and so can end their batch instead
    /// of needing one of its own.
    const FIRST: Self = Self {
        responder: false,
        left: TURN_PACKETS,
    };
}

impl Qp {
    /// Creates a queue pair in RESET.
    pub fn new(config: QpConfig, policy: &Policy) -> Self {
        let QpConfig {
            qpn,
            qp_type,
            cap,
            srq,
            window_bytes,
            read_bytes,
            incarnation,
            ..
        } = config;
        let is_dci = qp_type == QpType::Dci;
        let mut qp = Self {
            config,
            state: QpState::Reset,
            attr: first_attr(&config),
            requester: Requester::new(policy, qpn, window_bytes, read_bytes),
            responder: Responder::new(),
            receives: if srq || qp_type == QpType::XrcRecv {
                ReceiveSource::Shared { spare: None }
            } else {
                ReceiveSource::Own(ReceiveQueue::new(cap.max_recv_wr, cap.max_recv_sge))
            },
            turn: SendTurn::FIRST,
            communication_established: false,
            initiator: is_dci.then(|| Box::new(Initiator::new(qpn, incarnation))),
        };
        qp.repeat_as_configured();
        qp
    }

    /// Both ends of the connection, before RTR, have agreed to repeat selectively, or not to.
    pub fn agree_on_selective_repeat(&mut self, agreed: bool) {
        let on = How::On(Asked::No);
        self.repeat_selectively(agreed.then_some(on));
        self.responder.reports = agreed && self.repeats_selectively();
    }

    /// Has its packets take many paths from now on, before it is connected.
    pub fn route_adaptively(&mut self) {
        self.config.adaptive_routing = true;
        self.repeat_as_configured();
    }

    /// Returns the bytes of packets that it keeps because they have come before their turn.
    pub fn kept_bytes(&self) -> u32 {
        self.responder.kept.bytes()
    }

    /// Returns whether it repeats selectively, if its peer does.
    pub fn repeats_selectively(&self) -> bool {
        !self.requester.selective.is_off()
    }

    /// Returns whether it could: reliable connections can.
    pub fn can_repeat_selectively(&self) -> bool {
        self.config.qp_type == QpType::Rc
    }

    /// Where packets take many paths, peers are expected to take them in any order; that one merely repeats
    /// selectively says nothing of them.
    fn repeat_as_configured(&mut self) {
        let how = match (self.config.adaptive_routing, self.config.selective_repeat) {
            (true, _) => Some(How::On(Asked::No)),
            (false, true) => Some(How::Unknown),
            (false, false) => None,
        };
        self.repeat_selectively(how);
    }

    fn repeat_selectively(&mut self, how: Option<How>) {
        let how = how.filter(|_| self.can_repeat_selectively());
        let many_paths = how.is_some() && self.config.adaptive_routing;
        (self.responder.keeps, self.responder.reports) = (how.is_some(), false);
        self.responder.reorders = many_paths;
        self.requester.selective = Selective::new(how, many_paths);
    }

    /// Returns whether its packets may take many paths, and overtake each other.
    #[inline]
    pub fn uses_many_paths(&self) -> bool {
        self.requester.selective.uses_many_paths()
    }

    /// Returns whether what each of its peer's messages is made of lands in its order.
    pub fn lands_in_order(&self) -> bool {
        !self.responder.reorders
    }

    /// Creates the part of a DC target that answers one initiator. It expects the connect request.
    pub fn answering(config: QpConfig, policy: &Policy, attr: QpAttr, connect: &Headers) -> Self {
        let mut qp = Self::new(config, policy);
        qp.attr = attr;
        qp.state = QpState::Rtr;
        qp.communication_established = true;
        qp.responder.connect(connect.psn);
        qp
    }

    /// Returns its number.
    pub fn qpn(&self) -> Qpn {
        self.config.qpn
    }

    /// Returns its state.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// Returns its attributes as last set.
    pub fn attr(&self) -> &QpAttr {
        &self.attr
    }

    /// Returns its attributes as `ibv_query_qp` reports them. The PSNs are the next ones, as with
    /// cards, so that a peer configured with them continues where this side stopped (F18, F19).
    pub fn live_attr(&self) -> QpAttr {
        QpAttr {
            rq_psn: self.expected_psn(),
            sq_psn: self.next_psn(),
            ..self.attr
        }
    }

    /// Returns whether work started before the move to SQD is still unfinished (`sq_draining`).
    pub fn is_draining(&self) -> bool {
        self.state == QpState::Sqd && !self.requester.drained()
    }

    /// Returns the parameters it was created with.
    pub fn config(&self) -> &QpConfig {
        &self.config
    }

    /// Returns its retransmission state.
    pub fn retry(&self) -> &RetryState {
        &self.requester.retry
    }

    /// Returns `timeout` as last set, and `retry_cnt` unless an extended retry count replaces it.
    pub fn timeouts(&self) -> QpTimeouts {
        QpTimeouts {
            timeout: self.attr.timeout,
            retry_cnt: (self.config.extended_retry_count).unwrap_or(self.attr.retry_cnt),
        }
    }

    /// Returns the number of PSNs sent and not acknowledged.
    pub fn in_flight(&self) -> u32 {
        self.requester.in_flight()
    }

    /// Returns the number of PSNs in flight that count towards the [`Allowance`]: all those in
    /// flight, but after going back only what was retransmitted, without the first packet.
    #[inline]
    pub fn on_wire(&self) -> u32 {
        self.requester.on_wire()
    }

    /// Returns how many of them stand for responses to READs and atomics, including those between
    /// such responses.
    #[inline]
    pub fn responses_on_wire(&self) -> u32 {
        self.requester.responses_on_wire()
    }

    /// Returns which part of its [`Allowance`] was too small for the last request that is still to
    /// be sent.
    pub fn held_back(&self) -> Option<HeldBack> {
        self.requester.held_back()
    }

    /// Returns the destination of the next request if it is a datagram.
    pub fn next_datagram(&self) -> Option<UdAddress> {
        self.requester.next_datagram()
    }

    /// Returns the PSN after the last one sent; 0 before RTS.
    pub fn next_psn(&self) -> Psn {
        self.requester.high
    }

    /// Returns the PSN that the responder expects.
    pub fn expected_psn(&self) -> Psn {
        self.responder.expected_psn()
    }

    /// Returns the number of send requests not completed.
    pub fn send_queue_len(&self) -> usize {
        self.requester.len()
    }

    /// Returns whether some of them, in RTS, have not been sent or must be retransmitted.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.state == QpState::Rts && self.requester.has_unsent()
    }

    /// Returns the number of receive requests on its own queue.
    pub fn recv_queue_len(&self) -> usize {
        match &self.receives {
            ReceiveSource::Own(queue) => queue.len(),
            ReceiveSource::Shared { .. } => 0,
        }
    }

    /// Releases memory that its queues no longer need. Waiting requests stay.
    pub fn shrink(&mut self) {
        self.requester.shrink();
        self.responder.shrink();
        if let ReceiveSource::Own(queue) = &mut self.receives {
            queue.shrink();
        }
    }

    // Verbs.

    /// Changes attributes and state as `ibv_modify_qp` does, atomically: all or none.
    pub fn modify<H: Services>(
        &mut self,
        change: &QpModify,
        host: &mut H,
    ) -> Result<(), ModifyError> {
        let from = self.state;
        let to = change.check(self.config.qp_type, from)?;
        change.apply(&mut self.attr);
        let (qpn, timeouts) = (self.config.qpn, self.timeouts());
        match (from, to) {
            (_, QpState::Reset) => self.reset(host),
            (_, QpState::Err) => {
                self.requester.flush(host, qpn, Fault::STOPPED);
                self.enter_error(host);
            }
            (QpState::Init, QpState::Rtr) => self.responder.connect(self.attr.rq_psn),
            (QpState::Rtr, QpState::Rts) => {
                self.requester
                    .connect(host.policy(), qpn, self.attr.sq_psn, timeouts);
            }
            _ if change.mask.intersects(Attr::TIMEOUT | Attr::RETRY_CNT) => {
                self.requester.set_timeouts(host.policy(), qpn, timeouts);
            }
            _ => {}
        }
        self.state = to;
        if (from, to) == (QpState::Rts, QpState::Sqd) {
            // A request that an earlier drain did not live up to is forgotten.
            self.attr.sqd_async_notify &= change.mask.contains(Attr::EN_SQD_ASYNC_NOTIFY);
            self.report_drained(host);
        }
        Ok(())
    }

    fn reset<H: Services>(&mut self, host: &mut H) {
        self.requester.clear();
        self.responder.clear(host);
        self.repeat_as_configured();
        self.receives.clear();
        self.attr = first_attr(&self.config);
        self.requester
            .set_timeouts(host.policy(), self.config.qpn, self.timeouts());
        self.communication_established = false;
        self.forget_target();
    }

    /// Ends the connection of a DCI, if it has one, without telling the target.
    fn forget_target(&mut self) {
        if let Some(initiator) = &mut self.initiator {
            initiator.forget();
        }
    }

    /// Posts a send request.
    pub fn post_send<H: Services>(&mut self, wr: SendWr, host: &mut H) -> Result<(), PostError> {
        self.post_send_by(host, |place, _| {
            *place = wr;
            Ok(())
        })
    }

    /// Posts a send request that `write` fills in, starting from defaults.
    #[inline]
    pub fn post_send_by<H: Services, E: From<PostError>>(
        &mut self,
        host: &mut H,
        write: impl FnOnce(&mut SendWr, &H) -> Result<(), E>,
    ) -> Result<(), E> {
        let state = self.state;
        let always = match self.config.signal_all {
            true => SendFlags::SIGNALED,
            false => SendFlags::empty(),
        };
        self.requester.post::<E>(&self.config, |place| {
            write(place, host)?;
            place.flags |= always;
            match state {
                QpState::Reset | QpState::Init | QpState::Rtr => Err(not_ready(state).into()),
                _ => Ok(()),
            }
        })?;
        if matches!(state, QpState::Err | QpState::Sqe) {
            self.requester.flush(host, self.config.qpn, Fault::FLUSHED);
        }
        Ok(())
    }

    /// Posts a receive request.
    pub fn post_recv<H: Services>(&mut self, wr: RecvWr, host: &mut H) -> Result<(), PostError> {
        let state = self.state;
        if state == QpState::Reset {
            let needs = "any state but RESET";
            return Err(PostError::WrongState {
                state,
                queue: "receive",
                needs,
            });
        }
        let qp_type = self.config.qp_type;
        if matches!(qp_type, QpType::XrcSend | QpType::XrcRecv | QpType::Dci) {
            return Err(PostError::NoReceiveQueue { qp_type });
        }
        let ReceiveSource::Own(queue) = &mut self.receives else {
            return Err(PostError::UsesSrq);
        };
        queue.post(wr)?;
        if state == QpState::Err {
            self.flush_receives(host);
        }
        Ok(())
    }

    // Input.

    /// Returns whether the QP accepts packets in its current state.
    pub fn takes_packets(&self) -> bool {
        use QpState::{Rtr, Rts, Sqd, Sqe};
        matches!(self.state, Rtr | Rts | Sqd | Sqe)
    }

    /// Handles a packet for this QP from its peer; see [`Self::handle_datagram`] for UD.
    pub fn handle_packet<H: Services>(
        &mut self,
        now: Time,
        headers: &Headers,
        data: Data<'_>,
        host: &mut H,
    ) {
        let qp_type = self.config.qp_type;
        let opcode = headers.opcode();
        if !self.takes_packets() || !qp_type.takes(opcode) || qp_type == QpType::Ud {
            return;
        }
        if opcode.is_request() {
            self.handle_request(headers, data, host);
        } else if self.state != QpState::Rtr {
            let qpn = self.config.qpn;
            let verdict = self
                .requester
                .handle_response(now, headers, data, &self.attr, qpn, host);
            self.conclude(verdict, host);
        }
    }

    fn handle_request<H: Services>(&mut self, headers: &Headers, data: Data<'_>, host: &mut H) {
        if self.state == QpState::Rtr && !self.communication_established {
            self.communication_established = true;
            host.event(QpEvent::CommunicationEstablished);
        }
        let is_reliable = self.config.qp_type.is_reliable();
        let (responder, mut cx) = self.responder(host);
        let handled = if is_reliable {
            responder.handle_request(headers, data, &mut cx)
        } else {
            responder.handle_unreliable(headers, data, &mut cx)
        };
        if let Err(Failed) = handled {
            self.enter_error(host);
        }
    }

    pub(crate) fn halves(&self) -> (&Requester, &Responder, &ReceiveSource) {
        (&self.requester, &self.responder, &self.receives)
    }

    pub(crate) fn halves_mut(&mut self) -> (&mut Requester, &mut Responder) {
        (&mut self.requester, &mut self.responder)
    }

    /// The responder, and what it needs.
    pub(crate) fn responder<'a, H: Services>(
        &'a mut self,
        host: &'a mut H,
    ) -> (&'a mut Responder, Context<'a, H>) {
        let cx = Context {
            qpn: self.config.qpn,
            attr: &self.attr,
            receives: &mut self.receives,
            host,
        };
        (&mut self.responder, cx)
    }

    /// Handles timers up to the current time.
    pub fn handle_timeout<H: Services>(&mut self, now: Time, host: &mut H) {
        if let Some(initiator) = &mut self.initiator {
            initiator.handle_timeout(now);
        }
        let verdict = self.requester.handle_timeout(now, &self.attr, host);
        self.conclude(verdict, host);
    }

    /// Acts on what the requester found: fail, or report the end of a drain.
    fn conclude<H: Services>(&mut self, verdict: Verdict, host: &mut H) {
        if let Err(fault) =
            verdict.and_then(|()| self.requester.due_local_error().map_or(Ok(()), Err))
        {
            self.requester.fail(host, self.config.qpn, fault);
            if self.config.qp_type.is_reliable() {
                self.enter_error(host);
            } else {
                self.state = QpState::Sqe;
            }
        } else if self.state == QpState::Sqd {
            self.report_drained(host);
        }
    }

    fn report_drained<H: Services>(&mut self, host: &mut H) {
        if self.attr.sqd_async_notify && self.requester.drained() {
            self.attr.sqd_async_notify = false; // once for each move to SQD
            host.event(QpEvent::SendQueueDrained);
        }
    }

    /// Moves it to ERR because of an error, and flushes both queues. Answers already decided on, a NAK
    /// above all, still go out.
    pub fn enter_error<H: Services>(&mut self, host: &mut H) {
        if self.state == QpState::Err {
            return;
        }
        self.state = QpState::Err;
        self.requester.flush(host, self.config.qpn, Fault::FLUSHED);
        self.forget_target();
        self.flush_receives(host);
        // An XRC_RECV queue pair has no receive queue that could come to its last WQE, and a DC
        // target goes on when it has refused an initiator.
        let goes_on = matches!(self.config.qp_type, QpType::XrcRecv | QpType::DcResponder);
        if matches!(self.receives, ReceiveSource::Shared { .. }) && !goes_on {
            host.event(QpEvent::LastWqeReached);
        }
    }

    fn flush_receives<H: Services>(&mut self, host: &mut H) {
        let (responder, mut cx) = self.responder(host);
        responder.flush(&mut cx);
    }

    /// Sets the current window, limited to that of [`QpConfig`]: the device divides the capacity of
    /// the peers' sockets among its busy queue pairs, and congestion control may require less. Two
    /// packets may always be in flight.
    #[inline]
    pub fn share_window(&mut self, bytes: u32) {
        self.requester.share_window(bytes);
    }

    /// Sets the number of packets that may currently be in flight, when others have filled or
    /// emptied the same buffer. The last allowed packet asks for an answer. Beyond the limit, only
    /// two packets may be sent: one that asks for an answer if none is due, and the oldest
    /// unacknowledged packet again, which is not counted.
    pub fn allow(&mut self, allowance: Allowance) {
        self.requester.allow(allowance);
    }

    // Output.

    /// Writes the next packet to send to `out`, alternating between answers and requests. Returns
    /// false if there is nothing to send until the next input. Packets are large, so the caller
    /// provides the space.
    pub fn poll_transmit<H: Services>(
        &mut self,
        now: Time,
        host: &mut H,
        out: &mut Outgoing,
    ) -> bool {
        for _ in 0..2 {
            let made = match self.turn.responder {
                true => self.poll_answer(host, out),
                false => self.poll_request(now, host, out),
            };
            if made && self.turn.left > 1 {
                self.turn.left -= 1;
            } else {
                self.turn = SendTurn {
                    responder: !self.turn.responder,
                    left: TURN_PACKETS,
                };
            }
            if made {
                if self.is_quiet() {
                    self.turn = SendTurn::FIRST;
                }
                return true;
            }
        }
        self.turn = SendTurn::FIRST;
        false
    }

    fn poll_answer<H: Services>(&mut self, host: &mut H, out: &mut Outgoing) -> bool {
        let mut poll = |host: &mut H| {
            let (attr, receives) = (&self.attr, &self.receives);
            self.responder.poll_transmit(attr, receives, host, out)
        };
        let made = match poll(host) {
            Ok(made) => made,
            Err(_) => {
                let has_nak = poll(host).unwrap_or(false);
                if self.state != QpState::Err {
                    host.count(Counter::RespRemoteAccessErrors, 1);
                    host.event(QpEvent::AccessError);
                    self.enter_error(host);
                }
                has_nak
            }
        };
        if made {
            match self.config.qp_type.service() {
                Service::Xrc => out.headers = out.headers.as_xrc_response(),
                // Responses have no such header.
                Service::Dc => out.headers = out.headers.as_dc(Dceth::default()),
                Service::Rc | Service::Uc | Service::Ud | Service::Cnp => {}
            }
        }
        made
    }

    fn poll_request<H: Services>(&mut self, now: Time, host: &mut H, out: &mut Outgoing) -> bool {
        if self.is_leaving(now) {
            return self.poll_disconnect(out);
        }
        let waits_for_target = self.waits_for_target(host);
        let draining = match self.state {
            QpState::Rts if self.requester.is_quiet() => return false,
            QpState::Rts if waits_for_target => true,
            QpState::Rts => false,
            QpState::Sqd => true,
            _ => return false,
        };
        let (attr, config) = (&self.attr, &self.config);
        let made = self
            .requester
            .poll_transmit(now, host, attr, config, draining, out);
        if !made {
            self.requester.give_up_departure(now, host);
            // A WQE that turned out to be unsendable may be the oldest one.
            self.conclude(Ok(()), host);
        } else if let Some(initiator) = &self.initiator {
            out.headers = out.headers.as_dc(initiator.dceth());
        }
        made
    }

    /// Connects a DCI to the target of its next request, if it has no connection; returns the path
    /// to that target, which the device then follows.
    pub fn turn_to_target<H: Services>(&mut self, host: &mut H) -> Option<Path> {
        let initiator = self.initiator.as_mut()?;
        if self.state != QpState::Rts || initiator.target().is_some() {
            return None;
        }
        self.requester.execute_local(host, self.config.qpn);
        let target = self.requester.next_target()?;
        self.requester.push_connect(initiator.connect(target));
        self.attr.dest_qpn = target.qpn;
        Some(target.path)
    }

    /// Returns whether it is a DCI that has requests and no connection.
    #[inline]
    pub fn wants_target(&self) -> bool {
        let initiator = self.initiator.as_ref();
        initiator.is_some_and(|it| it.target().is_none()) && self.has_unsent()
    }

    /// Whether a DCI must not start another request: its target has not accepted it yet, or has to
    /// answer everything before the DCI turns to another one.
    fn waits_for_target<H: Services>(&mut self, host: &mut H) -> bool {
        let Some(initiator) = &mut self.initiator else {
            return false;
        };
        let requester = &mut self.requester;
        let has_started = !requester.drained();
        if requester.is_connecting() && has_started && !host.policy().dc_half_handshake {
            return true;
        }
        if self.state == QpState::Rts {
            requester.execute_local(host, self.config.qpn);
        }
        let next = requester.next_target();
        next.is_some() && next != initiator.target()
    }

    /// Whether a DCI is done with its target.
    fn is_leaving(&mut self, now: Time) -> bool {
        let Some(initiator) = &mut self.initiator else {
            return false;
        };
        let target = initiator.target();
        if target.is_none() || self.state != QpState::Rts {
            return false;
        }
        if !self.requester.drained() || self.requester.is_connecting() {
            initiator.keep();
            return false;
        }
        match self.requester.next_target() {
            Some(next) if Some(next) != target => true,
            Some(_) => {
                initiator.keep();
                false
            }
            None => {
                initiator.linger(now);
                initiator.is_over()
            }
        }
    }

    /// Makes the packet that ends the connection of a DCI.
    fn poll_disconnect(&mut self, out: &mut Outgoing) -> bool {
        let Some(initiator) = &mut self.initiator else {
            return false;
        };
        let headers = initiator.disconnect();
        out.set_headers(headers.to(self.attr.dest_qpn, self.requester.una));
        true
    }

    /// Whether a DCI has neither to connect nor to begin or end a wait for more requests.
    fn is_settled(&self) -> bool {
        let Some(initiator) = &self.initiator else {
            return true;
        };
        let is_idle = initiator.target().is_some() && self.requester.drained();
        !is_idle || initiator.deadline().is_some()
    }

    /// Returns when [`Self::handle_timeout`] must be called next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let idle = self.initiator.as_ref().and_then(|it| it.deadline());
        match (self.requester.deadline(), idle) {
            (Some(timer), Some(idle)) => Some(timer.min(idle)),
            (timer, idle) => timer.or(idle),
        }
    }

    /// Returns whether [`Self::poll_transmit`] has nothing to do before the next input. This is the
    /// case after the last packet of most queue pairs, and after most incoming packets.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        let all_sent = match self.state {
            QpState::Rts => self.requester.is_quiet() && self.is_settled(),
            QpState::Rtr => true,
            _ => false,
        };
        all_sent && !self.has_answers()
    }

    /// Returns whether answers are waiting to be sent.
    pub fn has_answers(&self) -> bool {
        self.responder.has_pending()
    }

    /// Returns what the peer may access.
    pub fn access(&self) -> AccessFlags {
        self.attr.access
    }
}

#[cold]
fn not_ready(state: QpState) -> PostError {
    PostError::WrongState {
        state,
        queue: "send",
        needs: "RTS, SQD, SQE or ERR",
    }
}

/// Attributes in RESET. What a datagram may hold is the port's to say.
fn first_attr(config: &QpConfig) -> QpAttr {
    let mut attr = QpAttr::default();
    if config.qp_type == QpType::Ud {
        attr.path_mtu = config.port_mtu;
    }
    attr
}
