//! Leases of processes that have ended. The lock of a process's slot shows that it has died.
//!
//! A process that ends leases holds a lock, and so does the next owner of a slot before it takes
//! any. Leases of living processes are therefore never mistaken for those of dead ones.

use std::io;

use ferroce_os as os;

use super::locks::{PATIENCE, SLOT_MAX, byte};
use super::{Membership, SharedFile};

impl SharedFile {
    /// Ends the leases of the former owner of a slot, which this process has just taken. If it has the
    /// device to itself, there are no others to leave alone.
    pub(super) fn clear_leases(&self, _held: &Membership<'_>, slot: u8) -> io::Result<()> {
        let leases = self.layout.leases();
        os::lock_when_free(&self.file, byte::LEASES, PATIENCE)?;
        match self.others() {
            Ok(others) if others.is_empty() => leases.clear(),
            _ => leases.reclaim(slot),
        }
        os::unlock(&self.file, byte::LEASES)
    }

    /// Ends the leases of the dead, for the owner of slot `own`. Does nothing if another process is at
    /// it.
    pub fn sweep_leases(&self, own: u8) -> io::Result<()> {
        let leases = self.layout.leases();
        if !os::lock(&self.file, byte::LEASES)? {
            return Ok(());
        }
        for slot in (1..=SLOT_MAX).filter(|slot| *slot != own) {
            if leases.is_held(slot) && !self.is_alive(slot) {
                leases.reclaim(slot);
            }
        }
        os::unlock(&self.file, byte::LEASES)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::net::{IpAddr, Ipv4Addr};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::registry::Registry;
    use crate::spec::DeviceSpec;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn join(registry: &Registry) -> (SharedFile, u8) {
        let spec = DeviceSpec::new("a", PEER);
        let shared = registry.share(&spec).unwrap();
        let held = shared.membership().unwrap();
        let slot = shared.claim_slot(&held).unwrap().unwrap();
        drop(held);
        (shared, slot)
    }

    fn take_all(shared: &SharedFile, slot: u8) -> u64 {
        let take = || shared.layout.leases().take(slot, PEER, 1 << 20, 1 << 20);
        std::iter::repeat_with(take)
            .take_while(|granted| *granted > 0)
            .sum()
    }

    #[test]
    fn only_the_dead_lose_their_leases() {
        let private = Permissions::from_mode(0o700);
        let base = tempfile::Builder::new().permissions(private).tempdir();
        let base = base.unwrap();
        let registry = Registry::at(base.path()).unwrap();
        let [(first, one), (second, two), (third, three)] = [(); 3].map(|()| join(&registry));
        assert_eq!(take_all(&first, one), 1 << 20);
        second.sweep_leases(two).unwrap();
        first.sweep_leases(one).unwrap();
        assert_eq!(take_all(&second, two), 0);
        drop(first);
        second.sweep_leases(two).unwrap();
        assert_eq!(take_all(&second, two), 1 << 20);
        third.sweep_leases(three).unwrap();
        assert_eq!(take_all(&third, three), 0);
    }

    #[test]
    fn a_taken_slot_has_no_leases_of_the_dead() {
        let private = Permissions::from_mode(0o700);
        let base = tempfile::Builder::new().permissions(private).tempdir();
        let base = base.unwrap();
        let registry = Registry::at(base.path()).unwrap();
        let (first, one) = join(&registry);
        let (second, two) = join(&registry);
        assert!(take_all(&first, one) > 0);
        drop(first);
        let held = second.membership().unwrap();
        second.clear_leases(&held, one).unwrap();
        drop(held);
        assert!(take_all(&second, two) > 0);
        drop(second);
        let (third, three) = join(&registry);
        assert_eq!(take_all(&third, three), 1 << 20);
    }
}
