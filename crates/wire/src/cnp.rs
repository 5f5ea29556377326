//! RoCEv2 congestion notification packets (IBA vol 1, annex A17.9.3).
//!
//! When a packet arrives with CE, the notification point sends a CNP to the queue pair it came
//! from. The rate of CNPs and their DSCP do not depend on the packet format and are not handled
//! here.

use crate::headers::{BthFlags, Headers};
use crate::icrc::IcrcFlow;
use crate::ids::{Psn, Qpn};
use crate::lengths::{BTH_LEN, CNP_RESERVED_LEN, ICRC_LEN};
use crate::opcode::Opcode;
use crate::packet::Packet;

/// Length of a CNP from BTH to ICRC, bytes.
pub const LEN: usize = BTH_LEN + CNP_RESERVED_LEN + ICRC_LEN;

/// Returns the headers of a CNP to `dest_qp`, the sender of the marked packet, in the flow's
/// partition.
pub const fn headers(dest_qp: Qpn, pkey: u16) -> Headers {
    let mut headers = Headers::cnp().to(dest_qp, Psn::ZERO);
    headers.pkey = pkey;
    headers.flags = BthFlags::BECN;
    headers
}

/// Builds a complete CNP, as the payload of a UDP datagram.
///
/// `flow` is the CNP's own flow, from the receiver of the marked packet to its sender. `ip_id` is
/// the IPv4 Identification that the CNP will have.
pub fn build(dest_qp: Qpn, pkey: u16, flow: &IcrcFlow, ip_id: u16) -> [u8; LEN] {
    let mut packet = [0; LEN];
    let written = headers(dest_qp, pkey).emit_packet(&[], flow, ip_id, &mut packet);
    debug_assert_eq!(written, Ok(LEN));
    packet
}

/// Returns the queue pair that a well-formed CNP notifies, or `None` for any other packet.
///
/// Does not check the ICRC.
pub fn recognise(packet: &Packet<'_>) -> Option<Qpn> {
    let headers = packet.headers();
    let notifies = headers.opcode() == Opcode::Cnp && headers.flags.contains(BthFlags::BECN);
    notifies.then_some(headers.dest_qp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::PKEY_DEFAULT;
    use crate::icrc::IpPair;

    fn flow() -> IcrcFlow {
        IcrcFlow::new(
            IpPair::V4 {
                src: [10, 0, 0, 1],
                dst: [10, 0, 0, 2],
            },
            49_152,
            4791,
        )
    }

    #[test]
    fn bytes_are_those_of_the_spec() {
        let packet = build(Qpn::new(0xd2), PKEY_DEFAULT, &flow(), 0);
        assert_eq!(packet.len(), 32);
        assert_eq!(
            packet[..12],
            [0x81, 0, 0xff, 0xff, 0x40, 0, 0, 0xd2, 0, 0, 0, 0]
        );
        assert_eq!(packet[12..28], [0; 16]);
        assert_eq!(packet[28..], flow().compute(0, &packet[..28]).to_le_bytes());
    }

    #[test]
    fn recognises_its_own_and_nothing_else() {
        let mut bytes = build(Qpn::new(0x12_3456), PKEY_DEFAULT, &flow(), 0);
        let cnp = Packet::new_checked(&bytes).unwrap();
        assert_eq!(recognise(&cnp), Some(Qpn::new(0x12_3456)));
        assert_eq!(*cnp.headers(), headers(Qpn::new(0x12_3456), PKEY_DEFAULT));
        // Without BECN it notifies of nothing.
        bytes[4] = 0;
        assert_eq!(recognise(&Packet::new_checked(&bytes).unwrap()), None);
        // Read as a SEND of 16 bytes.
        bytes[0] = Opcode::RcSendOnly.as_u8();
        assert_eq!(recognise(&Packet::new_checked(&bytes).unwrap()), None);
    }
}
