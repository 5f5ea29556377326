use ferroce_transport::RecvWr;
use ferroce_wire::Qpn;

use super::{PdId, in_range, no_such, not_busy};
use crate::device::Hca;
use crate::error::{Object, VerbsError};
use crate::limits;
use crate::srq::{Srq, SrqId};

impl Hca {
    /// Makes a shared receive queue.
    pub fn create_srq(&mut self, pd: PdId, max_wr: u32, max_sge: u32) -> Result<SrqId, VerbsError> {
        in_range("max_wr", max_wr.into(), 1, limits::MAX_WR.into())?;
        in_range("max_sge", max_sge.into(), 1, limits::MAX_SGE.into())?;
        self.pd_users(pd)?;
        let (object, max) = (Object::Srq, limits::MAX_SRQ);
        let index = self.srqs.insert_with(|_| Srq::new(pd, max_wr, max_sge));
        let index = index.ok_or(VerbsError::TooMany { object, max })?;
        *self.pd_users(pd)? += 1;
        Ok(SrqId(index))
    }

    /// Number of a shared receive queue (`ibv_get_srq_num`), unlike those of all others on the
    /// device's address.
    pub fn srq_number(&mut self, srq: SrqId) -> Result<Qpn, VerbsError> {
        self.srq(srq)?;
        Ok(self.numbers.number(srq.0))
    }

    /// Destroys a shared receive queue that no queue pair uses.
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<(), VerbsError> {
        not_busy(Object::Srq, self.srq(srq)?.users)?;
        let pd = self.srq(srq)?.pd;
        self.srqs.remove(srq.0);
        *self.pd_users(pd)? -= 1;
        Ok(())
    }

    /// Arms the limit event of a shared receive queue; 0 disarms it.
    pub fn arm_srq_limit(&mut self, srq: SrqId, limit: u32) -> Result<(), VerbsError> {
        let queue = self.srq(srq)?;
        in_range("srq_limit", limit.into(), 0, queue.max_wr().into())?;
        queue.arm_limit(limit);
        Ok(())
    }

    /// Posts a receive request to a shared receive queue.
    pub fn post_srq_recv(&mut self, srq: SrqId, wr: RecvWr) -> Result<(), VerbsError> {
        Ok(self.srq(srq)?.post(wr)?)
    }

    pub(super) fn srq(&mut self, srq: SrqId) -> Result<&mut Srq, VerbsError> {
        self.srqs
            .get_mut(srq.0)
            .ok_or_else(|| no_such(Object::Srq, srq.0))
    }
}
