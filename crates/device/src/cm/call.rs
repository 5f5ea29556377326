//! Calls by which programs use the connection manager.

use ferroce_transport::Time;
use ferroce_wire::PKEY_DEFAULT;
use ferroce_wire::Qpn;
use ferroce_wire::cm::{
    Answered, Bits, Drep, Dreq, Private, Rej, RejectReason, Rtu, ServiceId, SidrRep, SidrReq,
};

use super::bounds::CONNECTIONS_MAX;
use super::connection::Connection;
use super::request::{answer_within, bits, duration};
use super::{
    Cm, CmError, CmState, CommId, ConnectReply, ConnectRequest, Listener, SidrReply, SidrRequest,
    bytes_of,
};

/// Numbers of the messages that begin a transaction.
const REQ: u8 = 1;
const SIDR_REQ: u8 = 2;
const DREQ: u8 = 3;

impl Cm {
    /// Listens on a service, for connections or datagrams. At most `backlog` requests wait for
    /// [`Self::take_request`] at a time, and as many again that are the only one of their source;
    /// further ones are dropped, and the peer repeats them.
    pub fn listen(&mut self, service: ServiceId, backlog: u32) -> Result<(), CmError> {
        if self.listeners.contains_key(&service) {
            return Err(CmError::InUse { service });
        }
        // Requests to a program that listened on the service before.
        let waits = |c: &&Connection| c.in_backlog && c.service_id == service;
        let mut listener = Listener::new(backlog);
        for connection in self.connections.values().filter(waits) {
            listener.add(connection.path.dest);
        }
        self.listeners.insert(service, listener);
        Ok(())
    }

    /// Stops listening. Requests that the program knows of stay.
    pub fn unlisten(&mut self, service: ServiceId) -> Result<(), CmError> {
        let listener = self.listeners.remove(&service);
        listener.map(drop).ok_or(CmError::NotListening { service })
    }

    /// Requests a connection from a peer. The answer is [`super::CmEventKind::Reply`], `Rejected`
    /// or `Unreachable`.
    pub fn connect(&mut self, now: Time, request: &ConnectRequest) -> Result<CommId, CmError> {
        let mut req = request.message()?;
        let wait = answer_within(
            request.packet_lifetime.into(),
            request.response_timeout.into(),
        );
        let comm = self.begin(Connection {
            transport: request.transport,
            local_guid: request.ca_guid,
            local_qpn: request.qpn,
            time_wait: duration(request.ack_timeout.into()),
            ..Connection::asking(
                CmState::ReqSent,
                request.path(),
                request.service_id,
                wait,
                request.max_retries,
            )
        })?;
        req.local_comm_id = comm.0;
        self.send_first(now, comm, REQ, req);
        Ok(comm)
    }

    /// The program has taken a request: it makes room for the next one, as in Linux
    /// (`ucma_get_event`), whether it is accepted or not. The peer may have given up.
    pub fn take_request(&mut self, comm: CommId) {
        self.leave_backlog(comm);
    }

    /// Accepts a request; [`super::CmEventKind::Established`] follows when the peer is ready. The
    /// queue pair must be able to receive before this call.
    pub fn accept(&mut self, now: Time, comm: CommId, reply: &ConnectReply) -> Result<(), CmError> {
        let accepts = |state| state == CmState::ReqReceived;
        let connection = self.in_state(comm, "accept", "REQ received", accepts)?;
        let mut rep = reply.message(connection.transport)?;
        self.stop_waiting(comm);
        let connection = self.connection(comm)?;
        connection.state = CmState::RepSent;
        connection.local_qpn = reply.qpn;
        (rep.local_comm_id, rep.remote_comm_id) = (comm.0, connection.remote_comm);
        let tid = connection.tid;
        self.send_until_answered(now, comm, tid, rep);
        Ok(())
    }

    /// Refuses a request or a reply.
    pub fn reject(
        &mut self,
        now: Time,
        comm: CommId,
        reason: RejectReason,
        private: Private<148>,
    ) -> Result<(), CmError> {
        let rejects = |state| matches!(state, CmState::ReqReceived | CmState::RepReceived);
        let connection = self.in_state(comm, "reject", "REQ received or REP received", rejects)?;
        let answered = match connection.state {
            CmState::RepReceived => Answered::Rep,
            _ => Answered::Req,
        };
        self.refuse(now, comm, answered, reason, private);
        Ok(())
    }

    /// Sends a REJ, and sends it again when the message that it answers comes again.
    pub(super) fn refuse(
        &mut self,
        now: Time,
        comm: CommId,
        answered: Answered,
        reason: RejectReason,
        private: Private<148>,
    ) {
        let Some(connection) = self.connections.get_mut(&comm) else {
            return;
        };
        // The peer repeats what it sent after about the time that this side would wait.
        connection.time_wait = connection.time_wait.max(connection.wait * 2);
        let rej = Rej {
            local_comm_id: comm.0,
            remote_comm_id: connection.remote_comm,
            answered: answered.into(),
            reason,
            private,
            ..Rej::default()
        };
        let rej = bytes_of(connection.tid, rej);
        self.enter_time_wait(now, comm, Some(rej));
        self.repeat(comm);
    }

