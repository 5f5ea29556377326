//! Connections by way of the devices' connection managers: what programs ask for and answer, and what they are told.
//!
//! The programs bring their queue pairs to RTR and RTS as those of rdma_cm do: the passive side to RTR before it
//! accepts, and to RTS when the connection is established; the active side to both when the reply has come.

use std::collections::HashMap;

use ferroce_device::cm::{
    CmError, CmEvent, CmEventKind, CmState, CommId, ConnectReply, ConnectRequest, Transport,
};
use ferroce_device::{AccessFlags, Ece, Mtu, QpAttr, QpModify, QpState, QpType, Qpn, Span, Time};
use ferroce_wire::Psn;
use ferroce_wire::cm::{Mad, Message, PortSpace, Private, RejectReason, Rep, Req, ServiceId};

use super::Play;
use super::host::Host;
use crate::events::Event;
use crate::model::{Connection, End};
use crate::network::address;
use crate::script::Step;

/// How long a packet may be under way, as an exponent of 4.096 µs.
const PACKET_LIFETIME: u8 = 4;
/// The port of service 0.
const FIRST_PORT: u16 = 7000;

/// What the program of a passive side does about a request.
mod answers {
    /// It refuses it.
    pub(super) const REJECT: u64 = 1;
    /// It forgets it.
    pub(super) const DESTROY: u64 = 2;
    /// Nothing.
    pub(super) const NOTHING: u64 = 3;
    /// It accepts, and the active side refuses that.
    pub(super) const REFUSED_REPLY: u64 = 4;
}

/// What the program of a host knows of its connections.
#[derive(Debug, Default)]
pub(crate) struct Program {
    /// Which connection, and which side of it.
    comms: HashMap<CommId, (usize, usize)>,
    /// Services, and since when it listens on them.
    listens: HashMap<u64, Time>,
    /// It does not look at events.
    looks_away: bool,
}

/// A request for a connection, and what came of it. Side 0 asked.
#[derive(Debug)]
pub(crate) struct Dial {
    sides: [Side; 2],
    service: u64,
    transport: Transport,
    mtu: Mtu,
    timeout: u8,
    retry: u8,
    rnr: u8,
    atomics: u8,
    access: AccessFlags,
    /// The first PSNs that each side receives.
    psns: [Psn; 2],
    /// The number in the script of the queue pair that accepts.
    to: u64,
    answer: u64,
    /// How long the program thinks before.
    think: Span,
    began: Time,
    /// How long the asking side waits for an answer, and how often it asks again.
    wait: Span,
    tries: u8,
    /// Requests that have left.
    asked: u32,
    /// The peer is gone, so it is known when the asking side gives up.
    is_in_vain: bool,
    /// A program has refused it, ended it or forgotten it.
    let_go: bool,
    /// The connection that it has made, among all of the run.
    connection: Option<usize>,
}

#[derive(Debug)]
struct Side {
    host: usize,
    /// Which of the devices that the host has had.
    incarnation: u64,
    /// Among the queue pairs of the host.
    qp: usize,
    qpn: Qpn,
    comm: Option<CommId>,
    phase: Phase,
}

/// How far a side has come, as far as its program knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// It has heard nothing.
    Unaware,
    /// It has been asked.
    Asked,
    /// It waits for its peer.
    Waits,
    Established,
    /// It has failed or ended.
    Over,
}

impl Dial {
    fn private<const N: usize>(number: usize) -> Private<N> {
        let mut bytes = [0; N];
        let number = (number as u32).to_le_bytes();
        bytes
            .chunks_mut(4)
            .for_each(|chunk| chunk.copy_from_slice(&number[..chunk.len()]));
        Private(bytes)
    }

    fn is_prompt(&self) -> bool {
        self.answer != answers::NOTHING && self.think == Span::ZERO
    }

    fn attr(&self, dest_qpn: Qpn, rq_psn: Psn, sq_psn: Psn) -> QpAttr {
        QpAttr {
            access: self.access,
            path_mtu: self.mtu,
            dest_qpn,
            rq_psn,
            sq_psn,
            max_rd_atomic: self.atomics,
            max_dest_rd_atomic: self.atomics,
            min_rnr_timer: 1,
            timeout: self.timeout,
            retry_cnt: self.retry,
            rnr_retry: self.rnr,
            ..QpAttr::default()
        }
    }
}

