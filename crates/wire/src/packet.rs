//! Zero-copy view of a received packet: everything that UDP carries, BTH to ICRC.

use thiserror::Error;

use crate::aeth::Aeth;
use crate::headers::{
    AtomicEth, BTH_LEN, Bth, CNP_RESERVED_LEN, Deth, Headers, ICRC_LEN, RETH_LEN, Reth,
};
use crate::ids::Qpn;
use crate::opcode::Opcode;

/// A well-formed packet in someone else's buffer.
///
/// [`new_checked`](Self::new_checked) reads all headers once; afterwards nothing can fail. It
/// does not look at the ICRC: see [`IcrcFlow::verify`](crate::IcrcFlow::verify).
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    bytes: &'a [u8],
    headers: Headers,
    payload: &'a [u8],
    icrc: u32,
}

impl<'a> Packet<'a> {
    /// Parses the payload of a UDP datagram.
    ///
    /// Whether the opcode suits the queue pair, and the payload's length its place in the
    /// message, is the transport's to judge.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let Some(bth_bytes) = bytes.first_chunk::<BTH_LEN>() else {
            return Err(truncated(BTH_LEN + ICRC_LEN, bytes));
        };
        let Some((body, icrc)) = bytes.split_last_chunk::<ICRC_LEN>() else {
            return Err(truncated(BTH_LEN + ICRC_LEN, bytes));
        };
        let Some(opcode) = Opcode::from_u8(bth_bytes[0]) else {
            return Err(ParseError::UnknownOpcode { got: bth_bytes[0] });
        };
        let bth = Bth::from_bytes(opcode, bth_bytes);
        if bth.version != 0 {
            return Err(ParseError::TransportVersion { got: bth.version });
        }
        let header_len = opcode.header_len();
        if body.len() < header_len {
            return Err(truncated(header_len + ICRC_LEN, bytes));
        }
        if !bytes.len().is_multiple_of(4) {
            return Err(ParseError::Unaligned { got: bytes.len() });
        }
        let Some((headers, padded)) = extensions(bth, body) else {
            return Err(truncated(header_len + ICRC_LEN, bytes));
        };
        let pad = usize::from(bth.pad);
        if !opcode.has_payload() {
            if pad != 0 {
                return Err(ParseError::PadWithoutPayload { opcode, got: bth.pad });
            }
            if !padded.is_empty() {
                let (offset, got) = (header_len, padded.len());
                return Err(ParseError::UnexpectedPayload { opcode, offset, got });
            }
        }
        let Some(payload) = padded.len().checked_sub(pad).and_then(|len| padded.get(..len)) else {
            return Err(ParseError::PadTooLarge { pad: bth.pad, got: padded.len() });
        };
        if opcode == Opcode::Cnp
            && let Some(index) = body[BTH_LEN..].iter().position(|&byte| byte != 0)
        {
            let offset = BTH_LEN + index;
            return Err(ParseError::CnpReserved { offset, got: body[offset] });
        }
        Ok(Self { bytes, headers, payload, icrc: u32::from_le_bytes(*icrc) })
    }

    /// The headers as owned values.
    pub const fn headers(&self) -> Headers {
        self.headers
    }

    /// The base transport header.
    pub const fn bth(&self) -> &Bth {
        &self.headers.bth
    }

    /// The payload without pad and ICRC.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The ICRC that the packet carries, as the number [`IcrcFlow::compute`] returns.
    ///
    /// [`IcrcFlow::compute`]: crate::IcrcFlow::compute
    pub const fn icrc(&self) -> u32 {
        self.icrc
    }

    /// The whole packet, BTH to ICRC inclusive.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// Why bytes are not a RoCEv2 packet that ferroce understands: a fault of the peer or the way.
