//! Incoming packets: the impaired link, their destination, and permission checks.

use ferroce_transport::{Counter, Path, Time, frame_bytes};
use ferroce_wire::{Headers, Opcode, Qpn, Service};

use super::Hca;
use super::queue_pair::Found;
use crate::grh::grh;
use crate::impairer::Release;
use crate::packet::{CE, Held, Received};
use crate::pairing::LinkNumber;
use crate::queue_pair::QpEntry;
use crate::remainder::Remainder;
use crate::services::Common;

impl Hca {
    /// Handles a packet from the link.
    pub fn handle_packet(&mut self, now: Time, packet: &Received<'_>) {
        self.common.now = now;
        self.refresh();
        if self.second.is_none() && self.first.ingress.is_clear() {
            self.deliver(packet);
            return;
        }
        self.receive_impaired(packet);
        self.release_received();
    }

    /// What is to follow of the latest message that a peer sends, whatever else has come since.
    #[inline]
    pub fn remainder(&self) -> Remainder {
        self.remainder
    }

    /// The rest of that message is not awaited any more.
    pub fn give_up_remainder(&mut self) {
        self.remainder = Remainder::None;
    }

    fn receive_impaired(&mut self, packet: &Received<'_>) {
        let bytes = frame_bytes(packet.headers, packet.data.len());
        let (now, number) = (self.common.now, self.came_by(packet));
        let (link, state) = self.link_mut(number);
        match link.ingress.admit(now, bytes, state) {
            None => {}
            Some(Release::Now(damage)) => {
                let mut packet = *packet;
                if damage.ecn_mark {
                    packet.traffic_class |= CE;
                }
                self.deliver_unless(number, damage.corrupt_bit.is_some(), &packet);
            }
            Some(Release::Later(later)) => link.ingress.hold(later, Held::new(packet)),
        }
    }

    /// Delivers the packets that the impairment held back until now.
    pub(super) fn release_received(&mut self) {
        for number in self.link_numbers() {
            while let Some(packet) = self.poll_received(number) {
                self.deliver_unless(number, packet.corrupt, &packet.as_received());
            }
        }
    }

    fn poll_received(&mut self, number: LinkNumber) -> Option<Held> {
        let now = self.common.now;
        let (link, state) = self.link_mut(number);
        link.ingress.poll(now, state)
    }

    fn deliver_unless(&mut self, number: LinkNumber, corrupt: bool, packet: &Received<'_>) {
        self.common.link = number;
        let (link, state) = self.link(number);
        if link.ingress.is_dark() {
            state.count(Counter::ImpairBlackout, 1);
        } else if corrupt {
            self.common.count(Counter::RxIcrcEncapsulated, 1);
        } else {
            self.deliver(packet);
        }
    }

    #[inline]
    fn deliver(&mut self, packet: &Received<'_>) {
        let qpn = packet.headers.dest_qp;
        self.common.port = packet.port;
        let opcode = packet.headers.opcode();
        if opcode.is_request() {
            self.remainder = Remainder::after(opcode);
        }
        if opcode == Opcode::Cnp {
            self.deliver_cnp(packet);
        } else if qpn == Qpn::MULTICAST {
            self.deliver_to_group(packet);
        } else if packet.dest.is_multicast() {
            // What is for one queue pair has no business in a group.
            self.common.count(Counter::RxUnknownQp, 1);
        } else if qpn == Qpn::GSI {
            self.deliver_mad(packet);
        } else if let Some(dceth) = packet.headers.dceth() {
            self.deliver_to_target(packet, dceth);
        } else {
            self.deliver_to(qpn, packet);
        }
    }

    /// A copy for each queue pair attached to the group (IBA vol 1, 10.5.2.1).
    fn deliver_to_group(&mut self, packet: &Received<'_>) {
        let mut index = 0;
        while let Some(&qpn) = self.groups.members(packet.dest).get(index) {
            if self.hears(qpn, packet) && !self.is_blocked_echo(qpn, packet) {
                self.deliver_to(qpn, packet);
            }
            index += 1;
        }
        if index == 0 {
            self.common.count(Counter::RxUnknownQp, 1);
        }
    }

