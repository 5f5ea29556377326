//! Transport headers as plain values, and how to write them.

use bitflags::bitflags;
use thiserror::Error;

use crate::aeth::Aeth;
use crate::extension::{
    AtomicEth, DcConnect, Dceth, Deth, ExtensionValues, Extensions, Reth, Word,
};
use crate::icrc::IcrcFlow;
use crate::ids::{Psn, Qpn, Srqn};
use crate::lengths::{BTH_LEN, ICRC_LEN, pad_len};
use crate::opcode::{Opcode, Service};

/// UDP destination port of RoCEv2.
pub const ROCE_V2_PORT: u16 = 4791;
/// First byte of a steering probe, which Ferroce's devices send to themselves on [`ROCE_V2_PORT`]
/// to find out which process receives what: the opcode of no packet.
pub const STEERING_PROBE: u8 = 0xfe;

/// The partition key of every RoCE port: full member of the default partition.
pub const PKEY_DEFAULT: u16 = 0xffff;

bitflags! {
    /// The one-bit fields of the base transport header.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct BthFlags: u8 {
        /// Solicited event: asks the responder to wake a waiting consumer.
        const SOLICITED = 0x80;
        /// Migration state "migrated": set on every packet of a QP without path migration.
        const MIG_REQ = 0x40;
        /// Forward explicit congestion notification; RoCEv2 uses the IP header's ECN bits instead.
        const FECN = 0x08;
        /// Backward explicit congestion notification; set on a CNP.
        const BECN = 0x04;
        /// The sender repeats selectively, and takes NAKs that report which later packets have
        /// arrived. Ferroce's own, in the highest of the bits that are reserved beside the PSN; sent
        /// only to peers that have shown or agreed that they keep such packets.
        const SELECTIVE = 0x02;
        /// Asks the responder for an acknowledge.
        const ACK_REQ = 0x01;
    }
}

/// All headers of a packet between UDP and payload, as owned values: the base transport header (IBA
/// vol 1, 9.2) and the extension headers that its opcode carries.
///
/// The extension headers always match the opcode. The pad count is not stored, because it follows
/// from the payload's length; nor is the version of the transport header, which is 0. Other reserved
/// bits are sent as zero and ignored on receipt.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Headers {
    /// Destination queue pair.
    pub dest_qp: Qpn,
    /// Sequence number of the packet.
    pub psn: Psn,
    /// Partition key; see [`PKEY_DEFAULT`].
    pub pkey: u16,
    /// The one-bit fields.
    pub flags: BthFlags,
    opcode: Opcode,
    extensions: Extensions,
}

const _: () = assert!(size_of::<Headers>() <= 48, "copied for each packet");

/// Position of a packet in its message.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Place {
    /// The only packet.
    Only,
    /// The first of several.
    First,
    /// Neither the first nor the last.
    Middle,
    /// The last of several.
    Last,
}

impl Place {
    /// Returns the position of a packet, given whether it is the first and the last of its message.
    #[inline]
    pub const fn new(first: bool, last: bool) -> Self {
        match (first, last) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, false) => Self::Middle,
            (false, true) => Self::Last,
        }
    }

    #[inline]
    const fn is_last(self) -> bool {
        matches!(self, Self::Only | Self::Last)
    }
}

/// Transport service of a request between connected queue pairs.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Connection {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Extended reliable connection, with the shared receive queue that the request is for.
    Xrc(Srqn),
}

impl Connection {
    /// Returns the reliable service: extended if a shared receive queue is given.
    #[inline]
    pub const fn reliable(srqn: Option<Srqn>) -> Self {
        match srqn {
            Some(srqn) => Self::Xrc(srqn),
            None => Self::Rc,
        }
    }

    #[inline]
    const fn service(self) -> Service {
        match self {
            Self::Rc => Service::Rc,
            Self::Uc => Service::Uc,
            Self::Xrc(_) => Service::Xrc,
        }
    }
}

