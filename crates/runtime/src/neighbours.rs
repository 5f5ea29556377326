//! The other processes on the device. Packets for one of them may arrive here, because all share
//! one UDP port; they are forwarded in batches.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_admission::Leases;
use ferroce_device::{Hca, Span, Time, cm::Owner};
use ferroce_registry::{ATTENTION, Mailbox, Question, SharedFile, Undelivered};
use ferroce_rings::Offer;
use ferroce_wire::{Packet, Qpn};

use crate::kept::KeptPlaces;
use crate::steering::Steering;

/// Bytes of a frame.
const FRAME_BYTES: usize = 1 << 16;
/// Frames that wait for one receiver, about as much as a socket's buffer. More packets are lost, as
/// they are from a socket.
const FRAMES_MAX: usize = 64;
/// How long one waits. A receiver that takes none for longer is stopped, and the sender of a packet
/// has given it up.
const AGE_MAX: Span = Span::from_secs(1);
/// How soon a frame is offered again to a receiver that had no room for it; after that, twice as
/// late each time.
const PAUSE_MIN: Span = Span::from_micros(100);
/// And so late at most: each offer costs a system call, and perhaps a wake-up.
const PAUSE_MAX: Span = Span::from_millis(20);
/// Frames taken in one go.
const TAKE_MAX: usize = 16;
/// How long after one look for leases of the dead there is no other.
const SWEEP_PAUSE: Span = Span::from_millis(100);
/// Bytes before each packet: the source as IPv6 address, its port, the traffic class, the length.
const HEAD: usize = 16 + 2 + 1 + 2;

/// A process's dealings with the others.
#[derive(Debug)]
pub(crate) struct Neighbours {
    shared: Arc<SharedFile>,
    services: Arc<SharedFile>,
    slot: u8,
    mailbox: Arc<Mailbox>,
    /// The frames that wait, by receiver.
    outboxes: BTreeMap<u8, Outbox>,
    /// How many frames had been announced when all of them were taken.
    seen: u32,
    buffer: Box<[u8]>,
    pub(crate) steering: Steering,
    /// Sockets that others have given to this process, whose places it is to keep, with their indexes.
    given: Vec<(OwnedFd, Option<u8>)>,
    /// There was nothing to lease: perhaps the dead have it.
    lacks_lease: Arc<AtomicBool>,
    /// When leases of the dead may be looked for again.
    sweep_at: Time,
}

/// Frames for one receiver.
#[derive(Debug, Default)]
struct Outbox {
    /// Each with the time of its first packet.
    frames: VecDeque<(Time, Vec<u8>)>,
    /// When they are offered next, and how much later after that.
    offer_at: Time,
    pause: Span,
}

/// Packets that will not reach their receivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Lost {
    /// Their receivers are no more.
    pub(crate) nobody: u64,
    /// Their receivers did not take them in time.
    pub(crate) too_late: u64,
}

/// A packet that another process has received, and checked.
pub(crate) struct Forwarded<'a> {
    pub(crate) source: SocketAddr,
    pub(crate) traffic_class: u8,
    pub(crate) bytes: &'a [u8],
}

/// What others put into a process's mailbox.
pub(crate) enum Mail<'a> {
    Packet(Forwarded<'a>),
    Question(Question),
    /// A ring that this process may read.
    Ring(Offer),
    /// A process has changed the device's settings.
    Attention,
}

impl Neighbours {
    /// `services` is where the processes of the device claim services: the file of its first port.
    pub(crate) fn new(
        shared: Arc<SharedFile>,
        services: Arc<SharedFile>,
        slot: u8,
        mailbox: Mailbox,
    ) -> Self {
        Self {
            seen: shared.announced(slot),
            steering: Steering::new(Arc::clone(&shared), slot),
            shared,
            services,
            slot,
            mailbox: Arc::new(mailbox),
            outboxes: BTreeMap::new(),
            buffer: vec![0; FRAME_BYTES].into_boxed_slice(),
            given: Vec::new(),
            lacks_lease: Arc::default(),
            sweep_at: Time::ZERO,
        }
    }

    /// The slot of this process.
    pub(crate) fn slot(&self) -> u8 {
        self.slot
    }

