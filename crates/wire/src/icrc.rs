//! The invariant CRC that ends every packet, for RoCEv2 over IPv4 and IPv6
//! (IBA vol 1, annex A17.3.3).
//!
//! It is a CRC-32 over eight bytes of ones, followed by the packet from its IP header to the end of
//! the pad. Fields that routers may change count as ones: TOS, TTL and checksum of IPv4; traffic
//! class, flow label and hop limit of IPv6; the checksum of UDP; the congestion bits of the BTH. On
//! the wire the result is little-endian.
//!
//! The IPv4 header is assumed to be 20 bytes long, and sent with Don't Fragment set and an offset
//! of 0. Its Identification is *not* masked, which is a problem for a receiver on a UDP socket,
//! because no socket reveals it. Ferroce sends 0, or the index of the packet in a segmented batch;
//! other implementations, such as the kernel's soft-RoCE, use a counter. [`IcrcFlow::verify`] works
//! around this; see [`IdPolicy`].

use core::net::IpAddr;

use crc32fast::Hasher;

use crate::gf2;
use crate::lengths::{BTH_LEN, ICRC_LEN};

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
    /// Combines two addresses, or returns `None` if they are of different families.
    pub const fn new(src: IpAddr, dst: IpAddr) -> Option<Self> {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some(Self::V4 {
                src: src.octets(),
                dst: dst.octets(),
            }),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some(Self::V6 {
                src: src.octets(),
                dst: dst.octets(),
            }),
            _ => None,
        }
    }
}

/// Computes and verifies the ICRCs of one flow: two addresses and two UDP ports.
///
/// Small enough to keep one per destination. A CRC is affine in every bit of its input, so the part
/// that all packets of a flow have in common is reduced to one word. Each packet adds the
/// contributions of its length, its Identification and its BTH from tables, and only the bytes
/// after the BTH run through the CRC.
#[derive(Clone, Copy, Debug)]
pub struct IcrcFlow {
    family: Family,
    /// CRC of the prefix and a BTH, with all varying fields set to zero.
    common: u32,
}

#[derive(Clone, Copy, Debug)]
enum Family {
    V4,
    V6,
}

