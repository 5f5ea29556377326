//! The rings that a process writes, and which peers have one.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use ferroce_device::{Counter, Hca, Outgoing, Shape, Span, Time, damage};
use ferroce_driver::Full;
use ferroce_os::{Clock, Epoll, Seen, Tap};
use ferroce_registry::{
    LinkSetting, Peer, PeerFile, PeerLink, PeerLinks, Reader, SLOT_MAX, file_name,
};
use ferroce_wire::{Flows, ICRC_LEN};

use super::line::Line;
use super::{Offer, RINGS_MAX};
use crate::ring::{Class, Kind, Memory, PACKET_BYTES_MAX, Producer, Refused};

/// Bytes that are written before they are flushed: as much as one system call sends.
const BATCH_BYTES: usize = 64 << 10;
/// After this many packets, the reader may see what of a batch is written: half of the READs that a requester usually
/// has outstanding, so that each end works on one half at a time. More often, streams of WRITEs would be slower.
const SHOWN_EARLY: usize = 8;
/// How long a packet waits for room while its reader takes nothing. After that it is stopped, and
/// packets for it are lost; `rx_ring_overflow` counts them.
const STALL: Span = Span::from_millis(2);
/// How soon a packet that waits for room is offered again if the program does not poll.
const RETRY: Span = Span::from_micros(50);
/// How long memory is kept after some was given back: programs come to rest often.
const REST: Span = Span::from_millis(100);
/// Peers whose way is remembered. Those without a ring go when it is more.
const WAYS_MAX: usize = 1024;
/// Packets to an address of no device of this directory, until that is looked at again.
const LOOK_AGAIN: u32 = 4096;

/// A peer process: its device's address and its slot there.
type Key = (IpAddr, u8);

/// Where a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    Ring(usize),
    Udp,
    /// It would use UDP, which the user does not want.
    Nowhere,
}

/// How packets get to a peer.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// By the ring at this place.
    Ring(usize),
    /// By UDP as long as the slot has this owner: packets that change their way overtake others.
    Udp(Peer),
    /// By UDP for the next packets, of this number: it is not a device of this directory.
    Foreign(u32),
}

/// The rings to all peers of this process.
#[derive(Debug)]
pub(super) struct Outlets {
    reader: Reader,
    own: SocketAddr,
    setting: LinkSetting,
    ways: HashMap<Key, Way>,
    /// The one that was asked for last.
    last: Option<(Key, Way)>,
    /// By place.
    rings: Vec<Option<Outlet>>,
    /// Places of those with something to show.
    unshown: Vec<usize>,
    bytes: usize,
    /// When a packet that has found no room is offered again.
    retry_at: Option<Time>,
    /// Until then no memory is given back.
    rest_at: Time,
    lines: Arc<Epoll>,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Outlet {
    key: Key,
    peer: Peer,
    producer: Producer,
    line: Line,
    /// Packets since it was shown last.
    unshown: usize,
    /// How far the reader was when there was no room, and since when.
    stuck: Option<(u64, Time)>,
}

impl Outlets {
    pub(super) fn new(
        reader: Reader,
        own: SocketAddr,
        setting: LinkSetting,
        lines: Arc<Epoll>,
    ) -> Self {
        Self {
            reader,
            own,
            setting,
            ways: HashMap::new(),
            last: None,
            rings: Vec::new(),
            unshown: Vec::new(),
            bytes: 0,
            retry_at: None,
            rest_at: Time::ZERO,
            lines,
            scratch: Vec::new(),
        }
    }

    /// Where packets to a peer go. The first one decides, as long as the peer lives.
    #[inline]
    pub(super) fn route(&mut self, key: Key) -> Route {
        let way = match self.last {
            Some((last, way)) if last == key && self.is_good(way) => way,
            _ => self.find(key),
        };
        match way {
            Way::Ring(index) => Route::Ring(index),
            Way::Udp(_) | Way::Foreign(_) if self.setting == LinkSetting::Shm => Route::Nowhere,
            Way::Udp(_) => Route::Udp,
            Way::Foreign(left) => {
                self.last = Some((key, Way::Foreign(left.saturating_sub(1))));
                Route::Udp
            }
        }
    }

    /// What carries the packets to the peers that some have been sent to.
    pub(super) fn links(&self) -> PeerLinks {
        let by_udp = match self.setting {
            LinkSetting::Shm => PeerLink::None,
            LinkSetting::Auto | LinkSetting::Udp => PeerLink::Udp,
        };
        let link = |way: &Way| match way {
            Way::Foreign(_) => Some(by_udp),
            // Of a peer that has ended.
            way if !self.is_good(*way) => None,
            Way::Ring(_) => Some(PeerLink::Shm),
            Way::Udp(_) => Some(by_udp),
        };
        let known = self.ways.iter();
        PeerLinks {
            known: known
                .filter_map(|(key, way)| Some((*key, link(way)?)))
                .collect(),
            others: None,
        }
    }

