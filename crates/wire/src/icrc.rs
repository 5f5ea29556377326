//! The invariant CRC that ends every packet, for RoCEv2 over IPv4 and IPv6
//! (IBA vol 1, annex A17.3.3).
//!
//! It is a CRC-32 over eight bytes of ones, then the packet from its IP header to the end of the
//! pad. Fields that routers may change count as ones: TOS, TTL and checksum of IPv4; traffic
//! class, flow label and hop limit of IPv6; the checksum of UDP; the congestion bits of the BTH.
//! On the wire the result is little-endian.
//!
//! The IPv4 header is taken to be 20 bytes long, and sent with Don't Fragment set and an offset of
//! 0. Its Identification is *not* masked, which is unfortunate for a receiver on a UDP socket: no
//! socket reveals it. Ferroce always sends 0; others, such as the kernel's soft-RoCE, count.
//! [`IcrcFlow::verify`] gets around it, see [`IdPolicy`].

use core::net::IpAddr;

use crc32fast::Hasher;

use crate::gf2;
use crate::headers::{BTH_LEN, HEADERS_LEN_MAX, ICRC_LEN};

/// Source and destination address of a packet, both of one family.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum IpPair {
    /// IPv4.
    V4 {
        /// Source address.
        src: [u8; 4],
        /// Destination address.
        dst: [u8; 4],
    },
    /// IPv6.
    V6 {
        /// Source address.
        src: [u8; 16],
        /// Destination address.
        dst: [u8; 16],
    },
}

impl IpPair {
    /// Pairs two addresses; `None` if they are of different families.
    pub const fn new(src: IpAddr, dst: IpAddr) -> Option<Self> {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                Some(Self::V4 { src: src.octets(), dst: dst.octets() })
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                Some(Self::V6 { src: src.octets(), dst: dst.octets() })
            }
            _ => None,
        }
    }
}

/// Computes and verifies the ICRCs of one flow: two addresses and two UDP ports.
///
/// Holds the part of the CRC's input that all packets of the flow share. 58 bytes, cheap to make
/// (no CRC is computed), and worth keeping per destination.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct IcrcFlow {
    prefix: Prefix,
}

/// Ones, IP header and UDP header, masked; lengths and Identification are zero.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Prefix {
    V4([u8; PREFIX_V4_LEN]),
    V6([u8; PREFIX_V6_LEN]),
}

impl IcrcFlow {
    /// Prepares for packets in the direction from `src_port` to `dst_port`
    /// ([`ROCE_V2_PORT`](crate::ROCE_V2_PORT)).
    pub fn new(ip: IpPair, src_port: u16, dst_port: u16) -> Self {
        let prefix = match ip {
            IpPair::V4 { src, dst } => {
                let mut prefix = [0xff; PREFIX_V4_LEN];
                prefix[8] = 0x45;
                prefix[V4_TOTAL_LEN..V4_TOTAL_LEN + 4].fill(0);
                prefix[14..16].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
                prefix[17] = IP_PROTOCOL_UDP;
                prefix[20..24].copy_from_slice(&src);
                prefix[24..28].copy_from_slice(&dst);
                udp_prefix(&mut prefix[28..], src_port, dst_port);
                Prefix::V4(prefix)
            }
            IpPair::V6 { src, dst } => {
                let mut prefix = [0xff; PREFIX_V6_LEN];
                prefix[8] = 0x6f;
                prefix[V6_PAYLOAD_LEN..V6_PAYLOAD_LEN + 2].fill(0);
                prefix[14] = IP_PROTOCOL_UDP;
                prefix[16..32].copy_from_slice(&src);
                prefix[32..48].copy_from_slice(&dst);
                udp_prefix(&mut prefix[48..], src_port, dst_port);
                Prefix::V6(prefix)
            }
        };
        Self { prefix }
    }

    /// The ICRC of a packet whose bytes lie together.
    ///
    /// `transport` reaches from the BTH to the end of the pad; `ip_id` is the IPv4 Identification
    /// (ignored for IPv6). Append the result with `to_le_bytes`.
    #[inline]
    pub fn compute(&self, ip_id: u16, transport: &[u8]) -> u32 {
        let (head, rest) = transport.split_at(transport.len().min(BTH_LEN));
        let mut hasher = self.start(ip_id, transport.len(), head);
        hasher.update(rest);
        hasher.finalize()
    }

    /// The ICRC of a packet in pieces: `header` (BTH and extension headers), then the payload
    /// wherever it lies, then `pad` zero bytes (0..4).
    ///
    /// The pieces are visited twice, first for their length.
    pub fn compute_gathered<'p, I>(&self, ip_id: u16, header: &[u8], pieces: I, pad: u8) -> u32
    where
        I: IntoIterator<Item = &'p [u8], IntoIter: Clone>,
    {
        let pieces = pieces.into_iter();
        let pad = &[0; 4][..usize::from(pad.min(4))];
        let payload_len: usize = pieces.clone().map(<[u8]>::len).sum();
        let len = header.len() + payload_len + pad.len();
        let (head, rest) = header.split_at(header.len().min(HEADERS_LEN_MAX));
        let mut hasher = self.start(ip_id, len, head);
        hasher.update(rest);
        for piece in pieces {
            hasher.update(piece);
        }
        hasher.update(pad);
        hasher.finalize()
    }