impl IcrcFlow {
    /// Prepares for packets in the direction from `src_port` to `dst_port`
    /// ([`ROCE_V2_PORT`](crate::ROCE_V2_PORT)).
    pub fn new(ip: IpPair, src_port: u16, dst_port: u16) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(&[0xff; 8]);
        let family = match ip {
            IpPair::V4 { src, dst } => {
                // Zero: total length and Identification. Ones: TOS, TTL and checksum.
                hasher.update(&[0x45, 0xff, 0, 0, 0, 0]);
                hasher.update(&DONT_FRAGMENT.to_be_bytes());
                hasher.update(&[0xff, IP_PROTOCOL_UDP, 0xff, 0xff]);
                hasher.update(&src);
                hasher.update(&dst);
                Family::V4
            }
            IpPair::V6 { src, dst } => {
                // Zero: payload length. Ones: traffic class, flow label and hop limit.
                hasher.update(&[0x6f, 0xff, 0xff, 0xff, 0, 0, IP_PROTOCOL_UDP, 0xff]);
                hasher.update(&src);
                hasher.update(&dst);
                Family::V6
            }
        };
        hasher.update(&src_port.to_be_bytes());
        hasher.update(&dst_port.to_be_bytes());
        // Zero: length. Ones: checksum.
        hasher.update(&[0, 0, 0xff, 0xff]);
        let mut bth = [0; BTH_LEN];
        bth[BTH_CONGESTION] = 0xff;
        hasher.update(&bth);
        Self {
            family,
            common: hasher.finalize(),
        }
    }

    /// Computes the ICRC of a packet in contiguous memory.
    ///
    /// `transport` extends from the BTH to the end of the pad; `ip_id` is the IPv4 Identification
    /// (ignored for IPv6). Append the result with `to_le_bytes`. If `transport` is shorter than a
    /// BTH, the result is arbitrary.
    #[inline]
    pub fn compute(&self, ip_id: u16, transport: &[u8]) -> u32 {
        let (mut hasher, rest) = self.start(ip_id, transport.len(), transport);
        hasher.update(rest);
        hasher.finalize()
    }

    /// Computes the ICRC of a packet in pieces: `header` (at least the BTH), then the pieces, then
    /// `pad` zero bytes (0..4).
    ///
    /// The pieces are iterated over twice, first to find their length.
    #[inline]
    pub fn compute_gathered<'p, I>(&self, ip_id: u16, header: &[u8], pieces: I, pad: u8) -> u32
    where
        I: IntoIterator<Item = &'p [u8], IntoIter: Clone>,
    {
        let pieces = pieces.into_iter();
        let pad = &[0; 3][..usize::from(pad.min(3))];
        let pieces_len: usize = pieces.clone().map(<[u8]>::len).sum();
        let transport_len = header.len() + pieces_len + pad.len();
        let (mut hasher, rest) = self.start(ip_id, transport_len, header);
        // Most headers end with the BTH and most payloads need no pad; a call would cost more.
        if !rest.is_empty() {
            hasher.update(rest);
        }
        for piece in pieces {
            hasher.update(piece);
        }
        if !pad.is_empty() {
            hasher.update(pad);
        }
        hasher.finalize()
    }

    /// Checks the ICRC at the end of `packet` (BTH to ICRC inclusive) under
    /// [`IdPolicy::AnyId`], trying `expected_id` first.
    ///
    /// [`IcrcVerifier`] does the same with a choice of policies, and is faster for peers whose ID
    /// is rarely the expected one.
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
        match (self.family, policy) {
            (Family::V6, _) if difference == 0 => Verdict::Ok {
                ip_id: 0,
                dont_fragment: false,
            },
            (Family::V4, _) if difference == 0 => Verdict::Ok {
                ip_id: expected_id,
                dont_fragment: true,
            },
            (Family::V6, _) | (_, IdPolicy::Exact) => Verdict::Bad,
            (Family::V4, IdPolicy::AnyId) if transport.len() > TRANSPORT_LEN_MAX => Verdict::Bad,
            (Family::V4, IdPolicy::AnyId) => explain(
                gf2::multiply(difference, factor(transport.len())),
                expected_id,
            ),
        }
    }

    /// A CRC that has taken everything up to the end of the BTH, and what of `header` follows it.
    #[inline]
    fn start<'h>(&self, ip_id: u16, transport_len: usize, header: &'h [u8]) -> (Hasher, &'h [u8]) {
        let (bth, rest) = match header.split_first_chunk::<BTH_LEN>() {
            Some((bth, rest)) => (*bth, rest),
            None => ([0; BTH_LEN], header),
        };
        // Longer datagrams than UDP can carry get some ICRC; they cannot be sent anyway.
        let udp_len = u32::try_from(8 + transport_len + ICRC_LEN).unwrap_or(u32::MAX - 20);
        let ip = match self.family {
            Family::V4 => {
                field::<2>(20 + udp_len, V4_AFTER_LEN) ^ field::<2>(u32::from(ip_id), V4_AFTER_ID)
            }
            Family::V6 => field::<2>(udp_len, V6_AFTER_LEN),
        };
        // The BTH in three fields around its masked byte.
        let [a, b, c, d, _, f, g, h, i, j, k, l] = bth;
        let crc = self.common
            ^ ip
            ^ field::<2>(udp_len, AFTER_UDP_LEN)
            ^ field::<4>(u32::from_be_bytes([a, b, c, d]), 8)
            ^ field::<3>(u32::from_be_bytes([0, f, g, h]), 4)
            ^ field::<4>(u32::from_be_bytes([i, j, k, l]), 0);
        (Hasher::new_with_initial(crc), rest)
    }
}

