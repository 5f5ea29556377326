//! A ring of three lines, each with room for a packet of a word, so that all that happens to a ring
//! happens with a few packets.

pub(super) const CAPACITY: usize = 3 * 64;
pub const PACKET_BYTES_MAX: usize = 64;
pub(super) const ANEW_BYTES: u64 = 64;
pub(super) const ASK_BYTES: u64 = 64;
pub(super) const UNPUBLISHED_BYTES_MAX: u64 = 1 << 10;
pub(super) const UNRELEASED_BYTES_MAX: u64 = 1 << 10;
