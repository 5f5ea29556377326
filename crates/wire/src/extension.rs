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
    Xrc(Srqn),
    XrcImm(Srqn, u32),
    XrcIeth(Srqn, u32),
    XrcReth(Srqn, Reth),
    XrcRethImm(Srqn, Reth, u32),
    XrcAtomic(Srqn, AtomicEth),
}

/// Eight bytes of memory as a number, aligned like everything else here.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(C, packed(4))]
pub(crate) struct Word(pub(crate) u64);

impl Extensions {
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
        } = *values;
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
            Class::Xrc => Self::Xrc(xrceth),
            Class::XrcImm => Self::XrcImm(xrceth, imm),
            Class::XrcIeth => Self::XrcIeth(xrceth, ieth),
            Class::XrcReth => Self::XrcReth(xrceth, reth),
            Class::XrcRethImm => Self::XrcRethImm(xrceth, reth, imm),
            Class::XrcAtomic => Self::XrcAtomic(xrceth, atomic),
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
            Class::Xrc => Self::Xrc(srqn(rest)?),
            Class::XrcImm => Self::XrcImm(srqn(rest)?, be32(rest)?),
            Class::XrcIeth => Self::XrcIeth(srqn(rest)?, be32(rest)?),
            Class::XrcReth => Self::XrcReth(srqn(rest)?, reth(rest)?),
            Class::XrcRethImm => Self::XrcRethImm(srqn(rest)?, reth(rest)?, be32(rest)?),
            Class::XrcAtomic => Self::XrcAtomic(srqn(rest)?, atomic(rest)?),
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
            Self::Xrc(srqn) => out.be32(srqn.value()),
            Self::XrcImm(srqn, word) | Self::XrcIeth(srqn, word) => {
                out.be32(srqn.value());
                out.be32(word);
            }
            Self::XrcReth(srqn, reth) => {
                out.be32(srqn.value());
                out.reth(reth);
            }
            Self::XrcRethImm(srqn, reth, imm) => {
                out.be32(srqn.value());
                out.reth(reth);
                out.be32(imm);
            }
            Self::XrcAtomic(srqn, atomic) => {
                out.be32(srqn.value());
                out.atomic(atomic);
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

fn srqn(rest: &mut &[u8]) -> Option<Srqn> {
    let [_reserved, a, b, c] = take(rest)?;
    Some(Srqn::from_bytes([a, b, c]))
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
