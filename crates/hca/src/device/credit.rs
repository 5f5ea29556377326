//! Credit as a part of the device.

use ferroce_transport::{Allowance, HeldBack, Span, Time};

use super::{Hca, QpEntry};
use crate::credit::{
    FLOOR_BYTES, PathLook, PathWindow, Peer, QUANTUM_BYTES, Room, Signal, affordable, cost,
};

/// What a queue pair has taken of the room at its peer and of that for responses, in bytes, and
/// whether it waits for either.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Turn {
    pub(crate) packets: u64,
    pub(crate) responses: u64,
    pub(crate) waits_for_packets: bool,
    pub(crate) waits_for_responses: bool,
}

impl Turn {
    /// Whether it waits for more.
    pub(crate) fn waits(&self) -> bool {
        self.waits_for_packets || self.waits_for_responses
    }

    /// What `entry` has taken now.
    pub(super) fn of(entry: &QpEntry) -> Self {
        let mtu = entry.qp.attr().path_mtu;
        let (packets, responses) = match entry.peer {
            Some(_) => (entry.qp.on_wire(), entry.qp.responses_on_wire()),
            None => (0, 0),
        };
        Self {
            packets: cost(packets, mtu),
            responses: cost(responses, mtu),
            ..entry.turn
        }
    }

    #[inline]
    fn has_taken(&self) -> bool {
        self.packets > 0 || self.responses > 0
    }
}

impl Hca {
    /// A queue pair's path leads elsewhere now, or nowhere.
    pub(crate) fn follow_path(&mut self, index: u32) {
        let Some(entry) = self.qps.get_mut(index) else {
            return;
        };
        // Nobody answers the packets of the other services: they are not on the wire for long.
        let sends = entry.qp.config().qp_type.is_reliable() && self.config.host.books_room;
        let address = entry.path.map(|path| path.dest).filter(|_| sends);
        let old = entry.peer.take();
        let turn = std::mem::take(&mut entry.turn);
        self.leave_peer(index, old, turn);
        let max = self.config.total_window_bytes.into();
        let window = PathWindow::new(self.config.window, max, self.common.now);
        let peer = address.and_then(|address| self.peers.join(self.common.now, address, window));
        if let Some(entry) = self.qps.get_mut(index) {
            entry.peer = peer;
        }
        self.book(index);
        // Its host may have left amid its turn: what it was allowed was room at the old peer.
        if self.port.in_turn() == Some(index) {
            self.allot(index);
        }
    }

    /// Gives back what a queue pair has taken, which is gone or has another peer now.
    pub(crate) fn leave_peer(&mut self, index: u32, peer: Option<u32>, turn: Turn) {
        let Some(id) = peer else { return };
        if turn.waits_for_packets
            && let Some(peer) = self.peers.get_mut(id)
        {
            peer.room.leave(index);
        }
        if turn.waits_for_responses {
            self.responses.leave(index);
        }
        self.rebook(id, turn, Turn::default());
        // Who is next now may have been behind it.
        self.call(id);
        self.call_reader();
        if self.peers.get(id).is_some_and(|peer| peer.users() == 1) {
            self.give_back(id);
        }
        self.peers.leave(id);
    }

    /// The window that a queue pair shares with others.
    pub(crate) fn look_at_window(&self, entry: &QpEntry) -> Option<PathLook> {
        let peer = self.peers.get(entry.peer?)?;
        Some(PathLook {
            window_bytes: peer.window.bytes(),
            used_bytes: peer.room.used(),
            rtt_ns: peer.window.rtt().map(Span::as_nanos),
        })
    }

    /// A queue pair has learned something about the way to its peer.
    pub(crate) fn heed(&mut self, index: u32, signal: Signal) {
        let Some(entry) = self.qps.get(index) else {
            return;
        };
        let mtu = entry.qp.attr().path_mtu;
        let Some(id) = entry.peer else { return };
        if let Some(peer) = self.peers.get_mut(id)
            && peer.heed(self.common.now, signal, mtu)
        {
            self.call(id);
        }
    }

    /// Books what a queue pair has on the wire. To be called after everything that may change it, but
    /// for the packets of its turn: those are booked when it ends, and nobody else's begins before.
    #[inline]
    pub(crate) fn book(&mut self, index: u32) {
        // A passive end has nothing there.
        let may_change = |entry: &QpEntry| entry.turn.has_taken() || entry.qp.in_flight() > 0;
        if self.qps.get(index).is_some_and(|entry| may_change(entry)) {
            self.book_changes(index);
        }
    }

