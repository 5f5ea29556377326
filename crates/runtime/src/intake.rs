//! Incoming datagrams: their destination, and their validation.

use std::io;
use std::net::{IpAddr, SocketAddr};

use ferroce_device::{Counter, Data, Hca, Received, Time};
use ferroce_driver::Taken;
use ferroce_os::{Clock, Seen, Tap};
use ferroce_registry::{PeerLinks, rows};
use ferroce_rings::{Arrived, Class, Kind as Sealing, Near};
use ferroce_sockets::{Datagram, ForeignPorts, Message, Overflow, RecvBuffers, Socket, Trailers};
use ferroce_wire::{
    Flow, Flows, Hello, ICRC_LEN, IcrcVerifier, IdPolicy, Packet, Verdict, strip_trailer,
};

use crate::neighbours::{Forwarded, Mail, Neighbours};

/// Receives messages, and hands their packets to the device or on to other processes.
#[derive(Debug)]
pub(crate) struct Intake {
    buffers: RecvBuffers,
    backlog: Backlog,
    /// What the kernel has dropped for lack of room.
    pub(crate) overflow: Overflow,
    /// The rings to and from peers on this host, if it has any.
    pub(crate) near: Option<Near>,
    pub(crate) sorter: Sorter,
}

/// What a receive call has brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Brought {
    /// Packets out of the socket.
    pub(crate) far: usize,
    /// Packets that lay in rings meanwhile.
    pub(crate) near: usize,
    /// Something may still be in the socket.
    pub(crate) more: bool,
}

impl From<Brought> for Taken {
    fn from(Brought { far, near, more }: Brought) -> Self {
        let packets = far + near;
        Self { packets, more }
    }
}

/// Where something arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// At the device's own socket in this process.
    Own,
    /// At that of a group, or of a process that has left.
    Beside,
}

/// Knows what is to become of a datagram.
#[derive(Debug)]
pub(crate) struct Sorter {
    /// The number of the port, from 1.
    port: u8,
    /// Of the device's ports; twice the same if there is one.
    addresses: [IpAddr; 2],
    pub(crate) flows: Flows,
    pub(crate) trailers: Trailers,
    foreign_ports: ForeignPorts,
    verifier: IcrcVerifier,
    tap: Option<Tap>,
    /// The other processes of the device, if there may be any.
    pub(crate) neighbours: Option<Neighbours>,
}

/// What the datagrams of a message have in common.
struct Arrival {
    at: Time,
    source: SocketAddr,
    /// The socket's own address, or that of a group.
    dest: SocketAddr,
    place: Place,
    traffic_class: u8,
    flow: Flow,
    /// Another user of this host has sent it.
    is_foreign: bool,
}

