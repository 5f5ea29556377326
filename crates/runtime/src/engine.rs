//! A device with its driver and its sockets, which a program's threads use in turn.

use std::io;
use std::sync::Arc;
use std::thread;

use ferroce_driver::{Aside, Driver, Link, Next, Ring, Round, Sent};
use ferroce_hca::{Event, Hca, Time};
use ferroce_os::{Clock, Epoll, Tap};
use ferroce_registry::PeerLinks;
use ferroce_rings::Near;
use ferroce_sockets::Socket;

use crate::link::SocketLink;
use crate::neighbours::Neighbours;
use crate::port::Leaving;

/// How long a process that joins waits until the kernel knows all sockets. It takes some hundred
/// microseconds, but on busy machines.
const SETTLE_NS: u64 = 100_000_000;

/// How often a process that leaves empties its mailbox, which others may go on filling.
const HURRIED_LOOKS: usize = 100;

/// See [`Driver`] for what these do.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) driver: Driver,
    pub(crate) link: SocketLink,
}

impl Engine {
    pub(crate) fn new(
        hca: Hca,
        socket: Arc<Socket>,
        tap: Option<Tap>,
        neighbours: Option<Neighbours>,
        near: Option<Near>,
        watch: Arc<Epoll>,
    ) -> Self {
        Self {
            driver: Driver::new(hca),
            link: SocketLink::new(socket, tap, neighbours, near, watch),
        }
    }

    #[inline]
    pub(crate) fn now() -> Time {
        Clock.now()
    }

    #[inline]
    pub(crate) fn hca(&self) -> &Hca {
        &self.driver.hca
    }

    #[inline]
    pub(crate) fn hca_mut(&mut self) -> &mut Hca {
        &mut self.driver.hca
    }

    // What the driver does, on these sockets.

    /// Takes what one call brings on the device's own socket.
    pub(crate) fn receive(&mut self) -> io::Result<usize> {
        let taken = self.link.receive(Self::now, &mut self.driver.hca);
        Ok(taken?.packets)
    }

    /// Takes what has arrived for groups and from other processes, announced or not.
    pub(crate) fn receive_aside(&mut self) -> usize {
        let hca = &mut self.driver.hca;
        self.link.receive_aside(Self::now, hca, Aside::All)
    }

    pub(crate) fn take(&mut self, is_around: bool) -> Round {
        self.driver.take(is_around, Self::now, &mut self.link)
    }

    pub(crate) fn run_timers(&mut self, at: Time) -> bool {
        self.driver.run_timers(at, Self::now, &mut self.link)
    }

    #[inline]
    pub(crate) fn poll(&mut self, polled: Time) {
        self.driver.poll(polled, Self::now, &mut self.link);
    }

    pub(crate) fn is_in_lull(&self, now: Time) -> bool {
        self.driver.is_in_lull(now, &self.link)
    }

    pub(crate) fn catch_up(&mut self) {
        self.driver.catch_up(Self::now, &mut self.link);
    }

    #[inline]
    pub(crate) fn ring(&mut self, is_watched: bool) -> Ring {
        self.driver.ring(is_watched, Self::now)
    }

    #[inline]
    pub(crate) fn send(&mut self) -> Sent {
        self.driver.send(Self::now, &mut self.link)
    }

    #[inline]
    pub(crate) fn send_batches(&mut self) -> Sent {
        self.driver.send_batches(Self::now, &mut self.link)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.driver.poll_timeout(&self.link)
    }

    pub(crate) fn wanted_at(&self) -> Option<Time> {
        self.driver.wanted_at(&self.link)
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.driver.is_blocked(&self.link)
    }

    /// Whether it waits until the socket takes more.
    pub(crate) fn awaits_socket(&self) -> bool {
        self.link.awaits_socket()
    }

    /// What carries the packets to its peers.
    pub(crate) fn peer_links(&self) -> PeerLinks {
        let near = self.link.near();
        near.map_or_else(PeerLinks::udp, Near::links)
    }

    /// What comes after a round of the helper, which gives memory back before it sleeps.
    pub(crate) fn tidy(&mut self, round: Round, next: Next) -> Next {
        let next = self.driver.tidy(round, next);
        if matches!(next, Next::Sleep(_)) {
            self.link.rest();
        }
        next
    }

    /// Takes note of what has woken the helper, and of peers on this host that have ended.
    pub(crate) fn look_at_lines(&mut self) {
        self.link.look_at_lines();
    }

    /// Whether something lies in a ring.
    pub(crate) fn has_near(&self) -> bool {
        self.link.near().is_some_and(Near::has_some)
    }

    #[inline]
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.driver.poll_event(&mut self.link)
    }

    // What other processes need.

    /// The process shares the device's port from now on. Waits a little until packets for it come
    /// straight to it, so that whatever it begins with depends on no other process.
    pub(crate) fn joined(&mut self) {
        let started = Clock.now_ns();
        let Some(neighbours) = self.link.neighbours_mut() else {
            return;
        };
        neighbours.steering.joined(started);
        while self.is_unsettled() && Clock.now_ns() - started < SETTLE_NS {
            let now = Self::now();
            // What it does not find now it will not find later.
            let _ = self.receive();
            self.run_timers(now);
            thread::yield_now();
        }
    }

    fn is_unsettled(&self) -> bool {
        let neighbours = self.link.neighbours();
        neighbours.is_some_and(|it| !it.steering.is_settled())
    }

    /// Requests for a service are expected that were not before.
    pub(crate) fn listens(&mut self) {
        if let Some(neighbours) = self.link.neighbours_mut() {
            neighbours.steering.listens(Clock.now_ns());
        }
    }

    /// The process leaves: gives its place among the sockets of the port to another process, if there is
    /// reason to and one takes it. Nothing is received any more then.
    pub(crate) fn hand_over(&mut self, leaving: &Leaving<'_>) -> bool {
        // With the mail come places that others have just given to this process.
        for _ in 0..HURRIED_LOOKS {
            if !self.link.neighbours().is_some_and(Neighbours::has_mail) {
                break;
            }
            self.receive_aside();
        }
        self.link.hand_over(leaving)
    }

    /// It should, and cannot.
    pub(crate) fn not_joined(&mut self) {
        self.link.faults.fatal();
    }

    /// Whether packets of other processes are still here.
    pub(crate) fn holds_mail(&self) -> bool {
        self.link.neighbours().is_some_and(Neighbours::is_blocked)
    }
}
