//! A device's sockets as the driver's link.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ferroce_device::{Counter, Event, Hca, Outgoing, Span, Time};
use ferroce_driver::{Aside, Full, Link, Taken};
use ferroce_os::{Clock, Epoll, Tap};
use ferroce_registry::PeerLinks;
use ferroce_rings::{Near, Pushed};
use ferroce_sockets::{Exit, Exits, Faults, Groups, Refused, SendError, Socket, Stage};

use crate::intake::{Brought, Intake, Place, Sorter};
use crate::kept::KeptPlaces;
use crate::neighbours::Neighbours;
use crate::port::Leaving;

/// Receive calls beside the device's own socket in one go, after which that gets its turn.
const BESIDE_CALLS_MAX: usize = 16;
/// Packets out of rings in one round, after which what they ask for is answered.
const NEAR_PACKETS: usize = 64;
/// More than a ring holds.
const RING_PACKETS: usize = 1 << 16;

/// When a program that polls looks at the socket while its packets come through rings: each look costs
/// a system call.
#[derive(Debug, Default)]
struct Turns {
    /// When something has come through a ring last.
    near_at: Time,
    /// How often in a row the socket had nothing.
    in_vain: u32,
    look_at: Time,
    look_at_lines: Time,
}

impl Turns {
    /// Looks that find nothing until it is looked more rarely, and then once more.
    const IN_VAIN: u32 = 8;
    const LONG_IN_VAIN: u32 = 64;
    /// So rarely, as long as rings have brought something so lately.
    const PAUSE: Span = Span::from_micros(10);
    const LONG_PAUSE: Span = Span::from_micros(50);
    const LATELY: Span = Span::from_micros(100);
    /// How often a program that polls looks who is gone.
    const LINES: Span = Span::from_millis(10);

    fn note_look(&mut self, now: Time, packets: usize) {
        self.in_vain = match packets {
            0 => self.in_vain.saturating_add(1),
            _ => 0,
        };
        let is_near = now.since(self.near_at) < Self::LATELY;
        self.look_at = match self.in_vain {
            Self::LONG_IN_VAIN.. if is_near => now.after(Self::LONG_PAUSE),
            Self::IN_VAIN.. if is_near => now.after(Self::PAUSE),
            _ => now,
        };
    }
}

/// The socket of a port of a device, those of its multicast groups and at places that are kept, and the mailbox of
/// its process.
#[derive(Debug)]
pub(crate) struct SocketLink {
    socket: Arc<Socket>,
    /// Another process has the socket now.
    is_given: bool,
    /// Tells which of the groups' sockets, and of those that are kept for others, has something.
    watch: Arc<Epoll>,
    groups: Groups,
    kept: KeptPlaces,
    intake: Intake,
    turns: Turns,
    stage: Stage,
    exits: Exits,
    tap: Option<Tap>,
    pub(crate) faults: Faults,
}

impl SocketLink {
    /// `port` is its number, and the addresses of the device's ports.
    pub(crate) fn new(
        socket: Arc<Socket>,
        port: (u8, [IpAddr; 2]),
        tap: Option<Tap>,
        neighbours: Option<Neighbours>,
        near: Option<Near>,
        watch: Arc<Epoll>,
    ) -> Self {
        let own = socket.address();
        if let Some(tap) = &tap {
            tap.add_device(own.ip());
        }
        Self {
            socket,
            is_given: false,
            groups: Groups::new(own, Arc::clone(&watch)),
            kept: KeptPlaces::new(Arc::clone(&watch)),
            watch,
            intake: Intake::new(own, port, tap.clone(), neighbours, near),
            turns: Turns::default(),
            stage: Stage::new(own),
            exits: Exits::new(own),
            tap,
            faults: Faults::default(),
        }
    }

    /// The other processes of the device, if there may be any.
    pub(crate) fn neighbours(&self) -> Option<&Neighbours> {
        self.intake.sorter.neighbours.as_ref()
    }

    pub(crate) fn neighbours_mut(&mut self) -> Option<&mut Neighbours> {
        self.intake.sorter.neighbours.as_mut()
    }

    /// The rings to and from peers on this host, if it has any.
    pub(crate) fn near(&self) -> Option<&Near> {
        self.intake.near.as_ref()
    }

