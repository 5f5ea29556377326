//! Zero-copy view of a received packet: the payload of a UDP datagram, BTH to ICRC.

use thiserror::Error;

use crate::extension::Extensions;
use crate::headers::Headers;
use crate::lengths::{BTH_LEN, ICRC_LEN};
use crate::opcode::Opcode;

/// A well-formed packet in a borrowed buffer.
///
/// [`new_checked`](Self::new_checked) reads all headers once; after that, nothing can fail. It does
/// not check the ICRC: see [`IcrcFlow::verify`](crate::IcrcFlow::verify).
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
    /// The transport has to check whether the opcode is valid for the queue pair, and whether the
    /// payload's length is valid for its position in the message.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let Some(bth_bytes) = bytes.first_chunk::<BTH_LEN>() else {
            return Err(truncated(BTH_LEN + ICRC_LEN, bytes));
        };
        let Some((body, icrc)) = bytes.split_last_chunk::<ICRC_LEN>() else {
            return Err(truncated(BTH_LEN + ICRC_LEN, bytes));
        };
        let opcode = opcode(bth_bytes)?;
        let pad = bth_bytes[1] >> 4 & 0x03;
        let header_len = opcode.header_len();
        if body.len() < header_len {
            return Err(truncated(header_len + ICRC_LEN, bytes));
        }
        if !bytes.len().is_multiple_of(4) {
            return Err(ParseError::Unaligned { got: bytes.len() });
        }
        let Some((extensions, padded)) = Extensions::parse(opcode, body) else {
            return Err(truncated(header_len + ICRC_LEN, bytes));
        };
        if !opcode.has_payload() {
            if pad != 0 {
                return Err(ParseError::PadWithoutPayload { opcode, got: pad });
            }
            if !padded.is_empty() {
                let (offset, got) = (header_len, padded.len());
                return Err(ParseError::UnexpectedPayload {
                    opcode,
                    offset,
                    got,
                });
            }
        }
        let Some(payload) = padded
            .len()
            .checked_sub(pad.into())
            .and_then(|len| padded.get(..len))
        else {
            return Err(ParseError::PadTooLarge {
                pad,
                got: padded.len(),
            });
        };
        if opcode == Opcode::Cnp
            && let Some(index) = body[BTH_LEN..].iter().position(|&byte| byte != 0)
        {
            let offset = BTH_LEN + index;
            return Err(ParseError::CnpReserved {
                offset,
                got: body[offset],
            });
        }
        Ok(Self {
            bytes,
            headers: Headers::parsed(opcode, extensions, bth_bytes),
            payload,
            icrc: u32::from_le_bytes(*icrc),
        })
    }

    /// Returns the headers as owned values.
    #[inline]
    pub const fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Returns the number of zero bytes between payload and ICRC, 0..4.
    #[inline]
    pub const fn pad(&self) -> u8 {
        self.bytes[1] >> 4 & 0x03
    }

    /// Returns the payload without pad and ICRC.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the packet's ICRC, as the number that [`IcrcFlow::compute`] returns.
    ///
    /// [`IcrcFlow::compute`]: crate::IcrcFlow::compute
    pub const fn icrc(&self) -> u32 {
        self.icrc
    }

    /// Returns the whole packet, BTH to ICRC inclusive.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl Headers {
    /// Reads the headers of a packet that may be truncated, as in captures. The rest is ignored.
    ///
    /// # Errors
    /// Returns an error if the opcode or the version is unknown, or if there are fewer bytes than
    /// the opcode's headers take.
    pub fn read_prefix(bytes: &[u8]) -> Result<Self, ParseError> {
        let Some(bth) = bytes.first_chunk::<BTH_LEN>() else {
            return Err(truncated(BTH_LEN, bytes));
        };
        let opcode = opcode(bth)?;
        match Extensions::parse(opcode, bytes) {
            Some((extensions, _)) => Ok(Self::parsed(opcode, extensions, bth)),
            None => Err(truncated(opcode.header_len(), bytes)),
        }
    }
}

#[inline]
fn opcode(bth: &[u8; BTH_LEN]) -> Result<Opcode, ParseError> {
    let version = bth[1] & 0x0f;
    match Opcode::from_u8(bth[0]) {
        None => Err(ParseError::UnknownOpcode { got: bth[0] }),
        Some(_) if version != 0 => Err(ParseError::TransportVersion { got: version }),
        Some(opcode) => Ok(opcode),
    }
}