/// Making them. Destination and PSN are still to be set with [`Headers::to`].
impl Headers {
    /// Creates a packet of a SEND. The last packet carries `imm`, the message's immediate data.
    #[inline]
    pub const fn send(connection: Connection, place: Place, imm: Option<u32>) -> Self {
        use Opcode::*;
        let Some(imm) = ending(place, imm) else {
            let opcode = at(place, [RcSendOnly, RcSendFirst, RcSendMiddle, RcSendLast]);
            return match connection {
                Connection::Xrc(srqn) => Self::xrc(opcode, Extensions::Lead(srqn.value())),
                _ => Self::of(opcode, connection, Extensions::None),
            };
        };
        let opcode = only_or_last(place, RcSendOnlyImm, RcSendLastImm);
        match connection {
            Connection::Xrc(srqn) => Self::xrc(opcode, Extensions::LeadImm(srqn.value(), imm)),
            _ => Self::of(opcode, connection, Extensions::Imm(imm)),
        }
    }

    /// Creates a packet of a SEND with invalidate of RC or XRC. The last packet carries `rkey`, the
    /// peer's key to invalidate.
    #[inline]
    pub const fn send_invalidate(srqn: Option<Srqn>, place: Place, rkey: u32) -> Self {
        use Opcode::*;
        if !place.is_last() {
            return Self::send(Connection::reliable(srqn), place, None);
        }
        let opcode = only_or_last(place, RcSendOnlyInvalidate, RcSendLastInvalidate);
        match srqn {
            Some(srqn) => Self::xrc(opcode, Extensions::LeadIeth(srqn.value(), rkey)),
            None => Self::new(opcode, Extensions::Ieth(rkey)),
        }
    }

    /// Creates a packet of a WRITE. The first packet carries `reth`, which says where to write; the
    /// last one carries the immediate data.
    #[inline]
    pub const fn write(connection: Connection, place: Place, reth: Reth, imm: Option<u32>) -> Self {
        use Opcode::*;
        let imm = ending(place, imm);
        let opcode = match imm {
            Some(_) => only_or_last(place, RcWriteOnlyImm, RcWriteLastImm),
            None => at(
                place,
                [RcWriteOnly, RcWriteFirst, RcWriteMiddle, RcWriteLast],
            ),
        };
        let begins = matches!(place, Place::Only | Place::First);
        match connection {
            Connection::Xrc(srqn) => Self::xrc(
                opcode,
                match (begins, imm) {
                    (true, Some(imm)) => Extensions::LeadRethImm(srqn.value(), reth, imm),
                    (true, None) => Extensions::LeadReth(srqn.value(), reth),
                    (false, Some(imm)) => Extensions::LeadImm(srqn.value(), imm),
                    (false, None) => Extensions::Lead(srqn.value()),
                },
            ),
            _ => Self::of(
                opcode,
                connection,
                match (begins, imm) {
                    (true, Some(imm)) => Extensions::RethImm(reth, imm),
                    (true, None) => Extensions::Reth(reth),
                    (false, Some(imm)) => Extensions::Imm(imm),
                    (false, None) => Extensions::None,
                },
            ),
        }
    }

    /// Creates a READ request of RC or XRC.
    #[inline]
    pub const fn read(srqn: Option<Srqn>, reth: Reth) -> Self {
        let opcode = Opcode::RcReadRequest;
        match srqn {
            Some(srqn) => Self::xrc(opcode, Extensions::LeadReth(srqn.value(), reth)),
            None => Self::new(opcode, Extensions::Reth(reth)),
        }
    }

    /// Creates a compare-and-swap of RC or XRC.
    #[inline]
    pub const fn compare_swap(srqn: Option<Srqn>, atomic: AtomicEth) -> Self {
        Self::atomic_request(Opcode::RcCompareSwap, srqn, atomic)
    }

    /// Creates a fetch-and-add of RC or XRC.
    #[inline]
    pub const fn fetch_add(srqn: Option<Srqn>, atomic: AtomicEth) -> Self {
        Self::atomic_request(Opcode::RcFetchAdd, srqn, atomic)
    }

