//! Datagrams, which no window limits.

use ferroce_device::{Path, QpCap, QpInit, QpType, SendOp, SendTo, SendWr, UdAddress};
use ferroce_runtime::Endpoint;
use ferroce_testing::direct::ready;
use ferroce_wire::Qpn;

use super::{Node, attr};

/// A queue pair for datagrams.
pub fn datagrams(node: &Node) -> Qpn {
    let qp_type = QpType::Ud;
    let cap = QpCap {
        max_send_wr: 4096,
        ..QpCap::default()
    };
    let init = QpInit {
        cap,
        ..QpInit::new(qp_type, node.pd, node.cq)
    };
    node.device.with(|hca| {
        let qpn = hca.create_qp(&init).unwrap();
        ready(hca, qpn, qp_type, attr(), None);
        qpn
    })
}

/// A datagram of 4 KiB.
pub fn datagram(node: &Node, peer: Endpoint) -> SendWr {
    let to = SendTo::Datagram(UdAddress {
        path: Path {
            dest: peer.address,
            traffic_class: 0,
            sl: 0,
            port: 1,
        },
        qpn: peer.qpn,
        qkey: 0,
    });
    SendWr {
        to,
        ..SendWr::new(1, SendOp::Send { imm: None }, node.sge(0, 4096))
    }
}
