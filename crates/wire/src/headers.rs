//! Transport headers as plain values, and their way into bytes.

use thiserror::Error;

use crate::aeth::Aeth;
use crate::icrc::IcrcFlow;
use crate::ids::{Psn, Qpn, Srqn};
use crate::opcode::Opcode;

/// UDP destination port of RoCEv2.
pub const ROCE_V2_PORT: u16 = 4791;
/// Length of the base transport header, bytes.
pub const BTH_LEN: usize = 12;
/// Length of the RDMA extended transport header, bytes.
pub const RETH_LEN: usize = 16;
/// Length of the ACK extended transport header, bytes.
pub const AETH_LEN: usize = 4;
/// Length of the atomic extended transport header, bytes.
pub const ATOMIC_ETH_LEN: usize = 28;
/// Length of the atomic ACK extended transport header, bytes.
pub const ATOMIC_ACK_ETH_LEN: usize = 8;
/// Length of immediate data, bytes.
pub const IMM_LEN: usize = 4;
/// Length of the invalidate extended transport header, bytes.
pub const IETH_LEN: usize = 4;
/// Length of the datagram extended transport header, bytes.
pub const DETH_LEN: usize = 8;
/// Length of the XRC extended transport header, bytes.
pub const XRCETH_LEN: usize = 4;
/// Length of the reserved field between a CNP's BTH and its ICRC, bytes.
pub const CNP_RESERVED_LEN: usize = 16;
/// Length of the longest BTH with extension headers (an atomic request of XRC), bytes.
pub const HEADERS_LEN_MAX: usize = BTH_LEN + XRCETH_LEN + ATOMIC_ETH_LEN;
/// Length of the invariant CRC at the end of a packet, bytes.
pub const ICRC_LEN: usize = 4;
/// The partition key that every RoCE port has: full member of the default partition.
pub const PKEY_DEFAULT: u16 = 0xffff;

/// Base transport header, 12 bytes (IBA vol 1, 9.2).
///
/// Reserved bits are zero when sent and not looked at when received.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Bth {
    /// Operation, and with it the extension headers that follow.
    pub opcode: Opcode,
    /// Solicited event: asks the responder to wake a waiting consumer.
    pub solicited: bool,
    /// Migration state; true ("migrated") on every packet of a QP without path migration.
    pub mig_req: bool,
    /// Zero bytes after the payload that make its length a multiple of 4; 0..4.
    pub pad: u8,
    /// Transport header version, 0..16; only 0 is defined.
    pub version: u8,
    /// Partition key; see [`PKEY_DEFAULT`].
    pub pkey: u16,
    /// Forward explicit congestion notification; RoCEv2 uses the IP header's ECN bits instead.
    pub fecn: bool,
    /// Backward explicit congestion notification; set on a CNP.
    pub becn: bool,
    /// Queue pair the packet goes to.
    pub dest_qp: Qpn,
    /// Asks the responder for an acknowledge.
    pub ack_req: bool,
    /// Sequence number of the packet.
    pub psn: Psn,
}

impl Bth {
    /// A header with the usual values: default partition, migrated, nothing solicited, asked for
    /// or padded.
    pub const fn request(opcode: Opcode, dest_qp: Qpn, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            mig_req: true,
            pad: 0,
            version: 0,
            pkey: PKEY_DEFAULT,
            fecn: false,
            becn: false,
            dest_qp,
            ack_req: false,
            psn,
        }
    }

    /// The other fields of a header whose opcode has been read already.
    pub(crate) const fn from_bytes(opcode: Opcode, bytes: &[u8; BTH_LEN]) -> Self {
        let [_, flags, p0, p1, ecn, q0, q1, q2, ack, s0, s1, s2] = *bytes;
        Self {
            opcode,
            solicited: flags & 0x80 != 0,
            mig_req: flags & 0x40 != 0,
            pad: (flags >> 4) & 0x03,
            version: flags & 0x0f,
            pkey: u16::from_be_bytes([p0, p1]),
            fecn: ecn & 0x80 != 0,
            becn: ecn & 0x40 != 0,
            dest_qp: Qpn::from_bytes([q0, q1, q2]),
            ack_req: ack & 0x80 != 0,
            psn: Psn::from_bytes([s0, s1, s2]),
        }
    }

    const fn to_bytes(self) -> [u8; BTH_LEN] {
        let flags = (self.solicited as u8) << 7
            | (self.mig_req as u8) << 6
            | (self.pad & 0x03) << 4
            | (self.version & 0x0f);
        let ecn = (self.fecn as u8) << 7 | (self.becn as u8) << 6;
        let [p0, p1] = self.pkey.to_be_bytes();
        let [q0, q1, q2] = self.dest_qp.to_bytes();
        let [s0, s1, s2] = self.psn.to_bytes();
        let ack = (self.ack_req as u8) << 7;
        [
            self.opcode.as_u8(),
            flags,
            p0,
            p1,
            ecn,
            q0,
            q1,
            q2,
            ack,
            s0,
            s1,
            s2,
        ]
    }
}