    /// Whether it waits until the device's socket takes more.
    pub(crate) fn awaits_socket(&self) -> bool {
        !self.stage.is_empty() && self.stage.exit() == 0
    }

    /// Whether it waits until another socket takes more.
    pub(crate) fn awaits_exit(&self) -> bool {
        self.stage.exit() != 0 && !self.stage.is_empty()
    }

    /// Takes note of what peers on this host have to say apart from packets. For the helper, which then
    /// looks into the rings.
    pub(crate) fn look_at_lines(&mut self) {
        if let Some(near) = &mut self.intake.near {
            near.look_at_lines();
        }
    }

    /// Whether a ring has something.
    pub(crate) fn has_near(&self) -> bool {
        self.near().is_some_and(Near::has_some)
    }

    /// What carries the packets to the peers.
    pub(crate) fn peer_links(&self) -> PeerLinks {
        self.near().map_or_else(PeerLinks::udp, Near::links)
    }

    /// The process shares the device's port from now on.
    pub(crate) fn joined(&mut self) {
        if let Some(neighbours) = self.neighbours_mut() {
            neighbours.steering.joined(Clock.now());
        }
    }

    /// Whether packets for this process may still come to another one.
    pub(crate) fn is_unsettled(&self) -> bool {
        let neighbours = self.neighbours();
        neighbours.is_some_and(|it| !it.steering.is_settled())
    }

    /// Requests for a service are expected that were not before.
    pub(crate) fn listens(&mut self) {
        if let Some(neighbours) = self.neighbours_mut() {
            neighbours.steering.listens(Clock.now());
        }
    }

    /// Whether other processes have sent something.
    pub(crate) fn has_mail(&self) -> bool {
        self.neighbours().is_some_and(Neighbours::has_mail)
    }

    /// Whether packets of other processes are still here.
    pub(crate) fn holds_mail(&self) -> bool {
        self.neighbours().is_some_and(Neighbours::is_blocked)
    }

    /// The same for any thread; returns the number of packets that it has taken from rings.
    ///
    /// What woke this process may have been meant for the helper, which sleeps on if it finds nothing
    /// left of that, and peers take it for awake. So they are told to wake it the next time, and what they
    /// have put into rings without knowing is taken here.
    #[cold]
    fn take_from_lines(&mut self, now: impl Fn() -> Time, hca: &mut Hca) -> usize {
        let Some(near) = &mut self.intake.near else {
            return 0;
        };
        if !near.look_at_lines() {
            return 0;
        }
        near.reader().set_asleep();
        self.intake.take_near(RING_PACKETS, now, hca)
    }

    /// Gives this process's place among the sockets that share the port, and those that it keeps, to
    /// other processes. False: its own it has still.
    pub(crate) fn hand_over(&mut self, leaving: &Leaving<'_>) -> bool {
        self.is_given = leaving.hand_over(&self.socket, &mut self.kept);
        if self.is_given {
            self.socket.give_away();
        }
        self.is_given
    }

    /// Keeps the places that others have given to this process.
    #[cold]
    fn keep_places(&mut self, given: Vec<(OwnedFd, Option<u8>)>) {
        for (socket, index) in given {
            self.kept.keep(socket, index, &self.socket, Clock.now());
        }
    }

    /// Takes what has arrived for multicast groups and at places that are kept; returns the number of
    /// packets.
    #[inline]
    fn receive_beside(&mut self, now: impl Fn() -> Time, hca: &mut Hca) -> usize {
        if self.groups.is_empty() && self.kept.is_empty() {
            return 0;
        }
        let mut packets = 0;
        for _ in 0..BESIDE_CALLS_MAX {
            let Some(fd) = self.watch.next() else {
                break;
            };
            if self.near().is_some_and(|near| near.is_told_of_by(fd)) {
                packets += self.take_from_lines(&now, hca);
                continue;
            }
            let Some(socket) = self.groups.socket(fd).or_else(|| self.kept.socket(fd)) else {
                break;
            };
            packets += match self.intake.receive(&socket, Place::Beside, &now, hca) {
                Ok(brought) => brought.far + brought.near,
                Err(_) => {
                    self.faults.fatal();
                    0
                }
            };
        }
        packets
    }