/// The reason why bytes are not a RoCEv2 packet that Ferroce understands: an error of the peer or
/// on the path.
///
/// Offsets count from the first byte of the BTH. Such a packet must be dropped silently, as if its
/// ICRC had been wrong.
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
    /// There are fewer bytes between the headers and the ICRC than the pad count.
    #[error("pad count at offset 1 is {pad}, but only {got} bytes follow the headers")]
    PadTooLarge {
        /// The pad count, 1..4.
        pad: u8,
        /// Bytes between headers and ICRC.
        got: usize,
    },
    /// A packet that never has payload has a pad count.
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
    /// The packet ends before the headers of the opcode and the ICRC.
    #[error("truncated at offset {got}: expected at least {expected} bytes")]
    Truncated {
        /// Minimum length of the packet, bytes.
        expected: usize,
        /// Its length, bytes, which is the offset of the first missing byte.
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
        /// Offset of the end of the headers.
        offset: usize,
        /// Bytes between headers and ICRC.
        got: usize,
    },
    /// The opcode is not one of RC, UC, UD or XRC, nor the CNP.
    #[error("opcode at offset 0: got {got:#04x}, which is not an opcode of RC, UC, UD, XRC or CNP")]
    UnknownOpcode {
        /// The byte.
        got: u8,
    },
}

