//! Verbs of memory regions.

use ferroce_transport::AccessFlags;

use super::{in_range, no_such, not_busy};
use crate::device::Hca;
use crate::error::{Object, VerbsError};
use crate::ids::PdId;
use crate::memory::Memory;
use crate::mr::{MrInfo, MrKey};

/// The meaning of `ibv_access_flags` for a memory region or window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegFlags {
    /// Permissions.
    pub access: AccessFlags,
    /// The region or window starts at address 0 (`IBV_ACCESS_ZERO_BASED`).
    pub zero_based: bool,
    /// Pages may be unmapped and mapped again (`IBV_ACCESS_ON_DEMAND`). Every region of this device
    /// allows this.
    pub on_demand: bool,
}

impl RegFlags {
    const ZERO_BASED: u32 = 1 << 5;
    const ON_DEMAND: u32 = 1 << 6;
    const HUGETLB: u32 = 1 << 7;
    const FLUSH_GLOBAL: u32 = 1 << 8;
    const FLUSH_PERSISTENT: u32 = 1 << 9;
    /// `IBV_ACCESS_OPTIONAL_RANGE`: relaxed ordering, and hints that a device may overlook.
    const OPTIONAL: u32 = 0x3ff0_0000;

    /// Reads the bits of `ibv_access_flags`. Huge pages and relaxed ordering have no effect on a
    /// software device.
    pub fn from_bits(bits: u32) -> Result<Self, VerbsError> {
        for (bit, what) in [
            (Self::FLUSH_GLOBAL, "IBV_ACCESS_FLUSH_GLOBAL"),
            (Self::FLUSH_PERSISTENT, "IBV_ACCESS_FLUSH_PERSISTENT"),
        ] {
            if bits & bit != 0 {
                return Err(VerbsError::NotSupported { what });
            }
        }
        let options = Self::ZERO_BASED | Self::ON_DEMAND | Self::HUGETLB | Self::OPTIONAL;
        let unknown = bits & !(options | AccessFlags::all().bits());
        if unknown != 0 {
            return Err(VerbsError::UnknownAccess { bits: unknown });
        }
        Ok(Self {
            access: AccessFlags::from_bits_truncate(bits),
            zero_based: bits & Self::ZERO_BASED != 0,
            on_demand: bits & Self::ON_DEMAND != 0,
        })
    }

    /// Reads the permissions of a queue pair. FLUSH permissions are accepted without effect,
    /// because no peer can use them: programs that know FLUSH grant them to every queue pair, and
    /// cards without it accept them.
    pub fn of_queue_pair(bits: u32) -> Result<Self, VerbsError> {
        Self::from_bits(bits & !(Self::FLUSH_GLOBAL | Self::FLUSH_PERSISTENT))
    }
}

impl RegFlags {
    /// Returns whether a registration of `len` bytes from `addr` stands for everything that the
    /// program has mapped at any time (implicit ODP, ibv_reg_mr(3)). Such memory may be accessed
    /// only through [`Memory::checked`].
    pub fn is_implicit(&self, addr: u64, len: u64) -> Result<bool, VerbsError> {
        match (len, addr) {
            (u64::MAX, 0) if self.on_demand => Ok(true),
            (u64::MAX, _) => Err(VerbsError::NeedsOnDemand),
            _ => Ok(false),
        }
    }
}

/// The changes that `ibv_rereg_mr` makes to a memory region.
#[derive(Clone, Debug, Default)]
pub struct MrModify {
    /// Other memory, and the address under which work requests and peers see its first byte
    /// (`IBV_REREG_MR_CHANGE_TRANSLATION`).
    pub translation: Option<(Memory, u64)>,
    /// Another protection domain (`IBV_REREG_MR_CHANGE_PD`).
    pub pd: Option<PdId>,
    /// Other permissions (`IBV_REREG_MR_CHANGE_ACCESS`).
    pub access: Option<AccessFlags>,
}

