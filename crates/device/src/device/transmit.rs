//! Outgoing packets: the order of queue pairs, and the impaired link.

use ferroce_transport::{Counter, Outgoing, Time};

use super::Hca;
use super::link::Pairing;
use super::queue_pair::Found;
use crate::congestion::Congestion;
use crate::host_profile::HostProfile;
use crate::impairer::{HeldPacket, Release};
use crate::packet::force_ack_dscp;
use crate::scheduler::Priorities;

/// What a queue pair has for the port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Polled {
    Nothing,
    Packet,
    /// A packet that goes nowhere: the GID that the queue pair was bound to is gone (F21).
    Lost,
}

impl Hca {
    /// The next packet for the link.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Outgoing> {
        let mut packet = Outgoing::empty();
        self.poll_transmit_into(now, &mut packet).then_some(packet)
    }

    /// [`Self::poll_transmit`] for hosts that make bytes of each packet at once, and keep the room
    /// for one: packets are large. False: there is none, and `out` holds nothing of use.
    pub fn poll_transmit_into(&mut self, now: Time, out: &mut Outgoing) -> bool {
        self.common.now = now;
        self.refresh(); // timers are armed here
        let made = if self.second.is_none() && self.first.egress.is_clear() {
            self.next_packet(now, out)
        } else {
            self.poll_impaired(now, out)
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

    /// Pauses the priorities whose bits are set, and resumes the others: none of a paused one's packets
    /// is handed out, except those that an impairment holds back and that had left before. Others go
    /// on. What has left already may time out; see `docs/design/port.md`.
    ///
    /// On a port without a rate everything has priority 0.
    pub fn set_paused(&mut self, now: Time, priorities: u8) {
        self.common.now = now;
        self.scheduler.port.set_paused(priorities);
    }

    /// The priorities that are paused, one bit for each.
    pub fn paused(&self) -> u8 {
        self.scheduler.port.paused()
    }

    /// Whether [`Self::poll_transmit`] may have something at once.
    pub fn wants_transmit(&self) -> bool {
        self.common.serializer.is_free(self.common.now) && self.next_priority().is_some()
    }

    /// The priority of what is to leave next, now or when the port is free.
    #[inline]
    pub(super) fn next_priority(&self) -> Option<u8> {
        let others = match self.congestion.wants_transmit() || self.cm_wants_transmit() {
            true => self.priorities_of_others(),
            false => 0,
        };
        self.scheduler.port.highest(others)
    }

    /// The priorities of what waits that no queue pair of a program sends.
    #[cold]
    fn priorities_of_others(&self) -> Priorities {
        let bit = |priority: Option<u8>| priority.map_or(0, |priority| 1 << priority);
        bit(self.cnp_priority()) | bit(self.mad_priority())
    }

    /// Writes the next packet to `out` that no queue pair of a program sends, if it is of this priority.
    #[cold]
    fn poll_others(&mut self, priority: u8, out: &mut Outgoing) -> bool {
        if self.cnp_priority() == Some(priority) {
            self.poll_cnp(out)
        } else {
            self.mad_priority() == Some(priority) && self.poll_mad(out)
        }
    }

    fn cnp_priority(&self) -> Option<u8> {
        let path = self.congestion.next_path();
        path.map(|path| self.scheduler.port.queue_of(path))
    }

    fn mad_priority(&self) -> Option<u8> {
        let path = self.cm.get().and_then(|cm| cm.next_path());
        path.map(|path| self.scheduler.port.queue_of(path))
    }

    /// Whether an impairment holds packets back that left the device, so that it must live on for
    /// them to arrive.
    pub fn holds_sent_packets(&self) -> bool {
        self.links().any(|link| link.egress.next().is_some())
    }

    fn poll_impaired(&mut self, now: Time, out: &mut Outgoing) -> bool {
        loop {
            for number in self.link_numbers() {
                let (link, state) = self.link_mut(number);
                if let Some(packet) = link.egress.poll(now, state) {
                    *out = packet;
                    self.departure = now;
                    return true;
                }
            }
            if !self.next_packet(now, out) {
                return false;
            }
            if self.send_impaired(out) {
                return true;
            }
        }
    }

    /// The next packet for the port, if that is free.
    fn next_packet(&mut self, now: Time, out: &mut Outgoing) -> bool {
        if !self.common.serializer.is_free(now) {
            return false;
        }
        while let Some(priority) = self.next_priority() {
            let others = self.congestion.wants_transmit() || self.cm_wants_transmit();
            if others && self.poll_others(priority, out) || self.poll_ready(priority, now, out) {
                out.path.sl = self.scheduler.port.pcp_of(&out.path);
                if self.second.is_some() {
                    out.path.port = self.leaves_by(out);
                }
                self.departure = self.common.serializer.send(now, out);
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

    /// The next packet of this priority, of the queue pair whose turn it is.
    fn poll_ready(&mut self, priority: u8, now: Time, out: &mut Outgoing) -> bool {
        while let Some(index) = self.scheduler.port.front(priority) {
            let (qps, common, scheduler) = (&mut self.qps, &mut self.common, &mut self.scheduler);
            let Some(mut found) = Found::at(index, qps, common, scheduler) else {
                debug_assert!(false, "a queue pair that is gone waits for the port");
                self.scheduler.port.pop(priority);
                continue;
            };
            if found.entry.qp.wants_target() && found.turn_to_target() {
                self.conclude();
                continue;
            }
            let lag_link = found.entry.lag_link(index);
            let polled = found.poll_transmit(&self.congestion, &self.config.host, now, out);
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
                if let Some(second) = &self.second {
                    out.path.port = match second.pairing {
                        Pairing::Ports => self.common.port,
                        Pairing::Bond => lag_link,
                    };
                }
                return true;
            }
        }
        false
    }
}

impl Found<'_> {
    fn poll_transmit(
        &mut self,
        congestion: &Congestion,
        host: &HostProfile,
        now: Time,
        out: &mut Outgoing,
    ) -> Polled {
        if self.scheduler.port.in_turn().is_none() {
            self.scheduler.begin_turn(self.index, self.entry);
        }
        let limited = self.entry.limiter.is_some();
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
