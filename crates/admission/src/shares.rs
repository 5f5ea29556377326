//! What the queue pairs of a device may have in flight to each peer, and what they have.

use std::net::IpAddr;

use ferroce_device::{Admission, Applicant, Audited, Called, PathLook, Seat, Signal};
use ferroce_transport::{Allowance, HeldBack, Qp, Span, Time};

use crate::audit;
use crate::lease::{FLOOR_BYTES, Leases, QUANTUM_BYTES};
use crate::path::{PathWindow, Window};
use crate::peers::{Peer, Peers};
use crate::room::{Room, affordable, cost};
use crate::{TURN_BYTES, WRITE_OFF_AFTER};

/// How much may be in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Maximum bytes that all queue pairs together keep in flight to one peer, as a receive buffer
    /// counts them. If the peer's buffer is at least as large, no packets are lost because it is
    /// full.
    pub peer_bytes: u32,
    /// The share of it that a path gets.
    pub window: Window,
    /// Maximum bytes of READ responses in flight to this device, as a receive buffer counts them.
    pub response_bytes: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            peer_bytes: 2 << 20,
            window: Window::Auto,
            response_bytes: 2 << 20,
        }
    }
}

/// Shares what peers can take, and the host's own buffer, among queue pairs.
#[derive(Debug)]
pub struct Shares {
    bounds: Bounds,
    leases: Option<Leases>,
    /// The devices at the other ends, and what is in flight to them.
    peers: Peers,
    /// The share of the host's own buffer that responses to READs may take.
    responses: Room,
    /// The current turn.
    turn: Option<Turn>,
    /// When to check whether what is in flight is lost, as queue pairs wait for room.
    written_off_at: Option<Time>,
}

#[derive(Debug)]
struct Turn {
    index: u32,
    /// What its queue pair had taken when it began.
    began: Seat,
}

impl Shares {
    /// The shares of a device without queue pairs.
    pub fn new(bounds: Bounds, leases: Option<Leases>) -> Self {
        Self {
            bounds,
            leases,
            peers: Peers::default(),
            responses: Room::default(),
            turn: None,
            written_off_at: None,
        }
    }
}

impl Admission for Shares {
    fn connect(&mut self, now: Time, applicant: Applicant<'_>, address: Option<IpAddr>) -> Called {
        let Applicant {
            index, qp, seat, ..
        } = applicant;
        let old = std::mem::take(seat);
        let called = self.leave(index, old);
        if self.turn.as_ref().is_some_and(|turn| turn.index == index) {
            self.turn = None;
        }
        let max = self.bounds.peer_bytes.into();
        let window = PathWindow::new(self.bounds.window, max, now);
        seat.peer = address.map(|address| self.peers.join(now, address, window));
        if seat.peer.is_none() {
            qp.share_window(u32::MAX);
            qp.allow(Allowance::ALL);
        }
        self.book_changes(qp, seat);
        called
    }

    fn grant(&mut self, applicant: Applicant<'_>) {
        let Applicant {
            index, qp, seat, ..
        } = applicant;
        self.turn = Some(Turn {
            index,
            began: *seat,
        });
        let Some(id) = seat.peer else { return };
        let bound_at_peer = self.bound_at(id, qp.send_queue_len() > 0);
        let bound_of_responses = self.bounds.response_bytes.into();
        let Some(peer) = self.peers.get(id) else {
            return;
        };
        let mtu = qp.attr().path_mtu;
        qp.share_window(share_of(peer, qp, seat));
        let &mut Seat {
            packets, responses, ..
        } = seat;
        // A silent peer is asked by each queue pair for itself: one request, which its timer repeats.
        let asks = peer.is_silent() && has_timeout(qp);
        let at_peer = match asks {
            true => packets,
            false => peer.room.allowed(index, packets, bound_at_peer),
        };
        let at_home = self.responses.allowed(index, responses, bound_of_responses);
        // One that may take no more keeps what it has.
        let allow = |allowed: u64, taken: u64, on_wire: u32| match allowed > taken {
            true => affordable(allowed, mtu),
            false => on_wire,
        };
        qp.allow(Allowance {
            packets: allow(at_peer, packets, qp.on_wire()),
            alone: peer.room.is_alone(packets) || asks && peer.room.fits_one(mtu, bound_at_peer),
            responses: allow(at_home, responses, qp.responses_on_wire()),
            alone_reading: self.responses.is_alone(responses),
        });
    }

