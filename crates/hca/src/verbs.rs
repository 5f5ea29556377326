//! The verbs: objects are made, changed and destroyed.

use ferroce_transport::{
    AccessFlags, Attr, Completion, Qp, QpAttr, QpCap, QpConfig, QpModify, QpState, RecvWr, SendWr,
};
use ferroce_wire::Qpn;

use crate::cq::{Cq, CqId, Notify};
use crate::device::{Hca, QpEntry};
use crate::error::{Object, VerbsError};
use crate::host::Ties;
use crate::memory::Memory;
use crate::mr::{MrInfo, MrKey};
use crate::packet::Path;
use crate::srq::{Srq, SrqId};

/// Handle of a protection domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct PdId(pub u32);

/// Limits of the device, as `ibv_query_device` reports them.
pub mod limits {
    /// Protection domains.
    pub const MAX_PD: u32 = 1 << 16;
    /// Memory regions.
    pub const MAX_MR: u32 = 1 << 23;
    /// Completion queues.
    pub const MAX_CQ: u32 = 1 << 20;
    /// Entries of a completion queue.
    pub const MAX_CQE: u32 = 1 << 22;
    /// Shared receive queues.
    pub const MAX_SRQ: u32 = 1 << 20;
    /// Queue pairs.
    pub const MAX_QP: u32 = 1 << 20;
    /// Outstanding work requests of a queue.
    pub const MAX_WR: u32 = 1 << 15;
    /// Elements of a scatter/gather list.
    pub const MAX_SGE: u32 = 30;
    /// Bytes of inline data.
    pub const MAX_INLINE: u32 = 1024;
    /// READs and atomics outstanding, in either direction.
    pub const MAX_RD_ATOMIC: u8 = 16;
}

/// What a queue pair is created with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpInit {
    /// Protection domain.
    pub pd: PdId,
    /// Where send completions go.
    pub send_cq: CqId,
    /// Where receive completions go.
    pub recv_cq: CqId,
    /// Shared receive queue, in place of an own receive queue.
    pub srq: Option<SrqId>,
    /// Capacities.
    pub cap: QpCap,
    /// Every send request produces a completion.
    pub signal_all: bool,
}

fn no_such(object: Object, handle: u32) -> VerbsError {
    VerbsError::NoSuch { object, handle }
}

fn in_range(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), VerbsError> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(VerbsError::OutOfRange {
            field,
            value,
            min,
            max,
        })
    }
}

fn not_busy(object: Object, users: u32) -> Result<(), VerbsError> {
    if users == 0 {
        Ok(())
    } else {
        Err(VerbsError::Busy { object, users })
    }
}

impl Hca {
    /// Makes a protection domain.
    pub fn alloc_pd(&mut self) -> Result<PdId, VerbsError> {
        let (object, max) = (Object::Pd, limits::MAX_PD);
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

    fn pd_users(&mut self, pd: PdId) -> Result<&mut u32, VerbsError> {
        self.pds
            .get_mut(pd.0)
            .ok_or_else(|| no_such(Object::Pd, pd.0))
    }

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

    /// Makes a completion queue for `capacity` entries.
    pub fn create_cq(&mut self, capacity: u32) -> Result<CqId, VerbsError> {
        in_range("cqe", capacity.into(), 1, limits::MAX_CQE.into())?;
        let (object, max) = (Object::Cq, limits::MAX_CQ);
        let index = self.cqs.insert_with(|_| Cq::new(capacity));
        index.map(CqId).ok_or(VerbsError::TooMany { object, max })
    }

    /// Destroys a completion queue that no queue pair uses.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<(), VerbsError> {
        not_busy(Object::Cq, self.cq(cq)?.users)?;
        self.cqs.remove(cq.0);
        Ok(())
    }

    /// Arms a completion queue for one [`crate::Event::Completion`].
    pub fn req_notify_cq(&mut self, cq: CqId, notify: Notify) -> Result<(), VerbsError> {
        self.cq(cq)?.arm(notify);
        Ok(())
    }

    /// Takes the oldest completion.
    pub fn poll_completion(&mut self, cq: CqId) -> Result<Option<Completion>, VerbsError> {
        Ok(self.cq(cq)?.pop())
    }

    fn cq(&mut self, cq: CqId) -> Result<&mut Cq, VerbsError> {
        self.cqs
            .get_mut(cq.0)
            .ok_or_else(|| no_such(Object::Cq, cq.0))
    }

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

    fn srq(&mut self, srq: SrqId) -> Result<&mut Srq, VerbsError> {
        self.srqs
            .get_mut(srq.0)
            .ok_or_else(|| no_such(Object::Srq, srq.0))
    }