    #[inline]
    fn is_good(&self, way: Way) -> bool {
        match way {
            Way::Ring(index) => self.ring(index).is_some_and(|ring| ring.peer.is_owner()),
            Way::Udp(peer) => peer.is_owner(),
            Way::Foreign(left) => left > 0,
        }
    }

    #[inline]
    fn ring(&self, index: usize) -> Option<&Outlet> {
        self.rings.get(index)?.as_ref()
    }

    #[cold]
    fn find(&mut self, key: Key) -> Way {
        if let Some((last, way)) = self.last {
            self.ways.insert(last, way);
        }
        let known = self.ways.get(&key).copied();
        let way = match known.filter(|way| self.is_good(*way)) {
            Some(way) => way,
            None => {
                if let Some(Way::Ring(index)) = known {
                    self.close(index);
                }
                self.decide(key)
            }
        };
        if self.ways.len() >= WAYS_MAX {
            self.ways.retain(|_, way| matches!(way, Way::Ring(_)));
        }
        self.ways.insert(key, way);
        self.last = Some((key, way));
        way
    }

    /// What is to be the way to a peer.
    fn decide(&mut self, key: Key) -> Way {
        let (address, slot) = key;
        let directory = self.reader.directory();
        let Some(directory) = directory.filter(|_| (1..=SLOT_MAX).contains(&slot)) else {
            return Way::Foreign(LOOK_AGAIN);
        };
        let path = directory.join(file_name(address, self.own.port()));
        let Ok(file) = PeerFile::open(&path) else {
            return Way::Foreign(LOOK_AGAIN);
        };
        let (peer, takes_rings) = file.peer(slot);
        if !takes_rings {
            return Way::Udp(peer);
        }
        // What fails now, for lack of descriptors perhaps, might work later, but packets would then
        // overtake others.
        self.open(key, peer, &file)
            .map_or(Way::Udp(peer), Way::Ring)
    }

    /// Makes a ring and puts it into the peer's mailbox.
    fn open(&mut self, key: Key, peer: Peer, file: &PeerFile) -> io::Result<usize> {
        let free = self.rings.iter().position(Option::is_none);
        let index = free.unwrap_or(self.rings.len());
        if index == RINGS_MAX {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let (memory, shared) = Memory::make()?;
        let (line, other) = Line::pair()?;
        let frame = Offer::frame(self.own);
        file.send(key.1, &frame, [shared.as_fd(), other.as_fd()])?;
        self.lines.add(&line)?;
        let outlet = Outlet {
            key,
            peer,
            producer: Producer::new(memory),
            line,
            unshown: 0,
            stuck: None,
        };
        match self.rings.get_mut(index) {
            Some(place) => *place = Some(outlet),
            None => self.rings.push(Some(outlet)),
        }
        Ok(index)
    }

    /// Looks at the line with this descriptor; false if it is none of these.
    pub(super) fn look(&mut self, fd: i32) -> bool {
        let is_it = |outlet: &Outlet| outlet.line.as_fd().as_raw_fd() == fd;
        let is_it = |place: &Option<Outlet>| place.as_ref().is_some_and(is_it);
        let Some(index) = self.rings.iter().position(is_it) else {
            return false;
        };
        if self.ring(index).is_some_and(|ring| !ring.line.is_open()) {
            self.close(index);
        }
        true
    }

    /// The peer has ended, or does not want the ring.
    #[cold]
    fn close(&mut self, index: usize) {
        let Some(outlet) = self.rings.get_mut(index).and_then(Option::take) else {
            return;
        };
        self.lines.remove(&outlet.line);
        self.unshown.retain(|unshown| *unshown != index);
        self.ways.insert(outlet.key, Way::Udp(outlet.peer));
        self.last = None;
    }

    /// Writes a packet to a ring.
    #[inline]
    pub(super) fn push(
        &mut self,
        index: usize,
        hca: &mut Hca,
        packet: &Outgoing,
        flows: &mut Flows,
        tap: Option<&Tap>,
    ) -> Result<(), Full> {
        let Some(outlet) = self.rings.get_mut(index).and_then(Option::as_mut) else {
            return Ok(());
        };
        let shape = Shape::of(packet);
        if self.bytes + shape.len > BATCH_BYTES {
            return Err(Full);
        }
        self.retry_at = None;
        let class = Class {
            traffic_class: packet.path.traffic_class,
            sl: packet.path.sl,
        };
        let outcome = match tap.is_some() || packet.corrupt_bit().is_some() {
            false => outlet.producer.push(Kind::Bare, class, shape.len, |out| {
                shape.write(hca, packet, out)
            }),
            true => {
                let bytes = &mut self.scratch;
                match outlet.producer.fits(shape.len) {
                    Ok(()) if !seal(&shape, hca, packet, self.own, flows, bytes) => {
                        Err(Refused::Never)
                    }
                    Ok(()) => {
                        let dest = SocketAddr::new(packet.path.dest, self.own.port());
                        record(tap, self.own, dest, class, bytes);
                        outlet
                            .producer
                            .push(Kind::Sealed, class, bytes.len(), |out| {
                                out.copy_from_slice(bytes);
                                true
                            })
                    }
                    Err(refused) => Err(refused),
                }
            }
        };
        match outcome {
            Ok(()) => {
                self.bytes += shape.len;
                if outlet.unshown == 0 {
                    self.unshown.push(index);
                }
                outlet.unshown += 1;
                if outlet.unshown == SHOWN_EARLY {
                    outlet.producer.publish();
                }
                Ok(())
            }
            Err(Refused::Full) if !outlet.is_stuck() => {
                self.retry_at = Some(Clock.now().after(RETRY));
                Err(Full)
            }
            Err(Refused::Full) => {
                outlet.producer.note_dropped();
                Ok(())
            }
            Err(Refused::Never) => {
                hca.count(Counter::TxDropped, 1);
                Ok(())
            }
            Err(Refused::Broken) => {
                hca.count(Counter::TxDropped, 1);
                self.close(index);
                Ok(())
            }
        }
    }

    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.bytes + usize::from(self.retry_at.is_some())
    }