    /// Tells the peer that this side is ready, after a reply.
    pub fn ready(&mut self, comm: CommId, private: Private<224>) -> Result<(), CmError> {
        let confirms = |state| state == CmState::RepReceived;
        let connection = self.in_state(comm, "confirm", "REP received", confirms)?;
        connection.state = CmState::Established;
        let rtu = Rtu {
            local_comm_id: comm.0,
            remote_comm_id: connection.remote_comm,
            private,
        };
        let tid = connection.tid;
        self.send(comm, tid, rtu);
        Ok(())
    }

    /// Treats the peer as ready because its data arrived, while the message that says so is still
    /// on its way (`IBV_EVENT_COMM_EST`). Does nothing if the connection is already established.
    pub fn establish(&mut self, comm: CommId) -> Result<(), CmError> {
        let begins = |state| matches!(state, CmState::RepSent | CmState::Established);
        let connection = self.in_state(comm, "be established", "REP sent", begins)?;
        if connection.state == CmState::RepSent {
            self.become_established(comm, Private::default());
        }
        Ok(())
    }

    /// Whether the peer takes it for a connection, or has done so: there is something to end.
    pub fn was_ever_connected(&self, comm: CommId) -> bool {
        let connection = self.connections.get(&comm);
        connection.is_some_and(|it| it.was_connected || it.state.knows_peer())
    }

    /// Ends a connection, or agrees to its end. Does nothing if it is already ending or has ended.
    /// One that never began cannot end.
    pub fn disconnect(
        &mut self,
        now: Time,
        comm: CommId,
        private: Private<220>,
    ) -> Result<(), CmError> {
        let is_one = self.was_ever_connected(comm);
        let allowed = "established and REP sent";
        let connection = self.in_state(comm, "disconnect", allowed, |_| is_one)?;
        match connection.state {
            CmState::RepSent | CmState::Established => self.ask_to_end(now, comm, private),
            CmState::DreqReceived => self.agree_to_end(now, comm),
            _ => {}
        }
        Ok(())
    }

    /// Sends a DREQ.
    pub(super) fn ask_to_end(&mut self, now: Time, comm: CommId, private: Private<220>) {
        let Some(connection) = self.connections.get_mut(&comm) else {
            return;
        };
        connection.state = CmState::DreqSent;
        let dreq = Dreq {
            local_comm_id: comm.0,
            remote_comm_id: connection.remote_comm,
            remote_qpn: connection.remote_qpn,
            private,
        };
        let tid = connection.own_tid | u64::from(DREQ);
        self.send_until_answered(now, comm, tid, dreq);
    }

    /// Sends a DREP.
    pub(super) fn agree_to_end(&mut self, now: Time, comm: CommId) {
        let Some(connection) = self.connections.get(&comm) else {
            return;
        };
        let drep = Drep {
            local_comm_id: comm.0,
            remote_comm_id: connection.remote_comm,
            private: Private::default(),
        };
        let drep = bytes_of(connection.end_tid, drep);
        self.enter_time_wait(now, comm, Some(drep));
        self.repeat(comm);
    }

    /// Requests the queue pair of a datagram service from a peer. The answer is
    /// [`super::CmEventKind::SidrReply`] or `Unreachable`.
    pub fn sidr_request(&mut self, now: Time, request: &SidrRequest) -> Result<CommId, CmError> {
        bits::<3>("sl", request.sl)?;
        bits::<5>("packet_lifetime", request.packet_lifetime)?;
        bits::<5>("response_timeout", request.response_timeout)?;
        bits::<4>("max_retries", request.max_retries)?;
        let wait = answer_within(
            request.packet_lifetime.into(),
            request.response_timeout.into(),
        );
        let comm = self.begin(Connection::asking(
            CmState::SidrReqSent,
            request.path(),
            request.service_id,
            wait,
            request.max_retries,
        ))?;
        let message = SidrReq {
            request_id: comm.0,
            pkey: PKEY_DEFAULT,
            service_id: request.service_id,
            private: request.private,
        };
        self.send_first(now, comm, SIDR_REQ, message);
        Ok(comm)
    }

    /// Answers a request for a datagram service.
    pub fn sidr_reply(&mut self, comm: CommId, reply: &SidrReply) -> Result<(), CmError> {
        let answers = |state| state == CmState::SidrReqReceived;
        self.in_state(comm, "be answered", "SIDR_REQ received", answers)?;
        self.stop_waiting(comm);
        let connection = self.connection(comm)?;
        connection.state = CmState::SidrAnswered;
        connection.local_qpn = reply.qpn;
        let rep = SidrRep {
            request_id: connection.remote_comm,
            status: reply.status,
            qpn: reply.qpn,
            service_id: connection.service_id,
            qkey: reply.qkey,
            private: reply.private,
            ..SidrRep::default()
        };
        let tid = connection.tid;
        self.send(comm, tid, rep);
        Ok(())
    }