    /// Makes a queue pair in RESET.
    pub fn create_qp(&mut self, init: &QpInit) -> Result<Qpn, VerbsError> {
        self.check_qp_init(init)?;
        let QpInit {
            pd,
            send_cq,
            recv_cq,
            srq,
            cap,
            signal_all,
        } = *init;
        let ties = Ties {
            pd,
            send_cq,
            recv_cq,
            srq,
        };
        let (first, window_bytes) = (self.config.first_qpn, self.config.window_bytes);
        let policy = &self.policy;
        let index = self.qps.insert_with(|index| {
            let qpn = Qpn::new(first.value() + index);
            let config = QpConfig {
                qpn,
                cap,
                srq: srq.is_some(),
                signal_all,
                window_bytes,
            };
            Box::new(QpEntry::new(Qp::new(config, policy), ties))
        });
        let (object, max) = (Object::Qp, self.config.max_qp);
        let index = index.ok_or(VerbsError::TooMany { object, max })?;
        self.count_users(ties, 1)?;
        Ok(Qpn::new(first.value() + index))
    }

    fn check_qp_init(&mut self, init: &QpInit) -> Result<(), VerbsError> {
        let cap = &init.cap;
        for (field, value, max) in [
            ("max_send_wr", cap.max_send_wr, limits::MAX_WR),
            ("max_recv_wr", cap.max_recv_wr, limits::MAX_WR),
            ("max_send_sge", cap.max_send_sge, limits::MAX_SGE),
            ("max_recv_sge", cap.max_recv_sge, limits::MAX_SGE),
            ("max_inline_data", cap.max_inline_data, limits::MAX_INLINE),
        ] {
            in_range(field, value.into(), 0, max.into())?;
        }
        self.pd_users(init.pd)?;
        self.cq(init.send_cq)?;
        self.cq(init.recv_cq)?;
        if let Some(srq) = init.srq
            && self.srq(srq)?.pd != init.pd
        {
            return Err(VerbsError::WrongDomain {
                object: Object::Srq,
            });
        }
        Ok(())
    }

    /// Adds `by` to the user counts of what a queue pair is tied to.
    fn count_users(&mut self, ties: Ties, by: i32) -> Result<(), VerbsError> {
        let bump = |users: &mut u32| *users = users.wrapping_add_signed(by);
        bump(self.pd_users(ties.pd)?);
        bump(&mut self.cq(ties.send_cq)?.users);
        if ties.recv_cq != ties.send_cq {
            bump(&mut self.cq(ties.recv_cq)?.users);
        }
        if let Some(srq) = ties.srq {
            bump(&mut self.srq(srq)?.users);
        }
        Ok(())
    }