    /// Gives up the places that this process keeps for others, if they are not needed any more.
    #[cold]
    pub(crate) fn look_at_places(&self, kept: &mut KeptPlaces, now: Time) {
        kept.look(now, &self.shared, self.slot);
    }

    /// Where packets from others arrive.
    pub(crate) fn mailbox(&self) -> Arc<Mailbox> {
        Arc::clone(&self.mailbox)
    }

    /// This process's part of what all processes of the device lease.
    pub(crate) fn leases(&self) -> Leases {
        Leases {
            table: self.shared.leases(),
            slot: self.slot,
            lacking: Arc::clone(&self.lacks_lease),
        }
    }

    /// When [`Self::sweep_leases`] is to be called.
    #[inline]
    pub(crate) fn sweep_at(&self) -> Option<Time> {
        let lacks_lease = self.lacks_lease.load(Ordering::Relaxed);
        lacks_lease.then_some(self.sweep_at)
    }

    /// Ends the leases of processes that have died.
    #[cold]
    pub(crate) fn sweep_leases(&mut self, now: Time) {
        self.lacks_lease.store(false, Ordering::Relaxed);
        self.sweep_at = now.after(SWEEP_PAUSE);
        // What it does not get now it may get the next time.
        let _ = self.shared.sweep_leases(self.slot);
    }

    /// Sockets that others have given to this process, with their indexes.
    pub(crate) fn take_given(&mut self) -> Vec<(OwnedFd, Option<u8>)> {
        std::mem::take(&mut self.given)
    }

    /// The slot of the other process that a packet belongs to, if it does.
    #[inline]
    pub(crate) fn owner(&self, hca: &Hca, source: IpAddr, packet: &Packet<'_>) -> Option<u8> {
        let qpn = packet.headers().dest_qp;
        if qpn == Qpn::GSI {
            return self.owner_of_mad(hca, source, packet.payload());
        }
        let slot = (qpn.value() >> 16) as u8;
        (slot != self.slot && slot != 0 && qpn != Qpn::MULTICAST).then_some(slot)
    }

    #[cold]
    fn owner_of_mad(&self, hca: &Hca, source: IpAddr, mad: &[u8]) -> Option<u8> {
        let slot = match hca.cm().owner(source, mad) {
            Owner::Here | Owner::Any => None,
            Owner::Slot(slot) => Some(slot),
            Owner::Service(service) => self.services.service_owner(service),
        }?;
        // For a process that has died any other may answer.
        (slot != self.slot && self.shared.is_alive(slot)).then_some(slot)
    }

    /// Keeps a packet for the owner of a slot until the next [`Self::flush`]. False if there is no
    /// room for it.
    #[cold]
    pub(crate) fn forward(&mut self, slot: u8, packet: &Forwarded<'_>, now: Time) -> bool {
        let need = HEAD + packet.bytes.len();
        let frames = &mut self.outboxes.entry(slot).or_default().frames;
        let fits = |(_, frame): &(Time, Vec<u8>)| frame.len() + need <= FRAME_BYTES;
        if !frames.back().is_some_and(fits) {
            if frames.len() == FRAMES_MAX || need > FRAME_BYTES {
                return false;
            }
            frames.push_back((now, Vec::with_capacity(need)));
        }
        if let Some((_, frame)) = frames.back_mut() {
            packet.emit(frame);
        }
        true
    }

    /// Hands on what waits, as far as the receivers take it and it is their time. Returns what is
    /// lost.
    pub(crate) fn flush(&mut self, now: Time) -> Lost {
        let mut lost = Lost::default();
        self.outboxes.retain(|slot, outbox| {
            while outbox.offer_at <= now
                && let Some((since, frame)) = outbox.frames.front()
            {
                match self.mailbox.send(*slot, frame) {
                    Ok(()) => {
                        self.shared.announce(*slot);
                        outbox.pause = Span::ZERO;
                    }
                    Err(Undelivered::Full) if now.since(*since) >= AGE_MAX => {
                        lost.too_late += packets(frame);
                    }
                    Err(Undelivered::Full) => {
                        outbox.pause = (outbox.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
                        outbox.offer_at = now.after(outbox.pause);
                        break;
                    }
                    Err(Undelivered::Vacant) => lost.nobody += packets(frame),
                }
                outbox.frames.pop_front();
            }
            !outbox.frames.is_empty()
        });
        lost
    }

    /// When [`Self::flush`] wants to be called.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.outboxes.values().map(|outbox| outbox.offer_at).min()
    }