    fn book(&mut self, applicant: Applicant<'_>) -> Called {
        self.book_changes(applicant.qp, applicant.seat)
    }

    fn signal(&mut self, now: Time, applicant: Applicant<'_>, signal: Signal) -> Called {
        let mtu = applicant.qp.attr().path_mtu;
        let peer = applicant.seat.peer.and_then(|id| self.peers.get_mut(id));
        let next = peer.and_then(|peer| match peer.signal(now, signal, mtu) {
            true => peer.room.next(),
            false => None,
        });
        [next, None]
    }

    fn end_turn(&mut self, now: Time, applicant: Applicant<'_>) -> Called {
        let Applicant {
            index,
            qp,
            seat,
            sleeps,
        } = applicant;
        let Some(Turn { began, .. }) = self.turn.take() else {
            return Called::default();
        };
        let [mut packets_back, mut responses_back] = self.rebook(qp, seat);
        let Some(peer) = seat.peer.and_then(|id| self.peers.get_mut(id)) else {
            return Called::default();
        };
        // One that sleeps because it is slowed down holds up no other.
        let held_back = qp.held_back().filter(|_| !sleeps);
        // Nor does one that has asked a silent peer: its answer or its timer makes it go on.
        let has_asked = peer.is_silent() && seat.packets > 0 && has_timeout(qp);
        peer.window.note_use(peer.room.used());
        packets_back |= peer.room.end_turn(
            index,
            &mut seat.waits_for_packets,
            held_back == Some(HeldBack::Packets) && !has_asked,
            seat.packets > began.packets,
        );
        responses_back |= self.responses.end_turn(
            index,
            &mut seat.waits_for_responses,
            held_back == Some(HeldBack::Responses),
            seat.responses > began.responses,
        );
        if held_back.is_some() && self.written_off_at.is_none() {
            self.written_off_at = Some(now.after(WRITE_OFF_AFTER));
        }
        if let Some(id) = seat.peer {
            self.give_back(id);
        }
        self.next_of(seat.peer, [packets_back, responses_back])
    }

    fn share(&self, applicant: Applicant<'_>) -> u32 {
        let Applicant { qp, seat, .. } = applicant;
        let peer = seat.peer.and_then(|peer| self.peers.get(peer));
        peer.map_or(u32::MAX, |peer| share_of(peer, qp, seat))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.written_off_at
    }

    fn handle_timeout(&mut self, now: Time) -> Vec<u32> {
        if self.written_off_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        // A queue pair without a timeout that has lost a packet waits forever; the others must not.
        let mut called: Vec<u32> = self.peers.rooms().filter_map(Room::write_off).collect();
        called.extend(self.responses.write_off());
        let waits = self.responses.may_be_written_off()
            || self
                .peers
                .iter()
                .any(|(_, peer)| peer.room.may_be_written_off());
        self.written_off_at = waits.then(|| now.after(WRITE_OFF_AFTER));
        called
    }

    fn path(&self, seat: &Seat) -> Option<PathLook> {
        let peer = self.peers.get(seat.peer?)?;
        Some(PathLook {
            window_bytes: peer.window.bytes(),
            used_bytes: peer.room.used(),
            rtt_ns: peer.window.rtt().map(Span::as_nanos),
        })
    }

    fn audit(&self, queue_pairs: &[Audited<'_>]) {
        audit::audit(self, queue_pairs);
    }
}

impl Shares {
    /// Gives back what a queue pair has taken, which is gone or gets another peer.
    fn leave(&mut self, index: u32, seat: Seat) -> Called {
        let Some(id) = seat.peer else {
            return Called::default();
        };
        if seat.waits_for_packets
            && let Some(peer) = self.peers.get_mut(id)
        {
            peer.room.leave(index);
        }
        if seat.waits_for_responses {
            self.responses.leave(index);
        }
        let nothing = Seat {
            packets: 0,
            responses: 0,
            ..seat
        };
        self.move_books(&seat, &nothing);
        if self.peers.get(id).is_some_and(|peer| peer.users() == 1) {
            self.give_back(id);
        }
        // The next one may have been behind it.
        let called = self.next_of(Some(id), [true, true]);
        self.peers.leave(id);
        called
    }

