//! ACK extended transport header: syndromes, credits and the RNR timer (IBA vol 1, 9.7.5).

use core::fmt;

use crate::ids::{be24, bytes24};

/// ACK extended transport header, 4 bytes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Aeth {
    /// The responder's answer: ACK, RNR NAK or NAK.
    pub syndrome: Syndrome,
    /// Message sequence number: messages completed by the responder, modulo 2^24.
    ///
    /// Only the low 24 bits are written.
    pub msn: u32,
}

impl Aeth {
    pub(crate) const fn from_bytes([syndrome, a, b, c]: [u8; 4]) -> Self {
        Self {
            syndrome: Syndrome::from_u8(syndrome),
            msn: be24([a, b, c]),
        }
    }

    pub(crate) const fn to_bytes(self) -> [u8; 4] {
        let [a, b, c] = bytes24(self.msn);
        [self.syndrome.to_u8(), a, b, c]
    }
}

/// First byte of an AETH: a reserved zero bit, two bits of kind, five bits of value.
///
/// [`from_u8`](Self::from_u8) and [`to_u8`](Self::to_u8) preserve every byte, defined or not.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Syndrome {
    /// Everything up to the PSN has arrived (kind 0).
    Ack {
        /// End-to-end flow control of SENDs: the number of receives that the responder has posted.
        credit: CreditCode,
    },
    /// No receive was posted; the requester retries after the given time (kind 1).
    Rnr {
        /// Code 0..32 of the minimum wait; see [`rnr_timer_ns`]. Only five bits are written.
        timer: u8,
    },
    /// The request was refused (kind 3).
    Nak(NakCode),
    /// Kind 2, or any byte with the reserved top bit set; holds the whole byte.
    ///
    /// A byte of another kind, constructed by hand, comes back from a round trip as that kind.
    Reserved(u8),
}

impl Default for Syndrome {
    fn default() -> Self {
        Self::from_u8(0)
    }
}

impl Syndrome {
    /// Decodes the byte; every byte has exactly one value.
    pub const fn from_u8(byte: u8) -> Self {
        let value = byte & 0x1f;
        match byte >> 5 {
            0 => Self::Ack {
                credit: CreditCode(value),
            },
            1 => Self::Rnr { timer: value },
            3 => Self::Nak(NakCode::from_u8(value)),
            _ => Self::Reserved(byte),
        }
    }

    /// Returns the byte on the wire.
    pub const fn to_u8(self) -> u8 {
        match self {
            Self::Ack { credit } => credit.code(),
            Self::Rnr { timer } => 0x20 | (timer & 0x1f),
            Self::Nak(code) => 0x60 | code.to_u8(),
            Self::Reserved(byte) => byte,
        }
    }
}

/// The reason why a responder refused a request; five bits (IBA vol 1, 9.7.5.2.8).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum NakCode {
    /// A packet is missing; the requester retransmits from the PSN of the NAK (code 0).
    SequenceError,
    /// Unexpected opcode or length, or an operation the QP does not allow (code 1).
    InvalidRequest,
    /// Unknown remote key, outside its region, or without the access right (code 2).
    RemoteAccess,
    /// The responder failed for a reason of its own (code 3).
    RemoteOperational,
    /// Reliable datagrams only (code 4).
    InvalidRdRequest,
    /// Reserved codes 5..32. Only five bits are written.
    Other(u8),
}

impl NakCode {
    /// Returns the reason for the low five bits of `code`.
    pub const fn from_u8(code: u8) -> Self {
        match code & 0x1f {
            0 => Self::SequenceError,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccess,
            3 => Self::RemoteOperational,
            4 => Self::InvalidRdRequest,
            other => Self::Other(other),
        }
    }

    /// Returns the code, 0..32.
    pub const fn to_u8(self) -> u8 {
        match self {
            Self::SequenceError => 0,
            Self::InvalidRequest => 1,
            Self::RemoteAccess => 2,
            Self::RemoteOperational => 3,
            Self::InvalidRdRequest => 4,
            Self::Other(code) => code & 0x1f,
        }
    }
}

impl fmt::Display for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SequenceError => f.pad("PSN sequence error"),
            Self::InvalidRequest => f.pad("invalid request"),
            Self::RemoteAccess => f.pad("remote access error"),
            Self::RemoteOperational => f.pad("remote operational error"),
            Self::InvalidRdRequest => f.pad("invalid RD request"),
            Self::Other(code) => write!(f, "reserved NAK code {code}"),
        }
    }
}

/// A number of receives, coded in five bits (IBA vol 1, 9.7.7.2).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct CreditCode(u8);

impl CreditCode {
    /// Code 31: the responder does not count credits, for example because of a shared receive
    /// queue.
    pub const INVALID: Self = Self(31);

    /// Creates a code from the low five bits of `code`.
    pub const fn new(code: u8) -> Self {
        Self(code & 0x1f)
    }

    /// Returns the code, 0..32.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the number of receives available, or `None` for [`INVALID`](Self::INVALID).
    pub const fn credits(self) -> Option<u32> {
        let code = self.0 as u32;
        match code {
            0..=1 => Some(code),
            // From here two codes per power of two: 2^k and 1.5 * 2^k.
            2..=30 if code.is_multiple_of(2) => Some(1 << (code / 2)),
            2..=30 => Some(3 << (code / 2 - 1)),
            _ => None,
        }
    }

    /// Returns the largest code that does not promise more than `credits`.
    pub const fn from_credits(credits: u32) -> Self {
        let Some(log) = credits.checked_ilog2() else {
            return Self(0);
        };
        if log == 0 {
            return Self(1);
        }
        // 2^log, or 1.5 times as much.
        let above = credits >> (log - 1) & 1;
        let code = 2 * log + above;
        Self(if code < 30 { code.to_le_bytes()[0] } else { 30 })
    }
}