    const fn atomic_request(opcode: Opcode, srqn: Option<Srqn>, atomic: AtomicEth) -> Self {
        match srqn {
            Some(srqn) => Self::xrc(opcode, Extensions::LeadAtomic(srqn.value(), atomic)),
            None => Self::new(opcode, Extensions::Atomic(atomic)),
        }
    }

    /// Creates a packet of an RC READ response; one in the middle has no `aeth`.
    #[inline]
    pub const fn read_response(place: Place, aeth: Aeth) -> Self {
        use Opcode::*;
        let extensions = match place {
            Place::Middle => Extensions::None,
            Place::Only | Place::First | Place::Last => Extensions::Aeth(aeth),
        };
        let opcodes = [
            RcReadResponseOnly,
            RcReadResponseFirst,
            RcReadResponseMiddle,
            RcReadResponseLast,
        ];
        Self::new(at(place, opcodes), extensions)
    }

    /// Creates an RC acknowledge, positive or negative.
    #[inline]
    pub const fn acknowledge(aeth: Aeth) -> Self {
        Self::new(Opcode::RcAcknowledge, Extensions::Aeth(aeth))
    }

    /// Creates a NAK of RC that says, in its payload, which packets behind the missing one the responder
    /// keeps.
    #[inline]
    pub const fn acknowledge_report(aeth: Aeth) -> Self {
        Self::new(Opcode::RcAcknowledgeReport, Extensions::Aeth(aeth))
    }

    /// Creates an RC acknowledge with the original value that an atomic operation found.
    #[inline]
    pub const fn atomic_acknowledge(aeth: Aeth, original: u64) -> Self {
        let extensions = Extensions::AtomicAck(aeth, Word(original));
        Self::new(Opcode::RcAtomicAcknowledge, extensions)
    }

    /// Converts an RC response to an XRC one; they differ in nothing else. Other packets are
    /// returned unchanged.
    #[inline]
    #[must_use]
    pub const fn as_xrc_response(mut self) -> Self {
        if self.opcode.is_response() {
            self.opcode = in_service(self.opcode, Service::Xrc);
        }
        self
    }

    /// Converts an RC packet to one of the dynamically connected transport; a request gets `dceth`.
    /// Other packets are returned unchanged.
    #[inline]
    #[must_use]
    pub const fn as_dc(mut self, dceth: Dceth) -> Self {
        if !matches!(self.opcode.service(), Service::Rc) {
            return self;
        }
        let word = dceth.word();
        self.extensions = match self.extensions {
            Extensions::None if self.opcode.is_request() => Extensions::Lead(word),
            Extensions::Imm(imm) => Extensions::LeadImm(word, imm),
            Extensions::Ieth(rkey) => Extensions::LeadIeth(word, rkey),
            Extensions::Reth(reth) => Extensions::LeadReth(word, reth),
            Extensions::RethImm(reth, imm) => Extensions::LeadRethImm(word, reth, imm),
            Extensions::Atomic(atomic) => Extensions::LeadAtomic(word, atomic),
            response => response,
        };
        self.opcode = in_service(self.opcode, Service::Dc);
        self
    }

    /// Creates a connect request of the dynamically connected transport.
    #[inline]
    pub const fn connect(dceth: Dceth, connect: DcConnect) -> Self {
        let extensions = Extensions::DcConnect(dceth.word(), connect);
        Self::new(Opcode::DcConnect, extensions)
    }

    /// Creates a disconnect of the dynamically connected transport.
    #[inline]
    pub const fn disconnect(dceth: Dceth) -> Self {
        Self::new(Opcode::DcDisconnect, Extensions::Lead(dceth.word()))
    }

