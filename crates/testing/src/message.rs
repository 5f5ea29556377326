//! Messages between two queue pairs, and their destinations in the peer's memory.

use ferroce_transport::{SendOp, SendWr};

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names of the operations")]
pub enum Kind {
    Send,
    SendImm,
    SendInvalidate,
    Write,
    WriteImm,
    Read,
    CompareSwap,
    FetchAdd,
    BindMw,
}

impl Kind {
    /// All that go over the wire.
    pub const ALL: [Self; 8] = [
        Self::Send,
        Self::SendImm,
        Self::SendInvalidate,
        Self::Write,
        Self::WriteImm,
        Self::Read,
        Self::CompareSwap,
        Self::FetchAdd,
    ];

    /// Whether it is of 8 bytes.
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Whether its response brings bytes.
    pub fn needs_response(self) -> bool {
        self == Self::Read || self.is_atomic()
    }

    /// Whether it completes a receive.
    pub fn consumes_receive(self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendImm | Self::SendInvalidate | Self::WriteImm
        )
    }
}

/// A message that was posted.
#[derive(Clone, Debug)]
pub struct Posted<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its request.
    pub wr: &'a SendWr,
    /// The bytes sent, or brought by the response.
    pub bytes: Vec<u8>,
}

/// Words for atomics, at the beginning of a target.
pub const WORDS: u32 = 4;
const WORD: u32 = 8;
/// Where WRITEs begin, which may overlap.
const WRITES: u32 = 2 * WORDS * WORD;

/// Memory of a peer that messages reach: words, a part that is written, and one that is only read.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Where it begins.
    pub va: u64,
    /// The peer's key.
    pub rkey: u32,
    /// Of each part but the words.
    pub part: u32,
}

impl Target {
    /// How long it is with parts of this length.
    pub const fn bytes(part: u32) -> u32 {
        WRITES + 2 * part
    }

    /// The operation of a message of this length that reaches its memory; `place` says where, and
    /// is its immediate data. `before` is what the target held at first. `None` for those that reach
    /// none.
    pub fn op(&self, kind: Kind, place: u32, len: u32, before: &[u8]) -> Option<SendOp> {
        let Self { va, rkey, part } = *self;
        let within = |begin: u32| va + u64::from(begin + place % (part - len));
        let offset = WORD * (place % WORDS);
        let word = va + u64::from(offset);
        let imm = Some(place);
        let op = match kind {
            Kind::Send => SendOp::Send { imm: None },
            Kind::SendImm => SendOp::Send { imm },
            Kind::Write | Kind::WriteImm => SendOp::Write {
                va: within(WRITES),
                rkey,
                imm: imm.filter(|_| kind == Kind::WriteImm),
            },
            Kind::Read => SendOp::Read {
                va: within(WRITES + part),
                rkey,
            },
            // Compares with what the word holds in one case of two.
            Kind::CompareSwap => SendOp::CompareSwap {
                va: word,
                rkey,
                compare: word_at(before, offset as usize).wrapping_add(u64::from(place & 1)),
                swap: u64::from(place) << 20,
            },
            Kind::FetchAdd => SendOp::FetchAdd {
                va: word,
                rkey,
                add: u64::from(place) << 32 | 1,
            },
            Kind::SendInvalidate | Kind::BindMw => return None,
        };
        Some(op)
    }
}

fn word_at(bytes: &[u8], offset: usize) -> u64 {
    let word = bytes[offset..][..WORD as usize].try_into();
    u64::from_ne_bytes(word.expect("8 bytes"))
}