/// RDMA extended transport header, 16 bytes: where a WRITE or READ acts (IBA vol 1, 9.3.3).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Reth {
    /// Virtual address at the responder.
    pub va: u64,
    /// Remote key that grants access to it.
    pub rkey: u32,
    /// Length of the whole message, bytes; 0..=2^31.
    pub length: u32,
}

impl Reth {
    pub(crate) const fn from_bytes(bytes: &[u8; RETH_LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, r0, r1, r2, r3, l0, l1, l2, l3] = *bytes;
        Self {
            va: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            rkey: u32::from_be_bytes([r0, r1, r2, r3]),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
        }
    }
}

/// Atomic extended transport header, 28 bytes (IBA vol 1, 9.3.5).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct AtomicEth {
    /// Virtual address of the 8-byte word at the responder; a multiple of 8.
    pub va: u64,
    /// Remote key that grants access to it.
    pub rkey: u32,
    /// What to store on a match (compare-and-swap) or what to add (fetch-and-add).
    pub swap_or_add: u64,
    /// What to compare with; unused by fetch-and-add.
    pub compare: u64,
}

/// Datagram extended transport header, 8 bytes (IBA vol 1, 9.3.2).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Deth {
    /// Queue key; the receiving QP takes the datagram only if it has the same one.
    pub qkey: u32,
    /// Queue pair that sent the datagram.
    pub src_qp: Qpn,
}

/// All headers of a packet between UDP and payload, as owned values.
///
/// Which of the options are present is fixed by the opcode; [`emit`](Self::emit) refuses a set
/// that does not match, and a [`Packet`](crate::Packet) only ever yields a matching one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Headers {
    /// Base transport header, on every packet.
    pub bth: Bth,
    /// RDMA header of a WRITE's first packet and of a READ request.
    pub reth: Option<Reth>,
    /// ACK header of a response.
    pub aeth: Option<Aeth>,
    /// Atomic header of a compare-and-swap or fetch-and-add.
    pub atomic: Option<AtomicEth>,
    /// Original value of the word, on an atomic acknowledge.
    pub atomic_ack: Option<u64>,
    /// Immediate data; the number is the one `ibv_wc.imm_data` holds in network byte order.
    pub imm: Option<u32>,
    /// Remote key to invalidate.
    pub ieth: Option<u32>,
    /// Datagram header of a UD packet.
    pub deth: Option<Deth>,
    /// Shared receive queue that an XRC request is for (IBA vol 1, annex A14).
    pub xrceth: Option<Srqn>,
}

impl Headers {
    /// Headers without extensions.
    pub const fn new(bth: Bth) -> Self {
        Self {
            bth,
            reth: None,
            aeth: None,
            atomic: None,
            atomic_ack: None,
            imm: None,
            ieth: None,
            deth: None,
            xrceth: None,
        }
    }

    /// Length of the headers, bytes; follows from the opcode.
    #[inline]
    pub const fn header_len(&self) -> usize {
        self.bth.opcode.header_len()
    }

