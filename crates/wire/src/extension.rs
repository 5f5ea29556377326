//! Extension headers, between the base transport header and the payload.

use crate::aeth::Aeth;
use crate::ids::{Qpn, Srqn};
use crate::lengths::{BTH_LEN, RETH_LEN};
use crate::opcode::{Class, Opcode};

/// RDMA extended transport header, 16 bytes: the memory that a WRITE or READ accesses (IBA vol 1,
/// 9.3.3).
///
/// Packed, like [`AtomicEth`], so that [`Headers`](crate::Headers) takes 48 bytes. Read the fields
/// by value.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(C, packed(4))]
pub struct Reth {
    /// Virtual address at the responder.
    pub va: u64,
    /// Remote key that grants access to it.
    pub rkey: u32,
    /// Length of the whole message, bytes, 0..=2^31.
    pub length: u32,
}

impl Reth {
    const fn from_bytes(bytes: &[u8; RETH_LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, r0, r1, r2, r3, l0, l1, l2, l3] = *bytes;
        Self {
            va: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            rkey: u32::from_be_bytes([r0, r1, r2, r3]),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
        }
    }
}

/// Atomic extended transport header, 28 bytes (IBA vol 1, 9.3.5).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(C, packed(4))]
pub struct AtomicEth {
    /// Virtual address of the 8-byte word at the responder; a multiple of 8.
    pub va: u64,
    /// Remote key that grants access to it.
    pub rkey: u32,
    /// The value to store on a match (compare-and-swap) or to add (fetch-and-add).
    pub swap_or_add: u64,
    /// The value to compare with; unused by fetch-and-add.
    pub compare: u64,
}

/// Datagram extended transport header, 8 bytes (IBA vol 1, 9.3.2).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Deth {
    /// Queue key; the receiving QP accepts the datagram only if it has the same one.
    pub qkey: u32,
    /// Queue pair that sent the datagram.
    pub src_qp: Qpn,
}

/// Header of every request of the dynamically connected transport, 4 bytes; Ferroce's own format.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Dceth {
    /// Number of the connection among those of the initiator, modulo 256.
    pub connection: u8,
    /// Queue pair that sent the request (DCI).
    pub initiator: Qpn,
}

impl Dceth {
    #[inline]
    pub(crate) const fn word(self) -> u32 {
        (self.connection as u32) << 24 | self.initiator.value()
    }

    #[inline]
    pub(crate) const fn from_word(word: u32) -> Self {
        Self {
            connection: (word >> 24) as u8,
            initiator: Qpn::new(word),
        }
    }
}

/// Header of a connect request of the dynamically connected transport, 12 bytes; Ferroce's own
/// format.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(C, packed(4))]
pub struct DcConnect {
    /// Access key of the target.
    pub key: u64,
    /// Differs between queue pairs that had the initiator's number one after the other.
    pub incarnation: u32,
}

/// A value for each extension header, for [`Headers::with_values`]; a packet gets those that its
/// opcode carries.
///
/// [`Headers::with_values`]: crate::Headers::with_values
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct ExtensionValues {
    /// RDMA header of a WRITE's first packet and of a READ request.
    pub reth: Reth,
    /// ACK header of a response.
    pub aeth: Aeth,
    /// Atomic header of a compare-and-swap or fetch-and-add.
    pub atomic: AtomicEth,
    /// Original value of the word, on an atomic acknowledge.
    pub atomic_ack: u64,
    /// Immediate data.
    pub imm: u32,
    /// Remote key to invalidate.
    pub ieth: u32,
    /// Datagram header of a UD packet.
    pub deth: Deth,
    /// Shared receive queue that an XRC request is for.
    pub xrceth: Srqn,
    /// Initiator of a DC request and its connection.
    pub dceth: Dceth,
    /// What a DC connect request contains.
    pub dc_connect: DcConnect,
}

/// The extension headers of a packet: one variant for each class of opcodes.
///
/// A variant is made together with an opcode of its class, and never changed for another one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Extensions {
    /// None, or the reserved field of a CNP.
    None,
    Imm(u32),
    Ieth(u32),
    Reth(Reth),
    RethImm(Reth, u32),
    Atomic(AtomicEth),
    Aeth(Aeth),
    AtomicAck(Aeth, Word),
    Deth(Deth),
    DethImm(Deth, u32),
    /// The word before the other headers: the XRCETH or the DCETH.
    Lead(u32),
    LeadImm(u32, u32),
    LeadIeth(u32, u32),
    LeadReth(u32, Reth),
    LeadRethImm(u32, Reth, u32),
    LeadAtomic(u32, AtomicEth),
    DcConnect(u32, DcConnect),
}