    fn book_changes(&mut self, index: u32) {
        let Some(entry) = self.qps.get_mut(index) else {
            return;
        };
        let (before, now) = (entry.turn, Turn::of(entry));
        if let Some(peer) = entry.peer
            && now != before
        {
            entry.turn = now;
            self.rebook(peer, before, now);
        }
    }

    fn rebook(&mut self, peer: u32, before: Turn, now: Turn) {
        let Some(it) = self.peers.get_mut(peer) else {
            return;
        };
        it.busy = it.busy + u32::from(now.packets > 0) - u32::from(before.packets > 0);
        let packets = it.room.book(before.packets, now.packets);
        it.window
            .note_return(before.packets.saturating_sub(now.packets));
        let responses = self.responses.book(before.responses, now.responses);
        if now.packets < before.packets && self.peer_in_turn() != Some(peer) {
            self.give_back(peer);
        }
        if packets {
            self.call(peer);
        }
        if responses {
            self.call_reader();
        }
    }

    /// Where the queue pair sends whose turn has begun and is not over.
    fn peer_in_turn(&self) -> Option<u32> {
        self.turn_began?;
        let index = self.port.in_turn()?;
        self.qps.get(index)?.peer
    }

    /// A queue pair may have got its first request in a turn that began with answers alone.
    #[inline]
    pub(crate) fn allot_late(&mut self, index: u32) {
        if self.turn_began.is_none() && self.port.in_turn() == Some(index) {
            self.allot(index);
        }
    }

    /// Whoever is next in the queue for room at a peer is to look whether there is enough now.
    fn call(&mut self, peer: u32) {
        if let Some(next) = self.peers.get(peer).and_then(|peer| peer.room.next()) {
            self.make_ready(next);
        }
    }

    /// The same for the queue for room for responses.
    fn call_reader(&mut self) {
        if let Some(next) = self.responses.next() {
            self.make_ready(next);
        }
    }

    /// What a queue pair may send in the turn that begins, or in which it gets its first request: its
    /// share of the window, and its allowance.
    pub(crate) fn allot(&mut self, index: u32) {
        let Some(entry) = self.qps.get_mut(index) else {
            return;
        };
        let sends = entry.qp.send_queue_len() > 0;
        self.turn_began = (sends || entry.turn.waits()).then_some(entry.turn);
        if self.turn_began.is_none() {
            return; // it has nothing but answers
        }
        let bound_of_responses = self.config.response_bytes.into();
        let turn_bytes = self.config.host.turn_bytes.into();
        let Some(id) = entry.peer else {
            entry.qp.share_window(u32::MAX);
            entry.qp.allow(Allowance::ALL);
            return;
        };
        let bound_at_peer = self.bound_at(id, sends);
        let (Some(peer), Some(entry)) = (self.peers.get(id), self.qps.get_mut(index)) else {
            return;
        };
        let mtu = entry.qp.attr().path_mtu;
        entry
            .qp
            .share_window(share_of(peer, entry, self.config.host.turn_bytes.into()));
        let Turn {
            packets, responses, ..
        } = entry.turn;
        // A silent peer is asked by each queue pair for itself: one request, which its timer repeats.
        let asks = peer.is_silent() && entry.has_timeout();
        let at_peer = match asks {
            true => packets,
            false => peer.room.allowed(index, packets, bound_at_peer, turn_bytes),
        };
        let at_home = self
            .responses
            .allowed(index, responses, bound_of_responses, turn_bytes);
        // Who may take no more keeps what it has.
        let allow = |allowed: u64, taken: u64, on_wire: u32| match allowed > taken {
            true => affordable(allowed, mtu),
            false => on_wire,
        };
        entry.qp.allow(Allowance {
            packets: allow(at_peer, packets, entry.qp.on_wire()),
            alone: peer.room.is_alone(packets) || asks && peer.room.fits_one(mtu, bound_at_peer),
            responses: allow(at_home, responses, entry.qp.responses_on_wire()),
            alone_reading: self.responses.is_alone(responses),
        });
    }

    /// The share of a queue pair in what its peer takes, in bytes of payload: for its own window,
    /// which decides how often it asks for an answer.
    pub(crate) fn share(&self, entry: &QpEntry) -> u32 {
        let peer = entry.peer.and_then(|peer| self.peers.get(peer));
        peer.map_or(u32::MAX, |peer| {
            share_of(peer, entry, self.config.host.turn_bytes.into())
        })
    }

