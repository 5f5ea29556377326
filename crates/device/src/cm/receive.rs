//! Messages from peers.

use ferroce_transport::{Counter, Path, Span, Time};
use ferroce_wire::Qpn;
use ferroce_wire::cm::{
    Answered, Drep, Dreq, Mad, Message, Mra, Private, Rej, RejectReason, Rep, Req, Rtu, SidrRep,
};

use super::bounds::PATIENCE_MAX;
use super::call::PATIENCE;
use super::connection::{Connection, Origin, RemoteQp};
use super::request::{answer_within, duration};
use super::sender::Sender;
use super::{Cm, CmEventKind, CmState, CommId, Transport};
use crate::packet::Received;

/// How long to wait before a service is asked for that was not there, twice as long each time: in
/// all a quarter of a second.
const FIRST_ABSENCE: Span = Span::from_millis(2);
const ABSENCES_MAX: u8 = 7;

impl Cm {
    /// Handles the message of a packet.
    pub(crate) fn handle(&mut self, now: Time, packet: &Received<'_>, mad: &Mad) {
        let sender = Sender::of(now, packet, mad);
        let is_ours = match &mad.message {
            _ if !sender.is_a_host() => false,
            Message::Req(req) if sender.has_sent(req) => {
                self.handle_req(sender, req);
                true
            }
            Message::Req(req) => {
                self.refuse_req(sender, req, RejectReason::INVALID_GID);
                false
            }
            Message::SidrReq(req) if sender.has_sent_lookup(req) => {
                self.handle_sidr_req(sender, req);
                true
            }
            Message::SidrReq(req) => {
                self.refuse_lookup(sender, req, SidrRep::REJECTED);
                false
            }
            Message::Mra(mra) => self.handle_mra(sender, mra),
            Message::Rej(rej) => self.handle_rej(sender, rej),
            Message::Rep(rep) => self.handle_rep(sender, rep),
            Message::Rtu(rtu) => self.handle_rtu(sender, rtu),
            Message::Dreq(dreq) => self.handle_dreq(sender, dreq),
            Message::Drep(drep) => self.handle_drep(sender, drep),
            Message::SidrRep(rep) => self.handle_sidr_rep(sender, rep),
        };
        if !is_ours {
            self.state.count(Counter::CmUnmatched, 1);
        }
    }

    fn handle_req(&mut self, from: Sender, req: &Req) {
        let origin = Origin::connection(from.source, req.ca_guid, req.local_comm_id);
        if self.is_repeated(from, origin) {
            return;
        }
        let asks = RemoteQp {
            peer: from.source,
            ca_guid: req.ca_guid,
            qpn: req.qpn,
        };
        if let Some(stale) = self.by_remote_qp.get(&asks).copied() {
            self.refuse_req(from, req, RejectReason::STALE_CONNECTION);
            self.end_stale(from.now, stale);
            return;
        }
        let Some(transport) = Transport::of(req) else {
            self.refuse_req(from, req, RejectReason::INVALID_TRANSPORT);
            return;
        };
        if !(1..=self.port_mtu as u32).contains(&req.mtu.value()) {
            self.refuse_req(from, req, RejectReason::INVALID_MTU);
            return;
        }
        let Some(listener) = self.listeners.get(&req.service_id) else {
            self.refuse_req(from, req, RejectReason::INVALID_SERVICE_ID);
            return;
        };
        let has_room = listener.has_room_for(from.source);
        if let Err(cause) = self.admit(from.source, has_room) {
            self.drop_request(from.source, req.service_id, cause); // it will be asked again
            return;
        }
        let ack_timeout = req.ack_timeout.value();
        // An ACK timeout is about twice the time a packet may be under way.
        let wait = answer_within(
            ack_timeout.saturating_sub(1),
            req.local_response_timeout.value(),
        );
        let comm = self.insert(Connection {
            transport,
            remote_qpn: req.qpn,
            time_wait: duration(ack_timeout),
            retries: req.max_cm_retries.value() as u8,
            ..Connection::asked(
                CmState::ReqReceived,
                origin,
                Path {
                    dest: from.source,
                    traffic_class: req.traffic_class,
                    sl: req.service_level.value() as u8 & 7, // as adapters shorten it
                    port: from.path.port,
                },
                req.service_id,
                from.tid,
                wait,
            )
        });
        self.begin_waiting(comm);
        self.learn_remote_qp(comm);
        let (source, req) = (from.source, Box::new(*req));
        self.tell(comm, CmEventKind::Request { source, req });
    }

