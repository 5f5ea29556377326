//! How large a ring and its packets are. The models in `models/` have smaller ones.

/// How many bytes of packets a ring holds: more than what the windows of a process let it have on the
/// wire, with the answers to its READs, so that only packets without a window can fill it.
pub(super) const CAPACITY: usize = 4 << 20;
/// The longest packet: twice what the largest MTU makes with all headers.
pub const PACKET_BYTES_MAX: usize = 8192;

/// A ring that is found empty starts again if it has come this far: so traffic that is taken at once
/// stays in the caches.
pub(super) const ANEW_BYTES: u64 = 256 << 10;
/// How far apart are the positions at which it is asked whether the ring is empty.
pub(super) const ASK_BYTES: u64 = 64 << 10;
/// Bytes that may wait to be published: a batch of long packets, so that an acknowledgement is not seen
/// before the message that follows it.
pub(super) const UNPUBLISHED_BYTES_MAX: u64 = 64 << 10;
/// Bytes that may be read until the producer is told that they are free.
pub(super) const UNRELEASED_BYTES_MAX: u64 = 64 << 10;
