//! Two queue pairs, the packets between them, and what can happen next.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ferroce_adp::{Policy, PolicyKind};
use ferroce_transport::{
    AccessFlags, Data, Mtu, Outgoing, Payload, Qp, QpAttr, QpCap, QpConfig, QpModify, QpState,
    QpType, RecvWr, SendOp, SendWr, Sges, Time, WcStatus, WorkQueue,
};
use ferroce_wire::{Aeth, Headers, Psn, Qpn};

use super::host::{Mr, TestHost};
use super::scenario::{Flaw, Kind, Repeat, Scenario};

/// Bytes of a full packet.
pub(super) const MTU: u32 = 256;
/// READs and atomics that each end may have outstanding.
const RD_ATOMIC_MAX: u8 = 2;
/// More steps than any connection needs that nothing disturbs.
const CALM_STEPS: usize = 2_000;

/// One of the two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Id {
    A,
    B,
}
pub(super) use Id::{A, B};

impl Id {
    pub(super) const fn peer(self) -> Self {
        match self {
            A => B,
            B => A,
        }
    }

    const fn qpn(self) -> Qpn {
        Qpn::new(0x11 + self as u32)
    }

    /// Of its requests, so near the end of the circle that each scenario crosses it.
    const fn first_psn(self) -> Psn {
        Psn::new(match self {
            A => 0xff_fffe,
            B => 0xff_ffff,
        })
    }
}

/// What can happen next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Its program posts the next message.
    Post(Id),
    /// Its program posts the next receive.
    PostReceive(Id),
    /// It sends a packet, or finds that it has none.
    Transmit(Id),
    /// The packet that has been on its way there the longest arrives.
    Receive(Id),
    /// A fault: that packet is lost.
    Lose(Id),
    /// A fault: the network makes a copy of it, which arrives after all that are on their way now.
    Duplicate(Id),
    /// A fault: another one arrives first.
    Overtake(Id, usize),
    /// Its timer expires: a fault while anything is under way, which then is slower than the timer.
    Expire(Id),
}

/// A message and its memory at both ends.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    wr: SendWr,
    here: Mr,
    there: Mr,
    /// What was there at first.
    pub(super) before: Vec<u8>,
}

/// What a [`Kind::Add`] adds.
pub(super) const ADDEND: u64 = 0x0101;

#[derive(Clone, Debug)]
struct End {
    qp: Qp,
    host: TestHost,
    posted: usize,
    /// Receives that are not posted yet.
    receives: VecDeque<RecvWr>,
    /// It may have something to send.
    is_ready: bool,
}

#[derive(Clone, Debug, Hash)]
struct Packet {
    headers: Headers,
    payload: Vec<u8>,
}

/// A connection at one moment.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) scenario: &'static Scenario,
    /// Of each end, in order.
    messages: Arc<[Vec<Message>; 2]>,
    ends: [End; 2],
    /// Packets on their way to each end, oldest first.
    lanes: [VecDeque<Packet>; 2],
    now: Time,
    faults_left: u8,
    /// An assertion of the queue pairs failed.
    pub(super) panic: Option<String>,
}

impl Connection {
    /// Two connected queue pairs with nothing posted but receives.
    pub(super) fn new(scenario: &'static Scenario) -> Self {
        let mut ends = [A, B].map(|id| End::new(scenario, id));
        let mut messages = [Vec::new(), Vec::new()];
        for id in [A, B] {
            // WRITEs share one target: what arrives late, or twice, destroys what came after it.
            let mut target = None;
            for (wr_id, kind) in (0..).zip(scenario.messages[id as usize]) {
                let message = Message::new(*kind, wr_id, &mut ends, id, &mut target);
                if let Kind::Send(_) = kind {
                    let sge = message.there.part(0, message.there.len);
                    let sges = Sges::from_slice(&[sge]);
                    ends[id.peer() as usize]
                        .receives
                        .push_back(RecvWr { wr_id, sges });
                }
                messages[id as usize].push(message);
            }
        }
        let mut connection = Self {
            scenario,
            messages: Arc::new(messages),
            ends,
            lanes: Default::default(),
            now: Time::from_nanos(1),
            faults_left: scenario.faults,
            panic: None,
        };
        if !scenario.receives_late {
            for id in [A, B] {
                while !connection.ends[id as usize].receives.is_empty() {
                    connection.apply(Step::PostReceive(id));
                }
            }
        }
        connection
    }