/// Eight bytes of memory as a number, aligned like everything else here.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(C, packed(4))]
pub(crate) struct Word(pub(crate) u64);

impl Extensions {
    /// The word before the other headers.
    #[inline]
    pub(crate) const fn lead(&self) -> Option<u32> {
        match *self {
            Self::Lead(word)
            | Self::LeadImm(word, _)
            | Self::LeadIeth(word, _)
            | Self::LeadReth(word, _)
            | Self::LeadRethImm(word, ..)
            | Self::LeadAtomic(word, _)
            | Self::DcConnect(word, _) => Some(word),
            _ => None,
        }
    }

    /// Those that `opcode` carries.
    pub(crate) const fn of(opcode: Opcode, values: &ExtensionValues) -> Self {
        let ExtensionValues {
            reth,
            aeth,
            atomic,
            atomic_ack,
            imm,
            ieth,
            deth,
            xrceth,
            dceth,
            dc_connect,
        } = *values;
        let lead = if opcode.has_dceth() {
            dceth.word()
        } else {
            xrceth.value()
        };
        match opcode.class() {
            Class::None | Class::Cnp => Self::None,
            Class::Imm => Self::Imm(imm),
            Class::Ieth => Self::Ieth(ieth),
            Class::Reth => Self::Reth(reth),
            Class::RethImm => Self::RethImm(reth, imm),
            Class::Atomic => Self::Atomic(atomic),
            Class::Aeth => Self::Aeth(aeth),
            Class::AtomicAck => Self::AtomicAck(aeth, Word(atomic_ack)),
            Class::Deth => Self::Deth(deth),
            Class::DethImm => Self::DethImm(deth, imm),
            Class::Lead => Self::Lead(lead),
            Class::LeadImm => Self::LeadImm(lead, imm),
            Class::LeadIeth => Self::LeadIeth(lead, ieth),
            Class::LeadReth => Self::LeadReth(lead, reth),
            Class::LeadRethImm => Self::LeadRethImm(lead, reth, imm),
            Class::LeadAtomic => Self::LeadAtomic(lead, atomic),
            Class::DcConnect => Self::DcConnect(lead, dc_connect),
        }
    }

    /// Reads those of `opcode` from behind the BTH; returns them and what follows them. `None` if
    /// `body`, which begins with the BTH, ends before.
    #[inline]
    pub(crate) fn parse(opcode: Opcode, body: &[u8]) -> Option<(Self, &[u8])> {
        let rest = &mut body.get(BTH_LEN..)?;
        let extensions = match opcode.class() {
            Class::None => Self::None,
            Class::Imm => Self::Imm(be32(rest)?),
            Class::Ieth => Self::Ieth(be32(rest)?),
            Class::Reth => Self::Reth(reth(rest)?),
            Class::RethImm => Self::RethImm(reth(rest)?, be32(rest)?),
            Class::Atomic => Self::Atomic(atomic(rest)?),
            Class::Aeth => Self::Aeth(Aeth::from_bytes(take(rest)?)),
            Class::AtomicAck => {
                let aeth = Aeth::from_bytes(take(rest)?);
                Self::AtomicAck(aeth, Word(u64::from_be_bytes(take(rest)?)))
            }
            Class::Deth => Self::Deth(deth(rest)?),
            Class::DethImm => Self::DethImm(deth(rest)?, be32(rest)?),
            Class::Lead => Self::Lead(lead(opcode, rest)?),
            Class::LeadImm => Self::LeadImm(lead(opcode, rest)?, be32(rest)?),
            Class::LeadIeth => Self::LeadIeth(lead(opcode, rest)?, be32(rest)?),
            Class::LeadReth => Self::LeadReth(lead(opcode, rest)?, reth(rest)?),
            Class::LeadRethImm => Self::LeadRethImm(lead(opcode, rest)?, reth(rest)?, be32(rest)?),
            Class::LeadAtomic => Self::LeadAtomic(lead(opcode, rest)?, atomic(rest)?),
            Class::DcConnect => Self::DcConnect(lead(opcode, rest)?, dc_connect(rest)?),
            Class::Cnp => {
                take::<{ crate::CNP_RESERVED_LEN }>(rest)?;
                Self::None
            }
        };
        Some((extensions, rest))
    }