    /// Looks whether those who wait still may hope that something comes back. A queue pair without a
    /// timeout that has lost a packet waits for ever, but the others shall not.
    pub(crate) fn write_off(&mut self, now: Time) {
        if self.written_off_at.is_none_or(|at| at > now) {
            return;
        }
        let mut called: Vec<u32> = self.peers.rooms().filter_map(Room::write_off).collect();
        called.extend(self.responses.write_off());
        let waits = self.responses.may_be_written_off()
            || self
                .peers
                .iter()
                .any(|(_, peer)| peer.room.may_be_written_off());
        self.written_off_at = waits.then(|| now.after(self.config.host.write_off_after));
        for index in called {
            self.make_ready(index);
        }
    }

    /// A queue pair's turn is over: it goes to the back of the queue for what it needs more of.
    pub(crate) fn end_turn(&mut self, index: u32) {
        let Some(began) = self.turn_began.take() else {
            return;
        };
        self.book(index);
        let Some(entry) = self.qps.get_mut(index) else {
            return;
        };
        let Some(id) = entry.peer else { return };
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        // Who sleeps because it is slowed down holds nobody up.
        let held_back = entry.qp.held_back().filter(|_| !entry.sleeps());
        // Nor does who has asked a silent peer: its answer or its timer makes it go on.
        let has_asked = peer.is_silent() && entry.turn.packets > 0 && entry.has_timeout();
        peer.window.note_use(peer.room.used());
        let (packets, responses) = (&mut peer.room, &mut self.responses);
        let turn = &mut entry.turn;
        let more_packets = turn.packets > began.packets;
        let more_responses = turn.responses > began.responses;
        let called = packets.end_turn(
            index,
            &mut turn.waits_for_packets,
            held_back == Some(HeldBack::Packets) && !has_asked,
            more_packets,
        );
        let reader_called = responses.end_turn(
            index,
            &mut turn.waits_for_responses,
            held_back == Some(HeldBack::Responses),
            more_responses,
        );
        if held_back.is_some() && self.written_off_at.is_none() {
            self.written_off_at = Some(self.common.now.after(self.config.host.write_off_after));
        }
        self.give_back(id);
        if called {
            self.call(id);
        }
        if reader_called {
            self.call_reader();
        }
    }
}

impl Hca {
    /// What all queue pairs of this process may have on the wire to a peer; leases more if one of
    /// them `sends`.
    fn bound_at(&mut self, id: u32, sends: bool) -> u64 {
        let Some(peer) = self.peers.get_mut(id) else {
            return 0;
        };
        let window = peer.bound();
        let Some(table) = self.common.state.leases() else {
            return window;
        };
        if sends && peer.leased < window {
            let wanted = window - peer.leased;
            let granted = table.take(self.config.slot, peer.address, wanted, peer.window.max());
            peer.leased += granted;
            self.lacks_lease |= granted == 0;
        }
        window.min(peer.leased.max(FLOOR_BYTES))
    }

    /// Gives back what is leased at a peer and not in use, but for a little that may be wanted soon.
    /// Not amid a turn, which has been promised all of it.
    fn give_back(&mut self, id: u32) {
        let (Some(peer), Some(table)) = (self.peers.get_mut(id), self.common.state.leases()) else {
            return;
        };
        let live = peer.room.live();
        let (keep, most) = match live {
            0 => (0, 0),
            _ => (live + QUANTUM_BYTES, live + 2 * QUANTUM_BYTES),
        };
        if peer.leased > most {
            table.give_back(self.config.slot, peer.address, peer.leased - keep);
            peer.leased = keep;
        }
    }

    /// Whether there was nothing to lease since the last call: others have everything, or had it
    /// when they died.
    pub fn take_lacks_lease(&mut self) -> bool {
        std::mem::take(&mut self.lacks_lease)
    }
}

fn share_of(peer: &Peer, entry: &QpEntry, turn_bytes: u64) -> u32 {
    // It is about to be one of them.
    let busy = peer.busy + u32::from(entry.turn.packets == 0);
    let share = match busy {
        0 | 1 => peer.window.bytes(), // the usual case, for which a division is too long
        _ => peer.window.bytes() / u64::from(busy),
    };
    let share = share.max(turn_bytes);
    let mtu = entry.qp.attr().path_mtu;
    affordable(share, mtu).saturating_mul(mtu.bytes())
}