fn service_id(service: u64) -> ServiceId {
    ServiceId::new(PortSpace::Tcp, FIRST_PORT + service as u16)
}

fn guid(host: usize) -> u64 {
    host as u64 + 1
}

impl Host {
    fn cm_state(&self, comm: CommId) -> Option<CmState> {
        let mut connections = self.hca.cm().connections();
        connections.find(|it| it.comm == comm).map(|it| it.state)
    }
}

/// What programs do.
impl Play {
    pub(super) fn listen(&mut self, host: usize, service: u64, backlog: u64) {
        let now = self.now;
        let it = self.host(host);
        let is_new = !it.program.listens.contains_key(&service);
        let outcome = it
            .hca
            .cm_mut()
            .listen(service_id(service), backlog.max(1) as u32);
        match outcome {
            Ok(()) if is_new => _ = it.program.listens.insert(service, now),
            Err(CmError::InUse { .. }) if !is_new => {}
            other => self.found("cm call", || {
                format!("host {host}, listen {service}: {other:?}")
            }),
        }
    }

    pub(super) fn unlisten(&mut self, host: usize, service: u64) {
        let it = self.host(host);
        let listened = it.program.listens.remove(&service).is_some();
        let outcome = it.hca.cm_mut().unlisten(service_id(service));
        if outcome.is_ok() != listened {
            self.found("cm call", || {
                format!("host {host}, unlisten {service}: {outcome:?}")
            });
        }
    }

    pub(super) fn look_away(&mut self, host: usize, ns: u64) {
        self.host(host).program.looks_away = true;
        self.quiet = false;
        self.forget_vain_dials(host);
        let again = self.now.after(Span::from_nanos(ns));
        self.events.add(again, Event::Look(host));
    }

    pub(super) fn dial(&mut self, host: usize, step: &Step) {
        let Step::Dial {
            qp,
            peer,
            to,
            service,
            mtu,
            timeout,
            retry,
            rnr,
            atomics,
            access,
            psn,
            answer,
            think,
            wait,
            tries,
        } = *step
        else {
            return;
        };
        let (number, now, peer) = (self.dials.len(), self.now, peer as usize);
        let Some(qp) = self
            .host(host)
            .qp(qp)
            .filter(|_| peer != host && peer < self.hosts.len())
        else {
            return;
        };
        let is_gone = self.hosts[peer].is_none();
        let it = self.host(host);
        let is_in_vain = is_gone && !it.loses && !it.program.looks_away;
        let (qpn, incarnation, srq) = (it.qps[qp].qpn, it.incarnation, it.qps[qp].srq.is_some());
        if it.qps[qp].port != 1 {
            return; // programs ask by the first port
        }
        let transport = match it.qps[qp].kind {
            QpType::Rc => Transport::Rc,
            QpType::Uc => Transport::Uc,
            _ => return,
        };
        let (response_timeout, tries) = ((wait as u8).clamp(1, 20), (tries as u8).min(15));
        let psns = [psn, psn.wrapping_mul(0x9e37_79b9) >> 7].map(|psn| Psn::new(psn as u32));
        let dial = Dial {
            sides: [
                Side::new(host, incarnation, qp, qpn, Phase::Waits),
                Side::new(peer, 0, 0, Qpn::new(0), Phase::Unaware),
            ],
            service,
            transport,
            mtu: Mtu::ALL[(mtu as usize + 4) % 5],
            timeout: timeout as u8 & 31,
            retry: retry as u8 & 7,
            rnr: rnr as u8 & 7,
            atomics: atomics as u8,
            access: AccessFlags::from_bits_truncate(access as u32),
            psns,
            to,
            answer,
            think: Span::from_nanos(think),
            began: now,
            wait: duration(PACKET_LIFETIME) * 2 + duration(response_timeout),
            tries,
            asked: 0,
            is_in_vain,
            let_go: false,
            connection: None,
        };
        let request = ConnectRequest {
            dest: address(peer),
            source: it.address,
            traffic_class: 2,
            sl: 0,
            port: 1,
            service_id: service_id(service),
            ca_guid: guid(host),
            qpn,
            starting_psn: psns[0],
            transport,
            srq,
            responder_resources: dial.atomics,
            initiator_depth: dial.atomics,
            flow_control: true,
            retry_count: dial.retry,
            rnr_retry_count: dial.rnr,
            mtu: dial.mtu,
            ack_timeout: dial.timeout,
            packet_lifetime: PACKET_LIFETIME,
            response_timeout,
            max_retries: tries,
            ece: Ece::default(),
            private: Dial::private(number),
        };
        let outcome = it.hca.cm_mut().connect(now, &request);
        self.dials.push(dial);
        match outcome {
            Ok(comm) => self.own(number, 0, comm),
            Err(error) => self.found("cm call", || format!("host {host}, connect: {error}")),
        }
    }