    /// Writes the headers to the start of `buffer` and returns their length in bytes.
    ///
    /// Payload, pad and ICRC are up to the caller. On an error `buffer` is as before.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, EmitError> {
        self.check()?;
        let len = self.header_len();
        let available = buffer.len();
        let Some(mut rest) = buffer.get_mut(..len) else {
            return Err(EmitError::BufferTooShort {
                expected: len,
                got: available,
            });
        };
        put(&mut rest, self.bth.to_bytes());
        if let Some(deth) = self.deth {
            put(&mut rest, deth.qkey.to_be_bytes());
            put(&mut rest, deth.src_qp.value().to_be_bytes());
        }
        if let Some(srqn) = self.xrceth {
            put(&mut rest, srqn.value().to_be_bytes());
        }
        if let Some(reth) = self.reth {
            put(&mut rest, reth.va.to_be_bytes());
            put(&mut rest, reth.rkey.to_be_bytes());
            put(&mut rest, reth.length.to_be_bytes());
        }
        if let Some(atomic) = self.atomic {
            put(&mut rest, atomic.va.to_be_bytes());
            put(&mut rest, atomic.rkey.to_be_bytes());
            put(&mut rest, atomic.swap_or_add.to_be_bytes());
            put(&mut rest, atomic.compare.to_be_bytes());
        }
        if let Some(aeth) = self.aeth {
            put(&mut rest, aeth.to_bytes());
        }
        if let Some(original) = self.atomic_ack {
            put(&mut rest, original.to_be_bytes());
        }
        if let Some(imm) = self.imm {
            put(&mut rest, imm.to_be_bytes());
        }
        if let Some(rkey) = self.ieth {
            put(&mut rest, rkey.to_be_bytes());
        }
        // Only a CNP has something left: its reserved field.
        rest.fill(0);
        Ok(len)
    }

    /// Writes a whole packet, BTH to ICRC inclusive, to the start of `buffer` and returns its
    /// length in bytes.
    ///
    /// The pad count is set from the payload, whatever the BTH says. For tests, captures and
    /// small packets; a fast sender gathers the payload from where it lies and uses
    /// [`IcrcFlow::compute_gathered`].
    pub fn emit_packet(
        mut self,
        payload: &[u8],
        flow: &IcrcFlow,
        ip_id: u16,
        buffer: &mut [u8],
    ) -> Result<usize, EmitError> {
        let opcode = self.bth.opcode;
        if !opcode.has_payload() && !payload.is_empty() {
            return Err(EmitError::UnexpectedPayload {
                opcode,
                got: payload.len(),
            });
        }
        self.bth.pad = pad_len(payload.len());
        let pad_at = self.header_len() + payload.len();
        let icrc_at = pad_at + usize::from(self.bth.pad);
        let len = icrc_at + ICRC_LEN;
        if buffer.len() < len {
            return Err(EmitError::BufferTooShort {
                expected: len,
                got: buffer.len(),
            });
        }
        let payload_at = self.emit(buffer)?;
        buffer[payload_at..pad_at].copy_from_slice(payload);
        buffer[pad_at..icrc_at].fill(0);
        let icrc = flow.compute(ip_id, &buffer[..icrc_at]);
        buffer[icrc_at..len].copy_from_slice(&icrc.to_le_bytes());
        Ok(len)
    }

    /// Whether the set of extensions is the opcode's and the numbers fit their fields.
    fn check(&self) -> Result<(), EmitError> {
        let opcode = self.bth.opcode;
        for (header, present, expected) in [
            ("RETH", self.reth.is_some(), opcode.has_reth()),
            ("AETH", self.aeth.is_some(), opcode.has_aeth()),
            ("AtomicETH", self.atomic.is_some(), opcode.has_atomic_eth()),
            (
                "AtomicAckETH",
                self.atomic_ack.is_some(),
                opcode.has_atomic_ack(),
            ),
            ("ImmDt", self.imm.is_some(), opcode.has_imm()),
            ("IETH", self.ieth.is_some(), opcode.has_ieth()),
            ("DETH", self.deth.is_some(), opcode.has_deth()),
            ("XRCETH", self.xrceth.is_some(), opcode.has_xrceth()),
        ] {
            match (present, expected) {
                (false, true) => return Err(EmitError::MissingExtension { opcode, header }),
                (true, false) => return Err(EmitError::ExtraExtension { opcode, header }),
                _ => {}
            }
        }
        let Bth { pad, version, .. } = self.bth;
        if pad > 3 {
            return Err(EmitError::FieldRange {
                field: "pad",
                max: 3,
                got: pad,
            });
        }
        if version > 15 {
            return Err(EmitError::FieldRange {
                field: "version",
                max: 15,
                got: version,
            });
        }
        Ok(())
    }
}

/// Why headers cannot be written: a mistake of the local caller.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum EmitError {
    /// The buffer cannot hold what is to be written.
    #[error("buffer too short: expected at least {expected} bytes, got {got}")]
    BufferTooShort {
        /// Length of the headers or the packet, bytes.
        expected: usize,
        /// Length of the buffer, bytes.
        got: usize,
    },
    /// An extension header was set that the opcode does not carry.
    #[error("{header} is set but {opcode} does not carry it")]
    ExtraExtension {
        /// The opcode of the BTH.
        opcode: Opcode,
        /// Name of the extension header.
        header: &'static str,
    },
    /// A number does not fit into its field of the BTH.
    #[error("BTH {field} out of range: at most {max}, got {got}")]
    FieldRange {
        /// Name of the field.
        field: &'static str,
        /// Largest value of the field.
        max: u8,
        /// The value that was to be written.
        got: u8,
    },
    /// An extension header that the opcode carries was not set.
    #[error("{opcode} carries {header} but it is not set")]
    MissingExtension {
        /// The opcode of the BTH.
        opcode: Opcode,
        /// Name of the extension header.
        header: &'static str,
    },
    /// There is payload for an opcode that never has any.
    #[error("{opcode} has no payload, but {got} bytes were given")]
    UnexpectedPayload {
        /// The opcode of the BTH.
        opcode: Opcode,
        /// Length of the payload, bytes.
        got: usize,
    },
}