    /// Writes them in wire order to `out`, which is exactly as long as they are.
    #[inline]
    pub(crate) fn emit(&self, out: &mut [u8]) {
        let mut out = Out(out);
        match *self {
            // What a CNP has here is reserved.
            Self::None => out.0.fill(0),
            Self::Imm(word) | Self::Ieth(word) => out.be32(word),
            Self::Reth(reth) => out.reth(reth),
            Self::RethImm(reth, imm) => {
                out.reth(reth);
                out.be32(imm);
            }
            Self::Atomic(atomic) => out.atomic(atomic),
            Self::Aeth(aeth) => out.put(aeth.to_bytes()),
            Self::AtomicAck(aeth, Word(original)) => {
                out.put(aeth.to_bytes());
                out.put(original.to_be_bytes());
            }
            Self::Deth(deth) => out.deth(deth),
            Self::DethImm(deth, imm) => {
                out.deth(deth);
                out.be32(imm);
            }
            Self::Lead(lead) => out.be32(lead),
            Self::LeadImm(lead, word) | Self::LeadIeth(lead, word) => {
                out.be32(lead);
                out.be32(word);
            }
            Self::LeadReth(lead, reth) => {
                out.be32(lead);
                out.reth(reth);
            }
            Self::LeadRethImm(lead, reth, imm) => {
                out.be32(lead);
                out.reth(reth);
                out.be32(imm);
            }
            Self::LeadAtomic(lead, atomic) => {
                out.be32(lead);
                out.atomic(atomic);
            }
            Self::DcConnect(lead, DcConnect { key, incarnation }) => {
                out.be32(lead);
                out.put(key.to_be_bytes());
                out.be32(incarnation);
            }
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}

fn be32(rest: &mut &[u8]) -> Option<u32> {
    take(rest).map(u32::from_be_bytes)
}

fn reth(rest: &mut &[u8]) -> Option<Reth> {
    take(rest).map(|bytes| Reth::from_bytes(&bytes))
}

fn atomic(rest: &mut &[u8]) -> Option<AtomicEth> {
    Some(AtomicEth {
        va: u64::from_be_bytes(take(rest)?),
        rkey: be32(rest)?,
        swap_or_add: u64::from_be_bytes(take(rest)?),
        compare: u64::from_be_bytes(take(rest)?),
    })
}

fn deth(rest: &mut &[u8]) -> Option<Deth> {
    let qkey = be32(rest)?;
    let [_reserved, a, b, c] = take(rest)?;
    let src_qp = Qpn::from_bytes([a, b, c]);
    Some(Deth { qkey, src_qp })
}

/// The word before the other headers. The upper byte of an XRCETH is reserved.
fn lead(opcode: Opcode, rest: &mut &[u8]) -> Option<u32> {
    let word = be32(rest)?;
    Some(match opcode.has_xrceth() {
        true => Srqn::new(word).value(),
        false => word,
    })
}

fn dc_connect(rest: &mut &[u8]) -> Option<DcConnect> {
    Some(DcConnect {
        key: u64::from_be_bytes(take(rest)?),
        incarnation: be32(rest)?,
    })
}

/// What is left of the room for extension headers. It has the length of those of the opcode, so that
/// it never runs out.
struct Out<'a>(&'a mut [u8]);

impl Out<'_> {
    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        if let Some((head, tail)) = core::mem::take(&mut self.0).split_first_chunk_mut() {
            *head = bytes;
            self.0 = tail;
        }
    }

    #[inline]
    fn be32(&mut self, value: u32) {
        self.put(value.to_be_bytes());
    }

    #[inline]
    fn reth(&mut self, reth: Reth) {
        self.put(reth.va.to_be_bytes());
        self.be32(reth.rkey);
        self.be32(reth.length);
    }

    #[inline]
    fn atomic(&mut self, atomic: AtomicEth) {
        self.put(atomic.va.to_be_bytes());
        self.be32(atomic.rkey);
        self.put(atomic.swap_or_add.to_be_bytes());
        self.put(atomic.compare.to_be_bytes());
    }

    #[inline]
    fn deth(&mut self, deth: Deth) {
        self.be32(deth.qkey);
        self.be32(deth.src_qp.value());
    }
}
