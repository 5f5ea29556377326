//! Verbs of multicast groups.

use std::net::IpAddr;

use ferroce_transport::QpType;
use ferroce_wire::Qpn;

use super::no_such;
use crate::device::Hca;
use crate::error::{Object, VerbsError};
use crate::event::Event;
use crate::group::group_of_mgid;
use crate::queue_pair::QpEntry;

impl Hca {
    /// Attaches a UD queue pair to a multicast group, by its GID, so that it receives packets for
    /// the group. Attaching it again has no effect (ibv_attach_mcast(3)).
    pub fn attach_mcast(&mut self, qpn: Qpn, mgid: [u8; 16]) -> Result<(), VerbsError> {
        let group = self.check_group(qpn, mgid)?;
        let members = self.groups.members(group);
        if members.contains(&qpn) {
            return Ok(());
        }
        let limits = &self.config.limits;
        if members.is_empty() && self.groups.len() >= limits.max_mcast_grp as usize {
            let (object, max) = (Object::Group, limits.max_mcast_grp);
            return Err(VerbsError::TooMany { object, max });
        }
        if members.len() >= limits.max_mcast_qp_attach as usize {
            let max = limits.max_mcast_qp_attach;
            return Err(VerbsError::GroupFull { group, max });
        }
        if self.groups.attach(group, qpn) {
            self.common.events.push_back(Event::JoinGroup(group));
        }
        Ok(())
    }

    /// Detaches a queue pair from a multicast group.
    pub fn detach_mcast(&mut self, qpn: Qpn, mgid: [u8; 16]) -> Result<(), VerbsError> {
        let group = self.check_group(qpn, mgid)?;
        if !self.groups.members(group).contains(&qpn) {
            return Err(VerbsError::NotAttached { qpn, group });
        }
        if self.groups.detach(group, qpn) {
            self.common.events.push_back(Event::LeaveGroup(group));
        }
        Ok(())
    }

    /// Prevents a UD queue pair from receiving its own multicasts if it is attached to the group
    /// (`IBV_QP_CREATE_BLOCK_SELF_MCAST_LB` of ibv_create_qp_ex(3)). `own` is the device's address.
    pub fn block_own_mcast(&mut self, qpn: Qpn, own: IpAddr) -> Result<(), VerbsError> {
        self.check_datagrams(qpn)?.blocked_echo = Some(Box::new(own));
        Ok(())
    }

    /// Returns the multicast groups that queue pairs are attached to, which the host must join.
    pub fn groups(&self) -> impl Iterator<Item = IpAddr> {
        self.groups.addresses()
    }

    fn check_group(&mut self, qpn: Qpn, mgid: [u8; 16]) -> Result<IpAddr, VerbsError> {
        self.check_datagrams(qpn)?;
        let gid = mgid.into();
        group_of_mgid(mgid).ok_or(VerbsError::NotMulticast { gid })
    }

    fn check_datagrams(&mut self, qpn: Qpn) -> Result<&mut QpEntry, VerbsError> {
        let entry = self
            .qp_entry_mut(qpn)
            .ok_or_else(|| no_such(Object::Qp, qpn.value()))?;
        let (actual, needed) = (entry.qp.config().qp_type, QpType::Ud);
        if actual != needed {
            return Err(VerbsError::WrongType { actual, needed });
        }
        Ok(entry)
    }
}