    /// Checks the ICRC at the end of `packet` (BTH to ICRC inclusive) under
    /// [`IdPolicy::AnyId`], trying `expected_id` first.
    ///
    /// [`IcrcVerifier`] does the same with a choice of policy and, for peers whose ID is seldom
    /// the expected one, faster.
    pub fn verify(&self, expected_id: u16, packet: &[u8]) -> Verdict {
        self.verify_with(expected_id, packet, IdPolicy::AnyId, unshift_factor)
    }

    #[inline]
    fn verify_with(
        &self,
        expected_id: u16,
        packet: &[u8],
        policy: IdPolicy,
        factor: impl FnOnce(usize) -> u32,
    ) -> Verdict {
        let Some((transport, &icrc)) = packet.split_last_chunk::<ICRC_LEN>() else {
            return Verdict::Bad;
        };
        let difference = self.compute(expected_id, transport) ^ u32::from_le_bytes(icrc);
        match (self.prefix, policy) {
            (Prefix::V6(_), _) if difference == 0 => {
                Verdict::Ok { ip_id: 0, dont_fragment: false }
            }
            (Prefix::V4(_), _) if difference == 0 => {
                Verdict::Ok { ip_id: expected_id, dont_fragment: true }
            }
            (Prefix::V6(_), _) | (_, IdPolicy::Exact) => Verdict::Bad,
            (Prefix::V4(_), IdPolicy::AnyId) if transport.len() > TRANSPORT_LEN_MAX => Verdict::Bad,
            (Prefix::V4(_), IdPolicy::AnyId) => {
                explain(gf2::multiply(difference, factor(transport.len())), expected_id)
            }
        }
    }

    /// Feeds the prefix and the first bytes of the transport headers, at most
    /// [`HEADERS_LEN_MAX`] of them, as one run: short runs are what makes a CRC slow.
    #[inline]
    fn start(&self, ip_id: u16, transport_len: usize, head: &[u8]) -> Hasher {
        // Longer datagrams than UDP can carry get some ICRC; they cannot be sent anyway.
        let len = |headers| {
            u16::try_from(transport_len + ICRC_LEN + headers).unwrap_or(u16::MAX).to_be_bytes()
        };
        let udp_len = len(8);
        let mut hasher = Hasher::new();
        match &self.prefix {
            Prefix::V4(prefix) => {
                let mut run = [0; PREFIX_V4_LEN + HEADERS_LEN_MAX];
                run[..PREFIX_V4_LEN].copy_from_slice(prefix);
                run[V4_TOTAL_LEN..V4_TOTAL_LEN + 2].copy_from_slice(&len(28));
                run[V4_ID..V4_ID + 2].copy_from_slice(&ip_id.to_be_bytes());
                run[V4_UDP_LEN..V4_UDP_LEN + 2].copy_from_slice(&udp_len);
                hasher.update(masked_run(&mut run, PREFIX_V4_LEN, head));
            }
            Prefix::V6(prefix) => {
                let mut run = [0; PREFIX_V6_LEN + HEADERS_LEN_MAX];
                run[..PREFIX_V6_LEN].copy_from_slice(prefix);
                run[V6_PAYLOAD_LEN..V6_PAYLOAD_LEN + 2].copy_from_slice(&udp_len);
                run[V6_UDP_LEN..V6_UDP_LEN + 2].copy_from_slice(&udp_len);
                hasher.update(masked_run(&mut run, PREFIX_V6_LEN, head));
            }
        }
        hasher
    }
}

/// Which IPv4 Identifications a receiver believes that a packet may have had.
///
/// The Identification's 16 bits enter the CRC linearly, and no two values of them give the same
/// ICRC. A receiver that cannot see them can therefore still say which one, if any, explains the
/// ICRC it got. The price: a damaged packet passes if its ICRC happens to be explained by any of
/// the 2^17 combinations of Identification and Don't Fragment, which leaves 15 bits of protection
/// (16 while the flag is known) of the 32. The UDP checksum, where there is one, comes on top.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum IdPolicy {
    /// Only the expected Identification, with Don't Fragment set: full 32 bits of protection.
    Exact,
    /// The expected Identification or any other, with Don't Fragment or without.
    #[default]
    AnyId,
}

/// Outcome of checking an ICRC.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Verdict {
    /// The ICRC is right.
    Ok {
        /// IPv4 Identification that explains it; 0 for IPv6. A host may predict the next one.
        ip_id: u16,
        /// Whether the IPv4 header had Don't Fragment set; false for IPv6, which has no flag.
        dont_fragment: bool,
    },
    /// Nothing that the policy allows explains the ICRC.
    Bad,
}

impl Verdict {
    /// Whether the packet may be believed.
    pub const fn is_ok(self) -> bool {
        matches!(self, Self::Ok { .. })
    }
}

