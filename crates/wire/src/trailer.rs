//! What a link between two Ferroces adds behind packets, so that those of a message are of one length.
//!
//! The first packet of a WRITE is longer than the others by its RETH, that of a READ response by its AETH.
//! Segmentation and merging of datagrams want equal lengths, so a link adds a trailer to the shorter ones: zero
//! bytes, a mark and the trailer's own length. It lies behind the ICRC, which does not cover it. The peer's
//! link takes it away. Whether a peer does so is found out with a [`Hello`], which has a trailer itself.

use crate::ids::Qpn;

/// The longest trailer in bytes. All are multiples of 4, as packets are.
pub const TRAILER_LEN_MAX: usize = 64;
/// The end of a trailer before its length: nothing else in it tells it from a packet's own bytes. The ICRC
/// before it does, in the end.
const MARK: [u8; 3] = *b"fer";

/// Makes these bytes a trailer.
///
/// # Panics
/// Panics unless there are 4 to [`TRAILER_LEN_MAX`] of them, a multiple of 4.
#[inline]
pub fn fill_trailer(bytes: &mut [u8]) {
    let len = bytes.len();
    assert!(is_length(len), "no length of a trailer: {len}");
    let (zeros, end) = bytes.split_at_mut(len - 4);
    zeros.fill(0);
    let [a, b, c] = MARK;
    #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
    end.copy_from_slice(&[a, b, c, len as u8]);
}

/// The bytes before the trailer; `None` if they do not end with one.
///
/// The four bytes of an ICRC may look like one by accident, once in 2^28 packets. A receiver therefore checks
/// the ICRC of what it gets here, and that of the whole if it is not right.
#[inline]
pub fn strip_trailer(bytes: &[u8]) -> Option<&[u8]> {
    let [.., a, b, c, len] = *bytes else {
        return None;
    };
    let len = usize::from(len);
    if [a, b, c] != MARK || !is_length(len) {
        return None;
    }
    bytes.len().checked_sub(len).map(|at| &bytes[..at])
}

const fn is_length(len: usize) -> bool {
    matches!(len, 4..=TRAILER_LEN_MAX) && len.is_multiple_of(4)
}

/// A question whether a peer takes trailers, or the answer that it does.
///
/// | bytes | |
/// |---|---|
/// | 0 | 0xfd, the opcode of no packet |
/// | 1 | version of all this, 1 |
/// | 2 | 0 for a question, 1 for an answer |
/// | 4 | 0, and in 24 bits a queue pair number of the receiver's process, by which it is steered |
/// | 8 | 0, and the same of the sender's process |
/// | 12 | a number of the question, which its answer repeats |
/// | 20 | a trailer of 12 bytes |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// It is an answer.
    pub is_answer: bool,
    /// A queue pair number of the process that it is for.
    pub to: Qpn,
    /// The same of the one that sends it.
    pub from: Qpn,
    /// The number of the question. It cannot be guessed.
    pub nonce: u64,
}

/// First byte of a [`Hello`].
pub const HELLO: u8 = 0xfd;
/// Peers with another version do not answer, and get packets without trailers.
const VERSION: u8 = 1;

impl Hello {
    /// The bytes of a greeting.
    pub const LEN: usize = Self::BODY_LEN + 12;
    const BODY_LEN: usize = 20;

    /// Its bytes, with a trailer.
    pub fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let (body, trailer) = bytes.split_at_mut(Self::BODY_LEN);
        body[..4].copy_from_slice(&[HELLO, VERSION, self.is_answer.into(), 0]);
        body[4..8].copy_from_slice(&self.to.value().to_be_bytes());
        body[8..12].copy_from_slice(&self.from.value().to_be_bytes());
        body[12..].copy_from_slice(&self.nonce.to_be_bytes());
        fill_trailer(trailer);
        bytes
    }

    /// Reads one; `None` if it is none, or of another version.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let body: &[u8; Self::BODY_LEN] = strip_trailer(bytes)?.try_into().ok()?;
        let [
            HELLO,
            VERSION,
            kind @ 0..=1,
            0,
            0,
            a,
            b,
            c,
            0,
            d,
            e,
            f,
            nonce @ ..,
        ] = *body
        else {
            return None;
        };
        let qpn = |bytes: [u8; 3]| Qpn::new(u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]));
        Some(Self {
            is_answer: kind == 1,
            to: qpn([a, b, c]),
            from: qpn([d, e, f]),
            nonce: u64::from_be_bytes(nonce),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_of_all_lengths_are_taken_away() {
        for len in (4..=TRAILER_LEN_MAX).step_by(4) {
            let mut bytes = vec![7; 40 + len];
            fill_trailer(&mut bytes[40..]);
            assert_eq!(strip_trailer(&bytes), Some(&[7; 40][..]));
        }
    }

    #[test]
    fn bytes_without_a_trailer_are_left_alone() {
        assert_eq!(strip_trailer(&[]), None);
        for end in [*b"fer\x00", *b"fer\x05", *b"fer\x44", *b"fes\x04"] {
            assert_eq!(
                strip_trailer(&[&[0; 100][..], &end].concat()),
                None,
                "{end:?}"
            );
        }
        assert_eq!(strip_trailer(b"fer\x08"), None, "longer than what there is");
    }

    #[test]
    fn greetings_of_other_versions_are_not_read() {
        let hello = Hello {
            is_answer: true,
            to: Qpn::new(0x0002_0000),
            from: Qpn::new(0x00fe_0000),
            nonce: 0x0123_4567_89ab_cdef,
        };
        let bytes = hello.bytes();
        assert_eq!(Hello::read(&bytes), Some(hello));
        for at in [0, 1, 2, 3, 4, 8, Hello::LEN - 1, Hello::LEN - 2] {
            let mut other = bytes;
            other[at] ^= 2;
            assert_eq!(Hello::read(&other), None, "byte {at}");
        }
        assert_eq!(Hello::read(&bytes[..Hello::BODY_LEN]), None);
    }
}