///
/// Offsets count from the first byte of the BTH. All but [`UnknownOpcode`](Self::UnknownOpcode)
/// are to be dropped in silence, as if the ICRC had been wrong.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ParseError {
    /// A CNP's reserved field is not zero.
    #[error("CNP reserved byte at offset {offset}: expected 0, got {got:#04x}")]
    CnpReserved {
        /// Offset of the first byte that is not zero.
        offset: usize,
        /// Its value.
        got: u8,
    },
    /// Fewer bytes than the pad count lie between the headers and the ICRC.
    #[error("pad count at offset 1 is {pad}, but only {got} bytes follow the headers")]
    PadTooLarge {
        /// The pad count, 1..4.
        pad: u8,
        /// Bytes between headers and ICRC.
        got: usize,
    },
    /// A packet that never has payload announces pad.
    #[error("pad count at offset 1 of {opcode}: expected 0, got {got}")]
    PadWithoutPayload {
        /// The opcode of the BTH.
        opcode: Opcode,
        /// The pad count, 1..4.
        got: u8,
    },
    /// A version of the transport header other than 0.
    #[error("transport header version at offset 1: expected 0, got {got}")]
    TransportVersion {
        /// The version, 1..16.
        got: u8,
    },
    /// Ends before the headers of the opcode and the ICRC.
    #[error("truncated at offset {got}: expected at least {expected} bytes")]
    Truncated {
        /// Least length of the packet, bytes.
        expected: usize,
        /// Its length, bytes; thus the offset of the first missing byte.
        got: usize,
    },
    /// The length is not a multiple of 4.
    #[error("length of the packet: expected a multiple of 4, got {got}")]
    Unaligned {
        /// The length, bytes.
        got: usize,
    },
    /// A packet that never has payload has some.
    #[error("{opcode} has no payload, but {got} bytes follow its headers at offset {offset}")]
    UnexpectedPayload {
        /// The opcode of the BTH.
        opcode: Opcode,
        /// Where the headers end.
        offset: usize,
        /// Bytes between headers and ICRC.
        got: usize,
    },
    /// No opcode of RC, UC or UD, nor the CNP.
    #[error("opcode at offset 0: got {got:#04x}, which is no opcode of RC, UC, UD or CNP")]
    UnknownOpcode {
        /// The byte.
        got: u8,
    },
}

#[cold]
fn truncated(expected: usize, bytes: &[u8]) -> ParseError {
    ParseError::Truncated { expected, got: bytes.len() }
}

/// Reads the extension headers in wire order; returns them and what follows them.
fn extensions(bth: Bth, body: &[u8]) -> Option<(Headers, &[u8])> {
    let opcode = bth.opcode;
    let mut headers = Headers::new(bth);
    let rest = &mut body.get(BTH_LEN..)?;
    if opcode.has_deth() {
        let qkey = u32::from_be_bytes(take(rest)?);
        let [_reserved, a, b, c] = take(rest)?;
        headers.deth = Some(Deth { qkey, src_qp: Qpn::from_bytes([a, b, c]) });
    }
    if opcode.has_reth() {
        headers.reth = Some(Reth::from_bytes(&take::<RETH_LEN>(rest)?));
    }
    if opcode.has_atomic_eth() {
        headers.atomic = Some(AtomicEth {
            va: u64::from_be_bytes(take(rest)?),
            rkey: u32::from_be_bytes(take(rest)?),
            swap_or_add: u64::from_be_bytes(take(rest)?),
            compare: u64::from_be_bytes(take(rest)?),
        });
    }
    if opcode.has_aeth() {
        headers.aeth = Some(Aeth::from_bytes(take(rest)?));
    }
    if opcode.has_atomic_ack() {
        headers.atomic_ack = Some(u64::from_be_bytes(take(rest)?));
    }
    if opcode.has_imm() {
        headers.imm = Some(u32::from_be_bytes(take(rest)?));
    }
    if opcode.has_ieth() {
        headers.ieth = Some(u32::from_be_bytes(take(rest)?));
    }
    if opcode == Opcode::Cnp {
        take::<CNP_RESERVED_LEN>(rest)?;
    }
    Some((headers, rest))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}
