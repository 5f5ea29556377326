use ferroce_transport::AccessFlags;

use super::{PdId, in_range, no_such};
use crate::device::Hca;
use crate::error::{Object, VerbsError};
use crate::limits;
use crate::memory::Memory;
use crate::mr::{MrInfo, MrKey};

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

    /// Registers memory so that work requests and peers see it at `va`.
    pub fn reg_mr_iova(
        &mut self,
        pd: PdId,
        memory: Memory,
        va: u64,
        access: AccessFlags,
    ) -> Result<MrInfo, VerbsError> {
        let remote_write = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        if access.intersects(remote_write) && !access.contains(AccessFlags::LOCAL_WRITE) {
            return Err(VerbsError::NeedsLocalWrite);
        }
        in_range("length", memory.len(), 0, u64::MAX - va)?;
        self.pd_users(pd)?;
        let (object, max) = (Object::Mr, limits::MAX_MR);
        let info = self
            .mrs
            .insert(pd, va, access, memory)
            .ok_or(VerbsError::TooMany { object, max })?;
        *self.pd_users(pd)? += 1;
        Ok(info)
    }

    /// Takes a memory region away; packets under way to it are refused from now on.
    pub fn dereg_mr(&mut self, key: MrKey) -> Result<(), VerbsError> {
        let info = self
            .mrs
            .remove(key)
            .ok_or_else(|| no_such(Object::Mr, key.0))?;
        *self.pd_users(info.pd)? -= 1;
        Ok(())
    }

    /// The memory regions.
    pub fn mrs(&self) -> impl Iterator<Item = &MrInfo> {
        self.mrs.iter()
    }
}