/// What a datagram turns out to be.
enum Kind<'a> {
    /// A packet for this process's device.
    Own(Packet<'a>, Verdict),
    /// A packet for another process of the device.
    Others { slot: u8, packet: &'a [u8] },
    /// This process wants to know where the kernel puts it.
    Probe,
    /// A peer asks whether this process takes trailers, or says that it does.
    Hello(Hello),
    /// Nothing to be taken, counted as this.
    Refused(Counter, Verdict),
}

impl Intake {
    pub(crate) fn new(
        own: SocketAddr,
        (port, addresses): (u8, [IpAddr; 2]),
        tap: Option<Tap>,
        neighbours: Option<Neighbours>,
        near: Option<Near>,
    ) -> Self {
        Self {
            buffers: RecvBuffers::new(1),
            backlog: Backlog::default(),
            overflow: Overflow::default(),
            near,
            sorter: Sorter {
                port,
                addresses,
                flows: Flows::new(own),
                trailers: Trailers::new(neighbours.as_ref().map_or(0, Neighbours::slot)),
                foreign_ports: ForeignPorts::new(own),
                verifier: IcrcVerifier::new(IdPolicy::AnyId),
                tap,
                neighbours,
            },
        }
    }

    /// Takes what one receive call brings on a socket, and what has come through rings. An error means
    /// that the socket is permanently gone.
    ///
    /// Who sends by both ways means the order: what was put into a ring before a datagram left is
    /// there when that has arrived, and is taken first.
    pub(crate) fn receive(
        &mut self,
        socket: &Socket,
        place: Place,
        now: impl Fn() -> Time,
        hca: &mut Hca,
    ) -> io::Result<Brought> {
        let room = self.backlog.room();
        self.buffers.make_room(room);
        let messages = socket.recv(&mut self.buffers)?;
        let near = self.take_near(usize::MAX, &now, hca);
        let (mut far, mut bytes) = (0, 0);
        if messages > 0 {
            let (at, dest) = (now(), socket.address());
            if place == Place::Own {
                self.overflow.note_arrival(at);
            }
            for message in self.buffers.messages() {
                bytes = message.bytes.len();
                far += self.sorter.take(at, dest, place, &message, hca);
            }
        }
        self.backlog.note(room, messages, bytes);
        self.sorter.flush_mail(now, hca);
        Ok(Brought {
            far,
            near,
            more: messages == room,
        })
    }

    /// Takes at most this many packets out of rings; returns their number.
    #[inline]
    pub(crate) fn take_near(&mut self, max: usize, now: impl Fn() -> Time, hca: &mut Hca) -> usize {
        match &mut self.near {
            Some(near) if near.has_some() => {
                let (at, own) = (now(), near.own());
                let sorter = &mut self.sorter;
                near.take(max, hca, |hca, arrived| {
                    sorter.take_near(at, own, arrived, hca);
                })
            }
            _ => 0,
        }
    }
}

/// Whether messages come faster than they are taken one by one. Several with one call cost less then; a
/// message that comes alone is cheapest taken alone, and so is a long one, which is best handled while
/// it is in the processor's cache.
#[derive(Debug, Default)]
struct Backlog {
    /// Calls in a row that have brought a message.
    in_a_row: u32,
}

impl Backlog {
    /// Messages of one call where they come fast.
    const ROOM: usize = 8;
    /// Bytes of a message that is long.
    const LONG: usize = 16 << 10;
    /// A program that asks and answers finds nothing now and then.
    const FAST: u32 = 3;

    fn room(&self) -> usize {
        match self.in_a_row >= Self::FAST {
            true => Self::ROOM,
            false => 1,
        }
    }

    fn note(&mut self, room: usize, messages: usize, last_bytes: usize) {
        let is_fast = messages > 0 && last_bytes < Self::LONG && (room == 1 || messages > 1);
        self.in_a_row = match is_fast {
            true => self.in_a_row.saturating_add(1),
            false => 0,
        };
    }
}

impl Sorter {
    /// Takes the datagrams of a message; returns their number.
    fn take(
        &mut self,
        at: Time,
        dest: SocketAddr,
        place: Place,
        message: &Message<'_>,
        hca: &mut Hca,
    ) -> usize {
        let Some(arrival) = self.arrival(at, dest, place, message) else {
            return 0;
        };
        let mut packets = 0;
        for datagram in message.datagrams() {
            packets += 1;
            match self.sort(&arrival, &datagram, hca) {
                Kind::Own(packet, verdict) => {
                    self.record(&arrival, datagram.index, packet.bytes(), verdict);
                    arrival.deliver(self.port, &packet, hca);
                }
                Kind::Others { slot, packet } => self.hand_on(&arrival, packet, slot, hca),
                Kind::Probe => {}
                Kind::Hello(hello) => self.trailers.take(arrival.source.ip(), hello, at),
                Kind::Refused(counter, verdict) => {
                    self.record(&arrival, datagram.index, datagram.bytes, verdict);
                    hca.count(counter, 1);
                }
            }
        }
        packets
    }

    /// Whether this host has the address.
    pub(crate) fn is_of_this_host(&mut self, address: IpAddr) -> bool {
        self.foreign_ports.is_of_this_host(address, Clock.now())
    }

    /// `None`: from another address family than the socket's.
    fn arrival(
        &mut self,
        at: Time,
        dest: SocketAddr,
        place: Place,
        message: &Message<'_>,
    ) -> Option<Arrival> {
        let source = message.source;
        let flow = match dest.ip().is_multicast() {
            true => Flow::between(dest, source),
            false => self.flows.hear(source),
        };
        Some(Arrival {
            at,
            source,
            dest,
            place,
            traffic_class: message.tos,
            flow: flow?,
            is_foreign: self.foreign_ports.includes(source, at),
        })
    }

    /// Finds out what a datagram is: whether it is to be believed, whether it is a packet, whether
    /// that is intact, and whose it is.
    #[inline]
    fn sort<'a>(&mut self, arrival: &Arrival, datagram: &Datagram<'a>, hca: &Hca) -> Kind<'a> {
        if arrival.is_foreign {
            let verify = |packet: Packet<'_>| {
                let flow = &arrival.flow.from_peer;
                flow.verify(datagram.index, packet.bytes())
            };
            return Kind::Refused(
                Counter::RxForeignSource,
                Packet::new_checked(datagram.bytes).map_or(Verdict::Bad, verify),
            );
        }
        let without_trailer = strip_trailer(datagram.bytes)
            .and_then(|bytes| self.check(arrival, datagram.index, bytes))
            .filter(|(_, verdict)| verdict.is_ok());
        let checked =
            without_trailer.or_else(|| self.check(arrival, datagram.index, datagram.bytes));
        match checked {
            Some((_, verdict)) if !verdict.is_ok() => {
                Kind::Refused(Counter::RxIcrcEncapsulated, verdict)
            }
            Some((packet, verdict)) => match self.owner(arrival, &packet, hca) {
                Some(slot) => Kind::Others {
                    slot,
                    packet: packet.bytes(),
                },
                None => Kind::Own(packet, verdict),
            },
            None => self.sort_other(arrival, datagram),
        }
    }

    /// Reads bytes as a packet, and says whether it is intact; `None` if they are none.
    #[inline]
    fn check<'a>(
        &mut self,
        arrival: &Arrival,
        index: u16,
        bytes: &'a [u8],
    ) -> Option<(Packet<'a>, Verdict)> {
        let packet = Packet::new_checked(bytes).ok()?;
        let flow = &arrival.flow.from_peer;
        let verdict = self.verifier.verify(flow, index, packet.bytes());
        Some((packet, verdict))
    }

    /// Finds out what a datagram is that is not a packet.
    #[cold]
    fn sort_other<'a>(&self, arrival: &Arrival, datagram: &Datagram<'a>) -> Kind<'a> {
        match Hello::read(datagram.bytes) {
            Some(hello) => Kind::Hello(hello),
            None if self.is_probe(arrival, datagram) => Kind::Probe,
            None => Kind::Refused(Counter::RxMalformed, Verdict::Bad),
        }
    }

    fn is_probe(&self, arrival: &Arrival, datagram: &Datagram<'_>) -> bool {
        let end = |address: SocketAddr| (address.ip(), address.port());
        let from_own_port = end(arrival.source) == end(arrival.dest);
        let to_own_socket = arrival.place == Place::Own;
        self.neighbours.as_ref().is_some_and(|it| {
            let steering = &it.steering;
            steering.take(datagram.bytes, from_own_port, to_own_socket)
        })
    }

    /// The slot of the other process that a packet is for. Groups have a socket for each process.
    fn owner(&mut self, arrival: &Arrival, packet: &Packet<'_>, hca: &Hca) -> Option<u8> {
        let neighbours = self.neighbours.as_mut()?;
        match arrival.dest.ip().is_multicast() {
            true => None,
            false => neighbours.owner(hca, arrival.source.ip(), packet),
        }
    }

    /// Keeps a packet for another process until it is handed on.
    #[cold]
    fn hand_on(&mut self, arrival: &Arrival, packet: &[u8], slot: u8, hca: &mut Hca) {
        let Some(neighbours) = &mut self.neighbours else {
            return;
        };
        let packet = Forwarded {
            source: arrival.source,
            traffic_class: arrival.traffic_class,
            bytes: packet,
        };
        let kept = neighbours.forward(slot, &packet, arrival.at);
        neighbours.steering.missed(slot, arrival.at);
        let counter = match kept {
            true => Counter::RxForwarded,
            false => Counter::RxForwardDropped,
        };
        hca.count(counter, 1);
    }

    fn record(&self, arrival: &Arrival, index: u16, bytes: &[u8], verdict: Verdict) {
        if let Some(tap) = &self.tap {
            let Arrival { source, dest, .. } = *arrival;
            let tos = arrival.traffic_class;
            let seen = Seen::arrived(source, dest, tos, None, verdict, index);
            tap.received(&seen, bytes);
        }
    }

    /// Hands on packets of other processes that are still here.
    #[inline]
    pub(crate) fn flush_mail(&mut self, now: impl Fn() -> Time, hca: &mut Hca) {
        if let Some(neighbours) = &mut self.neighbours
            && neighbours.is_blocked()
        {
            let lost = neighbours.flush(now());
            hca.count(Counter::RxUnknownQp, lost.nobody);
            hca.count(Counter::RxForwardDropped, lost.too_late);
        }
    }

    /// Takes a packet out of a ring. Its ICRC has not been computed, unless there was a reason to.
    #[inline]
    fn take_near(&mut self, at: Time, own: SocketAddr, arrived: Arrived<'_>, hca: &mut Hca) {
        let Arrived { source, entry } = arrived;
        let Class {
            traffic_class: tos,
            sl,
        } = entry.class;
        let records = self.tap.as_ref().is_some_and(Tap::takes_received);
        let mut verdict = Verdict::Ok {
            ip_id: 0,
            dont_fragment: true,
        };
        if records || entry.kind == Sealing::Sealed {
            let Some(flow) = self.flows.get(source) else {
                return;
            };
            let flow = &flow.from_peer;
            match entry.kind {
                Sealing::Sealed => verdict = flow.verify(0, entry.bytes),
                Sealing::Bare => {
                    if let Some((transport, icrc)) = entry.bytes.split_last_chunk_mut::<ICRC_LEN>()
                    {
                        *icrc = flow.compute(0, transport).to_le_bytes();
                    }
                }
            }
        }
        let packet = Packet::new_checked(entry.bytes);
        if records && let Some(tap) = &self.tap {
            let verdict = packet.as_ref().map_or(Verdict::Bad, |_| verdict);
            let seen = Seen::arrived(source, own, tos, Some(sl), verdict, 0);
            tap.received(&seen, entry.bytes);
        }
        match packet {
            Ok(_) if !verdict.is_ok() => hca.count(Counter::RxIcrcEncapsulated, 1),
            // What is for no queue pair in particular comes by UDP.
            Ok(packet) if packet.headers().dest_qp.value() >> 16 == 0 => {
                hca.count(Counter::RxMalformed, 1);
            }
            Ok(packet) => {
                let way = Way {
                    source,
                    dest: own,
                    port: self.port,
                    traffic_class: tos,
                    sl,
                };
                way.deliver(at, &packet, hca);
            }
            Err(_) => hca.count(Counter::RxMalformed, 1),
        }
    }

    /// Takes packets that other processes have received, and answers questions; returns the number
    /// of packets.
    pub(crate) fn take_mail(
        &mut self,
        now: impl Fn() -> Time,
        own: SocketAddr,
        near: &mut Option<Near>,
        hca: &mut Hca,
    ) -> usize {
        let Some(neighbours) = &mut self.neighbours else {
            return 0;
        };
        let at = now();
        let (flows, tap, port) = (&mut self.flows, &self.tap, self.port);
        let addresses = self.addresses;
        neighbours.take(|mail| {
            let forwarded = match mail {
                Mail::Packet(packet) => packet,
                Mail::Attention => {
                    hca.handle_settings(at);
                    return;
                }
                Mail::Ring(offer) => {
                    if let Some(near) = near {
                        near.accept(offer);
                    }
                    return;
                }
                Mail::Question(question) => {
                    let links = || near.as_ref().map_or_else(PeerLinks::udp, Near::links);
                    let rows = rows(hca, addresses, at, question.query(), links);
                    question.answer(&rows);
                    return;
                }
            };
            let Ok(packet) = Packet::new_checked(forwarded.bytes) else {
                return;
            };
            let (source, tos) = (forwarded.source, forwarded.traffic_class);
            if let Some(tap) = tap
                && let Some(flow) = flows.get(source)
            {
                let verdict = flow.from_peer.verify(0, forwarded.bytes);
                let seen = Seen::arrived(source, own, tos, None, verdict, 0);
                tap.received(&seen, forwarded.bytes);
            }
            let way = Way {
                source,
                dest: own,
                port,
                traffic_class: tos,
                sl: UNTAGGED,
            };
            way.deliver(at, &packet, hca);
        })
    }
}