    /// Whether a request was taken before. If so it gets the same answer again, or the peer is
    /// asked for patience.
    pub(super) fn is_repeated(&mut self, from: Sender, origin: Origin) -> bool {
        let Some(comm) = self.by_origin.get(&origin).copied() else {
            return false;
        };
        let Some(connection) = self.connections.get(&comm) else {
            return false;
        };
        if connection.tid != from.tid {
            // An earlier life of the peer used the same name.
            self.forget_origin(comm);
            self.end_stale(from.now, comm);
            return false;
        }
        match connection.state {
            CmState::ReqReceived => self.ask_for_patience(from, comm, Answered::Req),
            CmState::RepSent | CmState::SidrAnswered | CmState::TimeWait => self.repeat(comm),
            _ => {}
        }
        true
    }

    fn ask_for_patience(&mut self, from: Sender, comm: CommId, answered: Answered) {
        let Some(connection) = self.connections.get(&comm) else {
            return;
        };
        let mra = Mra {
            local_comm_id: comm.0,
            remote_comm_id: connection.remote_comm,
            answered: answered.into(),
            service_timeout: PATIENCE,
            private: Private::default(),
        };
        self.answer(from.path, from.tid, mra);
    }

    fn refuse_req(&mut self, from: Sender, req: &Req, reason: RejectReason) {
        let rej = Rej {
            remote_comm_id: req.local_comm_id,
            answered: Answered::Req.into(),
            reason,
            ..Rej::default()
        };
        self.answer(from.path, from.tid, rej);
    }

    /// The peer has forgotten a connection: its queue pair is in use for another one.
    fn end_stale(&mut self, now: Time, comm: CommId) {
        let Some(connection) = self.connections.get(&comm) else {
            return;
        };
        match connection.state {
            CmState::TimeWait | CmState::SidrReqReceived | CmState::SidrAnswered => {}
            CmState::DreqSent => {
                self.enter_time_wait(now, comm, None);
                self.tell(comm, CmEventKind::DisconnectTimeout);
            }
            // It is over for this side. Should the peer think otherwise it is told.
            CmState::Established => {
                self.forget_remote_qp(comm);
                let private = Private::default();
                self.ask_to_end(now, comm, private);
                self.tell(comm, CmEventKind::Disconnected { private });
            }
            state if state.knows_peer() => {
                self.enter_time_wait(now, comm, None);
                let private = Private::default();
                if state != CmState::DreqReceived {
                    self.tell(comm, CmEventKind::Disconnected { private });
                }
            }
            _ => {
                self.give_up(comm);
                let reason = RejectReason::STALE_CONNECTION;
                let private = Private::default();
                self.tell(comm, CmEventKind::Rejected { reason, private });
            }
        }
    }

    fn handle_rep(&mut self, from: Sender, rep: &Rep) -> bool {
        let comm = CommId(rep.remote_comm_id);
        let known = self.of_peer(from, comm).map(|connection| connection.state);
        match known {
            Some(CmState::ReqSent) => self.take_reply(from, comm, rep),
            Some(CmState::RepReceived) => self.ask_for_patience(from, comm, Answered::Rep),
            // Of the same connection?
            Some(CmState::Established | CmState::TimeWait)
                if self.is_about(from, comm, rep.local_comm_id) =>
            {
                self.repeat(comm);
            }
            Some(CmState::DreqSent | CmState::DreqReceived) => {}
            _ => {
                let rej = Rej {
                    local_comm_id: rep.remote_comm_id,
                    remote_comm_id: rep.local_comm_id,
                    answered: Answered::Rep.into(),
                    reason: RejectReason::INVALID_COMM_ID,
                    ..Rej::default()
                };
                self.answer(from.path, from.tid, rej);
                return false;
            }
        }
        true
    }