    /// Ends the latest connection of a queue pair.
    pub(super) fn hang_up(&mut self, host: usize, qp: u64) {
        let Some((number, side, comm)) = self.latest_dial(host, qp) else {
            return;
        };
        let now = self.now;
        let cm = self.host(host).hca.cm_mut();
        let is_one = cm.was_ever_connected(comm);
        let outcome = cm.disconnect(now, comm, Private::default());
        match outcome {
            Ok(()) if is_one => {
                self.dials[number].let_go = true;
                self.end_side(number, side);
            }
            Err(CmError::WrongState { .. }) if !is_one => {}
            other => self.found("cm call", || format!("host {host}, disconnect: {other:?}")),
        }
    }

    /// Forgets the latest connection of a queue pair.
    pub(super) fn forget(&mut self, host: usize, qp: u64) {
        if let Some((number, side, _)) = self.latest_dial(host, qp) {
            self.dials[number].let_go = true;
            self.end_side(number, side);
            self.disown(number, side);
        }
    }

    fn latest_dial(&self, host: usize, qp: u64) -> Option<(usize, usize, CommId)> {
        let it = self.hosts[host].as_ref()?;
        let qp = it.qp(qp)?;
        let is_its =
            |side: &Side| (side.host, side.incarnation, side.qp) == (host, it.incarnation, qp);
        let own = |number: usize| {
            let sides = self.dials[number].sides.iter().enumerate();
            let mut own = sides.filter(|(_, it)| is_its(it));
            own.find_map(|(side, it)| Some((number, side, it.comm?)))
        };
        (0..self.dials.len()).rev().find_map(own)
    }

    /// The side of a connection has a name from now on.
    fn own(&mut self, number: usize, side: usize, comm: CommId) {
        let host = self.dials[number].sides[side].host;
        self.dials[number].sides[side].comm = Some(comm);
        let before = self.host(host).program.comms.insert(comm, (number, side));
        if before.is_some() {
            self.found("cm call", || {
                format!("host {host}: {comm:?} is two connections")
            });
        }
    }

    /// The program destroys its side of a connection.
    fn disown(&mut self, number: usize, side: usize) {
        let now = self.now;
        let own = &mut self.dials[number].sides[side];
        let (host, Some(comm)) = (own.host, own.comm.take()) else {
            return;
        };
        let it = self.host(host);
        it.program.comms.remove(&comm);
        if let Err(error) = it.hca.cm_mut().destroy(now, comm) {
            self.found("cm call", || format!("host {host}, destroy: {error}"));
        }
    }

    /// A side is over for its program, which moves the queue pair to the error state.
    fn end_side(&mut self, number: usize, side: usize) {
        let dial = &mut self.dials[number];
        dial.sides[side].phase = Phase::Over;
        let (host, qp) = (dial.sides[side].host, dial.sides[side].qp);
        let Some(connection) = dial.connection else {
            return;
        };
        let own = self.host(host).qps.get(qp);
        if own.is_some_and(|it| it.connection == Some((connection, side)) && !it.gone) {
            self.move_to(host, qp, QpState::Err);
        }
    }
}

/// What programs are told.
impl Play {
    /// Looks at the next event of a host's connection manager. Returns whether there was one.
    pub(super) fn attend(&mut self, host: usize) -> bool {
        let is_attentive = |it: &&mut Host| !it.stopped && !it.program.looks_away;
        let it = self.hosts[host].as_mut().filter(is_attentive);
        match it.and_then(|it| it.hca.poll_cm_event()) {
            Some(event) if self.count_step() => {
                self.told_by_cm(host, event);
                true
            }
            _ => false,
        }
    }

    pub(super) fn look_again(&mut self, host: usize) {
        if let Some(it) = self.hosts[host].as_mut() {
            it.program.looks_away = false;
        }
        self.drain(host);
    }

