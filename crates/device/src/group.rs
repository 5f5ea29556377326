//! Multicast groups and their members.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ferroce_wire::Qpn;

use crate::limits;

/// The IP multicast group behind a multicast GID: the IPv4 group in `ff0e::ffff:a.b.c.d`, as
/// `rdma_join_multicast` makes it, or in `::ffff:a.b.c.d`; any other IPv6 multicast address stands
/// for itself (RoCEv2 annex, A17.4.3). `None` if it is not a multicast address.
pub fn group_of_mgid(mgid: [u8; 16]) -> Option<IpAddr> {
    let v6 = Ipv6Addr::from(mgid);
    let [scope @ .., a, b, c, d] = mgid;
    let v4 = Ipv4Addr::new(a, b, c, d);
    let carries_v4 = matches!(scope, [0xff, _, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff])
        || v6.to_ipv4_mapped().is_some();
    if carries_v4 && v4.is_multicast() {
        Some(v4.into())
    } else {
        v6.is_multicast().then_some(v6.into())
    }
}

/// Multicast groups and the queue pairs attached to them, none without any.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    members: BTreeMap<IpAddr, Vec<Qpn>>,
}

impl Groups {
    /// Number of groups.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Checks that there are not more than may be.
    ///
    /// # Panics
    /// Panics if there are.
    pub(crate) fn audit(&self) {
        assert!(self.len() <= limits::MAX_MCAST_GRP as usize);
        for members in self.members.values() {
            let allowed = 1..=limits::MAX_MCAST_QP_ATTACH as usize;
            assert!(allowed.contains(&members.len()), "{}", members.len());
        }
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.members.keys().copied()
    }

    pub(crate) fn members(&self, group: IpAddr) -> &[Qpn] {
        self.members.get(&group).map_or(&[], Vec::as_slice)
    }

    /// How many groups a queue pair is attached to.
    pub(crate) fn count_of(&self, qpn: Qpn) -> usize {
        let of = |members: &&Vec<Qpn>| members.contains(&qpn);
        self.members.values().filter(of).count()
    }

    /// Attaches a queue pair, once; true if the group is new.
    pub(crate) fn attach(&mut self, group: IpAddr, qpn: Qpn) -> bool {
        let members = self.members.entry(group).or_default();
        let is_new = members.is_empty();
        if !members.contains(&qpn) {
            members.push(qpn);
        }
        is_new
    }

    /// Detaches a queue pair that is attached; true if the group has gone with it.
    pub(crate) fn detach(&mut self, group: IpAddr, qpn: Qpn) -> bool {
        let Some(members) = self.members.get_mut(&group) else {
            return false;
        };
        members.retain(|member| *member != qpn);
        let is_empty = members.is_empty();
        if is_empty {
            self.members.remove(&group);
        }
        is_empty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_multicast_gids() {
        let group = |text: &str| group_of_mgid(text.parse::<Ipv6Addr>().unwrap().octets());
        let v4: IpAddr = [239, 1, 2, 3].into();
        assert_eq!(group("ff0e::ffff:239.1.2.3"), Some(v4));
        assert_eq!(group("::ffff:239.1.2.3"), Some(v4));
        assert_eq!(group("::ffff:127.0.0.1"), None);
        assert_eq!(group("fe80::1"), None);
        for v6 in ["ff0e::1", "ff0e::ffff:10.0.0.1", "ff15::ab:239.1.2.3"] {
            assert_eq!(group(v6), Some(v6.parse().unwrap()), "{v6}");
        }
    }
}
