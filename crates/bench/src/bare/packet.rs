//! The few packets that a stream of WRITEs needs. They are implemented separately from the device,
//! so that the reference does not change with the device.

use std::net::Ipv4Addr;

use crc32fast::Hasher;
use ferroce_sockets::Socket;

pub(super) const BTH_BYTES: usize = 12;
pub(super) const RETH_BYTES: usize = 16;
pub(super) const AETH_BYTES: usize = 4;
pub(super) const ICRC_BYTES: usize = 4;

pub(super) const WRITE_FIRST: u8 = 0x06;
pub(super) const WRITE_MIDDLE: u8 = 0x07;
pub(super) const WRITE_LAST: u8 = 0x08;
pub(super) const WRITE_ONLY: u8 = 0x0a;
pub(super) const ACKNOWLEDGE: u8 = 0x11;

/// Packet sequence numbers have 24 bits.
const PSN_MASK: u32 = 0xff_ffff;

/// Base transport header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Bth {
    pub(super) opcode: u8,
    pub(super) qpn: u32,
    pub(super) ack_request: bool,
    pub(super) psn: u32,
}

impl Bth {
    pub(super) fn emit(self, out: &mut [u8]) {
        out[0] = self.opcode;
        out[1] = 0;
        out[2..4].copy_from_slice(&[0xff, 0xff]);
        out[4..8].copy_from_slice(&self.qpn.to_be_bytes());
        let word = u32::from(self.ack_request) << 31 | self.psn & PSN_MASK;
        out[8..12].copy_from_slice(&word.to_be_bytes());
    }

    pub(super) fn parse(packet: &[u8]) -> Option<Self> {
        let bytes: &[u8; BTH_BYTES] = packet.first_chunk()?;
        let word =
            |at| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Some(Self {
            opcode: bytes[0],
            qpn: word(4) & 0xff_ffff,
            ack_request: word(8) >> 31 != 0,
            psn: word(8) & PSN_MASK,
        })
    }
}

/// RDMA extended transport header.
pub(super) fn emit_reth(address: u64, len: u32, out: &mut [u8]) {
    out[0..8].copy_from_slice(&address.to_be_bytes());
    out[8..12].copy_from_slice(&0x1234_u32.to_be_bytes());
    out[12..16].copy_from_slice(&len.to_be_bytes());
}

/// The target address in a RETH.
pub(super) fn reth_address(reth: &[u8]) -> Option<u64> {
    reth.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

/// The full sequence number nearest to `expected` that has these low 24 bits.
pub(super) fn widen(psn: u32, expected: u64) -> u64 {
    let ahead = psn.wrapping_sub(expected as u32) & PSN_MASK;
    if ahead <= PSN_MASK / 2 {
        expected + u64::from(ahead)
    } else {
        expected.saturating_sub(u64::from(PSN_MASK + 1 - ahead))
    }
}

/// The invariant CRC of one direction of a flow: the pseudo headers are laid out once.
#[derive(Clone, Debug)]
pub(super) struct Icrc {
    /// 8 bytes of ones, the IPv4 header, the UDP header and the BTH, masked.
    head: [u8; Self::HEAD_BYTES],
}

impl Icrc {
    const IP: usize = 8;
    const UDP: usize = Self::IP + 20;
    const BTH: usize = Self::UDP + 8;
    const HEAD_BYTES: usize = Self::BTH + BTH_BYTES;

    pub(super) fn between(from: &Socket, to: &Socket) -> Self {
        let ip = |socket: &Socket| match socket.address().ip() {
            std::net::IpAddr::V4(ip) => ip,
            std::net::IpAddr::V6(_) => unreachable!("the bare program speaks IPv4"),
        };
        Self::new(
            (ip(from), from.address().port()),
            (ip(to), to.address().port()),
        )
    }

    fn new(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Self {
        let mut head = [0; Self::HEAD_BYTES];
        head[..Self::IP].fill(0xff);
        let ip = &mut head[Self::IP..Self::UDP];
        // Version and header length; traffic class, time to live and checksum count as ones;
        // "don't fragment"; UDP.
        ip[0] = 0x45;
        ip[1] = 0xff;
        ip[6] = 0x40;
        ip[8] = 0xff;
        ip[9] = 17;
        ip[10..12].fill(0xff);
        ip[12..16].copy_from_slice(&from.0.octets());
        ip[16..20].copy_from_slice(&to.0.octets());
        let udp = &mut head[Self::UDP..Self::BTH];
        udp[0..2].copy_from_slice(&from.1.to_be_bytes());
        udp[2..4].copy_from_slice(&to.1.to_be_bytes());
        udp[6..8].fill(0xff);
        Self { head }
    }

    /// The CRC over a packet given as BTH, what follows it, and the payload.
    pub(super) fn compute(
        &mut self,
        ip_id: u16,
        bth: &[u8],
        rest: &[u8],
        payload: &[u8],
    ) -> [u8; 4] {
        let udp_bytes = (8 + bth.len() + rest.len() + payload.len() + ICRC_BYTES) as u16;
        let ip = &mut self.head[Self::IP..];
        ip[2..4].copy_from_slice(&(20 + udp_bytes).to_be_bytes());
        ip[4..6].copy_from_slice(&ip_id.to_be_bytes());
        self.head[Self::UDP + 4..Self::UDP + 6].copy_from_slice(&udp_bytes.to_be_bytes());
        self.head[Self::BTH..].copy_from_slice(bth);
        // The byte with the congestion bits.
        self.head[Self::BTH + 4] = 0xff;
        let mut hasher = Hasher::new();
        hasher.update(&self.head);
        hasher.update(rest);
        hasher.update(payload);
        hasher.finalize().to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bth_survives_a_round_trip() {
        let bth = Bth {
            opcode: WRITE_LAST,
            qpn: 0x12_3456,
            ack_request: true,
            psn: 0xab_cdef,
        };
        let mut bytes = [0; BTH_BYTES];
        bth.emit(&mut bytes);
        assert_eq!(Bth::parse(&bytes), Some(bth));
        assert_eq!(Bth::parse(&bytes[1..]), None);
    }

    /// The expected value comes from Scapy's RoCE layer.
    #[test]
    fn the_crc_is_the_one_on_the_wire() {
        let bth = Bth {
            opcode: WRITE_MIDDLE,
            qpn: 0x11,
            ack_request: true,
            psn: 0x12_3456,
        };
        let mut head = [0; BTH_BYTES];
        bth.emit(&mut head);
        let payload: Vec<u8> = (0..64).collect();
        let mut icrc = Icrc::new(
            (Ipv4Addr::new(127, 0, 0, 1), 40_001),
            (Ipv4Addr::new(127, 0, 0, 2), 4791),
        );
        let expected = [0x8c, 0x74, 0x5f, 0x54];
        assert_eq!(icrc.compute(5, &head, &[], &payload), expected);
        assert_eq!(
            icrc.compute(5, &head, &payload[..16], &payload[16..]),
            expected
        );
    }

    #[test]
    fn sequence_numbers_widen_across_the_wrap() {
        assert_eq!(widen(0xff_ffff, 0x1_000000), 0xff_ffff);
        assert_eq!(widen(0, 0xff_ffff), 0x1_000000);
        assert_eq!(widen(5, 5), 5);
        assert_eq!(widen(2, 0x5_000001), 0x5_000002);
    }
}