/// The IPv4 Identifications that a receiver accepts as possible for a packet.
///
/// The Identification's 16 bits enter the CRC linearly, and no two values of them give the same
/// ICRC. A receiver that cannot see them can therefore still determine which one, if any, explains
/// the ICRC it received. The price: a damaged packet passes if its ICRC happens to be explained by
/// any of the 2^17 combinations of Identification and Don't Fragment, which leaves 15 of the 32
/// bits of protection (16 if the flag is known). The UDP checksum, if there is one, adds to that.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum IdPolicy {
    /// Only the expected Identification, with Don't Fragment set: full 32 bits of protection.
    Exact,
    /// The expected Identification or any other, with or without Don't Fragment.
    #[default]
    AnyId,
}

/// Result of checking an ICRC.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Verdict {
    /// The ICRC is right.
    Ok {
        /// The IPv4 Identification that explains it; 0 for IPv6. A host may predict the next one
        /// from it.
        ip_id: u16,
        /// Whether the IPv4 header had Don't Fragment set; false for IPv6, which has no flag.
        dont_fragment: bool,
    },
    /// Nothing allowed by the policy explains the ICRC.
    Bad,
}

impl Verdict {
    /// Returns whether the packet passed the check.
    pub const fn is_ok(self) -> bool {
        matches!(self, Self::Ok { .. })
    }
}

/// Checks ICRCs under a chosen [`IdPolicy`], caching the values that depend only on packet length.
#[derive(Clone, Debug)]
pub struct IcrcVerifier {
    policy: IdPolicy,
    /// Transport length and its unshift factor. A host sees few different lengths.
    cache: [(usize, u32); CACHE_LEN],
}

impl IcrcVerifier {
    /// Creates a verifier with an empty cache.
    pub const fn new(policy: IdPolicy) -> Self {
        // No packet has this length, so the entry is never taken for one.
        Self {
            policy,
            cache: [(usize::MAX, 0); CACHE_LEN],
        }
    }

    /// Returns the policy.
    pub const fn policy(&self) -> IdPolicy {
        self.policy
    }

    /// Checks the ICRC at the end of `packet` (BTH to ICRC inclusive), trying `expected_id` first.
    ///
    /// This takes one CRC over the packet if the ID is the expected one, and one additional
    /// polynomial multiplication if it is not.
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
    Verdict::Ok {
        ip_id: expected_id ^ flipped,
        dont_fragment: unshifted & gf2::ONE == 0,
    }
}

/// What the low `BYTES` bytes of `value`, big-endian and with `following` bytes behind them, add
/// to a CRC.
#[inline]
const fn field<const BYTES: usize>(value: u32, following: usize) -> u32 {
    let mut sum = 0;
    let mut place = 0;
    while place < BYTES {
        let byte = value >> (8 * place);
        let [low, high] = &CONTRIBUTIONS[following + place];
        sum ^= low[(byte & 0x0f) as usize] ^ high[(byte >> 4 & 0x0f) as usize];
        place += 1;
    }
    sum
}

/// For each number of bytes that follow, what the lower and the upper half of a byte add to a CRC.
///
/// Half bytes, because then one entry is one cache line, and a packet touches only 36 of them.
static CONTRIBUTIONS: [[[u32; 16]; 2]; V6_AFTER_LEN + 2] = {
    let mut table = [[[0; 16]; 2]; V6_AFTER_LEN + 2];
    // What the bit adds that the CRC takes last, then the one before it, and so on.
    let mut power = gf2::X_32;
    let mut following = 0;
    while following < table.len() {
        let mut bit = 8;
        while bit > 0 {
            bit -= 1;
            let half = &mut table[following][bit / 4];
            let mut value = 0;
            while value < half.len() {
                if value & (1 << (bit % 4)) != 0 {
                    half[value] ^= power;
                }
                value += 1;
            }
            power = gf2::times_x(power);
        }
        following += 1;
    }
    table
};

