//! Outgoing packets: the order of queue pairs, and the impaired links.

use std::ops::RangeInclusive;

use ferroce_transport::{Counter, Outgoing, Time};

use super::Hca;
use super::queue_pair::Found;
use crate::congestion::Congestion;
use crate::host_profile::HostProfile;
use crate::impairer::{HeldPacket, Release};
use crate::packet::force_ack_dscp;
use crate::pairing::LinkNumber;
use crate::scheduler::Queues;

/// What a queue pair has for the port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Polled {
    Nothing,
    Packet,
    /// A packet that goes nowhere: the GID that the queue pair was bound to is gone (F21).
    Lost,
}

impl Hca {
    /// The next packet for any link.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Outgoing> {
        let mut packet = Outgoing::empty();
        self.poll_transmit_into(now, &mut packet).then_some(packet)
    }

    /// [`Self::poll_transmit`] for hosts that make bytes of each packet at once, and keep the room
    /// for one: packets are large. False: there is none, and `out` holds nothing of use.
    pub fn poll_transmit_into(&mut self, now: Time, out: &mut Outgoing) -> bool {
        self.poll_by(None, now, out)
    }

    /// The same for one link, from 1: hosts whose links have a rate can send by each independently.
    #[inline]
    pub fn poll_link_into(&mut self, link: u8, now: Time, out: &mut Outgoing) -> bool {
        self.poll_by(Some(link), now, out)
    }

    /// The next packet for a link, or for any.
    #[inline]
    fn poll_by(&mut self, link: Option<LinkNumber>, now: Time, out: &mut Outgoing) -> bool {
        self.common.now = now;
        self.refresh(); // timers are armed here
        let made = if self.second.is_none() && self.first.egress.is_clear() {
            self.next_packet(1, now, out)
        } else {
            let links = match link {
                Some(link) => link..=link,
                None => self.link_numbers(),
            };
            self.poll_impaired(links, now, out)
        };
        if made {
            self.common.link = out.path.port;
            let (bytes, state) = (out.payload_len, self.common.link_state());
            state.count(Counter::RdmaTxPackets, 1);
            state.count(Counter::RdmaTxBytes, bytes.into());
            if out.path.dest.is_multicast() {
                state.count(Counter::TxMulticastPackets, 1);
            }
        }
        made
    }

    /// When the packet that [`Self::poll_transmit`] has handed out last has left the device, and begins
    /// its flight: at once, or when its last bit is on the wire if the port has a rate. One that an
    /// impairment held back had left before.
    pub fn departure(&self) -> Time {
        self.departure
    }

    /// Pauses the priorities of a link, from 1, whose bits are set, and resumes its others: none of a
    /// paused one's packets is handed out, except those that an impairment holds back and that had left
    /// before. Others go on. What has left already may time out; see `docs/design/port.md`.
    ///
    /// Without a rate everything has priority 0 of link 1.
    pub fn set_paused(&mut self, now: Time, link: u8, priorities: u8) {
        self.common.now = now;
        self.scheduler.port.set_paused(link, priorities);
    }

    /// The priorities of a link that are paused, one bit for each.
    pub fn paused(&self, link: u8) -> u8 {
        self.scheduler.port.paused(link)
    }

    /// Whether [`Self::poll_transmit`] may have something at once.
    pub fn wants_transmit(&self) -> bool {
        let mut links = self.link_numbers();
        links.any(|link| self.link_wants_transmit(link))
    }

    /// Whether [`Self::poll_link_into`] may have something at once.
    #[inline]
    pub fn link_wants_transmit(&self, link: u8) -> bool {
        self.serializer(link).is_free(self.common.now) && self.next_queue(link).is_some()
    }

    /// When a link that has something to send is free to do so, if it is not.
    pub(super) fn next_departure(&self, link: LinkNumber) -> Option<Time> {
        let busy_until = self.serializer(link).busy_until(self.common.now);
        busy_until.filter(|_| self.next_queue(link).is_some())
    }

    /// The queue of what is to leave next by a link, now or when it is free.
    #[inline]
    fn next_queue(&self, link: LinkNumber) -> Option<u8> {
        let others = match self.congestion.wants_transmit() || self.cm_wants_transmit() {
            true => self.queues_of_others(),
            false => 0,
        };
        self.scheduler.port.highest(link, others)
    }

    /// The queues of what waits that no queue pair of a program sends.
    #[cold]
    fn queues_of_others(&self) -> Queues {
        let bit = |queue: Option<u8>| queue.map_or(0, |queue| 1 << queue);
        bit(self.cnp_queue()) | bit(self.mad_queue())
    }

    /// Writes the next packet to `out` that no queue pair of a program sends, if it is in this queue.
    #[cold]
    fn poll_others(&mut self, queue: u8, out: &mut Outgoing) -> bool {
        if self.cnp_queue() == Some(queue) {
            self.poll_cnp(out)
        } else {
            self.mad_queue() == Some(queue) && self.poll_mad(out)
        }
    }

    fn cnp_queue(&self) -> Option<u8> {
        let path = self.congestion.next_path();
        path.map(|path| self.scheduler.port.queue_of(path, path.port))
    }

    fn mad_queue(&self) -> Option<u8> {
        let path = self.cm.get().and_then(|cm| cm.next_path());
        path.map(|path| self.scheduler.port.queue_of(path, path.port))
    }

    /// Whether an impairment holds packets back that left the device, so that it must live on for
    /// them to arrive.
    pub fn holds_sent_packets(&self) -> bool {
        self.links().any(|link| link.egress.next().is_some())
    }

    fn poll_impaired(
        &mut self,
        links: RangeInclusive<LinkNumber>,
        now: Time,
        out: &mut Outgoing,
    ) -> bool {
        loop {
            for number in links.clone() {
                let (link, state) = self.link_mut(number);
                if let Some(packet) = link.egress.poll(now, state) {
                    *out = packet;
                    self.departure = now;
                    return true;
                }
            }
            if !links.clone().any(|link| self.next_packet(link, now, out)) {
                return false;
            }
            if self.send_impaired(out) {
                return true;
            }
        }
    }

    /// The next packet for a link, if that is free; without a rate, for any.
    fn next_packet(&mut self, link: LinkNumber, now: Time, out: &mut Outgoing) -> bool {
        if !self.serializer(link).is_free(now) {
            return false;
        }
        while let Some(queue) = self.next_queue(link) {
            let others = self.congestion.wants_transmit() || self.cm_wants_transmit();
            if others && self.poll_others(queue, out) || self.poll_ready(queue, now, out) {
                out.path.sl = self.scheduler.port.pcp_of(&out.path);
                if self.second.is_some() {
                    out.path.port = self.scheduler.port.links.carrying(out.path.port);
                }
                self.departure = self.serializer_mut(link).send(now, out);
                return true;
            }
        }
        false
    }

    /// Puts a packet on its impaired link, which begins behind the port; tells whether it passes at once.
    fn send_impaired(&mut self, packet: &mut Outgoing) -> bool {
        let (bytes, departure, number) = (packet.frame_bytes(), self.departure, packet.path.port);
        let (link, state) = self.link_mut(number);
        match link.egress.admit(departure, bytes, state) {
            None => false,
            Some(Release::Now(damage)) => {
                packet.apply_damage(&damage);
                true
            }
            Some(Release::Later(later)) => {
                let mut packet = packet.clone();
                self.detach(&mut packet);
                self.link_mut(number).0.egress.hold(later, packet);
                false
            }
        }
    }

    /// The next packet of this queue, of the queue pair whose turn it is.
    fn poll_ready(&mut self, queue: u8, now: Time, out: &mut Outgoing) -> bool {
        while let Some(index) = self.scheduler.port.front(queue) {
            let (qps, common, scheduler) = (&mut self.qps, &mut self.common, &mut self.scheduler);
            let Some(mut found) = Found::at(index, qps, common, scheduler) else {
                debug_assert!(false, "a queue pair that is gone waits for the port");
                self.scheduler.port.pop(queue);
                continue;
            };
            if found.entry.qp.wants_target() && found.turn_to_target() {
                self.conclude();
                continue;
            }
            let link = found.scheduler.link_of(index, found.entry);
            let polled = found.poll_transmit(&mut self.congestion, &self.config.host, now, out);
            let made = polled != Polled::Nothing;
            let has_more = made && !found.entry.is_quiet();
            if !made || found.scheduler.port.count_packet(index) || !has_more {
                found.end_turn(has_more);
            }
            self.conclude();
            if polled == Polled::Packet {
                if let Some(dscp) = self.ack_dscp {
                    force_ack_dscp(out, dscp);
                }
                out.path.port = link;
                return true;
            }
        }
        false
    }
}