fn check_access(access: AccessFlags) -> Result<(), VerbsError> {
    let remote_write = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    if access.intersects(remote_write) && !access.contains(AccessFlags::LOCAL_WRITE) {
        return Err(VerbsError::NeedsLocalWrite);
    }
    Ok(())
}

fn check_translation(memory: &Memory, va: u64) -> Result<(), VerbsError> {
    in_range("length", memory.len(), 0, u64::MAX - va)
}

impl Hca {
    /// Registers memory under its own address.
    pub fn reg_mr(
        &mut self,
        pd: PdId,
        memory: Memory,
        access: AccessFlags,
    ) -> Result<MrInfo, VerbsError> {
        let va = memory.addr();
        self.reg_mr_iova(pd, memory, va, access)
    }

    /// Registers memory so that work requests and peers see it at `va`; at 0 for
    /// `IBV_ACCESS_ZERO_BASED`.
    pub fn reg_mr_iova(
        &mut self,
        pd: PdId,
        memory: Memory,
        va: u64,
        access: AccessFlags,
    ) -> Result<MrInfo, VerbsError> {
        check_access(access)?;
        check_translation(&memory, va)?;
        self.pd_users(pd)?;
        let (object, max) = (Object::Mr, self.config.limits.max_mr);
        let info = self
            .common
            .keys
            .insert_region(pd, va, access, memory)
            .ok_or(VerbsError::TooMany { object, max })?;
        *self.pd_users(pd)? += 1;
        Ok(info)
    }

    /// Creates a region without memory that covers all addresses: writes are discarded, reads
    /// return zeros. Only its lkey is useful (ibv_alloc_null_mr(3)).
    pub fn alloc_null_mr(&mut self, pd: PdId) -> Result<MrInfo, VerbsError> {
        let nothing = Memory::Phantom {
            addr: 0,
            len: u64::MAX,
        };
        self.reg_mr(pd, nothing, AccessFlags::LOCAL_WRITE)
    }

    /// Changes a memory region to which no memory window is bound, atomically: all or none. Its
    /// keys stay. Packets in flight are checked against the region at the time they arrive
    /// (ibv_rereg_mr(3)).
    pub fn rereg_mr(&mut self, key: MrKey, change: MrModify) -> Result<MrInfo, VerbsError> {
        let mut info = self.unbound_mr(key)?;
        let old_pd = info.pd;
        if let Some(access) = change.access {
            check_access(access)?;
            info.access = access;
        }
        let memory = match change.translation {
            Some((memory, va)) => {
                check_translation(&memory, va)?;
                (info.va, info.len) = (va, memory.len());
                Some(memory)
            }
            None => None,
        };
        if let Some(pd) = change.pd {
            *self.pd_users(pd)? += 1;
            *self.pd_users(old_pd)? -= 1;
            info.pd = pd;
        }
        self.common.keys.change_region(info, memory);
        Ok(info)
    }

    /// Disables all accesses to memory, regardless of regions, because the program exits. Its queue
    /// pairs still handle acknowledgements and send those they owe; requests of peers are lost as
    /// if it had exited already.
    pub fn revoke_memory(&mut self) {
        self.common.keys.revoke();
    }

    /// Deregisters a memory region to which no memory window is bound; packets in flight to it are
    /// refused from now on.
    pub fn dereg_mr(&mut self, key: MrKey) -> Result<(), VerbsError> {
        let info = self.unbound_mr(key)?;
        self.common.keys.remove_region(key);
        *self.pd_users(info.pd)? -= 1;
        Ok(())
    }

    fn unbound_mr(&self, key: MrKey) -> Result<MrInfo, VerbsError> {
        let region = self.common.keys.region(key);
        let region = region.ok_or_else(|| no_such(Object::Mr, key.0))?;
        not_busy(Object::Mr, region.windows)?;
        Ok(region.info)
    }

    /// Returns the memory regions.
    pub fn mrs(&self) -> impl Iterator<Item = &MrInfo> {
        self.common.keys.regions().map(|region| &region.info)
    }
}
