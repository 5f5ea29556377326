//! Limits of the device, as `ibv_query_device` reports them.

use crate::numbers;

/// Protection domains.
pub const MAX_PD: u32 = 1 << 16;
/// Memory regions.
pub const MAX_MR: u32 = 1 << 23;
/// Completion queues.
pub const MAX_CQ: u32 = 1 << 20;
/// Entries of a completion queue.
pub const MAX_CQE: u32 = 1 << 22;
/// Shared receive queues: those that a slot has numbers for.
pub const MAX_SRQ: u32 = numbers::COUNT;
/// Queue pairs: those that a slot has numbers for.
pub const MAX_QP: u32 = numbers::COUNT;
/// Outstanding work requests of a queue.
pub const MAX_WR: u32 = 1 << 15;
/// Elements of a scatter/gather list.
pub const MAX_SGE: u32 = 30;
/// Bytes of inline data.
pub const MAX_INLINE: u32 = 1024;
/// Multicast groups.
pub const MAX_MCAST_GRP: u32 = 1 << 13;
/// Queue pairs attached to a multicast group.
pub const MAX_MCAST_QP_ATTACH: u32 = 1 << 13;
/// READs and atomics outstanding, in either direction.
pub const MAX_RD_ATOMIC: u8 = 16;