    /// Destroys a queue pair; what is on its queues vanishes without completions, and so do those
    /// of its completions that were not polled, as with the card's own library.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), VerbsError> {
        let index = self
            .qp_index(qpn)
            .ok_or_else(|| no_such(Object::Qp, qpn.value()))?;
        let entry = self
            .qps
            .remove(index)
            .ok_or_else(|| no_such(Object::Qp, qpn.value()))?;
        self.forget(&entry);
        self.forget_completions(qpn, entry.ties);
        self.count_users(entry.ties, -1)
    }

    fn forget_completions(&mut self, qpn: Qpn, ties: Ties) {
        for cq in [ties.send_cq, ties.recv_cq] {
            if let Ok(cq) = self.cq(cq) {
                cq.forget(qpn);
            }
        }
    }

    /// Changes a queue pair as `ibv_modify_qp` does: all of it, or on error nothing. `path` comes
    /// with [`Attr::AV`] and only then. A move to RESET drops its completions like
    /// [`Self::destroy_qp`].
    pub fn modify_qp(
        &mut self,
        qpn: Qpn,
        change: &QpModify,
        path: Option<Path>,
    ) -> Result<(), VerbsError> {
        if path.is_some() != change.mask.contains(Attr::AV) {
            return Err(VerbsError::AddressMismatch);
        }
        let rd_atomic = [
            (
                Attr::MAX_QP_RD_ATOMIC,
                "max_rd_atomic",
                change.attr.max_rd_atomic,
            ),
            (
                Attr::MAX_DEST_RD_ATOMIC,
                "max_dest_rd_atomic",
                change.attr.max_dest_rd_atomic,
            ),
        ];
        for (bit, field, value) in rd_atomic {
            if change.mask.contains(bit) {
                in_range(field, value.into(), 0, limits::MAX_RD_ATOMIC.into())?;
            }
        }
        self.with_qp(qpn, |qp, host| qp.modify(change, host))
            .ok_or_else(|| no_such(Object::Qp, qpn.value()))??;
        let reset = change.mask.contains(Attr::STATE) && change.state == QpState::Reset;
        let Some(entry) = self.qp_entry_mut(qpn) else {
            return Ok(()); // it was there a moment ago
        };
        if path.is_some() || reset {
            entry.path = path;
        }
        if reset {
            let ties = entry.ties;
            self.forget_completions(qpn, ties);
        }
        Ok(())
    }

    /// State, attributes and path of a queue pair.
    pub fn query_qp(&self, qpn: Qpn) -> Result<(QpState, QpAttr, Option<Path>), VerbsError> {
        let entry = self
            .qp_entry(qpn)
            .ok_or_else(|| no_such(Object::Qp, qpn.value()))?;
        Ok((entry.qp.state(), *entry.qp.attr(), entry.path))
    }

    /// The queue pair itself, to look at.
    pub fn qp(&self, qpn: Qpn) -> Option<&Qp> {
        self.qp_entry(qpn).map(|entry| &entry.qp)
    }

    /// The queue pairs.
    pub fn qps(&self) -> impl Iterator<Item = &Qp> {
        self.qps.iter().map(|(_, entry)| &entry.qp)
    }

    /// Posts a send request.
    pub fn post_send(&mut self, qpn: Qpn, wr: SendWr) -> Result<(), VerbsError> {
        let posted = self.with_qp(qpn, |qp, host| qp.post_send(wr, host));
        Ok(posted.ok_or_else(|| no_such(Object::Qp, qpn.value()))??)
    }

    /// The part of [`Self::audit`] that is about who uses what.
    pub(crate) fn audit_users(&self) {
        use std::collections::HashMap;
        let mut pds: HashMap<PdId, u32> = HashMap::new();
        let mut cqs: HashMap<CqId, u32> = HashMap::new();
        let mut srqs: HashMap<SrqId, u32> = HashMap::new();
        for info in self.mrs.iter() {
            *pds.entry(info.pd).or_default() += 1;
        }
        for (_, srq) in self.srqs.iter() {
            *pds.entry(srq.pd).or_default() += 1;
        }
        for (_, entry) in self.qps.iter() {
            let Ties {
                pd,
                send_cq,
                recv_cq,
                srq,
            } = entry.ties;
            *pds.entry(pd).or_default() += 1;
            *cqs.entry(send_cq).or_default() += 1;
            if recv_cq != send_cq {
                *cqs.entry(recv_cq).or_default() += 1;
            }
            if let Some(srq) = srq {
                *srqs.entry(srq).or_default() += 1;
            }
        }
        for (index, users) in self.pds.iter() {
            assert_eq!(pds.remove(&PdId(index)).unwrap_or(0), *users, "PD {index}");
        }
        for (index, cq) in self.cqs.iter() {
            let users = cqs.remove(&CqId(index)).unwrap_or(0);
            assert_eq!(users, cq.users, "CQ {index}");
        }
        for (index, srq) in self.srqs.iter() {
            let users = srqs.remove(&SrqId(index)).unwrap_or(0);
            assert_eq!(users, srq.users, "SRQ {index}");
        }
        let orphans = pds.len() + cqs.len() + srqs.len();
        assert_eq!(orphans, 0, "objects whose PD, CQ or SRQ is gone");
    }

    /// Posts a receive request to a queue pair's own queue.
    pub fn post_recv(&mut self, qpn: Qpn, wr: RecvWr) -> Result<(), VerbsError> {
        let posted = self.with_qp(qpn, |qp, host| qp.post_recv(wr, host));
        Ok(posted.ok_or_else(|| no_such(Object::Qp, qpn.value()))??)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, HcaConfig, SendOp, Sge, Time};

    #[test]
    fn a_queue_pair_destroyed_at_work_gives_its_share_of_the_window_back() {
        let mut hca = Hca::new(HcaConfig::default());
        let pd = hca.alloc_pd().unwrap();
        let cq = hca.create_cq(8).unwrap();
        let memory = Memory::Buffer(Buffer::zeroed(64));
        let mr = hca.reg_mr(pd, memory, AccessFlags::empty()).unwrap();
        let init = QpInit {
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            cap: QpCap::default(),
            signal_all: true,
        };
        let qpn = hca.create_qp(&init).unwrap();
        let attr = QpAttr::default();
        let path = Path {
            dest: [10, 0, 0, 2].into(),
            traffic_class: 0,
        };
        for change in [
            QpModify::init(attr),
            QpModify::rtr(attr),
            QpModify::rts(attr),
        ] {
            let path = change.mask.contains(Attr::AV).then_some(path);
            hca.modify_qp(qpn, &change, path).unwrap();
        }
        let sge = Sge {
            addr: mr.va,
            length: 64,
            lkey: mr.key.lkey(),
        };
        let wr = SendWr::new(1, SendOp::Send { imm: None }, sge);
        hca.post_send(qpn, wr).unwrap();
        assert!(hca.poll_transmit(Time::ZERO).is_some());
        assert_eq!(hca.busy, 1);
        hca.audit();
        hca.destroy_qp(qpn).unwrap();
        assert_eq!(hca.busy, 0);
        hca.audit();
    }
}
