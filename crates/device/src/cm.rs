//! The connection manager (IBA vol 1, chapter 12): queue pairs 1 of two devices set up and end
//! connections between two programs' queue pairs.
//!
//! Like the device it belongs to, it has no clock and no socket. A program calls [`Cm`] through
//! [`crate::Hca::cm_mut`] and gets events from [`crate::Hca::poll_cm_event`]; it changes the state
//! of its queue pairs itself.
//!
//! Every message that requires an answer is repeated until the answer arrives or the retries are
//! used up, and a repeated message is answered again.

mod bounds;
mod call;
mod connection;
mod ends;
mod error;
mod event;
mod leftovers;
mod listener;
mod lookup;
mod receive;
mod request;
mod sender;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use ferroce_transport::{Bytes, Counter, Mtu, Path, Time};
use ferroce_wire::Psn;
use ferroce_wire::cm::{Mad, Message, ServiceId};

use bounds::{HALF_OPEN_MAX, OUTBOX_MAX, TIME_WAIT_MAX};
pub use connection::{CmInfo, CmState, CommId};
use connection::{Connection, Origin, RemoteQp};
use ends::Ends;
pub use error::{CmError, Overload};
pub use event::{CmEvent, CmEventKind};
use leftovers::Leftovers;
use listener::Listener;
pub use request::{ConnectReply, ConnectRequest, SidrReply, SidrRequest, Transport, ack_timeout};

use crate::secret::{Draw, Secret, shuffle};
use crate::state::DeviceState;

/// Bits of a comm id below the slot.
const INDEX_BITS: u32 = 24;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// The process that a message of the connection manager is for, if several processes share a
/// device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// This process.
    Here,
    /// The process in this slot.
    Slot(u8),
    /// The process that listens on this service, which is not this one.
    Service(ServiceId),
    /// Any process. The process that has it passes it to its device, which answers it if it can.
    Any,
}

/// A dropped request, for the host to report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dropped {
    pub(crate) source: IpAddr,
    pub(crate) service: ServiceId,
    pub(crate) cause: Overload,
}

/// A message on its way out.
#[derive(Debug)]
pub(crate) struct OutgoingMad {
    pub(crate) path: Path,
    pub(crate) psn: Psn,
    pub(crate) mad: Bytes,
}

/// The connection manager of a device.
#[derive(Debug)]
pub struct Cm {
    /// Where it counts.
    state: DeviceState,
    slot: u8,
    secret: Secret,
    /// The largest path MTU that the port takes.
    port_mtu: Mtu,
    /// Names that were tried. Below [`INDEX_BITS`] it makes the name, above it what tells apart the
    /// transactions of those that have it one after the other.
    names: u64,
    /// First PSNs that were drawn.
    psns: u64,
    next_psn: Psn,
    listeners: BTreeMap<ServiceId, Listener>,
    connections: BTreeMap<CommId, Connection>,
    /// Requests that were taken, by who sent them.
    by_origin: BTreeMap<Origin, CommId>,
    /// Live connections by the peer's queue pair.
    by_remote_qp: BTreeMap<RemoteQp, CommId>,
    timers: BTreeSet<(Time, CommId)>,
    leftovers: Leftovers,
    outbox: VecDeque<OutgoingMad>,
    events: VecDeque<CmEvent>,
    ends: Ends,
    /// The first request that was dropped for each cause.
    dropped: Vec<Dropped>,
    /// How many of these the host has been told of.
    dropped_told: usize,
}

impl Cm {
    /// A connection manager whose names carry `slot` in their top byte.
    pub(crate) fn new(state: DeviceState, slot: u8, secret: Secret, port_mtu: Mtu) -> Self {
        Self {
            state,
            slot,
            secret,
            port_mtu,
            names: 0,
            psns: 0,
            next_psn: Psn::new(secret.draw(Draw::MadPsn, 0) as u32), // as many bits as it has
            listeners: BTreeMap::new(),
            connections: BTreeMap::new(),
            by_origin: BTreeMap::new(),
            by_remote_qp: BTreeMap::new(),
            timers: BTreeSet::new(),
            leftovers: Leftovers::default(),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            ends: Ends::default(),
            dropped: Vec::new(),
            dropped_told: 0,
        }
    }

