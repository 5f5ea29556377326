//! The sockets of a device as its link.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ferroce_driver::{Aside, Full, Link};
use ferroce_hca::{Counter, Event, Hca, Outgoing, Time};

use crate::fault::Faults;
use crate::groups::Groups;
use crate::intake::{Intake, Place};
use crate::kept::KeptPlaces;
use crate::neighbours::Neighbours;
use crate::port::Leaving;
use crate::socket::{SendError, Socket};
use crate::stage::{Refused, Stage};
use crate::sys::Epoll;
use crate::tap::Tap;
use crate::wait::Clock;

/// Receive calls beside the device's own socket in one go, after which that gets its turn.
const BESIDE_CALLS_MAX: usize = 16;

/// A device's own socket, those of its multicast groups and at places that are kept, and the mailbox of
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
    stage: Stage,
    tap: Option<Tap>,
    pub(crate) faults: Faults,
}

impl SocketLink {
    pub(crate) fn new(
        socket: Arc<Socket>,
        tap: Option<Tap>,
        neighbours: Option<Neighbours>,
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
            intake: Intake::new(own, tap.clone(), neighbours),
            stage: Stage::new(own),
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
            self.kept.keep(socket, index, &self.socket, Clock.now_ns());
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
            let ready = self.watch.next();
            let socket =
                ready.and_then(|fd| self.groups.socket(fd).or_else(|| self.kept.socket(fd)));
            let Some(socket) = socket else {
                break;
            };
            packets += match self.intake.receive(&socket, Place::Beside, &now, hca) {
                Ok(received) => received,
                Err(_) => {
                    self.faults.fatal();
                    0
                }
            };
        }
        packets
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
    fn receive(&mut self, now: impl Fn() -> Time, hca: &mut Hca) -> io::Result<usize> {
        if self.is_given {
            return Ok(0);
        }
        let received = self.intake.receive(&self.socket, Place::Own, now, hca);
        received.inspect_err(|_| self.faults.fatal())
    }

    #[inline]
    fn receive_aside(&mut self, now: impl Fn() -> Time, hca: &mut Hca, which: Aside) -> usize {
        let packets = self.receive_beside(&now, hca);
        let has_mail = self.neighbours().is_some_and(Neighbours::has_mail);
        if !has_mail && which == Aside::Announced {
            return packets;
        }
        let own = self.socket.address();
        let mail = self.intake.sorter.take_mail(now, own, hca);
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
        let flows = &mut self.intake.sorter.flows;
        match self.stage.push(hca, packet, flows, &self.socket) {
            Ok(()) => {}
            Err(Refused::NotNow) => return Err(Full),
            Err(why) => self.refuse(hca, packet, &why),
        }
        Ok(())
    }

    #[inline]
    fn waiting(&self) -> usize {
        self.stage.len()
    }

    #[inline]
    fn flush(&mut self, hca: &mut Hca) -> bool {
        if self.socket.is_out() {
            self.stage.clear();
        }
        let tap = self.tap.as_ref();
        let flushed = self.stage.flush(&self.socket, hca, tap, &mut self.faults);
        flushed.is_ok()
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        let look = self.intake.overflow.look_at();
        let Some(neighbours) = self.neighbours() else {
            return look;
        };
        let mail = neighbours.deadline_ns();
        let steering = neighbours.steering.deadline_ns();
        let all = [mail, steering, self.kept.deadline_ns()];
        let all = all.into_iter().flatten().map(|ns| Clock.time_at(ns));
        all.chain(look).min()
    }

    fn handle_timeout(&mut self, now: Time, hca: &mut Hca) {
        if let Some(neighbours) = &mut self.intake.sorter.neighbours {
            let (steering, now_ns) = (&mut neighbours.steering, Clock.nanos_at(now));
            let due = steering.deadline_ns();
            if due.is_some_and(|at| at <= now_ns) {
                steering.run(now_ns, &self.socket);
            }
            if self.kept.deadline_ns().is_some_and(|at| at <= now_ns) {
                neighbours.look_at_places(&mut self.kept, now_ns);
            }
            self.intake.sorter.flush_mail(|| now, hca);
        }
        let dropped = self.intake.overflow.look(now, &self.socket);
        if dropped > 0 {
            hca.count(Counter::RxSocketOverflow, dropped.into());
            self.faults.overflowed();
        }
    }

    fn lacks_lease(&mut self, now: Time) {
        if let Some(neighbours) = self.neighbours_mut() {
            neighbours.sweep_leases(Clock.nanos_at(now));
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
