//! Detects spurious retransmissions.
//!
//! A device knows only what comes back to it; the fabric knows what arrived. A retransmission of a
//! request that its receiver has executed is spurious, unless the answer was lost.

use std::collections::HashMap;

use ferroce_device::{Counter, Hca, Outgoing, Qpn};
use ferroce_wire::Psn;

use crate::frame::Frame;
use crate::host::{Host, number_of};

/// Answers of hosts of a part that were lost, and what came again for them.
#[derive(Default, Debug)]
pub(crate) struct Answers {
    /// The newest of each queue pair, by its address, that was to get one.
    lost: HashMap<(u32, Qpn), Psn>,
    /// Requests that came again for one, although they had been executed.
    needed: u64,
}

impl Answers {
    /// A packet is lost. An answer stands for all before it, too.
    pub(crate) fn lose(&mut self, packet: &Outgoing) {
        let headers = &packet.headers;
        if headers.opcode().is_response()
            && let Some(address) = number_of(packet.path.dest)
        {
            let newest = self.lost.entry((address, headers.dest_qp));
            let newest = newest.or_insert(headers.psn);
            if newest.is_before(headers.psn) {
                *newest = headers.psn;
            }
        }
    }

    /// A packet is about to reach a device.
    #[inline]
    pub(crate) fn arrive(&mut self, hca: &Hca, frame: &Frame, packet: &Outgoing) {
        if !self.lost.is_empty() && is_repeated(hca, packet) && self.is_needed(hca, frame, packet) {
            self.needed += 1;
        }
    }

    #[cold]
    fn is_needed(&self, hca: &Hca, frame: &Frame, packet: &Outgoing) -> bool {
        let asker = hca.qp(packet.headers.dest_qp).map(|qp| qp.attr().dest_qpn);
        let lost = asker.and_then(|qpn| self.lost.get(&(frame.source, qpn)));
        lost.is_some_and(|psn| !psn.is_before(packet.headers.psn))
    }

    /// Requests that came to hosts again for nothing.
    pub(crate) fn repeated(&self, hosts: &[Host]) -> u64 {
        let counted = |host: &Host| host.hca.counter(Counter::DuplicateRequest);
        let came: u64 = hosts.iter().map(counted).sum();
        came.saturating_sub(self.needed)
    }

    /// Whether a packet that is on its way to a device is such a request.
    pub(crate) fn is_spurious(&self, hca: &Hca, frame: &Frame, packet: &Outgoing) -> bool {
        is_repeated(hca, packet) && !self.is_needed(hca, frame, packet)
    }
}

/// Whether a packet is a request that the device has executed.
#[inline]
fn is_repeated(hca: &Hca, packet: &Outgoing) -> bool {
    packet.headers.opcode().is_request()
        && hca
            .qp(packet.headers.dest_qp)
            .is_some_and(|qp| qp.takes_packets() && packet.headers.psn.is_before(qp.expected_psn()))
}