    /// Returns the process that the payload of a packet for queue pair 1 is for.
    pub fn owner(&self, source: IpAddr, payload: &[u8]) -> Owner {
        let Ok(Mad { message, .. }) = Mad::parse(payload) else {
            return Owner::Any;
        };
        let (origin, service) = match &message {
            Message::Req(req) => (
                Origin::connection(source, req.ca_guid, req.local_comm_id),
                req.service_id,
            ),
            Message::SidrReq(req) => (Origin::datagram(source, req.request_id), req.service_id),
            other => {
                return match other.addressee().map(|id| (id >> 24) as u8) {
                    Some(slot) if slot == self.slot => Owner::Here,
                    Some(0) | None => Owner::Any,
                    Some(slot) => Owner::Slot(slot),
                };
            }
        };
        if self.by_origin.contains_key(&origin) || self.listeners.contains_key(&service) {
            Owner::Here
        } else {
            Owner::Service(service)
        }
    }

    /// Returns the connections and requests that the program has not destroyed, and those that stay
    /// until their packets cannot arrive any more.
    pub fn connections(&self) -> impl Iterator<Item = CmInfo> {
        let infos = self.connections.iter();
        infos.map(|(comm, connection)| connection.info(*comm))
    }

    /// Returns the services that the program listens on.
    pub fn services(&self) -> impl Iterator<Item = ServiceId> {
        self.listeners.keys().copied()
    }

    /// Whether a program listens or there is a connection.
    pub(crate) fn is_active(&self) -> bool {
        !self.listeners.is_empty() || !self.connections.is_empty()
    }

    /// Returns an unpredictable first PSN for a connection's queue pair.
    pub fn first_psn(&mut self) -> Psn {
        self.psns += 1;
        Psn::new(self.secret.draw(Draw::FirstPsn, self.psns) as u32) // as many bits as it has
    }