    fn told_by_cm(&mut self, host: usize, event: CmEvent) {
        if let CmEventKind::Request { source, req } = &event.kind {
            return self.requested(host, event.comm, *source, req);
        }
        let Some(&(number, side)) = self.host(host).program.comms.get(&event.comm) else {
            let what = format!("host {host}: {} of no connection", brief(&event.kind));
            return self.found("cm event", || what);
        };
        let dial = &self.dials[number];
        let phase = dial.sides[side].phase;
        let fits = match &event.kind {
            CmEventKind::Reply { .. } => side == 0 && phase == Phase::Waits,
            // A program that did not look may have ended it meanwhile.
            CmEventKind::Established { .. } => {
                side == 1 && (phase == Phase::Waits || phase == Phase::Over && dial.let_go)
            }
            // Also when this side has asked to end it, and the peer knows nothing of it.
            CmEventKind::Rejected { .. } => true,
            CmEventKind::Unreachable => phase == Phase::Waits,
            CmEventKind::Disconnected { .. } => side == 1 || phase != Phase::Waits,
            CmEventKind::DisconnectReply { .. }
            | CmEventKind::DisconnectTimeout
            | CmEventKind::TimeWaitExit => phase == Phase::Over,
            _ => false,
        };
        if !fits || !self.explains_event(number, side, &event.kind) {
            let dial = &self.dials[number];
            let kind = brief(&event.kind);
            let what = format!("host {host}, side {side} in {phase:?}: {kind}: {dial:?}");
            return self.found("cm event", || what);
        }
        match event.kind {
            CmEventKind::Reply { rep } => self.replied(number, &rep),
            CmEventKind::Established { .. } => self.established(number),
            CmEventKind::Rejected { reason, .. } => {
                self.coverage.dial(reason_name(reason));
                self.end_side(number, side);
                self.disown(number, side);
            }
            CmEventKind::Unreachable => {
                self.coverage.dial("unreachable");
                self.check_given_up(number, side);
                self.end_side(number, side);
                self.disown(number, side);
            }
            CmEventKind::Disconnected { .. } => {
                self.coverage.dial("disconnected");
                let now = self.now;
                let cm = self.host(host).hca.cm_mut();
                if let Err(error) = cm.disconnect(now, event.comm, Private::default()) {
                    return self.found("cm call", || format!("host {host}, disconnect: {error}"));
                }
                self.end_side(number, side);
            }
            CmEventKind::TimeWaitExit => self.disown(number, side),
            CmEventKind::DisconnectTimeout => self.coverage.dial("disconnect timeout"),
            _ => {}
        }
    }

    /// Whether something explains that a connection has failed or ended.
    fn explains_event(&self, number: usize, side: usize, kind: &CmEventKind) -> bool {
        let dial = &self.dials[number];
        let other = &dial.sides[1 - side];
        let is_lost = !self.runs(other) && other.incarnation > 0;
        match kind {
            CmEventKind::Unreachable => {
                !self.quiet
                    || dial
                        .sides
                        .iter()
                        .any(|side| self.has_had_outages(side.host))
                    || is_lost
                    || dial.is_in_vain
                    || !dial.is_prompt()
                    || self.has_overflown(number)
            }
            CmEventKind::Disconnected { .. } => dial.let_go || self.has_rivals(number),
            CmEventKind::Rejected { reason, .. } => match *reason {
                RejectReason::STALE_CONNECTION => self.has_rivals(number),
                RejectReason::INVALID_SERVICE_ID => {
                    let passive = self.hosts[dial.sides[1].host].as_ref();
                    let since = passive.and_then(|it| it.program.listens.get(&dial.service));
                    since.is_none_or(|since| *since > dial.began)
                }
                RejectReason::CONSUMER | RejectReason::TIMEOUT => dial.let_go,
                // Its program may not have looked yet.
                RejectReason::INVALID_COMM_ID => {
                    let is_over =
                        |state| matches!(state, None | Some(CmState::Idle | CmState::TimeWait));
                    let state = || self.hosts[other.host].as_ref()?.cm_state(other.comm?);
                    is_lost || other.phase == Phase::Over || is_over(state())
                }
                _ => false,
            },
            _ => true,
        }
    }

    /// Whether requests to the passive side were dropped because too many waited.
    fn has_overflown(&self, number: usize) -> bool {
        let passive = self.hosts[self.dials[number].sides[1].host].as_ref();
        let dropped = ferroce_device::Counter::CmBacklogFull;
        passive.is_none_or(|it| it.hca.counter(dropped) > 0)
    }

