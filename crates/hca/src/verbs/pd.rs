//! Verbs of protection domains.

use super::{no_such, not_busy};
use crate::device::Hca;
use crate::error::{Object, VerbsError};
use crate::ids::PdId;

impl Hca {
    /// Makes a protection domain.
    pub fn alloc_pd(&mut self) -> Result<PdId, VerbsError> {
        let (object, max) = (Object::Pd, self.config.limits.max_pd);
        self.pds
            .insert_with(|_| 0)
            .map(PdId)
            .ok_or(VerbsError::TooMany { object, max })
    }

    /// Destroys a protection domain that nothing uses.
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<(), VerbsError> {
        not_busy(Object::Pd, *self.pd_users(pd)?)?;
        self.pds.remove(pd.0);
        Ok(())
    }

    pub(super) fn pd_users(&mut self, pd: PdId) -> Result<&mut u32, VerbsError> {
        self.pds
            .get_mut(pd.0)
            .ok_or_else(|| no_such(Object::Pd, pd.0))
    }
}
