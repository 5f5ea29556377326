//! How long packets take on the wire, by arithmetic without code of the engine.

use ferroce_fabric::{Rate, Span};

/// Preamble, start of frame, check sequence and gap: 7 + 1 + 4 + 12 bytes.
const AROUND: u64 = 24;
/// Ethernet, IPv4 and UDP headers.
const BELOW_BTH: u64 = 14 + 20 + 8;
const BTH: u64 = 12;
const RETH: u64 = 16;
const IMM: u64 = 4;
const AETH: u64 = 4;
const ICRC: u64 = 4;

/// Returns the bytes of time on the wire that a packet with these headers behind the BTH takes.
const fn on_wire(headers: u64, payload: u64) -> u64 {
    AROUND + BELOW_BTH + BTH + headers + payload.next_multiple_of(4) + ICRC
}

/// Bytes of time on the wire of an acknowledgement.
pub const ACK_WIRE: u64 = on_wire(AETH, 0);
/// Bytes of time on the wire of a PFC frame: 64 bytes with its check sequence.
pub const PAUSE_WIRE: u64 = 84;

/// Returns the bytes of time on the wire of each packet of a WRITE with immediate data.
pub fn packets(bytes: u64, mtu: u64) -> Vec<u64> {
    let count = bytes.div_ceil(mtu).max(1);
    let packet = |index| {
        let is_last = index + 1 == count;
        let payload = if is_last { bytes - index * mtu } else { mtu };
        let reth = if index == 0 { RETH } else { 0 };
        on_wire(reth + if is_last { IMM } else { 0 }, payload)
    };
    (0..count).map(packet).collect()
}

/// Returns how long this many bytes take to leave, rounded up to picoseconds.
pub fn serialization(bytes: u64, rate: Rate) -> Span {
    let ps = (u128::from(bytes) * 8_000_000_000_000).div_ceil(rate.bps().into());
    Span::from_picos(ps.try_into().unwrap())
}

/// Returns the quotient of two spans.
pub fn ratio(one: Span, other: Span) -> f64 {
    one.as_picos() as f64 / other.as_picos() as f64
}
