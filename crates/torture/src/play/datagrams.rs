//! UD queue pairs, their multicast groups, and what arrives there.

use std::net::IpAddr;

use ferroce_device::{
    Attr, Completion, GRH_BYTES, Path, QpAttr, QpModify, QpState, QpType, Qpn, VerbsError, WcFlags,
    WcOpcode,
};

use super::Play;
use super::completions::payload;
use crate::model::{Destination, Id, Kind, Request};
use crate::network::{address, group};

impl Play {
    /// Brings a UD queue pair from any state to RTS.
    pub(super) fn make_datagrams_ready(&mut self, host: usize, qp: u64, qkey: u64) {
        use QpState::{Init, Reset, Rtr, Rts};
        let Some(qp) = self.datagram_qp(host, qp) else {
            return;
        };
        self.drop_requests(host, qp);
        let it = self.host(host);
        let qpn = it.qps[qp].qpn;
        let attr = QpAttr {
            qkey: qkey as u32,
            ..QpAttr::default()
        };
        let reset = QpModify::to(Reset, Attr::empty(), attr);
        let steps = [(Reset, Init), (Init, Rtr), (Rtr, Rts)];
        let steps = steps.map(|(from, to)| QpModify::step(QpType::Ud, from, to, attr));
        for change in std::iter::once(reset).chain(steps) {
            if let Err(error) = it.hca.modify_qp(qpn, &change, None) {
                return self.found("connect", || format!("host {host}: {error}"));
            }
        }
        let it = &mut self.host(host).qps[qp];
        (it.qkey, it.attr) = (qkey as u32, attr);
        (it.failed, it.pushed, it.moved) = (false, false, false);
    }

    /// Attaches a queue pair to a group, or detaches it.
    pub(super) fn change_group(&mut self, host: usize, qp: u64, number: u64, joins: bool) {
        let IpAddr::V4(address) = group(number) else {
            return;
        };
        let Some(qp) = self.datagram_qp(host, qp) else {
            return;
        };
        let mgid = address.to_ipv6_mapped().octets();
        let it = self.host(host);
        let qpn = it.qps[qp].qpn;
        let outcome = match joins {
            true => it.hca.attach_mcast(qpn, mgid),
            false => it.hca.detach_mcast(qpn, mgid),
        };
        match outcome {
            Ok(()) if joins && it.qps[qp].attached.contains(&address.into()) => {}
            Ok(()) if joins => {
                it.qps[qp].attached.push(address.into());
                it.qps[qp].groups.push(address.into());
            }
            Ok(()) => it.qps[qp]
                .attached
                .retain(|it| *it != IpAddr::from(address)),
            Err(VerbsError::NotAttached { .. }) if !joins => {}
            Err(error) => self.found("group", || format!("host {host}, {qpn}: {error}")),
        }
    }

    fn datagram_qp(&mut self, host: usize, qp: u64) -> Option<usize> {
        let it = self.host(host);
        let place = it.qp(qp)?;
        (it.qps[place].kind == QpType::Ud).then_some(place)
    }

    /// Where a datagram of this queue pair goes; to a queue pair that does not exist if there is none with the number
    /// of the script.
    pub(super) fn destination(&self, from: Qpn, peer: u64, to: u64, qkey: u64) -> Destination {
        let (dest, qpn) = match to {
            0 => (group(peer), Qpn::MULTICAST),
            _ => {
                let host = self.hosts.get(peer as usize).and_then(Option::as_ref);
                let qpn = host.and_then(|it| Some(it.qps[it.qp(to)?].qpn));
                (
                    address(peer as usize % 64),
                    qpn.unwrap_or(Qpn::new(0xff_fffe)),
                )
            }
        };
        Destination {
            path: Path::to(dest),
            qpn,
            qkey: qkey as u32,
            from,
        }
    }

    /// Whether a receive of a UD queue pair has brought this request's datagram.
    pub(super) fn is_datagram(
        &self,
        request: &Request,
        host: usize,
        qp: usize,
        receive: Id,
        wc: &Completion,
    ) -> bool {
        let (Some(to), Some(it)) = (request.to, self.hosts[host].as_ref()) else {
            return false;
        };
        let (own, landing) = (&it.qps[qp], self.receives[receive].landing);
        let is_for = match to.qpn == Qpn::MULTICAST {
            true => own.groups.contains(&to.path.dest),
            false => (to.path.dest, to.qpn) == (it.address, own.qpn),
        };
        let flags = match request.imm {
            Some(_) => WcFlags::GRH | WcFlags::WITH_IMM,
            None => WcFlags::GRH,
        };
        let grh = GRH_BYTES as usize;
        request.kind == Kind::Datagram
            && is_for
            && to.qkey == own.qkey
            && (wc.opcode, wc.flags, wc.imm) == (WcOpcode::Recv, flags, request.imm.unwrap_or(0))
            && (wc.src_qp, wc.solicited) == (to.from, request.solicited)
            && wc.byte_len as usize == request.len + grh
            && it.landed(landing + grh, request.len) == payload(request)
    }
}