/// Checks ICRCs under a chosen [`IdPolicy`], remembering what depends on packet length only.
#[derive(Clone, Debug)]
pub struct IcrcVerifier {
    policy: IdPolicy,
    /// Transport length and its unshift factor. A host sees few different lengths.
    cache: [(usize, u32); CACHE_LEN],
}

impl IcrcVerifier {
    /// An empty memory; fills itself.
    pub const fn new(policy: IdPolicy) -> Self {
        // No packet has this length, so the entry is never taken for one.
        Self { policy, cache: [(usize::MAX, 0); CACHE_LEN] }
    }

    /// The policy in force.
    pub const fn policy(&self) -> IdPolicy {
        self.policy
    }

    /// Checks the ICRC at the end of `packet` (BTH to ICRC inclusive), trying `expected_id` first.
    ///
    /// One CRC over the packet if the ID is the expected one, and one polynomial multiplication
    /// more if it is not.
    #[inline]
    pub fn verify(&mut self, flow: &IcrcFlow, expected_id: u16, packet: &[u8]) -> Verdict {
        flow.verify_with(expected_id, packet, self.policy, |len| {
            let entry = &mut self.cache[(len / 4) % CACHE_LEN];
            if entry.0 != len {
                *entry = (len, unshift_factor(len));
            }
            entry.1
        })
    }
}

impl Default for IcrcVerifier {
    fn default() -> Self {
        Self::new(IdPolicy::default())
    }
}

/// Factor that moves the CRC's difference caused by the Don't Fragment bit of a packet with this
/// transport length to x^0, whatever follows the bit.
fn unshift_factor(transport_len: usize) -> u32 {
    // Callers have compared with TRANSPORT_LEN_MAX, so the number is small.
    let message_bits = u32::try_from(8 * (PREFIX_V4_LEN + transport_len)).unwrap_or(0);
    let following = message_bits - DONT_FRAGMENT_BIT - 1;
    gf2::inverse_power_of_x(following + 32)
}

/// Reads the flipped bits off an unshifted difference.
///
/// A CRC takes the bits of a byte from the lowest up. So before Don't Fragment (bit 6 of its
/// byte, now x^0) come x^1 to x^6 of the flags, then the Identification's low byte with bit 7 at
/// x^7 down to bit 0 at x^14, then the high byte likewise at x^15 to x^22. Anything outside the
/// Identification and the flag means damage.
const fn explain(unshifted: u32, expected_id: u16) -> Verdict {
    const ID_LOW_SHIFT: u32 = 31 - 14;
    const ID_HIGH_SHIFT: u32 = 31 - 22;
    const EXPLAINED: u32 = gf2::ONE | 0xff << ID_LOW_SHIFT | 0xff << ID_HIGH_SHIFT;
    if unshifted & !EXPLAINED != 0 {
        return Verdict::Bad;
    }
    let high = (unshifted >> ID_HIGH_SHIFT).to_le_bytes()[0];
    let low = (unshifted >> ID_LOW_SHIFT).to_le_bytes()[0];
    let flipped = u16::from_be_bytes([high, low]);
    Verdict::Ok { ip_id: expected_id ^ flipped, dont_fragment: unshifted & gf2::ONE == 0 }
}

fn udp_prefix(udp: &mut [u8], src_port: u16, dst_port: u16) {
    udp[0..2].copy_from_slice(&src_port.to_be_bytes());
    udp[2..4].copy_from_slice(&dst_port.to_be_bytes());
    udp[4..6].fill(0);
}

/// Puts `head` behind the prefix and masks the congestion byte of its BTH.
#[inline]
fn masked_run<'b>(run: &'b mut [u8], prefix_len: usize, head: &[u8]) -> &'b [u8] {
    let len = prefix_len + head.len();
    run[prefix_len..len].copy_from_slice(head);
    if head.len() > BTH_CONGESTION {
        run[prefix_len + BTH_CONGESTION] = 0xff;
    }
    &run[..len]
}

/// Byte of the BTH with FECN, BECN and reserved bits.
const BTH_CONGESTION: usize = 4;
const IP_PROTOCOL_UDP: u8 = 17;
/// Flags and fragment offset of the IPv4 header.
const DONT_FRAGMENT: u16 = 0x4000;
/// Eight bytes of ones, IPv4 and UDP header.
const PREFIX_V4_LEN: usize = 8 + 20 + 8;
/// Eight bytes of ones, IPv6 and UDP header.
const PREFIX_V6_LEN: usize = 8 + 40 + 8;
/// Offsets in the prefixes.
const V4_TOTAL_LEN: usize = 8 + 2;
const V4_ID: usize = 8 + 4;
const V4_UDP_LEN: usize = 28 + 4;
const V6_PAYLOAD_LEN: usize = 8 + 4;
const V6_UDP_LEN: usize = 48 + 4;
/// Place of Don't Fragment in the CRC's input, counting bits in the order the CRC takes them.
const DONT_FRAGMENT_BIT: u32 = 8 * (8 + 6) + 6;
/// Longest transport part that an IPv4 datagram can carry.
const TRANSPORT_LEN_MAX: usize = 65_535 - 20 - 8 - ICRC_LEN;
const CACHE_LEN: usize = 8;