impl Found<'_> {
    fn poll_transmit(
        &mut self,
        congestion: &mut Congestion,
        host: &HostProfile,
        now: Time,
        out: &mut Outgoing,
    ) -> Polled {
        if self.scheduler.port.in_turn().is_none() {
            self.scheduler.begin_turn(self.index, self.entry);
        }
        if self.common.slow_restart.silent != 0 && self.entry.ends_silence(now) {
            self.restart_after_silence(congestion, now);
        }
        let limited = self.entry.limiter.is_some() || self.entry.restarts;
        if limited && !self.limit(congestion, host, now) {
            return Polled::Nothing;
        }
        // A datagram has a path of its own, and is never slowed down; any other queue pair has one
        // from RTR on, and sends nothing before.
        if let Some(path) = self.entry.path {
            out.path = congestion.mark_capable(path);
        }
        if !self.run(|qp, host| qp.poll_transmit(now, host, out)) {
            return Polled::Nothing;
        }
        if self.entry.is_severed {
            self.common.count(Counter::TxDropped, 1);
            return Polled::Lost;
        }
        out.entropy = match self.entry.qp.uses_many_paths() {
            true => self.common.next_entropy(host),
            false => 0,
        };
        if limited {
            self.charge(congestion, host, now, out);
        }
        Polled::Packet
    }

    /// Has a DCI follow the path to the target of its next request, and wait for the port anew: it may
    /// have another priority on that path. False if it has no request for a target.
    #[cold]
    fn turn_to_target(&mut self) -> bool {
        let Some(path) = self.run(|qp, host| qp.turn_to_target(host)) else {
            return false;
        };
        self.end_turn(false);
        self.follow(Some(path));
        self.make_ready();
        true
    }

    /// Ends its turn; see [`Scheduler::end_turn`](crate::scheduler::Scheduler::end_turn).
    fn end_turn(&mut self, has_more: bool) {
        let (now, index) = (self.common.now, self.index);
        self.scheduler.end_turn(now, index, self.entry, has_more);
    }
}