    #[inline]
    pub(super) fn retry_at(&self) -> Option<Time> {
        self.retry_at
    }

    /// See [`super::Near::rest`].
    pub(super) fn rest(&mut self) {
        let now = Clock.now();
        if now < self.rest_at {
            return;
        }
        for outlet in self.rings.iter_mut().flatten() {
            if outlet.producer.rest() {
                self.rest_at = now.after(REST);
            }
        }
    }

    /// See [`super::Near::flush`].
    #[inline]
    pub(super) fn flush(&mut self) -> bool {
        self.bytes = 0;
        while let Some(index) = self.unshown.pop() {
            if let Some(Some(outlet)) = self.rings.get_mut(index) {
                outlet.show();
            }
        }
        self.retry_at.is_none()
    }
}

impl Outlet {
    #[inline]
    fn show(&mut self) {
        self.unshown = 0;
        self.producer.publish();
        if self.peer.is_to_be_woken() {
            self.line.wake();
        }
    }

    /// Whether the reader has taken nothing for a while, now that there is no room.
    #[cold]
    fn is_stuck(&mut self) -> bool {
        let (head, now) = (self.producer.head(), Clock.now());
        match self.stuck {
            Some((at, since)) if at == head => now.since(since) >= STALL,
            _ => {
                self.stuck = Some((head, now));
                false
            }
        }
    }
}

/// Makes the packet as it is on the wire, with its ICRC, and damaged if the impaired link has done so.
#[cold]
fn seal(
    shape: &Shape,
    hca: &Hca,
    packet: &Outgoing,
    own: SocketAddr,
    flows: &mut Flows,
    out: &mut Vec<u8>,
) -> bool {
    out.clear();
    out.resize(shape.len, 0);
    let dest = SocketAddr::new(packet.path.dest, own.port());
    let Some(flow) = flows.get(dest) else {
        return false;
    };
    if shape.len > PACKET_BYTES_MAX || !shape.write(hca, packet, out) {
        return false;
    }
    let (transport, icrc) = out.split_at_mut(shape.icrc_at);
    debug_assert_eq!(icrc.len(), ICRC_LEN);
    icrc.copy_from_slice(&flow.to_peer.compute(0, transport).to_le_bytes());
    damage(packet, out);
    true
}

/// Records a packet before its reader can see it.
fn record(tap: Option<&Tap>, own: SocketAddr, dest: SocketAddr, class: Class, bytes: &[u8]) {
    let Some(tap) = tap else { return };
    tap.leaving(dest.ip(), std::iter::once(bytes));
    let seen = Seen {
        source: own,
        dest,
        tos: class.traffic_class,
        pcp: Some(class.sl),
        ip_id: 0,
        dont_fragment: true,
    };
    tap.sent(&seen, bytes);
}