    /// Takes what one call brings on the device's own socket.
    #[inline]
    fn receive_own(&mut self, now: impl Fn() -> Time, hca: &mut Hca) -> io::Result<Brought> {
        if self.is_given {
            return Ok(Brought::default());
        }
        let brought = self.intake.receive(&self.socket, Place::Own, now, hca);
        self.greet();
        brought.inspect_err(|_| self.faults.fatal())
    }

    /// Sends questions and answers about trailers. One that does not leave is as good as lost.
    #[inline]
    fn greet(&mut self) {
        let port = self.socket.address().port();
        while let Some((to, bytes)) = self.intake.sorter.trailers.poll_transmit() {
            if !self.socket.is_out() {
                let _ = self.socket.send(SocketAddr::new(to, port), 0, &bytes, 0);
            }
        }
    }

    /// Packets to this destination never leave.
    #[cold]
    fn refuse(&mut self, hca: &mut Hca, packet: &Outgoing, why: &Refused) {
        hca.count(Counter::TxDropped, 1);
        if matches!(why, Refused::Family) {
            let dest = packet.path.dest;
            let error = SendError::Unsendable {
                dest: SocketAddr::new(dest, self.socket.address().port()),
                bytes: packet.payload_len as usize,
                datagrams: 1,
            };
            self.faults.refused(dest, &error);
        }
    }
}

impl Link for SocketLink {
    type Gone = io::Error;

    #[inline]
    fn receive(&mut self, now: impl Fn() -> Time, hca: &mut Hca) -> io::Result<Taken> {
        self.receive_own(now, hca).map(Taken::from)
    }

    /// Always looks into the rings, and at the socket if that has had something lately or was not
    /// looked at for a while.
    #[inline]
    fn glance(&mut self, at: Time, now: impl Fn() -> Time, hca: &mut Hca) -> io::Result<Taken> {
        if !self.near().is_some_and(Near::has_inlets) {
            return self.receive(now, hca);
        }
        let mut packets = self.intake.take_near(NEAR_PACKETS, || at, hca);
        if packets > 0 {
            self.turns.near_at = at;
        }
        if at < self.turns.look_at {
            let more = packets > 0;
            return Ok(Taken { packets, more });
        }
        if at >= self.turns.look_at_lines {
            self.turns.look_at_lines = at.after(Turns::LINES);
            packets += self.take_from_lines(&now, hca);
        }
        let brought = self.receive_own(&now, hca)?;
        // Packets come through rings during the call, too: they say nothing of the socket.
        self.turns.note_look(at, brought.far);
        Ok(Taken {
            packets: packets + brought.far + brought.near,
            more: packets > 0 || brought.more,
        })
    }

    #[inline]
    fn receive_aside(&mut self, now: impl Fn() -> Time, hca: &mut Hca, which: Aside) -> usize {
        let mut packets = match which {
            Aside::All => self.take_from_lines(&now, hca),
            Aside::Announced => 0,
        };
        packets += self.receive_beside(&now, hca);
        if !self.has_mail() && which == Aside::Announced {
            return packets;
        }
        let own = self.socket.address();
        let Intake { near, sorter, .. } = &mut self.intake;
        let mail = sorter.take_mail(now, own, near, hca);
        if self.neighbours().is_some_and(Neighbours::is_removed) {
            self.faults.removed();
        }
        let given = self.neighbours_mut().map(Neighbours::take_given);
        if let Some(given) = given.filter(|given| !given.is_empty()) {
            self.keep_places(given);
        }
        packets + mail
    }

    #[inline]
    fn push(&mut self, hca: &mut Hca, packet: &Outgoing) -> Result<(), Full> {
        if self.socket.is_out() {
            return Ok(()); // the program has not begun, or ends: no peer waits for it
        }
        let Intake { near, sorter, .. } = &mut self.intake;
        if let Some(near) = near
            && near.push(hca, packet, &mut sorter.flows, self.tap.as_ref())? == Pushed::Done
        {
            return Ok(());
        }
        let mut exit = None;
        // Of packets from other ports, those of this host are not believed.
        if packet.entropy != 0 && !sorter.is_of_this_host(packet.path.dest) {
            exit = self.exits.choose(packet.entropy);
        }
        let exit = exit.unwrap_or(Exit {
            number: 0,
            socket: &self.socket,
            flows: &mut sorter.flows,
        });
        match self.stage.push(hca, packet, exit, &mut sorter.trailers) {
            Ok(()) => {}
            Err(Refused::NotNow) => return Err(Full),
            Err(why) => self.refuse(hca, packet, &why),
        }
        Ok(())
    }