    fn book_changes(&mut self, qp: &Qp, seat: &mut Seat) -> Called {
        let back = self.rebook(qp, seat);
        self.next_of(seat.peer, back)
    }

    /// Books what a queue pair has in flight now; tells whether any that wait at its peer, or for
    /// responses, may go on.
    fn rebook(&mut self, qp: &Qp, seat: &mut Seat) -> [bool; 2] {
        let before = *seat;
        *seat = seat_of(qp, seat);
        match *seat == before {
            true => [false, false],
            false => self.move_books(&before, seat),
        }
    }

    fn move_books(&mut self, before: &Seat, now: &Seat) -> [bool; 2] {
        let Some((id, peer)) = now.peer.and_then(|id| Some((id, self.peers.get_mut(id)?))) else {
            return [false, false];
        };
        peer.busy = peer.busy + u32::from(now.packets > 0) - u32::from(before.packets > 0);
        let packets = peer.room.book(before.packets, now.packets);
        peer.window
            .note_return(before.packets.saturating_sub(now.packets));
        let responses = self.responses.book(before.responses, now.responses);
        let in_turn = self.turn.as_ref().and_then(|turn| turn.began.peer);
        if now.packets < before.packets && in_turn != Some(id) {
            self.give_back(id);
        }
        [packets, responses]
    }

    /// The queue pairs that wait first at a peer and for responses, if they are to be called.
    fn next_of(&self, peer: Option<u32>, back: [bool; 2]) -> Called {
        let [packets, responses] = back;
        let peer = peer.filter(|_| packets).and_then(|id| self.peers.get(id));
        [
            peer.and_then(|peer| peer.room.next()),
            self.responses.next().filter(|_| responses),
        ]
    }

    /// What all queue pairs of this process may have in flight to a peer; leases more if one of them
    /// `sends`.
    fn bound_at(&mut self, id: u32, sends: bool) -> u64 {
        let Some(peer) = self.peers.get_mut(id) else {
            return 0;
        };
        let window = peer.bound();
        let Some(leases) = &self.leases else {
            return window;
        };
        if sends && peer.leased < window {
            let wanted = window - peer.leased;
            peer.leased += leases.take(peer.address, wanted, peer.window.max());
        }
        window.min(peer.leased.max(FLOOR_BYTES))
    }

    /// Gives back what is leased at a peer and not in use, except for a little that may be wanted
    /// soon. Not during a turn, which has been promised all of it.
    fn give_back(&mut self, id: u32) {
        let (Some(peer), Some(leases)) = (self.peers.get_mut(id), &self.leases) else {
            return;
        };
        let live = peer.room.live();
        let (keep, most) = match live {
            0 => (0, 0),
            _ => (live + QUANTUM_BYTES, live + 2 * QUANTUM_BYTES),
        };
        if peer.leased > most {
            leases.give_back(peer.address, peer.leased - keep);
            peer.leased = keep;
        }
    }

    pub(crate) fn parts(&self) -> (&Peers, &Room, Option<&Leases>) {
        (&self.peers, &self.responses, self.leases.as_ref())
    }
}

/// What a queue pair has taken now.
pub(crate) fn seat_of(qp: &Qp, seat: &Seat) -> Seat {
    let mtu = qp.attr().path_mtu;
    let (packets, responses) = match seat.peer {
        Some(_) => (qp.on_wire(), qp.responses_on_wire()),
        None => (0, 0),
    };
    Seat {
        packets: cost(packets, mtu),
        responses: cost(responses, mtu),
        ..*seat
    }
}

/// Whether it finds out by itself that its peer is dead.
fn has_timeout(qp: &Qp) -> bool {
    qp.attr().timeout != 0
}

/// The share of a queue pair in what its peer takes, in bytes of payload: for its own window, which
/// decides how often it asks for an answer.
fn share_of(peer: &Peer, qp: &Qp, seat: &Seat) -> u32 {
    // It is about to be one of them.
    let busy = peer.busy + u32::from(seat.packets == 0);
    let share = match busy {
        0 | 1 => peer.window.bytes(), // the usual case, for which a division takes too long
        _ => peer.window.bytes() / u64::from(busy),
    };
    let mtu = qp.attr().path_mtu;
    affordable(share.max(TURN_BYTES), mtu).saturating_mul(mtu.bytes())
}