    /// Whether the user has removed the device.
    pub(crate) fn is_removed(&self) -> bool {
        self.shared.is_removed()
    }

    /// Whether something waits for its receiver.
    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        !self.outboxes.is_empty()
    }

    /// Whether another process says that there is something to take. A process that dies may fail to say
    /// so.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.shared.announced(self.slot) != self.seen
    }

    /// Takes packets that others have received, and questions; returns the number of packets.
    pub(crate) fn take(&mut self, mut each: impl FnMut(Mail<'_>)) -> usize {
        let announced = self.shared.announced(self.slot);
        let mut packets = 0;
        for _ in 0..TAKE_MAX {
            let Some((len, descriptors)) = self.mailbox.receive(&mut self.buffer) else {
                self.seen = announced;
                break;
            };
            let mut rest = &self.buffer[..len];
            match <[OwnedFd; 1]>::try_from(descriptors) {
                Ok([socket]) => {
                    let index = rest.first().filter(|index| **index != u8::MAX);
                    self.given.push((socket, index.copied()));
                    continue;
                }
                Err(descriptors) if !descriptors.is_empty() => {
                    let descriptors = match Offer::parse(rest, descriptors) {
                        Ok(offer) => {
                            each(Mail::Ring(offer));
                            continue;
                        }
                        Err(descriptors) => descriptors,
                    };
                    if let Some(question) = Question::parse(rest, descriptors) {
                        each(Mail::Question(question));
                    }
                    continue;
                }
                Err(_) => {}
            }
            if rest == ATTENTION {
                each(Mail::Attention);
                continue;
            }
            while let Some((packet, later)) = Forwarded::parse(rest) {
                each(Mail::Packet(packet));
                packets += 1;
                rest = later;
            }
        }
        packets
    }
}

impl<'a> Forwarded<'a> {
    fn emit(&self, frame: &mut Vec<u8>) {
        let source = match self.source.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        frame.extend_from_slice(&source.octets());
        frame.extend_from_slice(&self.source.port().to_ne_bytes());
        frame.push(self.traffic_class);
        // A datagram is shorter than 64 KiB.
        frame.extend_from_slice(&(self.bytes.len() as u16).to_ne_bytes());
        frame.extend_from_slice(self.bytes);
    }

    /// The first packet of a frame, and what follows.
    fn parse(frame: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (head, rest) = frame.split_first_chunk::<HEAD>()?;
        let [source @ .., port_a, port_b, traffic_class, len_a, len_b] = head;
        let source = Ipv6Addr::from(*source).to_canonical();
        let port = u16::from_ne_bytes([*port_a, *port_b]);
        let len = u16::from_ne_bytes([*len_a, *len_b]);
        let (bytes, later) = rest.split_at_checked(len.into())?;
        let packet = Self {
            source: SocketAddr::new(source, port),
            traffic_class: *traffic_class,
            bytes,
        };
        Some((packet, later))
    }
}

fn packets(mut frame: &[u8]) -> u64 {
    let mut count = 0;
    while let Some((_, rest)) = Forwarded::parse(frame) {
        (count, frame) = (count + 1, rest);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_holds_packets_one_after_the_other() {
        let mut frame = Vec::new();
        let sources = ["127.0.0.1:4791", "[fd00::1]:49152"];
        let sources: [SocketAddr; 2] = sources.map(|source| source.parse().unwrap());
        for (traffic_class, source) in (1..).zip(sources) {
            let bytes = &[traffic_class; 100][..usize::from(traffic_class) * 9];
            let packet = Forwarded {
                source,
                traffic_class,
                bytes,
            };
            packet.emit(&mut frame);
        }
        let (first, rest) = Forwarded::parse(&frame).unwrap();
        assert_eq!((first.source, first.traffic_class), (sources[0], 1));
        assert_eq!(first.bytes, [1; 9]);
        let (second, end) = Forwarded::parse(rest).unwrap();
        assert_eq!((second.source, second.traffic_class), (sources[1], 2));
        assert_eq!((second.bytes, end.len()), (&[2; 18][..], 0));
        // Cut anywhere it is not a packet.
        assert!((0..rest.len()).all(|len| Forwarded::parse(&rest[..len]).is_none()));
    }
}
