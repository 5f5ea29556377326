//! Compares the reference counts of objects with their actual users.

use std::collections::HashMap;

use crate::cq::CqId;
use crate::device::Hca;
use crate::ids::{PdId, XrcdId};
use crate::srq::{SrqId, XrcObjects};

impl Hca {
    /// The part of [`Self::audit`] that is about who uses what.
    pub(crate) fn audit_users(&self) {
        let mut pds: HashMap<PdId, u32> = HashMap::new();
        let mut cqs: HashMap<CqId, u32> = HashMap::new();
        let mut srqs: HashMap<SrqId, u32> = HashMap::new();
        let mut xrcds: HashMap<XrcdId, u32> = HashMap::new();
        for info in self.mrs() {
            *pds.entry(info.pd).or_default() += 1;
        }
        for info in self.mws() {
            *pds.entry(info.pd).or_default() += 1;
        }
        self.common.keys.audit();
        for (_, srq) in self.common.srqs.iter() {
            *pds.entry(srq.pd).or_default() += 1;
            if let Some(XrcObjects { xrcd, cq }) = srq.xrc {
                *xrcds.entry(xrcd).or_default() += 1;
                *cqs.entry(cq).or_default() += 1;
            }
        }
        for (_, entry) in self.qps.iter() {
            assert!(entry.handles > 0);
            if let Some(pd) = entry.objects.pd {
                *pds.entry(pd).or_default() += 1;
            }
            for cq in entry.objects.cqs() {
                *cqs.entry(cq).or_default() += 1;
            }
            if let Some(srq) = entry.objects.srq {
                *srqs.entry(srq).or_default() += 1;
            }
            if let Some(xrcd) = entry.objects.xrcd {
                *xrcds.entry(xrcd).or_default() += 1;
            }
        }
        for (index, users) in self.pds.iter() {
            assert_eq!(pds.remove(&PdId(index)).unwrap_or(0), *users, "PD {index}");
        }
        for (index, cq) in self.common.cqs.iter() {
            let users = cqs.remove(&CqId(index)).unwrap_or(0);
            assert_eq!(users, cq.users, "CQ {index}");
        }
        for (index, srq) in self.common.srqs.iter() {
            let users = srqs.remove(&SrqId(index)).unwrap_or(0);
            assert_eq!(users, srq.users, "SRQ {index}");
        }
        for (index, users) in self.xrcds.iter() {
            let counted = xrcds.remove(&XrcdId(index)).unwrap_or(0);
            assert_eq!(counted, *users, "XRC domain {index}");
        }
        let orphans = pds.len() + cqs.len() + srqs.len() + xrcds.len();
        assert_eq!(
            orphans, 0,
            "objects whose PD, CQ, SRQ or XRC domain is gone"
        );
    }
}