    /// Whether the device of a side is still the same.
    fn runs(&self, side: &Side) -> bool {
        let it = self.hosts[side.host].as_ref();
        it.is_some_and(|it| it.incarnation == side.incarnation)
    }

    /// Whether another connection uses a queue pair of this one.
    fn has_rivals(&self, number: usize) -> bool {
        let is_same = |a: &Side, b: &Side| {
            (a.host, a.incarnation, a.qp) == (b.host, b.incarnation, b.qp) && a.incarnation > 0
        };
        let own = &self.dials[number].sides;
        let shares = |other: &Dial| {
            own.iter()
                .any(|a| other.sides.iter().any(|b| is_same(a, b)))
        };
        let mut others = self.dials.iter().enumerate();
        others.any(|(other, dial)| other != number && shares(dial))
    }

    /// A peer asks for a connection.
    fn requested(&mut self, host: usize, comm: CommId, source: std::net::IpAddr, req: &Req) {
        let number = number_in(&req.private);
        let Some(dial) = self.dials.get(number) else {
            return self.found("cm event", || {
                format!("host {host}: a request of no connection")
            });
        };
        let asks = &dial.sides[0];
        let fits = (source, dial.sides[1].host) == (address(asks.host), host)
            && (req.qpn, req.starting_psn, req.ca_guid)
                == (asks.qpn, dial.psns[0], guid(asks.host))
            && (req.service_id, Transport::of(req))
                == (service_id(dial.service), Some(dial.transport))
            && (req.responder_resources, req.initiator_depth) == (dial.atomics, dial.atomics)
            && [req.retry_count.value(), req.rnr_retry_count.value()]
                == [dial.retry, dial.rnr].map(u32::from)
            && [req.mtu.value(), req.ack_timeout.value()]
                == [dial.mtu as u32, u32::from(dial.timeout)]
            && req.private == Dial::private(number);
        if !fits {
            let what = format!("host {host}: {} is not as asked: {dial:?}", brief(req));
            return self.found("cm event", || what);
        }
        // It may come once more only when the device has forgotten it.
        let known = &dial.sides[1];
        if matches!(
            known.phase,
            Phase::Asked | Phase::Waits | Phase::Established
        ) && self.runs(known)
        {
            return self.found("cm event", || {
                format!("host {host}: request {number} came twice")
            });
        }
        let think = dial.think;
        let is_answered = dial.answer != answers::NOTHING;
        let it = self.host(host);
        let incarnation = it.incarnation;
        it.hca.cm_mut().take_request(comm);
        let other = &mut self.dials[number].sides[1];
        (other.incarnation, other.phase) = (incarnation, Phase::Asked);
        self.own(number, 1, comm);
        match think {
            _ if !is_answered => {}
            Span::ZERO => self.answer(number),
            think => self
                .events
                .add(self.now.after(think), Event::Answer(number)),
        }
    }

    /// The passive side answers.
    pub(super) fn answer(&mut self, number: usize) {
        let dial = &self.dials[number];
        let side = &dial.sides[1];
        let (host, Some(comm)) = (side.host, side.comm) else {
            return;
        };
        if side.phase != Phase::Asked || !self.runs(side) {
            return;
        }
        if self.host(host).stopped {
            let later = self.now.after(Span::from_micros(100));
            return self.events.add(later, Event::Answer(number));
        }
        let dial = &self.dials[number];
        let (to, answer, transport) = (dial.to, dial.answer, dial.transport);
        let it = self.host(host);
        let kind = match transport {
            Transport::Uc => QpType::Uc,
            _ => QpType::Rc,
        };
        let fits = |qp: &usize| (it.qps[*qp].kind, it.qps[*qp].port) == (kind, 1);
        let qp = it.qp(to).filter(fits);
        match (answer, qp) {
            (answers::DESTROY, _) => {
                self.dials[number].let_go = true;
                self.end_side(number, 1);
                self.disown(number, 1);
            }
            (answers::REJECT, _) | (_, None) => self.refuse(number, 1),
            (_, Some(qp)) => self.accept(number, qp, comm),
        }
        self.drain(host);
    }