    /// The messages of an end, in order.
    pub(super) fn messages(&self, id: Id) -> &[Message] {
        &self.messages[id as usize]
    }

    /// What can happen next.
    pub(super) fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.panic.is_some() {
            return steps;
        }
        for id in [A, B] {
            self.steps_at(id, &mut steps);
        }
        steps
    }

    fn steps_at(&self, id: Id, steps: &mut Vec<Step>) {
        let (end, lane) = (&self.ends[id as usize], &self.lanes[id as usize]);
        if end.posted < self.messages[id as usize].len() {
            steps.push(Step::Post(id));
        }
        if !end.receives.is_empty() {
            steps.push(Step::PostReceive(id));
        }
        if end.is_ready {
            steps.push(Step::Transmit(id));
        }
        if !lane.is_empty() {
            steps.push(Step::Receive(id));
        }
        let may_fail = self.faults_left > 0;
        if may_fail && !lane.is_empty() {
            steps.extend([Step::Lose(id), Step::Duplicate(id)]);
            steps.extend((1..lane.len()).map(|at| Step::Overtake(id, at)));
        }
        let has_timer =
            end.qp.poll_timeout().is_some() && self.scenario.flaw != Some(Flaw::NoTimers);
        if has_timer && (may_fail || self.is_still()) {
            steps.push(Step::Expire(id));
        }
    }

    /// Whether nothing happens until a timer expires or a program posts a message. A receiver that lets its
    /// peer wait is as slow as a packet.
    fn is_still(&self) -> bool {
        let is_still = |end: &End| !end.is_ready && end.receives.is_empty();
        self.lanes.iter().all(VecDeque::is_empty) && self.ends.iter().all(is_still)
    }

    /// The connection after a step.
    pub(super) fn after(&self, step: Step) -> Self {
        let mut next = self.clone();
        next.take(step);
        next
    }

    fn take(&mut self, step: Step) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.apply(step))) {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            self.panic = Some(text.unwrap_or("an assertion").into());
        }
    }

    fn apply(&mut self, step: Step) {
        let costs = match step {
            Step::Lose(_) | Step::Duplicate(_) | Step::Overtake(..) => true,
            Step::Expire(_) => !self.is_still(),
            Step::Post(_) | Step::PostReceive(_) | Step::Transmit(_) | Step::Receive(_) => false,
        };
        self.faults_left = self.faults_left.saturating_sub(costs.into());
        match step {
            Step::Post(id) => self.post(id),
            Step::PostReceive(id) => self.post_receive(id),
            Step::Transmit(id) => self.transmit(id),
            Step::Receive(id) => self.receive(id, 0),
            Step::Overtake(id, at) => self.receive(id, at),
            Step::Lose(id) => self.lose(id),
            Step::Duplicate(id) => self.duplicate(id),
            Step::Expire(id) => self.expire(id),
        }
        for end in &self.ends {
            end.qp.audit(self.now, RD_ATOMIC_MAX);
        }
    }

    fn post(&mut self, id: Id) {
        let end = &mut self.ends[id as usize];
        let wr = self.messages[id as usize][end.posted].wr.clone();
        end.posted += 1;
        end.qp.post_send(wr, &mut end.host).expect("there is room");
        end.is_ready = true;
    }

    fn post_receive(&mut self, id: Id) {
        let end = &mut self.ends[id as usize];
        let wr = end.receives.pop_front().expect("one is left");
        end.qp.post_recv(wr, &mut end.host).expect("there is room");
        end.is_ready = true;
    }

    fn transmit(&mut self, id: Id) {
        let end = &mut self.ends[id as usize];
        let mut made = Outgoing::empty();
        end.is_ready = end.qp.poll_transmit(self.now, &mut end.host, &mut made);
        if end.is_ready {
            let packet = end.packet(&made);
            self.lanes[id.peer() as usize].push_back(packet);
        }
    }

    fn receive(&mut self, id: Id, at: usize) {
        let packet = self.lanes[id as usize].remove(at).expect("it is there");
        let end = &mut self.ends[id as usize];
        let data = Data::Bytes(&packet.payload);
        end.qp
            .handle_packet(self.now, &packet.headers, data, &mut end.host);
        end.is_ready = true;
    }

    fn lose(&mut self, id: Id) {
        let lane = &mut self.lanes[id as usize];
        let mut packet = lane.pop_front().expect("it is there");
        match self.scenario.flaw {
            Some(Flaw::Corrupts) if !packet.payload.is_empty() => {
                packet.payload[0] ^= 1;
                lane.push_front(packet);
            }
            Some(Flaw::Acknowledges) if packet.headers.opcode().is_request() => {
                let headers = Headers::acknowledge(Aeth {
                    msn: 1,
                    ..Aeth::default()
                });
                self.lanes[id.peer() as usize].push_back(Packet {
                    headers: headers.to(id.peer().qpn(), packet.headers.psn),
                    payload: Vec::new(),
                });
            }
            _ => {}
        }
    }

    fn duplicate(&mut self, id: Id) {
        let lane = &mut self.lanes[id as usize];
        let mut copy = lane.front().expect("it is there").clone();
        if self.scenario.flaw == Some(Flaw::Renumbers) {
            copy.headers.psn = copy.headers.psn.next();
        }
        lane.push_back(copy);
    }

    fn expire(&mut self, id: Id) {
        let end = &mut self.ends[id as usize];
        let deadline = end.qp.poll_timeout().expect("a timer runs");
        self.now = self.now.max(deadline);
        end.qp.handle_timeout(self.now, &mut end.host);
        end.is_ready = true;
    }

    /// How it ends if from now on nothing is lost, copied or late, and timers wait for what is under way.
    /// `None` if it does not end.
    pub(super) fn calmed(&self) -> Option<Self> {
        let mut end = self.clone();
        end.faults_left = 0;
        for _ in 0..CALM_STEPS {
            // The order in which steps are listed is fair, and timers come last.
            let steps = end.steps();
            let timer = steps.iter().find(|step| matches!(step, Step::Expire(_)));
            let next = steps.iter().find(|step| !matches!(step, Step::Expire(_)));
            let Some(step) = next.or(timer) else {
                return Some(end);
            };
            end.take(*step);
        }
        None
    }

    /// Whether nothing is left to do.
    pub(super) fn is_at_rest(&self) -> bool {
        [A, B].into_iter().all(|id| {
            let end = &self.ends[id as usize];
            let is_idle = end.qp.send_queue_len() == 0 && end.qp.in_flight() == 0;
            is_idle && end.posted == self.messages(id).len() && end.receives.is_empty()
        })
    }

    pub(super) fn state(&self, id: Id) -> QpState {
        self.ends[id as usize].qp.state()
    }

    /// Completions of an end's queue so far: work requests and statuses.
    pub(super) fn completions(
        &self,
        id: Id,
        queue: WorkQueue,
    ) -> impl Iterator<Item = (u64, WcStatus)> {
        let all = self.ends[id as usize].host.completions.iter();
        let of_queue = all.filter(move |it| it.0 == queue);
        of_queue.map(|(_, completion)| (completion.wr_id, completion.status))
    }

    /// How many of them are successful.
    pub(super) fn done(&self, id: Id, queue: WorkQueue) -> usize {
        let is_success = |it: &(u64, WcStatus)| it.1 == WcStatus::Success;
        self.completions(id, queue).filter(is_success).count()
    }

    /// What is in the memory of a message of this end.
    pub(super) fn here(&self, id: Id, message: &Message) -> &[u8] {
        self.bytes(id, message.here)
    }

    /// What is in that of its peer.
    pub(super) fn there(&self, id: Id, message: &Message) -> &[u8] {
        self.bytes(id.peer(), message.there)
    }

    fn bytes(&self, id: Id, mr: Mr) -> &[u8] {
        self.ends[id as usize].host.bytes(mr.part(0, mr.len))
    }
}