    /// Whether a queue pair is on the port that a multicast has arrived at.
    fn hears(&self, qpn: Qpn, packet: &Received<'_>) -> bool {
        let entry = self.qp_entry(qpn);
        entry.is_some_and(|entry| entry.qp.attr().port == packet.port)
    }

    /// Whether a multicast is the queue pair's own and it does not want to hear those.
    fn is_blocked_echo(&self, qpn: Qpn, packet: &Received<'_>) -> bool {
        let blocked = self
            .qp_entry(qpn)
            .and_then(|entry| entry.blocked_echo.as_deref().copied());
        let sender = packet.headers.deth().map(|deth| deth.src_qp);
        blocked == Some(packet.source) && sender == Some(qpn)
    }

    fn deliver_to(&mut self, qpn: Qpn, packet: &Received<'_>) {
        self.deliver_at(self.qp_index(qpn), packet);
    }

    pub(super) fn deliver_at(&mut self, index: Option<u32>, packet: &Received<'_>) {
        let (qps, common, scheduler) = (&mut self.qps, &mut self.common, &mut self.scheduler);
        let found = index.and_then(|index| Found::at(index, qps, common, scheduler));
        let Some(mut found) = found else {
            self.common.count(Counter::RxUnknownQp, 1);
            return;
        };
        if let Err(cause) = check(found.entry, found.common, packet) {
            found.common.port = packet.port;
            found.common.count(cause, 1);
            return;
        }
        let state = found.common.link_state();
        state.count(Counter::RdmaRxPackets, 1);
        state.count(Counter::RdmaRxBytes, packet.data.len().into());
        if packet.dest.is_multicast() {
            state.count(Counter::RxMulticastPackets, 1);
        }
        if packet.traffic_class & CE == CE {
            found.answer_mark(&mut self.congestion, packet);
        }
        let (now, headers, data) = (found.common.now, packet.headers, packet.data);
        if headers.opcode().service() == Service::Ud {
            let grh = grh(packet);
            found.run(|qp, host| qp.handle_datagram(headers, &grh, data, host));
        } else {
            found.run(|qp, host| qp.handle_packet(now, headers, data, host));
        }
        found.book();
        if !found.entry.is_quiet() {
            found.make_ready();
        }
        self.conclude();
    }
}

/// Whether the queue pair may have the packet, or why not.
#[inline]
fn check(entry: &QpEntry, common: &Common, packet: &Received<'_>) -> Result<(), Counter> {
    let headers = packet.headers;
    let qp_type = entry.qp.config().qp_type;
    if !qp_type.takes(headers.opcode()) {
        return Err(Counter::RxWrongService);
    }
    // Of a program that ends, only what needs none of its memory is still looked at.
    let needs_memory = headers.opcode().operation() != Opcode::RcAcknowledge;
    if !entry.qp.takes_packets() || common.keys.is_revoked() && needs_memory {
        return Err(Counter::RxWrongState);
    }
    let is_peer = |path: Path| path.dest == packet.source && !entry.is_severed;
    let is_elsewhere = common.port != packet.port; // its port, now that it is at hand
    if is_elsewhere || qp_type.is_connected() && !entry.path.is_some_and(is_peer) {
        return Err(Counter::RxWrongPeer);
    }
    check_pkey(headers)
}

/// Whether a target may have the request, or why not.
pub(super) fn check_target(entry: &QpEntry, packet: &Received<'_>) -> Result<(), Counter> {
    if !entry.is_target() {
        return Err(Counter::RxWrongService);
    }
    if !entry.qp.takes_packets() {
        return Err(Counter::RxWrongState);
    }
    check_pkey(packet.headers)
}

#[inline]
fn check_pkey(headers: &Headers) -> Result<(), Counter> {
    // The default partition, as full or limited member.
    if headers.pkey | 0x8000 != ferroce_wire::PKEY_DEFAULT {
        return Err(Counter::RxWrongPkey);
    }
    Ok(())
}
