//! Verbs of shared receive queues.

use ferroce_transport::RecvWr;
use ferroce_wire::Srqn;

use super::{in_range, no_such, not_busy};
use crate::device::Hca;
use crate::error::{Object, VerbsError};
use crate::ids::PdId;
use crate::limits;
use crate::srq::{Srq, SrqAttr, SrqId, SrqModify, XrcObjects};

impl Hca {
    /// Makes a shared receive queue.
    pub fn create_srq(&mut self, pd: PdId, max_wr: u32, max_sge: u32) -> Result<SrqId, VerbsError> {
        self.insert_srq(pd, None, max_wr, max_sge)
    }

    /// Makes a shared receive queue of XRC (`ibv_create_srq_ex`).
    pub fn create_xrc_srq(
        &mut self,
        pd: PdId,
        xrc: XrcObjects,
        max_wr: u32,
        max_sge: u32,
    ) -> Result<SrqId, VerbsError> {
        self.xrcd_users(xrc.xrcd)?;
        self.cq(xrc.cq)?;
        let srq = self.insert_srq(pd, Some(xrc), max_wr, max_sge)?;
        *self.xrcd_users(xrc.xrcd)? += 1;
        self.cq(xrc.cq)?.users += 1;
        Ok(srq)
    }

    fn insert_srq(
        &mut self,
        pd: PdId,
        xrc: Option<XrcObjects>,
        max_wr: u32,
        max_sge: u32,
    ) -> Result<SrqId, VerbsError> {
        in_range("max_wr", max_wr.into(), 1, limits::MAX_SRQ_WR.into())?;
        in_range("max_sge", max_sge.into(), 1, limits::MAX_SGE.into())?;
        self.pd_users(pd)?;
        let (object, max) = (Object::Srq, self.config.limits.max_srq);
        let index = self
            .common
            .srqs
            .insert_with(|_| Box::new(Srq::new(pd, xrc, max_wr, max_sge)));
        let index = index.ok_or(VerbsError::TooMany { object, max })?;
        *self.pd_users(pd)? += 1;
        Ok(SrqId(index))
    }

    /// Number of a shared receive queue (`ibv_get_srq_num`), unlike those of all others on the
    /// device's address.
    pub fn srq_number(&mut self, srq: SrqId) -> Result<Srqn, VerbsError> {
        self.srq(srq)?;
        Ok(Srqn::new(self.common.numbers.number(srq.0)))
    }

    /// Destroys a shared receive queue that no queue pair uses. Peers that name one of XRC are
    /// refused from now on.
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<(), VerbsError> {
        not_busy(Object::Srq, self.srq(srq)?.users)?;
        let &mut Srq { pd, xrc, .. } = self.srq(srq)?;
        self.common.srqs.remove(srq.0);
        *self.pd_users(pd)? -= 1;
        if let Some(XrcObjects { xrcd, cq }) = xrc {
            *self.xrcd_users(xrcd)? -= 1;
            self.cq(cq)?.users -= 1;
        }
        Ok(())
    }

    /// Changes capacity and limit of a shared receive queue: all of it, or on error nothing. The
    /// limit is armed for one [`crate::Event::SrqLimit`], when a request is taken and fewer are
    /// left (ibv_modify_srq(3)).
    pub fn modify_srq(&mut self, srq: SrqId, change: &SrqModify) -> Result<(), VerbsError> {
        let queue = self.srq(srq)?;
        let mut attr = queue.attr();
        if let Some(max_wr) = change.max_wr {
            let waiting = (queue.len() as u64).max(1);
            in_range("max_wr", max_wr.into(), waiting, limits::MAX_SRQ_WR.into())?;
            attr.max_wr = max_wr;
        }
        if let Some(limit) = change.limit {
            in_range("srq_limit", limit.into(), 0, attr.max_wr.into())?;
            attr.limit = limit;
        }
        // With a limit above its size, the queue would always be low.
        attr.limit = attr.limit.min(attr.max_wr);
        queue.change(&attr);
        Ok(())
    }

    /// Capacity and limit of a shared receive queue.
    pub fn query_srq(&self, srq: SrqId) -> Result<SrqAttr, VerbsError> {
        let queue = self.common.srqs.get(srq.0);
        let queue = queue.ok_or_else(|| no_such(Object::Srq, srq.0))?;
        Ok(queue.attr())
    }

    /// Posts a receive request to a shared receive queue.
    pub fn post_srq_recv(&mut self, srq: SrqId, wr: RecvWr) -> Result<(), VerbsError> {
        Ok(self.srq(srq)?.post(wr)?)
    }

    pub(super) fn srq(&mut self, srq: SrqId) -> Result<&mut Srq, VerbsError> {
        self.common
            .srqs
            .get_mut(srq.0)
            .map(|srq| &mut **srq)
            .ok_or_else(|| no_such(Object::Srq, srq.0))
    }
}