    /// Forgets a connection: its ID becomes invalid, and a peer that still relies on it is
    /// notified. Messages about its end continue in the background. Events that were not polled are
    /// discarded.
    pub fn destroy(&mut self, now: Time, comm: CommId) -> Result<(), CmError> {
        let connection = self.connection(comm)?;
        let (state, path, tid) = (connection.state, connection.path, connection.tid);
        match state {
            CmState::ReqReceived => {
                let reason = RejectReason::CONSUMER;
                self.refuse(now, comm, Answered::Req, reason, Private::default());
            }
            CmState::RepReceived => {
                let reason = RejectReason::CONSUMER;
                self.refuse(now, comm, Answered::Rep, reason, Private::default());
            }
            CmState::ReqSent => {
                let rej = Rej::gave_up(comm.0, connection.local_guid);
                self.remove(comm);
                self.answer(path, tid, rej);
            }
            CmState::RepSent | CmState::Established => {
                self.disconnect(now, comm, Private::default())?;
            }
            CmState::DreqReceived => self.agree_to_end(now, comm),
            CmState::SidrReqReceived => {
                let status = SidrRep::REJECTED;
                let (qpn, qkey) = (Qpn::new(0), 0);
                let private = Private::default();
                let reply = SidrReply {
                    status,
                    qpn,
                    qkey,
                    private,
                };
                self.sidr_reply(comm, &reply)?;
                self.answer_for_a_while(now, comm);
            }
            CmState::SidrAnswered => self.answer_for_a_while(now, comm),
            CmState::DreqSent | CmState::TimeWait => {}
            CmState::Idle | CmState::SidrReqSent => self.remove(comm),
        }
        if let Some(connection) = self.connections.get_mut(&comm) {
            connection.left = Some(self.leftovers.add(path.dest, comm));
        }
        self.events.retain(|event| event.comm != comm);
        self.forget_end_of(comm);
        Ok(())
    }

    /// Keeps the answer to a request for when that comes again.
    fn answer_for_a_while(&mut self, now: Time, comm: CommId) {
        let last = self.connections.get(&comm).and_then(|c| c.last.clone());
        self.enter_time_wait(now, comm, last);
    }

    /// Sends the last message about each connection that has ended, or should end, once more. Call
    /// this after [`Self::destroy_all`] when the program exits and can no longer repeat a lost
    /// message. A peer whose request to disconnect got no answer would repeat it for a minute.
    pub fn repeat_last(&mut self) {
        let ends = |state| matches!(state, CmState::DreqSent | CmState::TimeWait);
        let over = self.connections.iter().filter(|(_, it)| ends(it.state));
        let comms: Vec<CommId> = over.map(|(comm, _)| *comm).collect();
        for comm in comms {
            self.repeat(comm);
        }
    }

    /// Forgets everything, as when a program exits: every peer gets one message.
    pub fn destroy_all(&mut self, now: Time) {
        self.listeners.clear();
        let owned = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.is_owned());
        let comms: Vec<CommId> = owned.map(|(comm, _)| *comm).collect();
        for comm in comms {
            // They are all there.
            let _ = self.destroy(now, comm);
        }
    }

    // Helpers.

    fn connection(&mut self, comm: CommId) -> Result<&mut Connection, CmError> {
        let connection = self.connections.get_mut(&comm);
        connection
            .filter(|c| c.is_owned())
            .ok_or(CmError::NoSuch { comm })
    }

    /// A connection in one of the states for which the call is meant.
    fn in_state(
        &mut self,
        comm: CommId,
        call: &'static str,
        allowed: &'static str,
        is_allowed: impl FnOnce(CmState) -> bool,
    ) -> Result<&mut Connection, CmError> {
        let connection = self.connection(comm)?;
        let state = connection.state;
        if is_allowed(state) {
            Ok(connection)
        } else {
            Err(CmError::WrongState {
                call,
                state,
                allowed,
            })
        }
    }

    fn begin(&mut self, connection: Connection) -> Result<CommId, CmError> {
        let max = CONNECTIONS_MAX;
        self.make_room().map_err(|_| CmError::TooMany { max })?;
        Ok(self.insert(connection))
    }

    /// Sends the request that a connection begins with.
    fn send_first(
        &mut self,
        now: Time,
        comm: CommId,
        number: u8,
        message: impl Into<ferroce_wire::cm::Message>,
    ) {
        let Some(connection) = self.connections.get_mut(&comm) else {
            return;
        };
        let tid = connection.own_tid | u64::from(number);
        connection.tid = tid;
        self.send_until_answered(now, comm, tid, message);
    }
}

/// The service timeout that a message of this side asks for: how long a program may think.
pub(super) const PATIENCE: Bits<5> = Bits::saturating(24);
