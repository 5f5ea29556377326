//! What is to follow of a message of several packets.

use ferroce_wire::Opcode;

/// What is to follow of the latest message that a peer sends, for a host that decides when it receives again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Remainder {
    /// It was a single packet, or its others are not awaited any more.
    #[default]
    None,
    /// More packets.
    Awaited,
    /// The last of several has come.
    Arrived,
}

impl Remainder {
    /// After this request of the peer.
    #[inline]
    pub(crate) fn after(opcode: Opcode) -> Self {
        if opcode.is_first() || opcode.is_middle() {
            Self::Awaited
        } else if opcode.is_last() {
            Self::Arrived
        } else {
            Self::None
        }
    }
}