#[cold]
fn truncated(expected: usize, bytes: &[u8]) -> ParseError {
    ParseError::Truncated {
        expected,
        got: bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::extension::Reth;
    use crate::headers::BthFlags;
    use crate::testing::{any_packet, flow_v4, sample};

    fn build(headers: Headers, payload: &[u8]) -> Vec<u8> {
        let mut buffer = vec![0; 1024];
        let len = headers
            .emit_packet(payload, &flow_v4(), 0, &mut buffer)
            .unwrap();
        buffer.truncate(len);
        buffer
    }

    #[test]
    fn golden_write_with_immediate() {
        #[rustfmt::skip]
        let bytes = [
            0x0b, 0xf0, 0xff, 0xff, 0x00, 0x00, 0x00, 0x11, 0x80, 0xff, 0xff, 0xfe,
            0x00, 0x00, 0x7f, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x01, 0x23,
            0x00, 0x00, 0x00, 0x01,
            0xca, 0xfe, 0xba, 0xbe,
            b'!', 0, 0, 0,
            0x78, 0x56, 0x34, 0x12,
        ];
        let packet = Packet::new_checked(&bytes).unwrap();
        let headers = packet.headers();
        assert_eq!(headers.opcode(), Opcode::RcWriteOnlyImm);
        let set = BthFlags::SOLICITED | BthFlags::MIG_REQ | BthFlags::ACK_REQ;
        assert_eq!(headers.flags, set);
        assert_eq!((packet.pad(), headers.pkey), (3, 0xffff));
        let (dest_qp, psn) = (headers.dest_qp.value(), headers.psn.value());
        assert_eq!((dest_qp, psn), (0x11, 0xff_fffe));
        assert_eq!(
            headers.reth(),
            Some(Reth {
                va: 0x7f00_0000_1000,
                rkey: 0x123,
                length: 1
            })
        );
        assert_eq!(headers.imm(), Some(0xcafe_babe));
        assert_eq!(headers.aeth(), None);
        assert_eq!(packet.payload(), b"!");
        assert_eq!(packet.icrc(), 0x1234_5678);
        assert_eq!(packet.bytes(), bytes);
    }

    #[test]
    fn every_opcode_comes_back_and_its_truncations_fail() {
        for &opcode in Opcode::ALL {
            let headers = sample(opcode);
            for payload in [&b""[..], b"1", b"22", b"333", b"4444", b"55555"] {
                if !opcode.has_payload() && !payload.is_empty() {
                    continue;
                }
                let bytes = build(headers, payload);
                let packet = Packet::new_checked(&bytes).unwrap();
                assert_eq!(packet.headers(), &headers, "{opcode}");
                assert_eq!(packet.pad(), crate::pad_len(payload.len()), "{opcode}");
                assert_eq!(packet.payload(), payload, "{opcode}");

                let shortest = opcode.header_len() + ICRC_LEN;
                for len in 0..bytes.len() {
                    match Packet::new_checked(&bytes[..len]) {
                        Err(ParseError::Truncated { expected, got }) => {
                            assert_eq!(got, len, "{opcode}");
                            assert!(len < expected && expected <= shortest, "{opcode}");
                        }
                        Err(ParseError::Unaligned { got }) => {
                            assert_eq!(got, len);
                            assert!(len > shortest && !len.is_multiple_of(4), "{opcode}");
                        }
                        // The pad count speaks of a payload that is gone.
                        Err(ParseError::PadTooLarge { .. }) => assert_eq!(len, shortest),
                        Err(error) => panic!("{opcode} cut to {len}: {error}"),
                        // Cut inside the payload at a multiple of 4: for the ICRC to find out.
                        Ok(_) => assert!(len >= shortest && len.is_multiple_of(4), "{opcode}"),
                    }
                }
            }
        }
    }

    #[test]
    fn faults_say_what_and_where() {
        let send = build(sample(Opcode::RcSendOnly), b"abc");
        let ack = build(sample(Opcode::RcAcknowledge), b"");
        let cnp = build(sample(Opcode::Cnp), b"");
        let changed = |bytes: &[u8], offset: usize, value: u8| {
            let mut bytes = bytes.to_vec();
            bytes[offset] = value;
            bytes
        };
        let extended = |bytes: &[u8], count| [bytes, &vec![0; count]].concat();
        let opcode = Opcode::RcAcknowledge;
        for (bytes, error, message) in [
            (
                send[..15].to_vec(),
                ParseError::Truncated {
                    expected: 16,
                    got: 15,
                },
                "truncated at offset 15: expected at least 16 bytes",
            ),
            (
                changed(&send, 0, 0x15),
                ParseError::UnknownOpcode { got: 0x15 },
                "opcode at offset 0: got 0x15, which is not an opcode of RC, UC, UD, XRC or CNP",
            ),
            (
                changed(&send, 1, 0x01),
                ParseError::TransportVersion { got: 1 },
                "transport header version at offset 1: expected 0, got 1",
            ),
            (
                extended(&send, 2),
                ParseError::Unaligned { got: 22 },
                "length of the packet: expected a multiple of 4, got 22",
            ),
            (
                changed(&build(sample(Opcode::RcSendOnly), b""), 1, 0x30),
                ParseError::PadTooLarge { pad: 3, got: 0 },
                "pad count at offset 1 is 3, but only 0 bytes follow the headers",
            ),
            (
                changed(&ack, 1, 0x20),
                ParseError::PadWithoutPayload { opcode, got: 2 },
                "pad count at offset 1 of RC acknowledge: expected 0, got 2",
            ),
            (
                extended(&ack, 4),
                ParseError::UnexpectedPayload {
                    opcode,
                    offset: 16,
                    got: 4,
                },
                "RC acknowledge has no payload, but 4 bytes follow its headers at offset 16",
            ),
            (
                changed(&cnp, 20, 0x7f),
                ParseError::CnpReserved {
                    offset: 20,
                    got: 0x7f,
                },
                "CNP reserved byte at offset 20: expected 0, got 0x7f",
            ),
        ] {
            let got = Packet::new_checked(&bytes).unwrap_err();
            assert_eq!(got, error);
            assert_eq!(got.to_string(), message);
        }
    }

    #[test]
    fn reserved_bits_are_not_looked_at() {
        for (opcode, reserved) in [(Opcode::UdSendOnly, 16), (Opcode::XrcSendOnly, 12)] {
            let mut bytes = build(sample(opcode), b"");
            let headers = *Packet::new_checked(&bytes).unwrap().headers();
            bytes[4] |= 0x3f;
            bytes[8] |= 0x3f;
            bytes[reserved] = 0xff;
            assert_eq!(Packet::new_checked(&bytes).unwrap().headers(), &headers);
        }
    }

    proptest! {
        #[test]
        fn emit_then_parse_is_identity((headers, payload) in any_packet()) {
            let bytes = build(headers, &payload);
            let packet = Packet::new_checked(&bytes).unwrap();
            prop_assert_eq!(packet.headers(), &headers);
            prop_assert_eq!(packet.pad(), crate::pad_len(payload.len()));
            prop_assert_eq!(packet.payload(), &payload[..]);
            prop_assert!(flow_v4().verify(0, &bytes).is_ok());
        }

        #[test]
        fn arbitrary_bytes_never_panic_and_survive_a_round_trip(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..128),
            opcode in prop::sample::select(Opcode::ALL),
        ) {
            let _ = Packet::new_checked(&bytes);
            // Steer it past the first checks.
            bytes.truncate(bytes.len() / 4 * 4);
            if let [first, flags, ..] = &mut bytes[..] {
                *first = opcode.as_u8();
                *flags &= 0xf0;
            }
            if let Ok(packet) = Packet::new_checked(&bytes) {
                let mut again = [0; crate::HEADERS_LEN_MAX];
                let payload_len = packet.payload().len();
                let len = packet.headers().emit(payload_len, &mut again).unwrap();
                // All but reserved bits.
                prop_assert_eq!(&again[..4], &bytes[..4]);
                prop_assert_eq!(again[4], bytes[4] & 0xc0);
                prop_assert_eq!(&again[5..8], &bytes[5..8]);
                prop_assert_eq!(again[8], bytes[8] & 0xc0);
                prop_assert_eq!(&again[9..BTH_LEN], &bytes[9..BTH_LEN]);
                if !opcode.has_deth() && !opcode.has_xrceth() {
                    prop_assert_eq!(&again[BTH_LEN..len], &bytes[BTH_LEN..len]);
                }
            }
        }
    }
}