    /// A program refuses a request or a reply.
    fn refuse(&mut self, number: usize, side: usize) {
        let now = self.now;
        let own = &self.dials[number].sides[side];
        let (host, Some(comm)) = (own.host, own.comm) else {
            return;
        };
        let it = self.host(host);
        let state = it.cm_state(comm);
        let can = matches!(state, Some(CmState::ReqReceived | CmState::RepReceived));
        let outcome = it
            .hca
            .cm_mut()
            .reject(now, comm, RejectReason::CONSUMER, Private::default());
        if outcome.is_ok() != can {
            return self.found("cm call", || {
                format!("host {host}, reject in {state:?}: {outcome:?}")
            });
        }
        self.dials[number].let_go = true;
        self.end_side(number, side);
        self.disown(number, side);
    }

    fn accept(&mut self, number: usize, qp: usize, comm: CommId) {
        let now = self.now;
        let dial = &self.dials[number];
        let (host, peer) = (dial.sides[1].host, dial.sides[0].host);
        let state = self.host(host).cm_state(comm);
        let dial = &self.dials[number];
        let attr = dial.attr(dial.sides[0].qpn, dial.psns[1], dial.psns[0]);
        let (atomics, rnr, starting_psn) = (dial.atomics, dial.rnr, dial.psns[1]);
        let can = state == Some(CmState::ReqReceived);
        if can {
            self.make_ready(host, qp, (peer, 1), attr, QpState::Rtr);
            self.connect_passive(number, qp);
        }
        let it = self.host(host);
        let reply = ConnectReply {
            qpn: it.qps[qp].qpn,
            starting_psn,
            srq: it.qps[qp].srq.is_some(),
            responder_resources: atomics,
            initiator_depth: atomics,
            flow_control: true,
            rnr_retry_count: rnr,
            target_ack_delay: 10,
            ca_guid: guid(host),
            ece: Ece::default(),
            private: Dial::private(number),
        };
        let outcome = it.hca.cm_mut().accept(now, comm, &reply);
        match outcome {
            Ok(()) if can => self.dials[number].sides[1].phase = Phase::Waits,
            Err(CmError::WrongState { .. }) if !can => {} // what it was told of comes next
            other => {
                self.found("cm call", || {
                    format!("host {host}, accept in {state:?}: {other:?}")
                });
            }
        }
    }

    /// The passive side's queue pair belongs to a new connection; that of the active side follows with the reply.
    fn connect_passive(&mut self, number: usize, qp: usize) {
        let connection = self.connections.len();
        let dial = &self.dials[number];
        let (host, active) = (dial.sides[1].host, (dial.sides[0].host, dial.sides[0].qp));
        let it = &mut self.host(host).qps[qp];
        it.join(connection, 1);
        let (qpn, pd, srq) = (it.qpn, it.pd, it.srq);
        let dial = &self.dials[number];
        let of_active = self.hosts[active.0]
            .as_ref()
            .and_then(|it| it.qps.get(active.1));
        let (active_pd, active_srq) = of_active.map_or((pd, None), |it| (it.pd, it.srq));
        let mut ends = [
            End::new(active, 1, active_pd, active_srq),
            End::new((host, qp), 1, pd, srq),
        ];
        ends[0].ended = true; // it has not begun
        self.connections.push(Connection {
            reliable: dial.transport == Transport::Rc,
            ends,
            mtu: dial.mtu.bytes() as usize,
            rnr_retry: dial.rnr.into(),
            timeout: dial.timeout.into(),
            retry: dial.retry.into(),
            access: dial.access,
            rd_atomic: dial.atomics.into(),
            owed_max: dial.atomics.into(),
        });
        let dial = &mut self.dials[number];
        dial.connection = Some(connection);
        (dial.sides[1].qp, dial.sides[1].qpn) = (qp, qpn);
    }