    #[inline]
    fn waiting(&self) -> usize {
        self.stage.len() + self.near().map_or(0, Near::waiting)
    }

    #[inline]
    fn flush(&mut self, hca: &mut Hca) -> bool {
        if self.socket.is_out() {
            self.stage.clear();
        }
        // First: what leaves by the socket finds the rest there when it arrives.
        let is_shown = self.intake.near.as_mut().is_none_or(Near::flush);
        let tap = self.tap.as_ref();
        let exit = self.exits.socket(self.stage.exit());
        let socket = exit.unwrap_or(&self.socket);
        let flushed = self.stage.flush(socket, hca, tap, &mut self.faults);
        is_shown && flushed.is_ok()
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        let look = self.intake.overflow.look_at();
        let look = earlier(look, self.intake.sorter.trailers.deadline());
        let Some(neighbours) = self.neighbours() else {
            return look;
        };
        let mail = neighbours.deadline();
        let steering = neighbours.steering.deadline();
        let near = self.near().and_then(Near::deadline);
        let sweep = neighbours.sweep_at();
        let all = [mail, steering, self.kept.deadline(), near, sweep];
        all.into_iter().fold(look, earlier)
    }

    fn handle_timeout(&mut self, now: Time, hca: &mut Hca) {
        let Sorter {
            trailers, flows, ..
        } = &mut self.intake.sorter;
        if trailers.deadline().is_some_and(|at| at <= now) {
            let port = self.socket.address().port();
            trailers.run(now, |address| {
                flows.has_heard(SocketAddr::new(address, port))
            });
            self.greet();
        }
        if let Some(neighbours) = &mut self.intake.sorter.neighbours {
            let steering = &mut neighbours.steering;
            if steering.deadline().is_some_and(|at| at <= now) {
                steering.run(now, &self.socket);
            }
            if neighbours.sweep_at().is_some_and(|at| at <= now) {
                neighbours.sweep_leases(now);
            }
            if self.kept.deadline().is_some_and(|at| at <= now) {
                neighbours.look_at_places(&mut self.kept, now);
            }
            self.intake.sorter.flush_mail(|| now, hca);
        }
        let dropped = self.intake.overflow.look(now, &self.socket);
        if dropped > 0 {
            hca.count(Counter::RxSocketOverflow, dropped.into());
            self.faults.overflowed();
        }
    }

    fn rest(&mut self) {
        if let Some(near) = &mut self.intake.near {
            near.rest();
        }
    }

    fn handle_event(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::JoinGroup(group) => {
                if let Err(error) = self.groups.join(group) {
                    self.faults.not_joined(group, &error);
                }
                None
            }
            Event::LeaveGroup(group) => {
                self.groups.leave(group);
                None
            }
            event => Some(event),
        }
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        self.faults.poll()
    }
}

/// The earlier of two deadlines. Debuggers of memory see no comparison of what is not there, as they do
/// with iterators' `min`.
#[inline]
pub(crate) fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (either, None) | (None, either) => either,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::tests::pair;

    /// A look at the socket takes what has come through rings meanwhile. As long as it has nothing
    /// itself, it is looked at more and more rarely all the same.
    #[test]
    fn packets_of_rings_do_not_have_the_socket_looked_at_more_often() {
        let (sender, target, _place) = pair(2);
        // Until that many may be on the wire.
        for _ in 0..20 {
            sender.writes(&target, 100);
            sender.succeed(&target, 100);
        }
        // More than are taken before it is looked at.
        sender.writes(&target, 100);
        sender.device.progress();
        target.with_engine(|ferroce_driver::Driver { hca, link, .. }| {
            link.first.turns = Turns::default();
            let at = Clock.now();
            let taken = link.first.glance(at, || Clock.now(), hca).unwrap();
            assert!(taken.packets > NEAR_PACKETS, "{taken:?}");
            assert_eq!(
                (link.first.turns.near_at, link.first.turns.in_vain),
                (at, 1)
            );
        });
    }
}