    pub(crate) fn poll_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub(crate) fn wants_transmit(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// The path of the next message to send.
    pub(crate) fn next_path(&self) -> Option<&Path> {
        self.outbox.front().map(|mad| &mad.path)
    }

    pub(crate) fn poll_transmit(&mut self) -> Option<OutgoingMad> {
        self.outbox.pop_front()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let timer = self.timers.first().map(|(at, _)| *at);
        timer.into_iter().chain(self.ends.deadline()).min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        while let Some((at, comm)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.pop_first();
            if let Some(connection) = self.connections.get_mut(&comm) {
                connection.deadline = None;
                self.expire(now, comm);
            }
        }
    }

    /// What to do when a connection's time is up.
    fn expire(&mut self, now: Time, comm: CommId) {
        let Some(connection) = self.connections.get_mut(&comm) else {
            return;
        };
        let kind = match connection.state {
            CmState::TimeWait if !connection.is_owned() => {
                self.remove(comm);
                return;
            }
            CmState::TimeWait if connection.was_connected => CmEventKind::TimeWaitExit,
            // What was refused only waited for its request to come again.
            CmState::TimeWait => {
                self.give_up(comm);
                return;
            }
            _ if connection.may_repeat(now) => {
                connection.retries_left -= 1;
                let deadline = connection.answer_by(now, connection.wait);
                self.repeat(comm);
                self.set_deadline(comm, Some(deadline));
                return;
            }
            CmState::DreqSent => {
                self.enter_time_wait(now, comm, None);
                self.tell(comm, CmEventKind::DisconnectTimeout);
                return;
            }
            _ => CmEventKind::Unreachable,
        };
        self.give_up(comm);
        self.tell(comm, kind);
    }

    // Building blocks.

    /// A new connection under a name of its own. There must be room.
    fn insert(&mut self, mut connection: Connection) -> CommId {
        // Fewer connections than indices: this ends.
        loop {
            let (comm, own_tid) = self.name(self.names);
            self.names += 1;
            // Zero stands for no name at all.
            if comm.0 != 0 && !self.connections.contains_key(&comm) {
                connection.own_tid = own_tid;
                if let Some(origin) = connection.origin {
                    self.by_origin.insert(origin, comm);
                }
                self.connections.insert(comm, connection);
                return comm;
            }
        }
    }

    /// The `n`th communication ID and the transaction IDs of the connection that it is drawn for.
    fn name(&self, n: u64) -> (CommId, u64) {
        let round = |round, half| {
            let n = u64::from(round) << INDEX_BITS | u64::from(half);
            self.secret.draw(Draw::CommId, n) as u32 // it takes the bits that it needs
        };
        let index = n as u32 & INDEX_MASK; // the low bits
        let index = shuffle::<{ INDEX_BITS / 2 }>(index, round);
        let comm = u32::from(self.slot) << INDEX_BITS | index;
        let life = n >> INDEX_BITS & u64::from(INDEX_MASK);
        (CommId(comm), u64::from(comm) << 32 | life << 8)
    }

    fn remove(&mut self, comm: CommId) {
        self.give_up(comm);
        if let Some(connection) = self.connections.remove(&comm)
            && let Some(age) = connection.left
        {
            self.leftovers.remove(connection.path.dest, age);
        }
    }

    /// Leaves the connection to its program, which can only destroy it.
    fn give_up(&mut self, comm: CommId) {
        self.stop_waiting(comm);
        self.set_deadline(comm, None);
        self.forget_remote_qp(comm);
        let Some(connection) = self.connections.get_mut(&comm) else {
            return;
        };
        connection.state = CmState::Idle;
        connection.last = None;
        self.forget_origin(comm);
    }

    /// From now on a request of the same name is another request.
    fn forget_origin(&mut self, comm: CommId) {
        let connection = self.connections.get_mut(&comm);
        if let Some(origin) = connection.and_then(|connection| connection.origin.take()) {
            self.by_origin.remove(&origin);
        }
    }

    /// A request counts against the backlog, and against what is kept of its source.
    fn begin_waiting(&mut self, comm: CommId) {
        if let Some(connection) = self.connections.get_mut(&comm) {
            self.leftovers.request(connection.path.dest);
            if let Some(listener) = self.listeners.get_mut(&connection.service_id) {
                connection.in_backlog = true;
                listener.add(connection.path.dest);
            }
        }
    }

    /// A request no longer counts. To be called before its state changes.
    fn stop_waiting(&mut self, comm: CommId) {
        self.leave_backlog(comm);
        if let Some(connection) = self.connections.get(&comm)
            && connection.state.is_request()
        {
            self.leftovers.no_request(connection.path.dest);
        }
    }

    fn leave_backlog(&mut self, comm: CommId) {
        if let Some(connection) = self.connections.get_mut(&comm)
            && std::mem::take(&mut connection.in_backlog)
            && let Some(listener) = self.listeners.get_mut(&connection.service_id)
        {
            listener.remove(connection.path.dest);
        }
    }

    /// A request is not taken. The first one for each cause is told.
    fn drop_request(&mut self, source: IpAddr, service: ServiceId, cause: Overload) {
        self.state.count(cause.counter(), 1);
        if !self.dropped.iter().any(|told| told.cause == cause) {
            self.dropped.push(Dropped {
                source,
                service,
                cause,
            });
        }
    }

    /// The next dropped request that the host is to report.
    pub(crate) fn poll_dropped(&mut self) -> Option<Dropped> {
        let dropped = self.dropped.get(self.dropped_told).copied()?;
        self.dropped_told += 1;
        Some(dropped)
    }

    /// Waits until no packet of the connection can be under way. `answer` is sent again when the
    /// peer repeats a message.
    fn enter_time_wait(&mut self, now: Time, comm: CommId, answer: Option<Bytes>) {
        self.stop_waiting(comm);
        self.forget_remote_qp(comm);
        let Some(connection) = self.connections.get_mut(&comm) else {
            return;
        };
        connection.was_connected = connection.state.knows_peer();
        connection.state = CmState::TimeWait;
        connection.last = answer;
        let wait = connection.time_wait.min(TIME_WAIT_MAX);
        self.set_deadline(comm, Some(now.after(wait)));
        self.tell_end_of(comm);
    }

    fn forget_remote_qp(&mut self, comm: CommId) {
        if let Some(connection) = self.connections.get(&comm) {
            let key = connection.remote_qp();
            if self.by_remote_qp.get(&key) == Some(&comm) {
                self.by_remote_qp.remove(&key);
            }
        }
    }

    fn set_deadline(&mut self, comm: CommId, deadline: Option<Time>) {
        let Some(connection) = self.connections.get_mut(&comm) else {
            return;
        };
        if let Some(at) = std::mem::replace(&mut connection.deadline, deadline) {
            self.timers.remove(&(at, comm));
        }
        if let Some(at) = deadline {
            self.timers.insert((at, comm));
        }
    }

    /// Sends a message about a connection and keeps it.
    fn send(&mut self, comm: CommId, tid: u64, message: impl Into<Message>) {
        let Some(connection) = self.connections.get_mut(&comm) else {
            return;
        };
        connection.last = Some(bytes_of(tid, message));
        self.repeat(comm);
    }

    /// [`Self::send`], then again and again until something else is done about the connection.
    fn send_until_answered(
        &mut self,
        now: Time,
        comm: CommId,
        tid: u64,
        message: impl Into<Message>,
    ) {
        self.send(comm, tid, message);
        let Some(connection) = self.connections.get_mut(&comm) else {
            return;
        };
        connection.retries_left = connection.retries;
        connection.is_patient = false;
        let is_half_open = connection.state.knows_peer();
        connection.give_up_at = is_half_open.then(|| now.after(HALF_OPEN_MAX));
        let deadline = connection.answer_by(now, connection.wait);
        self.set_deadline(comm, Some(deadline));
    }

    /// Sends the last message about a connection again.
    fn repeat(&mut self, comm: CommId) {
        if let Some(connection) = self.connections.get(&comm)
            && let Some(mad) = &connection.last
        {
            let (path, mad) = (connection.path, mad.clone());
            self.post(path, mad);
        }
    }

    /// Sends a message that is not kept.
    fn answer(&mut self, path: Path, tid: u64, message: impl Into<Message>) {
        self.post(path, bytes_of(tid, message));
    }

    fn post(&mut self, path: Path, mad: Bytes) {
        if self.outbox.len() >= OUTBOX_MAX {
            self.state.count(Counter::CmTxDropped, 1);
            return;
        }
        self.outbox.push_back(OutgoingMad {
            path,
            psn: self.next_psn,
            mad,
        });
        self.next_psn = self.next_psn.next();
    }

    /// Tells the program, if the connection is still its own.
    fn tell(&mut self, comm: CommId, kind: CmEventKind) {
        let owned = self.connections.get(&comm).filter(|it| it.is_owned());
        if let Some(connection) = owned {
            let port = connection.path.port;
            self.events.push_back(CmEvent { comm, port, kind });
        }
    }

    /// Compares the books with each other; see [`crate::Hca::audit`].
    pub(crate) fn audit(&self, now: Time) {
        self.audit_bounds(now);
        let mut waiting: BTreeMap<ServiceId, BTreeMap<IpAddr, u32>> = BTreeMap::new();
        for (comm, connection) in &self.connections {
            if let Some(at) = connection.deadline {
                assert!(self.timers.contains(&(at, *comm)), "{comm:?} has no timer");
            }
            let must_wait = connection.state.waits_for_peer();
            assert_eq!(
                must_wait,
                connection.deadline.is_some(),
                "{comm:?} {connection:?}"
            );
            assert!(connection.is_owned() || must_wait, "{comm:?} stays forever");
            if connection.in_backlog {
                assert!(connection.state.is_request(), "{comm:?} {connection:?}");
                let of_service = waiting.entry(connection.service_id).or_default();
                *of_service.entry(connection.path.dest).or_default() += 1;
            }
        }
        for (service, listener) in &self.listeners {
            listener.audit(&waiting.remove(service).unwrap_or_default());
        }
        let deadlines = self.connections.values().filter(|c| c.deadline.is_some());
        assert_eq!(
            deadlines.count(),
            self.timers.len(),
            "timers without a connection"
        );
        for comm in self.by_origin.values().chain(self.by_remote_qp.values()) {
            assert!(self.connections.contains_key(comm), "{comm:?} is gone");
        }
    }
}

fn bytes_of(tid: u64, message: impl Into<Message>) -> Bytes {
    let message = message.into();
    Bytes::from(&Mad { tid, message }.emit()[..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ece, Personality};

    fn cm(key: u128) -> Cm {
        let state = DeviceState::new(Personality::default());
        Cm::new(state, 3, Secret::new(key), Mtu::Mtu4096)
    }

    fn request() -> ConnectRequest {
        ConnectRequest {
            dest: [10, 0, 0, 1].into(),
            source: [10, 0, 0, 2].into(),
            traffic_class: 0,
            sl: 0,
            port: 1,
            service_id: ServiceId(1),
            ca_guid: 1,
            qpn: ferroce_wire::Qpn::new(0x111),
            starting_psn: Psn::ZERO,
            transport: Transport::Rc,
            srq: false,
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            mtu: Mtu::Mtu1024,
            ack_timeout: 19,
            packet_lifetime: 18,
            response_timeout: 20,
            max_retries: 0,
            ece: Ece::default(),
            private: ferroce_wire::cm::Private::default(),
        }
    }

    fn connect(cm: &mut Cm) -> CommId {
        cm.connect(Time::ZERO, &request()).unwrap()
    }

    fn tid_of_last(cm: &Cm) -> u64 {
        Mad::parse(&cm.outbox.back().unwrap().mad).unwrap().tid
    }

    /// After 2^24 connections the names come again, but not those still in use, and not with the
    /// same transactions: to a peer that remembers the last life of a name this is another one.
    #[test]
    fn names_that_come_again_are_other_connections() {
        let mut cm = cm(1);
        let first = connect(&mut cm);
        let of_first = tid_of_last(&cm);
        let second = connect(&mut cm);
        let of_second = tid_of_last(&cm);
        cm.destroy(Time::ZERO, second).unwrap();
        cm.names = u64::from(INDEX_MASK);
        let last = connect(&mut cm);
        // The first is in use.
        assert_eq!(connect(&mut cm), second);
        assert_ne!(tid_of_last(&cm), of_second);
        cm.names = u64::from(INDEX_MASK) << INDEX_BITS | u64::from(INDEX_MASK);
        cm.destroy(Time::ZERO, last).unwrap();
        assert_eq!(connect(&mut cm), last);
        cm.destroy(Time::ZERO, first).unwrap();
        // And around once more.
        assert_eq!(connect(&mut cm), first);
        assert_eq!(tid_of_last(&cm), of_first, "2^48 connections later");
        cm.audit(Time::ZERO);
    }

    #[test]
    fn the_psn_of_messages_wraps() {
        let mut cm = cm(1);
        cm.next_psn = Psn::new(0xff_ffff);
        connect(&mut cm);
        connect(&mut cm);
        let psns: Vec<_> = cm.outbox.iter().map(|mad| mad.psn.value()).collect();
        assert_eq!(psns, [0xff_ffff, 0]);
    }

    /// An off-path attacker has to try half of 2^24 communication IDs or PSNs on average. The same
    /// key gives the same ones.
    #[test]
    fn names_and_psns_cannot_be_foreseen() {
        let draw = |key| {
            let mut cm = cm(key);
            let names: Vec<u32> = (0..1000).map(|n| cm.name(n).0.0).collect();
            let psns: Vec<u32> = (0..1000).map(|_| cm.first_psn().value()).collect();
            (names, psns)
        };
        let ((names, psns), again, other) = (draw(1), draw(1), draw(2));
        assert_eq!(again, (names.clone(), psns.clone()));
        assert!(names.iter().all(|name| name >> INDEX_BITS == 3));
        for (one, two) in [(&names, &other.0), (&psns, &other.1)] {
            let spread: BTreeSet<u32> = one.iter().map(|n| n >> 16 & 0xff).collect();
            assert!(spread.len() > 200, "{}", spread.len());
            let steps: BTreeSet<u32> = one.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
            assert!(steps.len() > 990, "{}", steps.len());
            let same = one.iter().zip(two).filter(|(a, b)| a == b).count();
            assert!(same < 3, "{same}");
        }
    }
}