    /// The active side has a reply.
    fn replied(&mut self, number: usize, rep: &Rep) {
        self.coverage.dial("accepted");
        let dial = &self.dials[number];
        let (host, qp, peer) = (dial.sides[0].host, dial.sides[0].qp, dial.sides[1].host);
        let fits = (rep.qpn, rep.starting_psn, rep.ca_guid)
            == (dial.sides[1].qpn, dial.psns[1], guid(peer))
            && (rep.responder_resources, rep.initiator_depth) == (dial.atomics, dial.atomics)
            && rep.rnr_retry_count.value() == u32::from(dial.rnr)
            && rep.private == Dial::private(number);
        let (Some(comm), Some(connection), true) = (dial.sides[0].comm, dial.connection, fits)
        else {
            let what = format!("host {host}: {} is not as answered: {dial:?}", brief(rep));
            return self.found("cm event", || what);
        };
        let attr = dial.attr(rep.qpn, dial.psns[0], rep.starting_psn);
        let is_refused = dial.answer == answers::REFUSED_REPLY;
        let it = self.host(host);
        if is_refused || it.qps[qp].gone {
            return match it.cm_state(comm) {
                Some(CmState::RepReceived) => self.refuse(number, 0),
                _ => {} // what it was told of comes next
            };
        }
        self.make_ready(host, qp, (peer, 1), attr, QpState::Rts);
        self.host(host).qps[qp].join(connection, 0);
        self.connections[connection].ends[0].ended = false;
        let it = self.host(host);
        let state = it.cm_state(comm);
        let outcome = it.hca.cm_mut().ready(comm, Private::default());
        self.dials[number].sides[0].phase = Phase::Established;
        if outcome.is_ok() != (state == Some(CmState::RepReceived)) {
            self.found("cm call", || {
                format!("host {host}, ready in {state:?}: {outcome:?}")
            });
        }
    }

    /// The passive side is told that its peer is ready.
    fn established(&mut self, number: usize) {
        let dial = &mut self.dials[number];
        if dial.sides[1].phase == Phase::Over {
            return;
        }
        self.coverage.dial("established");
        dial.sides[1].phase = Phase::Established;
        let (host, qp, connection) = (dial.sides[1].host, dial.sides[1].qp, dial.connection);
        let it = self.host(host);
        let own = &it.qps[qp];
        let is_current = !own.gone && own.connection == connection.map(|it| (it, 1));
        let (qpn, kind, attr) = (own.qpn, own.kind, own.attr);
        let state = it.hca.query_qp(qpn).map(|(state, ..)| state);
        if is_current && state == Ok(QpState::Rtr) {
            let change = QpModify::step(kind, QpState::Rtr, QpState::Rts, attr);
            if let Err(error) = it.hca.modify_qp(qpn, &change, None) {
                self.found("connect", || format!("host {host}: {error}"));
            }
        }
    }

    /// Data has come before the message that says that the peer is ready.
    pub(super) fn data_came(&mut self, host: usize, qpn: Qpn) {
        let is_its = |dial: &Dial| {
            let side = &dial.sides[1];
            (side.host, side.qpn, side.phase) == (host, qpn, Phase::Waits) && self.runs(side)
        };
        let Some(comm) = self
            .dials
            .iter()
            .rev()
            .find(|it| is_its(it))
            .and_then(|it| it.sides[1].comm)
        else {
            return;
        };
        let it = self.host(host);
        let state = it.cm_state(comm);
        let can = matches!(state, Some(CmState::RepSent | CmState::Established));
        let outcome = it.hca.cm_mut().establish(comm);
        if outcome.is_ok() != can {
            self.found("cm call", || {
                format!("host {host}, establish in {state:?}: {outcome:?}")
            });
        }
    }

    /// When it is given up cannot be told any more, for requests of or to this host.
    pub(super) fn forget_vain_dials(&mut self, host: usize) {
        for dial in &mut self.dials {
            dial.is_in_vain &= dial.sides.iter().all(|it| it.host != host);
        }
    }

    /// Nothing has answered: it was asked as often as it should be, for as long.
    fn check_given_up(&mut self, number: usize, side: usize) {
        let now = self.now;
        let dial = &self.dials[number];
        if side == 1 || !dial.is_in_vain {
            return;
        }
        let times = u32::from(dial.tries) + 1;
        let until = dial.began.after(dial.wait.times(times.into()));
        if (dial.asked, now) != (times, until) {
            let what = format!("not asked {times} times until {until:?}: {dial:?}");
            return self.found("cm retries", || what);
        }
        self.coverage.dial("unreachable, to the tick");
    }
}

/// Counts a message that leaves a host, if it is a request.
pub(super) fn count_request(dials: &mut [Dial], payload: &[u8]) {
    if let Ok(Mad {
        message: Message::Req(req),
        ..
    }) = Mad::parse(payload)
        && let Some(dial) = dials.get_mut(number_in(&req.private))
    {
        dial.asked += 1;
    }
}

/// The end.
impl Play {
    /// Programs look at everything from now on.
    pub(super) fn look_everywhere(&mut self) {
        (0..self.hosts.len()).for_each(|host| self.look_again(host));
    }

