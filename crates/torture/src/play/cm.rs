//! Connections by way of the devices' connection managers: what programs ask for and answer, and what they are told.
//!
//! The programs bring their queue pairs to RTR and RTS as those of rdma_cm do: the passive side to RTR before it
//! accepts, and to RTS when the connection is established; the active side to both when the reply has come.
//!
//! | module | content |
//! |---|---|
//! | `told` | what programs are told, and whether something explains it |
//! | `answers` | what they do then |
//! | `ending` | how connections ended |

mod answers;
mod ending;
mod told;

use std::collections::HashMap;

use ferroce_device::cm::{CmError, CmState, CommId, ConnectRequest, Transport};
use ferroce_device::{AccessFlags, Ece, Mtu, QpAttr, QpState, QpType, Qpn, Span, Time};
use ferroce_wire::Psn;
use ferroce_wire::cm::{Mad, Message, PortSpace, Private, ServiceId};

use super::Play;
use super::host::Host;
use crate::events::Event;
use crate::network::address;
use crate::script::Step;

/// How long a packet may be under way, as an exponent of 4.096 µs.
const PACKET_LIFETIME: u8 = 4;
/// The port of service 0.
const FIRST_PORT: u16 = 7000;

/// What the program of a passive side does about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Accept,
    Refuse,
    /// It destroys the request.
    Destroy,
    Nothing,
    /// It accepts, and the program of the active side refuses that.
    AcceptInVain,
}

impl Answer {
    fn of(number: u64) -> Self {
        match number {
            1 => Self::Refuse,
            2 => Self::Destroy,
            3 => Self::Nothing,
            4 => Self::AcceptInVain,
            _ => Self::Accept,
        }
    }
}

/// What the program of a host knows of its connections.
#[derive(Debug, Default)]
pub(crate) struct Program {
    /// Which connection, and which side of it.
    comms: HashMap<CommId, (usize, usize)>,
    /// Services, and since when it listens on them.
    listens: HashMap<u64, Time>,
    /// It does not look at events, or did not at some time.
    looks_away: bool,
    has_looked_away: bool,
}

/// A request for a connection, and how it ended. Side 0 asked.
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
    answer: Answer,
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
        self.answer != Answer::Nothing && self.think == Span::ZERO
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
        let program = &mut self.host(host).program;
        (program.looks_away, program.has_looked_away) = (true, true);
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
            answer: Answer::of(answer),
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

    /// When it is given up cannot be told any more, for requests of or to this host.
    pub(super) fn forget_vain_dials(&mut self, host: usize) {
        for dial in &mut self.dials {
            dial.is_in_vain &= dial.sides.iter().all(|it| it.host != host);
        }
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

fn number_in(private: &Private<92>) -> usize {
    let number = private.0.first_chunk().map(|it| u32::from_le_bytes(*it));
    number.unwrap_or(u32::MAX) as usize
}

fn duration(exponent: u8) -> Span {
    Span::from_nanos(4_096).doubled(exponent.into())
}