impl Arrival {
    #[inline]
    fn deliver(&self, port: u8, packet: &Packet<'_>, hca: &mut Hca) {
        let way = Way {
            source: self.source,
            dest: self.dest,
            port,
            traffic_class: self.traffic_class,
            sl: UNTAGGED,
        };
        way.deliver(self.at, packet, hca);
    }
}

/// The service level of a packet without a VLAN tag: the kernel tells nothing of one.
const UNTAGGED: u8 = 0;

/// How a packet has come.
struct Way {
    source: SocketAddr,
    dest: SocketAddr,
    port: u8,
    traffic_class: u8,
    sl: u8,
}

impl Way {
    #[inline]
    fn deliver(&self, at: Time, packet: &Packet<'_>, hca: &mut Hca) {
        let received = Received {
            source: self.source.ip(),
            dest: self.dest.ip(),
            traffic_class: self.traffic_class,
            sl: self.sl,
            port: self.port,
            headers: packet.headers(),
            data: Data::Bytes(packet.payload()),
        };
        hca.handle_packet(at, &received);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_messages_are_taken_at_once_only_if_they_come_fast() {
        let mut backlog = Backlog::default();
        for _ in 0..Backlog::FAST {
            assert_eq!(backlog.room(), 1);
            backlog.note(1, 1, 64);
        }
        assert_eq!(backlog.room(), Backlog::ROOM);
        backlog.note(Backlog::ROOM, 2, 64);
        assert_eq!(backlog.room(), Backlog::ROOM);
        // One could have come alone.
        backlog.note(Backlog::ROOM, 1, 64);
        assert_eq!(backlog.room(), 1);
    }

    #[test]
    fn long_messages_and_those_of_a_dialogue_are_taken_alone() {
        let mut backlog = Backlog::default();
        for _ in 0..10 {
            backlog.note(1, 1, Backlog::LONG);
            assert_eq!(backlog.room(), 1);
            backlog.note(1, 1, 64);
            backlog.note(1, 0, 0);
            assert_eq!(backlog.room(), 1);
        }
    }
}