    /// Creates a datagram.
    #[inline]
    pub const fn datagram(deth: Deth, imm: Option<u32>) -> Self {
        match imm {
            Some(imm) => Self::new(Opcode::UdSendOnlyImm, Extensions::DethImm(deth, imm)),
            None => Self::new(Opcode::UdSendOnly, Extensions::Deth(deth)),
        }
    }

    /// A congestion notification; [`crate::cnp::headers`] sets what else there is to it.
    pub(crate) const fn cnp() -> Self {
        Self::new(Opcode::Cnp, Extensions::None)
    }

    /// Creates a packet of any opcode, with those of the `values` that it carries.
    pub const fn with_values(opcode: Opcode, values: &ExtensionValues) -> Self {
        Self::new(opcode, Extensions::of(opcode, values))
    }

    /// Returns the same headers with another destination queue pair and sequence number.
    #[inline]
    #[must_use]
    pub const fn to(mut self, dest_qp: Qpn, psn: Psn) -> Self {
        (self.dest_qp, self.psn) = (dest_qp, psn);
        self
    }

    /// The request of RC or UC that `opcode` is in RC.
    #[inline]
    const fn of(opcode: Opcode, connection: Connection, extensions: Extensions) -> Self {
        let opcode = match connection {
            Connection::Rc => opcode,
            _ => in_service(opcode, connection.service()),
        };
        Self::new(opcode, extensions)
    }

    /// The request of XRC that `opcode` is in RC.
    #[inline]
    const fn xrc(opcode: Opcode, extensions: Extensions) -> Self {
        Self::new(in_service(opcode, Service::Xrc), extensions)
    }

    /// With the usual values of the base header: default partition, migrated, nothing solicited or
    /// asked for.
    #[inline]
    const fn new(opcode: Opcode, extensions: Extensions) -> Self {
        Self {
            dest_qp: Qpn::new(0),
            psn: Psn::ZERO,
            pkey: PKEY_DEFAULT,
            flags: BthFlags::MIG_REQ,
            opcode,
            extensions,
        }
    }

    /// What a well-formed packet carries whose opcode and extension headers have been read.
    #[inline]
    pub(crate) const fn parsed(
        opcode: Opcode,
        extensions: Extensions,
        bth: &[u8; BTH_LEN],
    ) -> Self {
        let [_, flags, p0, p1, ecn, q0, q1, q2, ack, s0, s1, s2] = *bth;
        Self {
            dest_qp: Qpn::from_bytes([q0, q1, q2]),
            psn: Psn::from_bytes([s0, s1, s2]),
            pkey: u16::from_be_bytes([p0, p1]),
            flags: BthFlags::from_bits_retain(
                flags & 0xc0 | (ecn & 0xc0) >> 4 | (ack & 0x40) >> 5 | ack >> 7,
            ),
            opcode,
            extensions,
        }
    }
}

/// What they say.
impl Headers {
    /// Returns the opcode, which determines the extension headers.
    #[inline]
    pub const fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// Returns whether the packet asks the responder for an acknowledge.
    #[inline]
    pub const fn asks_for_ack(&self) -> bool {
        self.flags.contains(BthFlags::ACK_REQ)
    }

    /// Returns whether the packet asks the responder to wake a waiting consumer.
    #[inline]
    pub const fn is_solicited(&self) -> bool {
        self.flags.contains(BthFlags::SOLICITED)
    }

    /// Returns the RDMA header of a WRITE's first packet or a READ request.
    #[inline]
    pub const fn reth(&self) -> Option<Reth> {
        match self.extensions {
            Extensions::Reth(reth)
            | Extensions::RethImm(reth, _)
            | Extensions::LeadReth(_, reth)
            | Extensions::LeadRethImm(_, reth, _) => Some(reth),
            _ => None,
        }
    }

    /// Returns the same header for modification.
    pub const fn reth_mut(&mut self) -> Option<&mut Reth> {
        match &mut self.extensions {
            Extensions::Reth(reth)
            | Extensions::RethImm(reth, _)
            | Extensions::LeadReth(_, reth)
            | Extensions::LeadRethImm(_, reth, _) => Some(reth),
            _ => None,
        }
    }