/// Byte of the BTH with FECN, BECN and reserved bits.
const BTH_CONGESTION: usize = 4;
const IP_PROTOCOL_UDP: u8 = 17;
/// Flags and fragment offset of the IPv4 header.
const DONT_FRAGMENT: u16 = 0x4000;
/// Eight bytes of ones, IPv4 and UDP header.
const PREFIX_V4_LEN: usize = 8 + 20 + 8;
/// Bytes between fields that differ from packet to packet and the end of the BTH.
const V4_AFTER_LEN: usize = 20 - 4 + 8 + BTH_LEN;
const V4_AFTER_ID: usize = 20 - 6 + 8 + BTH_LEN;
const V6_AFTER_LEN: usize = 40 - 6 + 8 + BTH_LEN;
const AFTER_UDP_LEN: usize = 8 - 6 + BTH_LEN;
/// Place of Don't Fragment in the CRC's input, counting bits in the order the CRC takes them.
const DONT_FRAGMENT_BIT: u32 = 8 * (8 + 6) + 6;
/// Longest transport part that an IPv4 datagram can carry.
const TRANSPORT_LEN_MAX: usize = 65_535 - 20 - 8 - ICRC_LEN;
const CACHE_LEN: usize = 8;

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use proptest::prelude::*;

    use super::*;
    use crate::testing::{any_packet, flow_v4, flow_v6, sample};
    use crate::{Headers, Opcode};

    /// Table-free CRC-32 of another crate.
    const BITWISE: crc::Crc<u32, crc::NoTable> =
        crc::Crc::<u32, crc::NoTable>::new(&crc::CRC_32_ISO_HDLC);

    /// The ICRC by the book: a whole IP packet, masked field by field, one CRC over all.
    fn oracle(ip_packet: &[u8]) -> u32 {
        let mut input = vec![0xff; 8];
        let mut masked = ip_packet[..ip_packet.len() - ICRC_LEN].to_vec();
        let udp = if masked[0] >> 4 == 4 {
            masked[1] = 0xff;
            masked[8] = 0xff;
            masked[10..12].fill(0xff);
            20
        } else {
            masked[0] |= 0x0f;
            masked[1..4].fill(0xff);
            masked[7] = 0xff;
            40
        };
        masked[udp + 6..udp + 8].fill(0xff);
        masked[udp + 8 + 4] = 0xff;
        input.extend(masked);
        BITWISE.checksum(&input)
    }

    /// An IPv4 packet between the addresses of `flow_v4`.
    fn ipv4(id: u16, flags: u16, udp_payload: &[u8]) -> Vec<u8> {
        let len = |extra: usize| {
            u16::try_from(udp_payload.len() + extra)
                .unwrap()
                .to_be_bytes()
        };
        let mut packet = vec![0x45, 0xb9];
        packet.extend(len(28));
        packet.extend(id.to_be_bytes());
        packet.extend(flags.to_be_bytes());
        packet.extend([57, 17, 0x12, 0x34, 192, 0, 2, 1, 198, 51, 100, 7]);
        packet.extend([0xc1, 0x23, 0x12, 0xb7]);
        packet.extend(len(8));
        packet.extend([0x56, 0x78]);
        packet.extend(udp_payload);
        packet
    }

    /// An IPv6 packet between the addresses of `flow_v6`.
    fn ipv6(udp_payload: &[u8]) -> Vec<u8> {
        let len = u16::try_from(udp_payload.len() + 8).unwrap().to_be_bytes();
        let mut packet = vec![0x61, 0x23, 0x45, 0x67];
        packet.extend(len);
        packet.extend([17, 61]);
        for last in [1, 2] {
            packet.extend([
                0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last,
            ]);
        }
        packet.extend([0xc1, 0x23, 0x12, 0xb7]);
        packet.extend(len);
        packet.extend([0x56, 0x78]);
        packet.extend(udp_payload);
        packet
    }

    fn build(headers: Headers, payload: &[u8], flow: &IcrcFlow, id: u16) -> Vec<u8> {
        let mut buffer = vec![0; 4200];
        let len = headers.emit_packet(payload, flow, id, &mut buffer).unwrap();
        buffer.truncate(len);
        buffer
    }

    /// A packet whose sender clears Don't Fragment.
    fn build_without_df(headers: Headers, payload: &[u8], id: u16) -> Vec<u8> {
        let mut packet = build(headers, payload, &flow_v4(), id);
        let icrc = oracle(&ipv4(id, 0, &packet));
        let at = packet.len() - ICRC_LEN;
        packet[at..].copy_from_slice(&icrc.to_le_bytes());
        packet
    }

    #[test]
    fn masked_fields_do_not_matter_and_others_do() {
        let flow = flow_v4();
        let packet = build(sample(Opcode::RcSendOnly), b"payload", &flow, 0);
        let transport = &packet[..packet.len() - ICRC_LEN];
        let icrc = flow.compute(0, transport);
        for offset in 0..transport.len() {
            let mut changed = transport.to_vec();
            changed[offset] ^= 0xff;
            assert_eq!(
                flow.compute(0, &changed) == icrc,
                offset == 4,
                "offset {offset}"
            );
        }
        assert_ne!(flow.compute(1, transport), icrc);
        assert_eq!(
            flow_v6().compute(1, transport),
            flow_v6().compute(0, transport)
        );
    }

    #[test]
    fn flow_sees_addresses_and_ports() {
        let transport = [0; 16];
        let v4 = |src, dst, from, to| {
            IcrcFlow::new(IpPair::V4 { src, dst }, from, to).compute(0, &transport)
        };
        let base = v4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2);
        assert_ne!(base, v4([10, 0, 0, 3], [10, 0, 0, 2], 1, 2));
        assert_ne!(base, v4([10, 0, 0, 1], [10, 0, 0, 3], 1, 2));
        assert_ne!(base, v4([10, 0, 0, 1], [10, 0, 0, 2], 3, 2));
        assert_ne!(base, v4([10, 0, 0, 1], [10, 0, 0, 2], 1, 3));
    }

    #[test]
    fn pairs_need_one_family() {
        let (v4, v6): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "::1".parse().unwrap());
        assert_eq!(IpPair::new(v4, v6), None);
        assert_eq!(
            IpPair::new(v4, v4),
            Some(IpPair::V4 {
                src: [10, 0, 0, 1],
                dst: [10, 0, 0, 1]
            })
        );
        assert!(matches!(IpPair::new(v6, v6), Some(IpPair::V6 { .. })));
    }

    /// All IDs, with and without DF, for one packet: each is found, none is mistaken for another.
    #[test]
    fn every_identification_is_solved_for() {
        let headers = sample(Opcode::RcWriteOnly);
        let payload = [0x5a; 33];
        let flow = flow_v4();
        let mut verifier = IcrcVerifier::default();
        let reference = build(headers, &payload, &flow, 0);
        let transport = &reference[..reference.len() - ICRC_LEN];
        for id in ALL_IDS.step_by(if cfg!(miri) { 251 } else { 1 }) {
            let icrc = flow.compute(id, transport).to_le_bytes();
            let packet = [transport, &icrc].concat();
            let expected = Verdict::Ok {
                ip_id: id,
                dont_fragment: true,
            };
            assert_eq!(verifier.verify(&flow, 0x4321, &packet), expected);
        }
        for id in ALL_IDS.step_by(251) {
            let packet = build_without_df(headers, &payload, id);
            let expected = Verdict::Ok {
                ip_id: id,
                dont_fragment: false,
            };
            assert_eq!(verifier.verify(&flow, 0, &packet), expected);
            assert_eq!(flow.verify(0x8000, &packet), expected);
            let mut exact = IcrcVerifier::new(IdPolicy::Exact);
            assert_eq!(exact.verify(&flow, id, &packet), Verdict::Bad);
        }
    }

    #[test]
    fn exact_policy_wants_the_expected_identification() {
        let packet = build(sample(Opcode::RcSendOnly), b"x", &flow_v4(), 7);
        let mut exact = IcrcVerifier::new(IdPolicy::Exact);
        assert!(exact.verify(&flow_v4(), 7, &packet).is_ok());
        assert_eq!(exact.verify(&flow_v4(), 8, &packet), Verdict::Bad);
    }

    /// Damage passes only if an ID explains it: 2^17 of 2^32 differences, so hardly ever among
    /// the bits of one packet. (Bits that are masked are not damage.)
    #[test]
    fn single_bit_damage_is_found() {
        let headers = sample(Opcode::RcWriteOnly);
        for (flow, id) in [(flow_v4(), 0), (flow_v6(), 0)] {
            let packet = build(headers, &[0xa5; 64], &flow, id);
            for bit in (0..8 * packet.len()).filter(|bit| bit / 8 != BTH_CONGESTION) {
                let mut damaged = packet.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(flow.verify(0, &damaged), Verdict::Bad, "bit {bit}");
            }
        }
    }

    #[test]
    fn hopeless_inputs_are_bad_not_panics() {
        let mut verifier = IcrcVerifier::default();
        for flow in [flow_v4(), flow_v6()] {
            for len in [0, 1, 3, 4, 5, 15, 16, 17, 65_507, 65_508, 70_000] {
                assert_eq!(
                    verifier.verify(&flow, 0, &vec![0x55; len]),
                    Verdict::Bad,
                    "{len}"
                );
                assert_eq!(flow.verify(0, &vec![0x55; len]), Verdict::Bad, "{len}");
            }
            flow.compute_gathered(0, &[0; 100], [&[0; 70_000][..]], 200);
        }
    }

    #[test]
    fn longest_datagrams() {
        let flow = flow_v4();
        let transport = vec![0x5a; TRANSPORT_LEN_MAX];
        let packet = [
            &transport[..],
            &flow.compute(0xffff, &transport).to_le_bytes(),
        ]
        .concat();
        let expected = Verdict::Ok {
            ip_id: 0xffff,
            dont_fragment: true,
        };
        assert_eq!(flow.verify(0, &packet), expected);
    }

    const ALL_IDS: RangeInclusive<u16> = 0..=u16::MAX;

    proptest! {
        #[test]
        fn agrees_with_the_bitwise_oracle((headers, payload) in any_packet(), id: u16) {
            let packet = build(headers, &payload, &flow_v4(), id);
            let icrc = oracle(&ipv4(id, 0x4000, &packet));
            prop_assert_eq!(flow_v4().compute(id, &packet[..packet.len() - 4]), icrc);
            prop_assert_eq!(&packet[packet.len() - 4..], &icrc.to_le_bytes());

            let packet = build(headers, &payload, &flow_v6(), id);
            let icrc = oracle(&ipv6(&packet));
            prop_assert_eq!(flow_v6().compute(id, &packet[..packet.len() - 4]), icrc);
        }

        #[test]
        fn gathering_makes_no_difference(
            (headers, payload) in any_packet(),
            id: u16,
            cut: prop::sample::Index,
        ) {
            for flow in [flow_v4(), flow_v6()] {
                let packet = build(headers, &payload, &flow, id);
                let header = &packet[..headers.header_len()];
                let pad = crate::pad_len(payload.len());
                let (one, two) = payload.split_at(cut.index(payload.len() + 1));
                let icrc = flow.compute_gathered(id, header, [one, two], pad);
                prop_assert_eq!(icrc, flow.compute(id, &packet[..packet.len() - 4]));
                let header = [header, one].concat();
                prop_assert_eq!(flow.compute_gathered(id, &header, [two], pad), icrc);
                let (bth, rest) = header.split_at(BTH_LEN);
                prop_assert_eq!(flow.compute_gathered(id, bth, [rest, two], pad), icrc);
            }
        }

        #[test]
        fn any_id_is_solved_for_at_any_length(
            (headers, payload) in any_packet(),
            id: u16,
            expected_id: u16,
            df: bool,
        ) {
            let flow = flow_v4();
            let packet = if df {
                build(headers, &payload, &flow, id)
            } else {
                build_without_df(headers, &payload, id)
            };
            let verdict = Verdict::Ok { ip_id: id, dont_fragment: df };
            prop_assert_eq!(flow.verify(expected_id, &packet), verdict);
            let mut verifier = IcrcVerifier::default();
            for _ in 0..2 {
                prop_assert_eq!(verifier.verify(&flow, expected_id, &packet), verdict);
            }
        }
    }
}
