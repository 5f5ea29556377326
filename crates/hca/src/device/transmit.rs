//! Packets that go out: whose turn it is, and the impaired link.

use ferroce_transport::{Counter, Outgoing, Time};

use super::Hca;
use crate::link::{HeldPacket, Release};
use crate::packet::force_ack_dscp;

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
        let made = if self.egress.is_clear() {
            self.next_packet(now, out)
        } else {
            self.poll_impaired(now, out)
        };
        if made {
            let bytes = out.payload_len;
            self.common.state.count(Counter::RdmaTxPackets, 1);
            self.common.state.count(Counter::RdmaTxBytes, bytes.into());
            if out.path.dest.is_multicast() {
                self.common.state.count(Counter::TxMulticastPackets, 1);
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

    /// Whether [`Self::poll_transmit`] may have something at once.
    pub fn wants_transmit(&self) -> bool {
        self.has_ready() && self.common.serializer.is_free(self.common.now)
    }

    /// Whether something waits to be sent, now or when the port is free.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty() || self.cm_wants_transmit() || self.congestion.wants_transmit()
    }

    /// Whether an impairment holds packets back that left the device, so that it must live on for
    /// them to arrive.
    pub fn holds_sent_packets(&self) -> bool {
        self.egress.next().is_some()
    }

    fn poll_impaired(&mut self, now: Time, out: &mut Outgoing) -> bool {
        loop {
            if let Some(packet) = self.egress.poll(now, &self.common.state) {
                *out = packet;
                self.departure = now;
                return true;
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
        let made = if self.congestion.wants_transmit() {
            self.poll_cnp(out)
        } else if self.cm_wants_transmit() {
            self.poll_mad(out)
        } else {
            self.poll_ready(now, out)
        };
        if made {
            self.departure = self.common.serializer.send(now, out);
        }
        made
    }

    /// Puts a packet on the impaired link, which begins behind the port; tells whether it passes at once.
    fn send_impaired(&mut self, packet: &mut Outgoing) -> bool {
        let bytes = packet.frame_bytes();
        match self.egress.admit(self.departure, bytes, &self.common.state) {
            None => false,
            Some(Release::Now(damage)) => {
                packet.apply_damage(&damage);
                true
            }
            Some(Release::Later(later)) => {
                let mut packet = packet.clone();
                self.detach(&mut packet);
                self.egress.hold(later, packet);
                false
            }
        }
    }

    /// The next packet of the queue pair whose turn it is.
    fn poll_ready(&mut self, now: Time, out: &mut Outgoing) -> bool {
        loop {
            let Some(&index) = self.ready.front() else {
                return false;
            };
            if self.poll_qp(index, now, out) {
                self.burst_left -= 1;
                let has_more = !self.is_quiet(index);
                if self.burst_left == 0 || !has_more {
                    self.next_turn(index, has_more);
                }
                return true;
            }
            self.next_turn(index, false);
        }
    }

    /// Whether a queue pair has nothing to send, and waits for no room to send it.
    #[inline]
    fn is_quiet(&self, index: u32) -> bool {
        self.qps
            .get(index)
            .is_some_and(|entry| entry.qp.is_quiet() && !entry.turn.waits())
    }

    /// Puts a queue pair on the ready list to which something has come, if there is more to it.
    #[inline]
    pub(super) fn make_ready_unless_quiet(&mut self, index: u32) {
        if !self.is_quiet(index) {
            self.make_ready(index);
        }
    }

    fn poll_qp(&mut self, index: u32, now: Time, out: &mut Outgoing) -> bool {
        if self.burst_left == self.config.host.turn_packets {
            self.allot(index);
        }
        let Some(entry) = self.qps.get(index) else {
            return false;
        };
        let (path, limited) = (entry.path, entry.limiter.is_some());
        if limited && !self.limit(index, now) {
            return false;
        }
        // A datagram has a path of its own, and nobody slows datagrams down; any other queue pair has
        // one from RTR on, and sends nothing before.
        if let Some(path) = path {
            out.path = self.congestion.mark_capable(path);
        }
        let made = self.with_index(index, |qp, host| qp.poll_transmit(now, host, out));
        if made != Some(true) {
            return false;
        }
        if let Some(dscp) = self.settings.ack_dscp() {
            force_ack_dscp(out, dscp);
        }
        if limited {
            self.charge(index, now, out);
        }
        true
    }

    /// Has a queue pair that is slowed down keep to its window; false if it is to wait.
    fn limit(&mut self, index: u32, now: Time) -> bool {
        let share = self.qps.get(index).map_or(0, |entry| self.share(entry));
        let window = self.limited_window(index, now, share);
        if let (Some(window), Some(entry)) = (window, self.qps.get_mut(index)) {
            entry.qp.share_window(window);
        }
        window.is_some()
    }

    /// Ends the turn of the queue pair at the front of the ready list. It goes to the back if it has
    /// more to send, and off the list if not.
    fn next_turn(&mut self, index: u32, has_more: bool) {
        self.ready.pop_front();
        self.end_turn(index);
        self.burst_left = self.config.host.turn_packets;
        if let Some(entry) = self.qps.get_mut(index) {
            entry.ready = has_more;
            if has_more {
                self.ready.push_back(index);
            }
        }
    }

    /// The queue pair that has sent something in its turn and may go on.
    pub(crate) fn in_turn(&self) -> Option<u32> {
        let front = self.ready.front().copied();
        front.filter(|_| self.burst_left < self.config.host.turn_packets)
    }

    /// Puts a queue pair on the ready list.
    #[inline]
    pub(crate) fn make_ready(&mut self, index: u32) {
        if let Some(entry) = self.qps.get_mut(index)
            && !entry.ready
        {
            entry.ready = true;
            self.ready.push_back(index);
        }
    }
}