    /// Returns the ACK header of a response.
    #[inline]
    pub const fn aeth(&self) -> Option<Aeth> {
        match self.extensions {
            Extensions::Aeth(aeth) | Extensions::AtomicAck(aeth, _) => Some(aeth),
            _ => None,
        }
    }

    /// Returns the same header for modification.
    pub const fn aeth_mut(&mut self) -> Option<&mut Aeth> {
        match &mut self.extensions {
            Extensions::Aeth(aeth) | Extensions::AtomicAck(aeth, _) => Some(aeth),
            _ => None,
        }
    }

    /// Returns the atomic header of a compare-and-swap or fetch-and-add.
    #[inline]
    pub const fn atomic(&self) -> Option<AtomicEth> {
        match self.extensions {
            Extensions::Atomic(atomic) | Extensions::LeadAtomic(_, atomic) => Some(atomic),
            _ => None,
        }
    }

    /// Returns the same header for modification.
    pub const fn atomic_mut(&mut self) -> Option<&mut AtomicEth> {
        match &mut self.extensions {
            Extensions::Atomic(atomic) | Extensions::LeadAtomic(_, atomic) => Some(atomic),
            _ => None,
        }
    }

    /// Returns the original value of the word, on an atomic acknowledge.
    #[inline]
    pub const fn atomic_ack(&self) -> Option<u64> {
        match self.extensions {
            Extensions::AtomicAck(_, Word(original)) => Some(original),
            _ => None,
        }
    }

    /// Returns the immediate data, as the number that `ibv_wc.imm_data` holds in network byte
    /// order.
    #[inline]
    pub const fn imm(&self) -> Option<u32> {
        match self.extensions {
            Extensions::Imm(imm)
            | Extensions::RethImm(_, imm)
            | Extensions::DethImm(_, imm)
            | Extensions::LeadImm(_, imm)
            | Extensions::LeadRethImm(_, _, imm) => Some(imm),
            _ => None,
        }
    }

    /// Returns the remote key to invalidate.
    #[inline]
    pub const fn ieth(&self) -> Option<u32> {
        match self.extensions {
            Extensions::Ieth(rkey) | Extensions::LeadIeth(_, rkey) => Some(rkey),
            _ => None,
        }
    }

    /// Returns the datagram header of a UD packet.
    #[inline]
    pub const fn deth(&self) -> Option<Deth> {
        match self.extensions {
            Extensions::Deth(deth) | Extensions::DethImm(deth, _) => Some(deth),
            _ => None,
        }
    }

    /// Returns the shared receive queue that an XRC request is for (IBA vol 1, annex A14).
    #[inline]
    pub const fn xrceth(&self) -> Option<Srqn> {
        match self.extensions.lead() {
            Some(word) if self.opcode.has_xrceth() => Some(Srqn::new(word)),
            _ => None,
        }
    }

    /// Returns the initiator of a DC request and its connection.
    #[inline]
    pub const fn dceth(&self) -> Option<Dceth> {
        match self.extensions.lead() {
            Some(word) if self.opcode.has_dceth() => Some(Dceth::from_word(word)),
            _ => None,
        }
    }

    /// Returns what a DC connect request contains.
    #[inline]
    pub const fn dc_connect(&self) -> Option<DcConnect> {
        match self.extensions {
            Extensions::DcConnect(_, connect) => Some(connect),
            _ => None,
        }
    }

    /// Returns the length of the headers in bytes, which depends on the opcode.
    #[inline]
    pub const fn header_len(&self) -> usize {
        self.opcode.header_len()
    }
}