/// All that the future depends on: not what was counted and recorded.
impl Hash for Connection {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let text = &mut Text(hasher);
        for (end, lane) in self.ends.iter().zip(&self.lanes) {
            let End { qp, host, .. } = end;
            let state = (qp, &host.completions, end.posted, end.is_ready);
            write!(text, "{state:?} {:?}", end.receives.len()).expect("a hasher takes all");
            lane.hash(text.0);
        }
        for id in [A, B] {
            for message in self.messages(id) {
                text.0.write(self.here(id, message));
                text.0.write(self.there(id, message));
            }
        }
        (self.now.as_nanos(), self.faults_left, &self.panic).hash(text.0);
    }
}

/// States with the same hash are the same to a checker, which remembers nothing else of them.
impl PartialEq for Connection {
    fn eq(&self, other: &Self) -> bool {
        let hash = |it| BuildHasherDefault::<DefaultHasher>::default().hash_one(it);
        hash(self) == hash(other)
    }
}

/// Hashes what is written.
struct Text<'a, H>(&'a mut H);

impl<H: Hasher> Write for Text<'_, H> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (id, lane) in [A, B].into_iter().zip(&self.lanes) {
            let sends = lane.iter().map(|packet| packet.headers);
            let lane: Vec<_> = sends.map(|it| (it.opcode(), it.psn)).collect();
            writeln!(f, "to {id:?}: {lane:?}")?;
        }
        write!(f, "{:?}", self.panic)
    }
}

