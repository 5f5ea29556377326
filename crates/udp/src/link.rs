//! The sockets of a device as its link.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ferroce_driver::{Aside, Full, Link};
use ferroce_hca::{Counter, Event, Hca, Outgoing, Time};

use crate::fault::Faults;
use crate::groups::Groups;
use crate::intake::Intake;
use crate::neighbours::Neighbours;
use crate::socket::{SendError, Socket};
use crate::stage::{Refused, Stage};
use crate::sys::Epoll;
use crate::tap::Tap;
use crate::wait::Clock;

/// Receive calls for groups in one go, after which the device's own socket gets its turn.
const GROUP_CALLS_MAX: usize = 16;

/// A device's own socket, those of its multicast groups, and the mailbox of its process.
#[derive(Debug)]
pub(crate) struct SocketLink {
    socket: Arc<Socket>,
    groups: Groups,
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
            groups: Groups::new(own, watch),
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

    /// Takes what has arrived for multicast groups; returns the number of packets.
    #[inline]
    fn receive_groups(&mut self, now: impl Fn() -> Time, hca: &mut Hca) -> usize {
        if self.groups.is_empty() {
            return 0;
        }
        let mut packets = 0;
        for _ in 0..GROUP_CALLS_MAX {
            let Some(socket) = self.groups.next_ready() else {
                break;
            };
            packets += match self.intake.receive(&socket, &now, hca) {
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
        let received = self.intake.receive(&self.socket, now, hca);
        received.inspect_err(|_| self.faults.fatal())
    }

    #[inline]
    fn receive_aside(&mut self, now: impl Fn() -> Time, hca: &mut Hca, which: Aside) -> usize {
        let packets = self.receive_groups(&now, hca);
        let has_mail = self.neighbours().is_some_and(Neighbours::has_mail);
        if !has_mail && which == Aside::Announced {
            return packets;
        }
        let own = self.socket.address();
        let packets = packets + self.intake.sorter.take_mail(now, own, hca);
        if self.neighbours().is_some_and(Neighbours::is_removed) {
            self.faults.removed();
        }
        packets
    }

    #[inline]
    fn push(&mut self, hca: &mut Hca, packet: &Outgoing) -> Result<(), Full> {
        if self.socket.has_left() {
            return Ok(()); // the program ends, and nobody waits for it
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
        if self.socket.has_left() {
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
        let both = [mail, steering].into_iter().flatten();
        both.map(|ns| Clock.time_at(ns)).chain(look).min()
    }

    fn handle_timeout(&mut self, now: Time, hca: &mut Hca) {
        if let Some(neighbours) = &mut self.intake.sorter.neighbours {
            let (steering, now_ns) = (&mut neighbours.steering, Clock.nanos_at(now));
            let due = steering.deadline_ns();
            if due.is_some_and(|at| at <= now_ns) {
                steering.run(now_ns, &self.socket);
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