/// Writing them.
impl Headers {
    /// Writes the headers of a packet with `payload_len` bytes of payload to the start of `buffer`
    /// and returns their length in bytes.
    ///
    /// The caller adds payload, pad and ICRC. On an error, `buffer` is unchanged.
    #[inline]
    pub fn emit(&self, payload_len: usize, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let opcode = self.opcode;
        if payload_len > 0 && !opcode.has_payload() {
            let got = payload_len;
            return Err(EmitError::UnexpectedPayload { opcode, got });
        }
        let (expected, got) = (self.header_len(), buffer.len());
        let Some((bth, extensions)) = buffer
            .get_mut(..expected)
            .and_then(|headers| headers.split_first_chunk_mut())
        else {
            return Err(EmitError::BufferTooShort { expected, got });
        };
        *bth = self.bth(pad_len(payload_len));
        self.extensions.emit(extensions);
        Ok(expected)
    }

    /// Writes a whole packet, BTH to ICRC inclusive, to the start of `buffer` and returns its
    /// length in bytes.
    ///
    /// For tests, captures and small packets. Fast senders gather the payload from its original
    /// memory and use [`IcrcFlow::compute_gathered`].
    pub fn emit_packet(
        &self,
        payload: &[u8],
        flow: &IcrcFlow,
        ip_id: u16,
        buffer: &mut [u8],
    ) -> Result<usize, EmitError> {
        let payload_at = self.header_len();
        let pad_at = payload_at + payload.len();
        let icrc_at = pad_at + usize::from(pad_len(payload.len()));
        let len = icrc_at + ICRC_LEN;
        if buffer.len() < len {
            return Err(EmitError::BufferTooShort {
                expected: len,
                got: buffer.len(),
            });
        }
        self.emit(payload.len(), buffer)?;
        buffer[payload_at..pad_at].copy_from_slice(payload);
        buffer[pad_at..icrc_at].fill(0);
        let icrc = flow.compute(ip_id, &buffer[..icrc_at]);
        buffer[icrc_at..len].copy_from_slice(&icrc.to_le_bytes());
        Ok(len)
    }

    #[inline]
    const fn bth(&self, pad: u8) -> [u8; BTH_LEN] {
        let flags = self.flags.bits();
        let [p0, p1] = self.pkey.to_be_bytes();
        let [q0, q1, q2] = self.dest_qp.to_bytes();
        let [s0, s1, s2] = self.psn.to_bytes();
        [
            self.opcode.as_u8(),
            flags & 0xc0 | pad << 4,
            p0,
            p1,
            flags << 4 & 0xc0,
            q0,
            q1,
            q2,
            flags << 7 | flags << 5 & 0x40,
            s0,
            s1,
            s2,
        ]
    }
}

/// The reason why headers cannot be written: an error of the local caller.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum EmitError {
    /// The buffer is too short.
    #[error("buffer too short: expected at least {expected} bytes, got {got}")]
    BufferTooShort {
        /// Length of the headers or the packet, bytes.
        expected: usize,
        /// Length of the buffer, bytes.
        got: usize,
    },
    /// A payload was given for an opcode that never has one.
    #[error("{opcode} has no payload, but {got} bytes were given")]
    UnexpectedPayload {
        /// The opcode of the BTH.
        opcode: Opcode,
        /// Length of the payload, bytes.
        got: usize,
    },
}

/// The immediate data that the packet at `place` carries, of those of its message.
#[inline]
const fn ending(place: Place, imm: Option<u32>) -> Option<u32> {
    if place.is_last() { imm } else { None }
}

#[inline]
const fn at(place: Place, [only, first, middle, last]: [Opcode; 4]) -> Opcode {
    match place {
        Place::Only => only,
        Place::First => first,
        Place::Middle => middle,
        Place::Last => last,
    }
}

#[inline]
const fn only_or_last(place: Place, only: Opcode, last: Opcode) -> Opcode {
    match place {
        Place::Only => only,
        Place::First | Place::Middle | Place::Last => last,
    }
}

/// The opcode of another service for an operation of RC that this service has.
#[inline]
const fn in_service(operation: Opcode, service: Service) -> Opcode {
    match operation.of_service(service) {
        Some(opcode) => opcode,
        None => operation,
    }
}

#[cfg(test)]
mod tests;
