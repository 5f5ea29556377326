use std::collections::HashMap;

use super::PdId;
use crate::cq::CqId;
use crate::device::Hca;
use crate::host::Ties;
use crate::srq::SrqId;

impl Hca {
    /// The part of [`Self::audit`] that is about who uses what.
    pub(crate) fn audit_users(&self) {
        let mut pds: HashMap<PdId, u32> = HashMap::new();
        let mut cqs: HashMap<CqId, u32> = HashMap::new();
        let mut srqs: HashMap<SrqId, u32> = HashMap::new();
        for info in self.mrs() {
            *pds.entry(info.pd).or_default() += 1;
        }
        for info in self.mws() {
            *pds.entry(info.pd).or_default() += 1;
        }
        self.keys.audit();
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
}