    fn take_reply(&mut self, from: Sender, comm: CommId, rep: &Rep) {
        let Some(connection) = self.connections.get_mut(&comm) else {
            return;
        };
        if connection.tid != from.tid {
            return; // an answer to something else
        }
        connection.remote_comm = rep.local_comm_id;
        connection.remote_guid = rep.ca_guid;
        connection.remote_qpn = connection.transport.queue_pair(rep);
        connection.state = CmState::RepReceived;
        let answers = connection.remote_qp();
        self.set_deadline(comm, None);
        if let Some(stale) = self.by_remote_qp.get(&answers).copied() {
            let (reason, private) = (RejectReason::STALE_CONNECTION, Private::default());
            self.refuse(from.now, comm, Answered::Rep, reason, private);
            self.end_stale(from.now, stale);
            self.tell(comm, CmEventKind::Rejected { reason, private });
            return;
        }
        self.learn_remote_qp(comm);
        let rep = Box::new(*rep);
        self.tell(comm, CmEventKind::Reply { rep });
    }

    fn handle_rtu(&mut self, from: Sender, rtu: &Rtu) -> bool {
        let comm = CommId(rtu.remote_comm_id);
        let state = self.state_of(from, comm, rtu.local_comm_id);
        if state == Some(CmState::RepSent) {
            self.become_established(comm, rtu.private);
        }
        state.is_some()
    }

    pub(super) fn become_established(&mut self, comm: CommId, private: Private<224>) {
        if let Some(connection) = self.connections.get_mut(&comm) {
            connection.state = CmState::Established;
            connection.last = None;
            self.set_deadline(comm, None);
            self.tell(comm, CmEventKind::Established { private });
        }
    }

    fn handle_mra(&mut self, from: Sender, mra: &Mra) -> bool {
        let comm = CommId(mra.remote_comm_id);
        if self.of_peer(from, comm).is_none() {
            return false;
        }
        let Some(connection) = self.connections.get_mut(&comm) else {
            return false;
        };
        let expected = match connection.state {
            CmState::ReqSent => Answered::Req,
            CmState::RepSent => Answered::Rep,
            _ => return true, // it is late
        };
        let is_about_last = mra.answered == expected.into() && connection.tid == from.tid;
        // Once for each message, as in Linux: a peer could ask for more time without end.
        if is_about_last && !connection.is_patient {
            connection.is_patient = true;
            let thinks = duration(mra.service_timeout.value()).min(PATIENCE_MAX);
            let deadline = connection.answer_by(from.now, connection.wait + thinks);
            self.set_deadline(comm, Some(deadline));
        }
        true
    }

    fn handle_rej(&mut self, from: Sender, rej: &Rej) -> bool {
        let named = CommId(rej.remote_comm_id);
        // A peer that gives up on its request never learnt this side's communication ID.
        let by_origin = || {
            let origin = Origin::connection(from.source, rej.ca_guid(), rej.local_comm_id);
            self.by_origin.get(&origin).copied()
        };
        let comm = match rej.remote_comm_id {
            0 => by_origin(),
            _ => Some(named),
        };
        let Some((comm, state)) =
            comm.and_then(|comm| Some((comm, self.of_peer(from, comm)?.state)))
        else {
            return false;
        };
        let (reason, private) = (rej.reason, rej.private);
        let a_request_without_a_listener_is_repeated_and_rejected =
            reason == RejectReason::INVALID_SERVICE_ID;
        match state {
            CmState::ReqSent
                if a_request_without_a_listener_is_repeated_and_rejected
                    && self.ask_again_soon(from.now, comm) =>
            {
                return true;
            }
            CmState::ReqSent | CmState::RepReceived | CmState::ReqReceived | CmState::RepSent => {
                self.give_up(comm);
            }
            CmState::Established | CmState::DreqSent
                if self.is_about(from, comm, rej.local_comm_id) =>
            {
                self.enter_time_wait(from.now, comm, None);
            }
            CmState::Established | CmState::DreqSent => return false,
            _ => return true, // it is late
        }
        self.tell(comm, CmEventKind::Rejected { reason, private });
        true
    }

