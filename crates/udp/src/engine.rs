use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use ferroce_hca::{Counter, Data, Event, Hca, Outgoing, Received, Time};
use ferroce_wire::{IcrcVerifier, IdPolicy, Packet, Verdict};

use crate::fault::Faults;
use crate::flow::{Flow, Flows};
use crate::foreign::ForeignPorts;
use crate::groups::Groups;
use crate::neighbours::{Forwarded, Mail, Neighbours};
use crate::overflow::Overflow;
use crate::resource::rows;
use crate::socket::{RecvBuffers, SendError, Socket};
use crate::stage::{Refused, Stage, WouldBlock};
use crate::sys::Epoll;
use crate::tap::{Seen, Tap};
use crate::wait::Clock;

/// Bytes handed to the socket in one go, after which others get their turn at the device. More than
/// the windows of all queue pairs, so only the answers to a greedy peer's READs come to it.
const TRANSMIT_BYTES_MAX: usize = 4 << 20;

/// Receive calls for groups in one go, after which the device's own socket gets its turn.
const GROUP_CALLS_MAX: usize = 16;

/// How long a process that joins waits until the kernel knows its socket. It takes some hundred
/// microseconds, but on busy machines.
const SETTLE_NS: u64 = 50_000_000;

/// Receive calls before a timer runs out: more than a receive buffer of 4 MiB holds packets.
const RECEIVE_CALLS_MAX: usize = 1 << 13;

/// How far [`Engine::transmit`] came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transmitted {
    /// Everything is on its way.
    All,
    /// There is more, and the socket would take it.
    More,
    /// The socket takes no more: nothing is lost, and the queue pairs keep their work until it
    /// does.
    Blocked,
}

/// Moves packets between a socket and a device.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) hca: Hca,
    /// When a polling program last took what had arrived, in the clock's nanoseconds.
    pub(crate) polled_ns: u64,
    buffers: RecvBuffers,
    flows: Flows,
    foreign_ports: ForeignPorts,
    verifier: IcrcVerifier,
    stage: Stage,
    /// The packet about to be staged.
    packet: Outgoing,
    /// Whether it is still there: it did not fit the batch before it.
    holds_packet: bool,
    tap: Option<Tap>,
    faults: Faults,
    /// What the kernel has dropped for want of room.
    overflow: Overflow,
    /// The other processes of the device, if there may be any.
    neighbours: Option<Neighbours>,
    groups: Groups,
}

impl Engine {
    pub(crate) fn new(
        hca: Hca,
        own: SocketAddr,
        tap: Option<Tap>,
        neighbours: Option<Neighbours>,
        watch: Arc<Epoll>,
    ) -> Self {
        if let Some(tap) = &tap {
            tap.add_device(own.ip());
        }
        Self {
            hca,
            polled_ns: 0,
            buffers: RecvBuffers::new(1),
            flows: Flows::new(own),
            foreign_ports: ForeignPorts::new(own),
            verifier: IcrcVerifier::new(IdPolicy::AnyId),
            stage: Stage::new(own),
            packet: Outgoing::empty(),
            holds_packet: false,
            tap,
            faults: Faults::default(),
            overflow: Overflow::default(),
            neighbours,
            groups: Groups::new(own, watch),
        }
    }

    /// The process shares the device's port from now on. Waits a little until packets for it come
    /// straight to it, so that whatever it begins with depends on no other process.
    pub(crate) fn joined(&mut self, socket: &Socket) {
        let Some(neighbours) = &mut self.neighbours else {
            return;
        };
        let started = Clock.now_ns();
        neighbours.steering.joined(started);
        while self.is_unsettled() && Clock.now_ns() - started < SETTLE_NS {
            // What it does not find now it will not find later.
            let now = Self::now();
            let _ = self.receive(socket);
            self.run_timers(now, socket);
            thread::yield_now();
        }
    }