/// Minimum wait of a requester after an RNR NAK, by timer code, ns (IBA vol 1, 9.7.5.2.8). Code 0
/// is the longest; code 25 is 61.44 ms.
pub const RNR_TIMER_NS: [u64; 32] = [
    655_360_000,
    10_000,
    20_000,
    30_000,
    40_000,
    60_000,
    80_000,
    120_000,
    160_000,
    240_000,
    320_000,
    480_000,
    640_000,
    960_000,
    1_280_000,
    1_920_000,
    2_560_000,
    3_840_000,
    5_120_000,
    7_680_000,
    10_240_000,
    15_360_000,
    20_480_000,
    30_720_000,
    40_960_000,
    61_440_000,
    81_920_000,
    122_880_000,
    163_840_000,
    245_760_000,
    327_680_000,
    491_520_000,
];

/// Returns the minimum wait for the low five bits of `code`, ns; see [`RNR_TIMER_NS`].
pub const fn rnr_timer_ns(code: u8) -> u64 {
    RNR_TIMER_NS[(code & 0x1f) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syndrome_byte_round_trips() {
        for byte in 0..=u8::MAX {
            let syndrome = Syndrome::from_u8(byte);
            assert_eq!(syndrome.to_u8(), byte);
            let kind_fits = match syndrome {
                Syndrome::Ack { credit } => byte < 0x20 && credit.code() == byte,
                Syndrome::Rnr { timer } => (0x20..0x40).contains(&byte) && timer == byte & 0x1f,
                Syndrome::Nak(code) => (0x60..0x80).contains(&byte) && code.to_u8() == byte & 0x1f,
                Syndrome::Reserved(whole) => {
                    whole == byte && (byte >= 0x80 || (0x40..0x60).contains(&byte))
                }
            };
            assert!(kind_fits, "{byte:#04x}: {syndrome:?}");
        }
    }

    #[test]
    fn values_too_wide_for_their_field_are_cut_to_it() {
        assert_eq!(Syndrome::Rnr { timer: 0xff }.to_u8(), 0x3f);
        assert_eq!(Syndrome::Nak(NakCode::Other(0xff)).to_u8(), 0x7f);
        assert_eq!(CreditCode::new(0xff), CreditCode::INVALID);
        let aeth = Aeth {
            syndrome: Syndrome::Nak(NakCode::RemoteAccess),
            msn: 0xff12_3456,
        };
        assert_eq!(aeth.to_bytes(), [0x62, 0x12, 0x34, 0x56]);
    }

    /// Whatever the syndrome, of which the test above has all.
    #[test]
    fn every_message_number_round_trips() {
        for msn in (0..1 << 24).step_by(if cfg!(miri) { 9973 } else { 1 }) {
            let aeth = Aeth {
                syndrome: Syndrome::from_u8(0x1f),
                msn,
            };
            let [syndrome, a, b, c] = aeth.to_bytes();
            assert_eq!((syndrome, [0, a, b, c]), (0x1f, msn.to_be_bytes()));
            assert_eq!(Aeth::from_bytes([syndrome, a, b, c]), aeth);
        }
    }

    /// The largest code that promises no more, by search: for each number up to four times the largest
    /// that has a code, and beyond it around all powers of two and what is half as much again. In between
    /// the code cannot change, as it depends on the two leading bits alone.
    #[test]
    fn every_number_of_credits_has_the_largest_code_below() {
        let steps = (1..32).flat_map(|log| [1 << log, (1 << log) + (1 << (log - 1))]);
        let edges = steps.flat_map(|credits: u32| [credits - 1, credits, credits + 1]);
        for credits in (0..1 << 17)
            .step_by(if cfg!(miri) { 997 } else { 1 })
            .chain(edges)
        {
            let promises = |code: u8| CreditCode::new(code).credits().unwrap();
            let largest = (0..=30).rev().find(|code| promises(*code) <= credits);
            let code = CreditCode::from_credits(credits).code();
            assert_eq!(Some(code), largest, "{credits}");
        }
    }

    #[test]
    fn credit_table() {
        let table = [
            0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
            1536, 2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768,
        ];
        for (code, &credits) in (0u8..).zip(&table) {
            assert_eq!(
                CreditCode::new(code).credits(),
                Some(credits),
                "code {code}"
            );
            assert_eq!(CreditCode::from_credits(credits).code(), code);
            if credits > 3 {
                assert_eq!(CreditCode::from_credits(credits - 1).code(), code - 1);
            }
        }
        assert_eq!(CreditCode::INVALID.credits(), None);
        assert_eq!(CreditCode::from_credits(u32::MAX).code(), 30);
    }

    #[test]
    fn rnr_timers() {
        assert_eq!(rnr_timer_ns(0), 655_360_000);
        assert_eq!(rnr_timer_ns(25), 61_440_000);
        assert_eq!(rnr_timer_ns(31), 491_520_000);
        assert_eq!(rnr_timer_ns(32), rnr_timer_ns(0));
        // From code 1 on the times grow, by a factor of two at most.
        for pair in RNR_TIMER_NS[1..].windows(2) {
            assert!(pair[0] < pair[1] && pair[1] <= 2 * pair[0], "{pair:?}");
        }
    }

    #[test]
    fn nak_code_names() {
        let names: Vec<_> = (0..6)
            .map(|code| NakCode::from_u8(code).to_string())
            .collect();
        assert_eq!(names[0], "PSN sequence error");
        assert_eq!(names[5], "reserved NAK code 5");
    }
}
