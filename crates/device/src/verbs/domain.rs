//! Verbs of protection domains, and of XRC domains and their receivers.

use ferroce_transport::{QpCap, QpType};
use ferroce_wire::Qpn;

use super::{no_such, not_busy};
use crate::device::Hca;
use crate::error::{Object, VerbsError};
use crate::ids::{PdId, XrcdId};
use crate::services::QpObjects;

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

    /// Makes an XRC domain (IBA vol 1, annex A14).
    pub fn alloc_xrcd(&mut self) -> Result<XrcdId, VerbsError> {
        let (object, max) = (Object::Xrcd, self.config.limits.max_xrcd);
        let index = self.xrcds.insert_with(|_| 0);
        index.map(XrcdId).ok_or(VerbsError::TooMany { object, max })
    }

    /// Destroys an XRC domain without queue pairs and shared receive queues.
    pub fn dealloc_xrcd(&mut self, xrcd: XrcdId) -> Result<(), VerbsError> {
        not_busy(Object::Xrcd, *self.xrcd_users(xrcd)?)?;
        self.xrcds.remove(xrcd.0);
        Ok(())
    }

    /// Makes an XRC_RECV queue pair in RESET. It belongs to no protection domain and has no queues:
    /// each message goes to the shared receive queue of the domain that the peer names.
    pub fn create_xrc_recv_qp(&mut self, xrcd: XrcdId) -> Result<Qpn, VerbsError> {
        self.xrcd_users(xrcd)?;
        let objects = QpObjects {
            pd: None,
            recv_pd: None,
            send_cq: None,
            recv_cq: None,
            srq: None,
            xrcd: Some(xrcd),
            dc_key: None,
        };
        self.insert_qp(QpType::XrcRecv, objects, QpCap::NONE, false)
    }

    /// Opens an XRC_RECV queue pair of the domain once more (`ibv_open_qp`). It lives until
    /// [`Self::destroy_qp`] was called as often as it was made and opened.
    pub fn open_xrc_recv_qp(&mut self, xrcd: XrcdId, qpn: Qpn) -> Result<(), VerbsError> {
        let entry = self.qp_entry_mut(qpn);
        let entry = entry.filter(|entry| entry.objects.xrcd == Some(xrcd));
        let entry = entry.ok_or_else(|| no_such(Object::Qp, qpn.value()))?;
        entry.handles += 1;
        Ok(())
    }

    pub(super) fn xrcd_users(&mut self, xrcd: XrcdId) -> Result<&mut u32, VerbsError> {
        let users = self.xrcds.get_mut(xrcd.0);
        users.ok_or_else(|| no_such(Object::Xrcd, xrcd.0))
    }
}