    fn is_unsettled(&self) -> bool {
        let neighbours = self.neighbours.as_ref();
        neighbours.is_some_and(|it| !it.steering.is_settled())
    }

    /// Requests for a service are expected that were not before.
    pub(crate) fn listens(&mut self) {
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.steering.listens(Clock.now_ns());
        }
    }

    /// It should, and cannot.
    pub(crate) fn not_joined(&mut self) {
        self.faults.fatal();
    }

    pub(crate) fn now() -> Time {
        Clock.now()
    }

    /// Takes what has arrived for multicast groups; returns the number of packets.
    #[inline]
    pub(crate) fn receive_groups(&mut self) -> usize {
        if self.groups.is_empty() {
            return 0;
        }
        let mut packets = 0;
        for _ in 0..GROUP_CALLS_MAX {
            let Some(socket) = self.groups.next_ready() else {
                break;
            };
            packets += self.receive(&socket).unwrap_or(0);
        }
        packets
    }

    /// Takes what one receive call brings on the device's own socket or on that of a group; returns
    /// the number of packets. An error means that the socket is gone for good.
    pub(crate) fn receive(&mut self, socket: &Socket) -> io::Result<usize> {
        let received = socket.recv(&mut self.buffers);
        let messages = received.inspect_err(|_| self.faults.fatal())?;
        if messages == 0 {
            self.flush_mail();
            return Ok(0);
        }
        let now = Self::now();
        let own = socket.address();
        let is_group = own.ip().is_multicast();
        if !is_group {
            self.overflow.note_arrival(now);
        }
        let mut packets = 0;
        for message in self.buffers.messages() {
            let flow = if is_group {
                Flow::between(own, message.source)
            } else {
                self.flows.get(message.source)
            };
            let Some(flow) = flow else {
                continue;
            };
            let is_foreign = self
                .foreign_ports
                .includes(message.source, Clock.nanos_at(now));
            for datagram in message.datagrams() {
                packets += 1;
                let record = |verdict| {
                    if let Some(tap) = &self.tap {
                        let (source, dest) = (message.source, own);
                        let index = datagram.index;
                        let seen = Seen::arrived(source, dest, message.tos, verdict, index);
                        tap.received(&seen, datagram.bytes);
                    }
                };
                let packet = Packet::new_checked(datagram.bytes);
                if is_foreign {
                    record(packet.map_or(Verdict::Bad, |packet| {
                        flow.from_peer.verify(datagram.index, packet.bytes())
                    }));
                    self.hca.count(Counter::RxForeignSource, 1);
                    continue;
                }
                let Ok(packet) = packet else {
                    let end = |address: SocketAddr| (address.ip(), address.port());
                    let from_own_port = end(message.source) == end(own);
                    let is_probe = self
                        .neighbours
                        .as_ref()
                        .is_some_and(|it| it.steering.take(datagram.bytes, from_own_port));
                    if !is_probe {
                        record(Verdict::Bad);
                        self.hca.count(Counter::RxMalformed, 1);
                    }
                    continue;
                };
                let verdict = self
                    .verifier
                    .verify(&flow.from_peer, datagram.index, packet.bytes());
                if !verdict.is_ok() {
                    record(verdict);
                    self.hca.count(Counter::RxIcrcEncapsulated, 1);
                    continue;
                }
                if !is_group
                    && let Some(neighbours) = &mut self.neighbours
                    && let Some(slot) = neighbours.owner(&self.hca, message.source.ip(), &packet)
                {
                    let packet = Forwarded {
                        source: message.source,
                        traffic_class: message.tos,
                        bytes: datagram.bytes,
                    };
                    let kept = neighbours.forward(slot, &packet, Clock.nanos_at(now));
                    neighbours.steering.missed(slot, Clock.nanos_at(now));
                    let counter = match kept {
                        true => Counter::RxForwarded,
                        false => Counter::RxForwardDropped,
                    };
                    self.hca.count(counter, 1);
                    continue;
                }
                record(verdict);
                let received = Received {
                    source: message.source.ip(),
                    dest: own.ip(),
                    traffic_class: message.tos,
                    headers: packet.headers(),
                    data: Data::Bytes(packet.payload()),
                };
                self.hca.handle_packet(now, &received);
            }
        }
        self.flush_mail();
        Ok(packets)
    }

    /// Hands on packets of other processes that are still here.
    pub(crate) fn flush_mail(&mut self) {
        if let Some(neighbours) = &mut self.neighbours
            && neighbours.is_blocked()
        {
            let lost = neighbours.flush(Clock.now_ns());
            self.hca.count(Counter::RxUnknownQp, lost.nobody);
            self.hca.count(Counter::RxForwardDropped, lost.too_late);
        }
    }

    /// Takes packets that other processes have received, and answers questions; returns the number
    /// of packets.
    pub(crate) fn receive_mail(&mut self, socket: &Socket) -> usize {
        let Some(neighbours) = &mut self.neighbours else {
            return 0;
        };
        let now = Self::now();
        let own = socket.address();
        let (hca, flows, tap) = (&mut self.hca, &mut self.flows, &self.tap);
        neighbours.take(|mail| {
            let forwarded = match mail {
                Mail::Packet(packet) => packet,
                Mail::Question(question) => {
                    let rows = rows(hca, own.ip(), now, question.query());
                    question.answer(&rows);
                    return;
                }
            };
            let Ok(packet) = Packet::new_checked(forwarded.bytes) else {
                return;
            };
            let (source, tos, bytes) = (forwarded.source, forwarded.traffic_class, forwarded.bytes);
            if let Some(tap) = tap
                && let Some(flow) = flows.get(source)
            {
                let verdict = flow.from_peer.verify(0, bytes);
                tap.received(&Seen::arrived(source, own, tos, verdict, 0), bytes);
            }
            let received = Received {
                source: source.ip(),
                dest: own.ip(),
                traffic_class: tos,
                headers: packet.headers(),
                data: Data::Bytes(packet.payload()),
            };
            hca.handle_packet(now, &received);
        })
    }

    /// Whether other processes have said that they have packets for this one.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.neighbours.as_ref().is_some_and(Neighbours::has_mail)
    }

    /// Whether packets of other processes are still here.
    #[inline]
    pub(crate) fn holds_mail(&self) -> bool {
        self.neighbours.as_ref().is_some_and(Neighbours::is_blocked)
    }

    /// When [`Self::run_timers`] wants to be called.
    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let device = [self.hca.poll_timeout(), self.overflow.look_at()];
        let device = device.into_iter().flatten();
        let Some(neighbours) = &self.neighbours else {
            return device.min();
        };
        let mail = neighbours.deadline_ns();
        let steering = neighbours.steering.deadline_ns();
        let both = [mail, steering].into_iter().flatten();
        both.map(|ns| Clock.time_at(ns)).chain(device).min()
    }

    /// Lets timers run out that were due at this time, and tells whether there were any. They may
    /// include packets that the impaired link held back, which [`Self::transmit`] then sends.
    ///
    /// What has arrived is taken first, all of it: an answer among it stops its timer, however late
    /// its thread got a core. So the time is one from before the last look at the socket: a thread
    /// may lose its core between the two, and what arrives meanwhile has arrived before the
    /// deadlines that pass meanwhile.
    pub(crate) fn run_timers(&mut self, at: Time, socket: &Socket) -> bool {
        if !self.is_due(at) {
            return false;
        }
        if self.hca.timers_are_due(at) {
            self.receive_all(socket);
        }
        self.expire(at, socket);
        true
    }

    /// Takes everything that has arrived on the device's own socket and in its mailbox; returns the
    /// number of packets.
    pub(crate) fn receive_all(&mut self, socket: &Socket) -> usize {
        let mut packets = 0;
        for _ in 0..RECEIVE_CALLS_MAX {
            match self.receive(socket) {
                Ok(0) | Err(_) => break,
                Ok(more) => packets += more,
            }
        }
        if self.has_mail() {
            packets += self.receive_mail(socket);
        }
        packets
    }

    /// Whether a timer was due at this time.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.poll_timeout().is_some_and(|deadline| deadline <= now)
    }

    /// Lets timers run out that were due at this time.
    pub(crate) fn expire(&mut self, now: Time, socket: &Socket) {
        if let Some(neighbours) = &mut self.neighbours {
            let steering = &mut neighbours.steering;
            if steering
                .deadline_ns()
                .is_some_and(|at| at <= Clock.nanos_at(now))
            {
                steering.run(Clock.nanos_at(now), socket);
            }
            self.flush_mail();
        }
        let dropped = self.overflow.look(now, socket);
        if dropped > 0 {
            self.hca.count(Counter::RxSocketOverflow, dropped.into());
            self.faults.overflowed();
        }
        self.hca.handle_timeout(now);
    }

    /// Sends what the device has to send.
    pub(crate) fn transmit(&mut self, socket: &Socket) -> Transmitted {
        let now = Self::now();
        if self.hca.take_lacks_lease()
            && let Some(neighbours) = &mut self.neighbours
        {
            neighbours.sweep_leases(Clock.nanos_at(now));
        }
        if socket.has_left() {
            // The program ends, and nobody waits for it.
            self.stage.clear();
            self.holds_packet = false;
            while self.hca.poll_transmit_into(now, &mut self.packet) {}
            return Transmitted::All;
        }
        let mut bytes = 0;
        loop {
            if !self.holds_packet && !self.hca.poll_transmit_into(now, &mut self.packet) {
                return match self.flush(socket) {
                    Ok(()) => Transmitted::All,
                    Err(WouldBlock) => Transmitted::Blocked,
                };
            }
            let (packet, flows) = (&self.packet, &mut self.flows);
            let staged = self.stage.push(&self.hca, packet, flows, socket);
            self.holds_packet = matches!(staged, Err(Refused::NotNow));
            match staged {
                Ok(()) => {}
                Err(Refused::Never) => self.hca.count(Counter::TxDropped, 1),
                Err(Refused::Family) => {
                    self.hca.count(Counter::TxDropped, 1);
                    let dest = packet.path.dest;
                    let error = SendError::Unsendable {
                        dest: SocketAddr::new(dest, socket.address().port()),
                        bytes: packet.transmit.payload_len as usize,
                        datagrams: 1,
                    };
                    self.faults.refused(dest, &error);
                }
                Err(Refused::NotNow) => {
                    bytes += self.stage.len();
                    let blocked = self.flush(socket).is_err();
                    if blocked || bytes >= TRANSMIT_BYTES_MAX {
                        // It waits for the next call: the program may change its memory until then.
                        self.hca.detach(&mut self.packet);
                        return match blocked {
                            true => Transmitted::Blocked,
                            false => Transmitted::More,
                        };
                    }
                }
            }
        }
    }

    /// The next thing that somebody should know. Joins and leaves groups as the device wants.
    #[inline]
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        loop {
            match self.hca.poll_event() {
                Some(Event::JoinGroup(group)) => {
                    if let Err(error) = self.groups.join(group) {
                        self.faults.not_joined(group, &error);
                    }
                }
                Some(Event::LeaveGroup(group)) => self.groups.leave(group),
                Some(event) => return Some(event),
                None => return self.faults.poll(),
            }
        }
    }

    /// Whether something waits for the socket to become writable.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.stage.is_empty()
    }

    fn flush(&mut self, socket: &Socket) -> Result<(), WouldBlock> {
        let tap = self.tap.as_ref();
        self.stage
            .flush(socket, &mut self.hca, tap, &mut self.faults)
    }
}