/// Number of pad bytes (0..4) after a payload of `payload_len` bytes.
pub const fn pad_len(payload_len: usize) -> u8 {
    match payload_len % 4 {
        1 => 3,
        2 => 2,
        3 => 1,
        _ => 0,
    }
}

/// Moves `bytes` to the front of `rest` and shortens it; `rest` was cut to the exact length, so
/// it cannot run out while the extensions are those of the opcode.
fn put<const N: usize>(rest: &mut &mut [u8], bytes: [u8; N]) {
    if let Some((head, tail)) = core::mem::take(rest).split_first_chunk_mut() {
        *head = bytes;
        *rest = tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{flow_v4, sample};

    fn emitted(headers: &Headers) -> Vec<u8> {
        let mut buffer = [0xee; HEADERS_LEN_MAX];
        let len = headers.emit(&mut buffer).unwrap();
        assert!(
            buffer[len..].iter().all(|&byte| byte == 0xee),
            "wrote behind the headers"
        );
        buffer[..len].to_vec()
    }

    #[test]
    fn golden_bth_bits() {
        let zero = Bth {
            opcode: Opcode::RcSendFirst,
            solicited: false,
            mig_req: false,
            pad: 0,
            version: 0,
            pkey: 0,
            fecn: false,
            becn: false,
            dest_qp: Qpn::new(0),
            ack_req: false,
            psn: Psn::ZERO,
        };
        let expect = |bth: Bth, bytes: [u8; BTH_LEN]| {
            assert_eq!(bth.to_bytes(), bytes);
            assert_eq!(Bth::from_bytes(bth.opcode, &bytes), bth);
        };
        expect(zero, [0; 12]);
        let opcode = Opcode::UdSendOnlyImm;
        expect(
            Bth { opcode, ..zero },
            [0x65, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        );
        expect(
            Bth {
                solicited: true,
                ..zero
            },
            [0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        );
        expect(
            Bth {
                mig_req: true,
                ..zero
            },
            [0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        );
        expect(
            Bth { pad: 3, ..zero },
            [0, 0x30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        );
        expect(
            Bth {
                version: 15,
                ..zero
            },
            [0, 0x0f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        );
        expect(
            Bth {
                pkey: 0x1234,
                ..zero
            },
            [0, 0, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0],
        );
        expect(
            Bth { fecn: true, ..zero },
            [0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0],
        );
        expect(
            Bth { becn: true, ..zero },
            [0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0],
        );
        let dest_qp = Qpn::new(0x12_3456);
        expect(
            Bth { dest_qp, ..zero },
            [0, 0, 0, 0, 0, 0x12, 0x34, 0x56, 0, 0, 0, 0],
        );
        expect(
            Bth {
                ack_req: true,
                ..zero
            },
            [0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0],
        );
        let psn = Psn::new(0x12_3456);
        expect(
            Bth { psn, ..zero },
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56],
        );
    }

    #[test]
    fn golden_extensions() {
        let bth = [0x40, 0x80, 0x01, 0, 0x12, 0x34, 0x56, 0, 0xab, 0xcd, 0xef];
        let reth = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
        let aeth = [0x1f, 0x11, 0x22, 0x33];
        let imm = [0x61, 0x62, 0x63, 0x64];
        let deth = [0x81, 0x82, 0x83, 0x84, 0, 0x91, 0x92, 0x93];
        #[rustfmt::skip]
        let atomic = [
            0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x2b, 0x2c,
            0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38,
            0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,
        ];
        let original = [0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58];
        for (opcode, extensions) in [
            (Opcode::RcSendOnly, vec![]),
            (Opcode::RcWriteOnly, vec![&reth[..]]),
            (Opcode::RcWriteOnlyImm, vec![&reth, &imm]),
            (Opcode::RcReadRequest, vec![&reth]),
            (Opcode::RcAcknowledge, vec![&aeth]),
            (Opcode::RcAtomicAcknowledge, vec![&aeth, &original]),
            (Opcode::RcFetchAdd, vec![&atomic]),
            (
                Opcode::RcSendLastInvalidate,
                vec![&[0x71, 0x72, 0x73, 0x74]],
            ),
            (Opcode::UcSendLastImm, vec![&imm]),
            (Opcode::UdSendOnlyImm, vec![&deth, &imm]),
            (Opcode::Cnp, vec![&[0; 16]]),
        ] {
            let mut expected = vec![opcode.as_u8()];
            expected.extend_from_slice(&bth);
            expected.extend(extensions.concat());
            assert_eq!(emitted(&sample(opcode)), expected, "{opcode}");
        }
    }

    #[test]
    fn every_opcode_emits_its_length_and_refuses_shorter_buffers() {
        for &opcode in Opcode::ALL {
            let headers = sample(opcode);
            assert_eq!(emitted(&headers).len(), opcode.header_len(), "{opcode}");
            for len in 0..opcode.header_len() {
                let mut buffer = vec![0xee; len];
                let expected = opcode.header_len();
                let error = EmitError::BufferTooShort { expected, got: len };
                assert_eq!(headers.emit(&mut buffer), Err(error));
                assert!(
                    buffer.iter().all(|&byte| byte == 0xee),
                    "wrote in spite of the error"
                );
            }
        }
    }

    #[test]
    fn extensions_must_be_those_of_the_opcode() {
        let bare = |opcode| Headers::new(Bth::request(opcode, Qpn::GSI, Psn::ZERO));
        let mut buffer = [0; HEADERS_LEN_MAX];
        // Each opcode's headers under each other opcode.
        for &opcode in Opcode::ALL {
            for &other in Opcode::ALL {
                let mut headers = sample(opcode);
                headers.bth.opcode = other;
                let present = |headers: &Headers| {
                    [
                        headers.reth.is_some(),
                        headers.aeth.is_some(),
                        headers.atomic.is_some(),
                        headers.atomic_ack.is_some(),
                        headers.imm.is_some(),
                        headers.ieth.is_some(),
                        headers.deth.is_some(),
                        headers.xrceth.is_some(),
                    ]
                };
                let same = present(&headers) == present(&sample(other));
                assert_eq!(
                    headers.emit(&mut buffer).is_ok(),
                    same,
                    "{opcode} as {other}"
                );
            }
        }
        let opcode = Opcode::RcWriteOnly;
        let missing = EmitError::MissingExtension {
            opcode,
            header: "RETH",
        };
        assert_eq!(bare(opcode).emit(&mut buffer), Err(missing));
        assert_eq!(
            missing.to_string(),
            "RC RDMA WRITE only carries RETH but it is not set"
        );
        let extra = Headers {
            imm: Some(1),
            ..bare(Opcode::RcSendOnly)
        };
        let error = EmitError::ExtraExtension {
            opcode: Opcode::RcSendOnly,
            header: "ImmDt",
        };
        assert_eq!(extra.emit(&mut buffer), Err(error));
    }

    #[test]
    fn fields_must_fit() {
        let mut buffer = [0; HEADERS_LEN_MAX];
        let mut headers = sample(Opcode::RcSendOnly);
        headers.bth.pad = 4;
        let error = EmitError::FieldRange {
            field: "pad",
            max: 3,
            got: 4,
        };
        assert_eq!(headers.emit(&mut buffer), Err(error));
        headers.bth.pad = 3;
        headers.bth.version = 16;
        let error = EmitError::FieldRange {
            field: "version",
            max: 15,
            got: 16,
        };
        assert_eq!(headers.emit(&mut buffer), Err(error));
    }

    #[test]
    fn pad_completes_to_four() {
        for len in 0..20 {
            let pad = pad_len(len);
            assert!(pad < 4 && (len + usize::from(pad)).is_multiple_of(4));
        }
    }

    #[test]
    fn whole_packets() {
        let headers = sample(Opcode::RcSendOnly);
        let mut buffer = [0xee; 64];
        let len = headers
            .emit_packet(b"hello", &flow_v4(), 0, &mut buffer)
            .unwrap();
        assert_eq!(len, 24);
        assert_eq!(buffer[1], 0x70);
        assert_eq!(buffer[12..20], *b"hello\0\0\0");
        assert_eq!(
            buffer[20..24],
            flow_v4().compute(0, &buffer[..20]).to_le_bytes()
        );
        assert!(buffer[24..].iter().all(|&byte| byte == 0xee));

        let error = EmitError::BufferTooShort {
            expected: 24,
            got: 23,
        };
        assert_eq!(
            headers.emit_packet(b"hello", &flow_v4(), 0, &mut buffer[..23]),
            Err(error)
        );
        let opcode = Opcode::RcAcknowledge;
        let error = EmitError::UnexpectedPayload { opcode, got: 1 };
        assert_eq!(
            sample(opcode).emit_packet(b"x", &flow_v4(), 0, &mut buffer),
            Err(error)
        );
    }
}
