//! The locks on bytes of the file.

use std::time::Duration;

/// How long to wait for a lock. Locks are held for microseconds, or for milliseconds by each of many
/// processes that start at the same time, so only a stopped process can make this too short.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The bytes that are locked, far behind the end of the file. Their places must never change, because
/// other releases look at them, too.
pub(super) mod byte {
    /// Held to make, replace or remove the file, and to join or leave.
    pub(in crate::shared) const MEMBERS: i64 = 1 << 40;
    /// Held to change settings.
    pub(in crate::shared) const SETTINGS: i64 = MEMBERS + 1;
    /// Held to end the leases of dead processes.
    pub(in crate::shared) const LEASES: i64 = MEMBERS + 2;
    /// Held to change the GID table.
    pub(in crate::shared) const GIDS: i64 = MEMBERS + 3;
    /// The owner of slot n has byte `SLOTS + n`.
    pub(in crate::shared) const SLOTS: i64 = MEMBERS + 0x1000;
    /// Each process that has VF n of the card open shares byte `VFS + n` of the PF's file.
    pub(in crate::shared) const VFS: i64 = MEMBERS + 0x2000;
}

/// The largest slot. 255 would make the queue pair number that stands for a multicast group.
pub const SLOT_MAX: u8 = 254;