    /// Sends the request again if no program listens at the peer, for a short time. A program may
    /// tell its peer over another connection that it is about to listen, and rely on the time that
    /// the peer usually takes to resolve an address and a route.
    pub(super) fn ask_again_soon(&mut self, now: Time, comm: CommId) -> bool {
        let Some(connection) = self.connections.get_mut(&comm) else {
            return false;
        };
        if connection.absences == ABSENCES_MAX {
            return false;
        }
        let wait = FIRST_ABSENCE.doubled(connection.absences.into());
        connection.absences += 1;
        connection.retries_left = connection.retries.max(1);
        self.set_deadline(comm, Some(now.after(wait)));
        true
    }

    fn handle_dreq(&mut self, from: Sender, dreq: &Dreq) -> bool {
        let comm = CommId(dreq.remote_comm_id);
        let private = dreq.private;
        let named = |c: &Connection| c.remote_comm == dreq.local_comm_id;
        if let Some(connection) = self.of_peer(from, comm).filter(|c| named(c))
            && connection.local_qpn != dreq.remote_qpn
        {
            return false; // it means another connection
        }
        let state = self.state_of(from, comm, dreq.local_comm_id);
        match state {
            Some(CmState::RepSent | CmState::Established) => {
                self.set_deadline(comm, None);
                if let Some(connection) = self.connections.get_mut(&comm) {
                    connection.state = CmState::DreqReceived;
                    connection.end_tid = from.tid;
                    self.begin_end(from.now, comm, private);
                }
            }
            // Both sides want to end it, so the program need not agree.
            Some(CmState::DreqSent) => {
                if let Some(connection) = self.connections.get_mut(&comm) {
                    connection.end_tid = from.tid;
                }
                self.agree_to_end(from.now, comm);
                self.tell(comm, CmEventKind::Disconnected { private });
            }
            Some(CmState::DreqReceived) => {} // the program thinks about it
            _ => {
                let drep = Drep {
                    local_comm_id: dreq.remote_comm_id,
                    remote_comm_id: dreq.local_comm_id,
                    private: Private::default(),
                };
                self.answer(from.path, from.tid, drep);
            }
        }
        state.is_some()
    }

    fn handle_drep(&mut self, from: Sender, drep: &Drep) -> bool {
        let comm = CommId(drep.remote_comm_id);
        let state = self.state_of(from, comm, drep.local_comm_id);
        if state == Some(CmState::DreqSent) {
            self.enter_time_wait(from.now, comm, None);
            let private = drep.private;
            self.tell(comm, CmEventKind::DisconnectReply { private });
        }
        state.is_some()
    }

    // Helpers.

    /// The connection, if the message comes from its peer.
    pub(super) fn of_peer(&self, from: Sender, comm: CommId) -> Option<&Connection> {
        let connection = self.connections.get(&comm);
        connection.filter(|connection| connection.path.dest == from.source)
    }

    /// Whether the peer has its name for the connection right.
    fn is_about(&self, from: Sender, comm: CommId, remote_comm: u32) -> bool {
        self.of_peer(from, comm)
            .is_some_and(|c| c.remote_comm == remote_comm)
    }

    /// The state of a connection that both sides agree on.
    fn state_of(&self, from: Sender, comm: CommId, remote_comm: u32) -> Option<CmState> {
        let connection = self.of_peer(from, comm)?;
        (connection.remote_comm == remote_comm).then_some(connection.state)
    }

    fn learn_remote_qp(&mut self, comm: CommId) {
        if let Some(connection) = self.connections.get(&comm) {
            let key = connection.remote_qp();
            // A program may ask without a queue pair of its own; 0 and 1 are not its own.
            if connection.remote_qpn > Qpn::GSI {
                self.by_remote_qp.insert(key, comm);
            }
        }
    }
}