impl End {
    fn new(scenario: &Scenario, id: Id) -> Self {
        let policy = Policy::new(PolicyKind::IB);
        let repeat = scenario.repeat;
        let config = QpConfig {
            qpn: id.qpn(),
            qp_type: QpType::Rc,
            port_mtu: Mtu::Mtu256,
            cap: QpCap::default(),
            srq: false,
            signal_all: false,
            window_bytes: scenario.window * MTU,
            read_bytes: 2 * MTU,
            ack_every: None,
            in_bursts: false,
            extended_retry_count: None,
            incarnation: 0,
            selective_repeat: repeat == Repeat::Forced,
            adaptive_routing: repeat == Repeat::Routed,
        };
        let mut host = TestHost::new(policy, None);
        let mut qp = Qp::new(config, &policy);
        if matches!(repeat, Repeat::Agreed | Repeat::Routed) {
            qp.agree_on_selective_repeat(true);
        }
        let attr = QpAttr {
            access: AccessFlags::all(),
            path_mtu: Mtu::Mtu256,
            dest_qpn: id.peer().qpn(),
            rq_psn: id.peer().first_psn(),
            sq_psn: id.first_psn(),
            max_rd_atomic: RD_ATOMIC_MAX,
            max_dest_rd_atomic: RD_ATOMIC_MAX,
            min_rnr_timer: 1,
            timeout: 14,
            retry_cnt: scenario.retry_cnt,
            rnr_retry: 7,
            ..QpAttr::default()
        };
        use QpState::{Init, Reset, Rtr, Rts};
        for (from, to) in [(Reset, Init), (Init, Rtr), (Rtr, Rts)] {
            let change = QpModify::step(QpType::Rc, from, to, attr);
            qp.modify(&change, &mut host).expect("the usual way");
        }
        Self {
            qp,
            host,
            posted: 0,
            receives: VecDeque::new(),
            is_ready: false,
        }
    }

    fn packet(&self, made: &Outgoing) -> Packet {
        let gather = |at, len| self.host.gather(at, len).to_vec();
        Packet {
            headers: made.headers,
            payload: match &made.payload {
                Payload::Empty => Vec::new(),
                Payload::Memory(at) => gather(*at, made.payload_len.into()),
                Payload::Pieces(pieces) => {
                    let pieces = pieces.iter().map(|(at, len)| gather(*at, *len));
                    pieces.collect::<Vec<_>>().concat()
                }
                Payload::Carried(bytes) => bytes.to_vec(),
            },
        }
    }
}

impl Message {
    pub(super) fn is_send(&self) -> bool {
        matches!(self.kind, Kind::Send(_))
    }

    /// A message of `id`, with memory of its own at both ends, except for the common target of WRITEs.
    fn new(kind: Kind, wr_id: u64, ends: &mut [End; 2], id: Id, target: &mut Option<Mr>) -> Self {
        let len = kind.bytes();
        let here = ends[id as usize]
            .host
            .register(len, AccessFlags::LOCAL_WRITE);
        let peer = &mut ends[id.peer() as usize].host;
        let mut register = || peer.register(len, AccessFlags::all());
        let there = match kind {
            Kind::Write(_) => *target.get_or_insert_with(register),
            _ => register(),
        };
        let (va, rkey) = (there.va, there.key);
        let op = match kind {
            Kind::Send(_) => SendOp::Send { imm: None },
            Kind::Write(_) => SendOp::Write {
                va,
                rkey,
                imm: None,
            },
            Kind::Read(_) => SendOp::Read { va, rkey },
            Kind::Add => SendOp::FetchAdd {
                va,
                rkey,
                add: ADDEND,
            },
        };
        Self {
            kind,
            wr: SendWr::new(wr_id, op, here.part(0, len)),
            here,
            there,
            before: peer.bytes(there.part(0, len)).to_vec(),
        }
    }
}
