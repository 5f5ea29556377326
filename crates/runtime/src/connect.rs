//! The information that two programs exchange before their queue pairs can communicate.

use std::net::IpAddr;

use ferroce_device::{Attr, Path, QpAttr, QpModify, VerbsError};
use ferroce_wire::{Psn, Qpn};

use crate::device::Device;

/// What two programs tell each other, by any means, before their queue pairs can talk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The device's address.
    pub address: IpAddr,
    /// The queue pair.
    pub qpn: Qpn,
    /// The first PSN it will send.
    pub psn: Psn,
}

impl Device {
    /// Takes a queue pair from RESET to RTS towards `peer`.
    ///
    /// `attr` holds the attributes of all three steps; `dest_qpn`, `rq_psn` and `sq_psn` are
    /// replaced by those of the endpoints.
    pub fn connect(&self, own: Endpoint, peer: Endpoint, attr: &QpAttr) -> Result<(), VerbsError> {
        let attr = QpAttr {
            dest_qpn: peer.qpn,
            rq_psn: peer.psn,
            sq_psn: own.psn,
            ..*attr
        };
        let path = Path {
            dest: peer.address,
            traffic_class: 0,
            sl: 0,
            port: 1,
        };
        self.with(|hca| {
            for change in [
                QpModify::init(attr),
                QpModify::rtr(attr),
                QpModify::rts(attr),
            ] {
                let path = change.mask.contains(Attr::AV).then_some(path);
                hca.modify_qp(own.qpn, &change, path)?;
            }
            Ok(())
        })
    }
}
