//! The sockets of all ports of a device as one link for its driver. Most devices have one.

use std::io;

use ferroce_device::{Event, Hca, Outgoing, Time};
use ferroce_driver::{Aside, Driver, Full, Link, Taken};
use ferroce_os::Clock;
use ferroce_registry::PeerLinks;

use crate::link::{SocketLink, earlier};
use crate::port::Leaving;

/// A device with what drives it, on the sockets and rings of this host.
pub(crate) type Engine = Driver<Links, HostClock>;

/// The machine's clock, as the devices of this process count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostClock;

impl ferroce_driver::Clock for HostClock {
    #[inline]
    fn now(&self) -> Time {
        Clock.now()
    }
}

/// The links at the ports of a device.
#[derive(Debug)]
pub(crate) struct Links {
    pub(crate) first: SocketLink,
    second: Option<Box<SocketLink>>,
}

impl Links {
    pub(crate) fn new(first: SocketLink, second: Option<SocketLink>) -> Self {
        Self {
            first,
            second: second.map(Box::new),
        }
    }

    #[inline]
    fn each(&self) -> impl Iterator<Item = &SocketLink> {
        [&self.first].into_iter().chain(self.second.as_deref())
    }

    #[inline]
    fn each_mut(&mut self) -> impl Iterator<Item = &mut SocketLink> {
        let second = self.second.as_deref_mut();
        [&mut self.first].into_iter().chain(second)
    }

    /// The link that a packet leaves by. Both links of a bond have one socket.
    #[inline]
    fn of(&mut self, packet: &Outgoing) -> &mut SocketLink {
        match &mut self.second {
            Some(second) if packet.path.port == 2 => second,
            _ => &mut self.first,
        }
    }

    /// What carries the packets of the first port to the peers.
    pub(crate) fn peer_links(&self) -> PeerLinks {
        self.first.peer_links()
    }

    /// Whether the first waits until the device's socket takes more.
    pub(crate) fn awaits_socket(&self) -> bool {
        self.first.awaits_socket()
    }

    /// Whether one waits until a socket takes more that the helper does not wait for.
    pub(crate) fn awaits_further_socket(&self) -> bool {
        let of_second = self.second.as_ref().is_some_and(|it| it.awaits_socket());
        of_second || self.each().any(SocketLink::awaits_exit)
    }

    /// See [`SocketLink::look_at_lines`].
    pub(crate) fn look_at_lines(&mut self) {
        self.each_mut().for_each(SocketLink::look_at_lines);
    }

    /// Whether a ring has something.
    pub(crate) fn has_near(&self) -> bool {
        self.each().any(SocketLink::has_near)
    }

    /// The process shares the device's ports from now on.
    pub(crate) fn joined(&mut self) {
        self.each_mut().for_each(SocketLink::joined);
    }

    /// Whether packets for this process may still come to another one.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.each().any(SocketLink::is_unsettled)
    }

    /// Requests for a service are expected that were not before.
    pub(crate) fn listens(&mut self) {
        self.each_mut().for_each(SocketLink::listens);
    }

    /// Whether other processes have sent something.
    pub(crate) fn has_mail(&self) -> bool {
        self.each().any(SocketLink::has_mail)
    }

    /// Whether packets of other processes are still here.
    pub(crate) fn holds_mail(&self) -> bool {
        self.each().any(SocketLink::holds_mail)
    }

    /// The device cannot go on.
    pub(crate) fn fatal(&mut self) {
        self.first.faults.fatal();
    }

    /// See [`SocketLink::hand_over`], at the port of this number.
    pub(crate) fn hand_over(&mut self, number: u8, leaving: &Leaving<'_>) -> bool {
        match &mut self.second {
            Some(second) if number == 2 => second.hand_over(leaving),
            _ => self.first.hand_over(leaving),
        }
    }
}

fn sum(one: Taken, other: Taken) -> Taken {
    Taken {
        packets: one.packets + other.packets,
        more: one.more || other.more,
    }
}

impl Link for Links {
    type Gone = io::Error;

    #[inline]
    fn receive(&mut self, now: impl Fn() -> Time, hca: &mut Hca) -> io::Result<Taken> {
        let taken = self.first.receive(&now, hca)?;
        match &mut self.second {
            None => Ok(taken),
            Some(second) => Ok(sum(taken, second.receive(now, hca)?)),
        }
    }

    #[inline]
    fn glance(&mut self, at: Time, now: impl Fn() -> Time, hca: &mut Hca) -> io::Result<Taken> {
        let taken = self.first.glance(at, &now, hca)?;
        match &mut self.second {
            None => Ok(taken),
            Some(second) => Ok(sum(taken, second.glance(at, now, hca)?)),
        }
    }

    #[inline]
    fn receive_aside(&mut self, now: impl Fn() -> Time, hca: &mut Hca, which: Aside) -> usize {
        let each = self.each_mut();
        each.map(|link| link.receive_aside(&now, hca, which)).sum()
    }

    #[inline]
    fn push(&mut self, hca: &mut Hca, packet: &Outgoing) -> Result<(), Full> {
        self.of(packet).push(hca, packet)
    }

    #[inline]
    fn waiting(&self) -> usize {
        let first = self.first.waiting();
        let second = self.second.as_ref();
        second.map_or(first, |second| first + second.waiting())
    }

    #[inline]
    fn flush(&mut self, hca: &mut Hca) -> bool {
        let is_sent = self.first.flush(hca);
        let second = self.second.as_mut();
        second.is_none_or(|second| second.flush(hca)) && is_sent
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        let first = self.first.poll_timeout();
        match &self.second {
            None => first,
            Some(second) => earlier(first, second.poll_timeout()),
        }
    }

    fn handle_timeout(&mut self, now: Time, hca: &mut Hca) {
        for link in self.each_mut() {
            link.handle_timeout(now, hca);
        }
    }

    fn rest(&mut self) {
        self.each_mut().for_each(Link::rest);
    }

    fn handle_event(&mut self, event: Event) -> Option<Event> {
        let mut left = Some(event);
        for link in self.each_mut() {
            left = link.handle_event(event);
        }
        left
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        self.each_mut().find_map(Link::poll_event)
    }
}