    /// Whether connections may still be made, by which more messages may wait for receives.
    pub(super) fn is_dialling(&self) -> bool {
        let waits = |side: &Side| side.phase == Phase::Waits && self.runs(side);
        let may_be_made = |it: &&Dial| it.answer != answers::NOTHING && it.sides.iter().any(waits);
        self.dials.iter().any(|it| may_be_made(&it))
    }

    /// Each connection is established on both sides, or the sides that waited were told that it is not.
    pub(super) fn check_dials(&mut self) {
        for number in 0..self.dials.len() {
            let dial = &self.dials[number];
            let phase = |side: &Side| match self.runs(side) {
                true => side.phase,
                false => Phase::Over,
            };
            let [active, passive] = [0, 1].map(|side| phase(&dial.sides[side]));
            let is_settled = match (active, passive) {
                (Phase::Established, Phase::Established) => self.agree(dial),
                (Phase::Over, Phase::Asked) => dial.answer == answers::NOTHING,
                (Phase::Established, Phase::Over) | (Phase::Over, _) => passive != Phase::Waits,
                _ => false,
            };
            if !is_settled {
                let what = format!("{active:?} and {passive:?}: {dial:?}");
                return self.found("cm end", || what);
            }
        }
    }

    /// Whether both devices take a connection for established, with each other's queue pairs.
    fn agree(&self, dial: &Dial) -> bool {
        let is_right = |own: usize| {
            let (side, other) = (&dial.sides[own], &dial.sides[1 - own]);
            let it = self.hosts[side.host].as_ref()?;
            let mut connections = it.hca.cm().connections();
            let info = connections.find(|it| Some(it.comm) == side.comm)?;
            Some(
                info.state == CmState::Established
                    && (info.local_qpn, info.remote_qpn) == (side.qpn, other.qpn)
                    && info.peer == address(other.host),
            )
        };
        [0, 1].into_iter().all(|side| is_right(side) == Some(true))
    }

    /// Programs forget all connections and services, and nothing is left of them.
    pub(super) fn return_connections(&mut self) {
        for number in 0..self.dials.len() {
            for side in 0..2 {
                let own = &self.dials[number].sides[side];
                if own.comm.is_some() && self.runs(own) {
                    let host = own.host;
                    self.dials[number].let_go = true;
                    self.dials[number].sides[side].phase = Phase::Over;
                    self.disown(number, side);
                    self.drain(host);
                }
            }
        }
        for host in 0..self.hosts.len() {
            let listens = self.hosts[host].as_ref().map(|it| &it.program.listens);
            let services: Vec<u64> = listens.into_iter().flatten().map(|(it, _)| *it).collect();
            services.into_iter().for_each(|it| self.unlisten(host, it));
        }
        self.run_until(Time::NEVER);
        for (host, it) in self.hosts.iter().enumerate() {
            let Some(it) = it.as_ref().filter(|_| !self.dials.is_empty()) else {
                continue;
            };
            let (left, services) = (
                it.hca.cm().connections().count(),
                it.hca.cm().services().count(),
            );
            if (left, services) != (0, 0) {
                let what =
                    format!("host {host}: {left} connections and {services} services are left");
                return self.found("cm left", || what);
            }
        }
    }
}

impl Side {
    fn new(host: usize, incarnation: u64, qp: usize, qpn: Qpn, phase: Phase) -> Self {
        Self {
            host,
            incarnation,
            qp,
            qpn,
            comm: None,
            phase,
        }
    }
}

/// How something begins that ends with private data.
fn brief(it: &impl std::fmt::Debug) -> String {
    let text = format!("{it:?}");
    text.split("private").next().unwrap_or_default().to_owned()
}

fn number_in(private: &Private<92>) -> usize {
    let number = private.0.first_chunk().map(|it| u32::from_le_bytes(*it));
    number.unwrap_or(u32::MAX) as usize
}

fn duration(exponent: u8) -> Span {
    Span::from_nanos(4_096).doubled(exponent.into())
}

fn reason_name(reason: RejectReason) -> &'static str {
    match reason {
        RejectReason::STALE_CONNECTION => "stale",
        RejectReason::INVALID_SERVICE_ID => "no listener",
        RejectReason::CONSUMER => "refused",
        RejectReason::TIMEOUT => "given up",
        _ => "rejected",
    }
}
