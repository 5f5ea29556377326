//! Two devices with nothing between them: the caller moves the packets itself.
//!
//! [`World`](crate::World) keeps books for tests; these are for measurements, of which books would be a
//! part.

use std::net::IpAddr;

use ferroce_device::{
    AccessFlags, Attr, CqId, Data, Hca, HcaConfig, Memory, MrInfo, Mtu, Outgoing, Path, QpAttr,
    QpInit, QpModify, QpType, Received, Sge, Time,
};
use ferroce_wire::Qpn;

use crate::side::device;

/// The addresses of the two.
pub const ADDRESSES: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];

/// What queue pairs of a device are made of.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Makes an RC queue pair.
    pub init: QpInit,
    /// Memory that allows everything.
    pub memory: MrInfo,
}

impl End {
    /// Makes a domain and a queue for `completions`, and registers memory.
    pub fn new(hca: &mut Hca, completions: u32, memory: Memory) -> Self {
        let pd = hca.alloc_pd().unwrap();
        let cq = hca.create_cq(completions).unwrap();
        let memory = hca.reg_mr(pd, memory, AccessFlags::all()).unwrap();
        let init = QpInit::new(QpType::Rc, pd, cq);
        Self { init, memory }
    }

    /// The queue for completions.
    pub const fn cq(&self) -> CqId {
        self.init.send_cq
    }

    /// The first bytes of its memory.
    pub fn sge(&self, length: u32) -> Sge {
        Sge {
            addr: self.memory.va,
            length,
            lkey: self.memory.key.lkey(),
        }
    }
}

/// Two devices on sockets with default settings and different seeds.
pub fn devices() -> [Hca; 2] {
    [0, 1].map(|seed| {
        device(HcaConfig {
            seed,
            ..HcaConfig::default()
        })
    })
}

/// Attributes of a queue pair with large packets that allow everything.
pub fn attr() -> QpAttr {
    QpAttr {
        access: AccessFlags::all(),
        path_mtu: Mtu::Mtu4096,
        timeout: 14,
        retry_cnt: 7,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        ..QpAttr::default()
    }
}

/// Makes a queue pair and brings it to RTS, towards the one with the same number on the other device:
/// what is done alike on both has the same numbers there.
pub fn connected(hca: &mut Hca, init: &QpInit, to: impl Into<IpAddr>, attr: QpAttr) -> Qpn {
    let qpn = hca.create_qp(init).unwrap();
    let attr = QpAttr {
        dest_qpn: qpn,
        ..attr
    };
    let path = Path {
        dest: to.into(),
        traffic_class: 2,
        sl: 0,
        port: 1,
    };
    ready(hca, qpn, init.qp_type, attr, Some(path));
    qpn
}

/// Brings a queue pair from RESET to RTS.
pub fn ready(hca: &mut Hca, qpn: Qpn, qp_type: QpType, attr: QpAttr, path: Option<Path>) {
    use ferroce_device::QpState::{Init, Reset, Rtr, Rts};
    for (from, to) in [(Reset, Init), (Init, Rtr), (Rtr, Rts)] {
        let change = QpModify::step(qp_type, from, to, attr);
        let path = path.filter(|_| change.mask.contains(Attr::AV));
        hca.modify_qp(qpn, &change, path).unwrap();
    }
}

/// Gives a packet of device `from` to the other one.
#[inline]
pub fn deliver(devices: &mut [Hca; 2], now: Time, from: usize, packet: &Outgoing, data: Data<'_>) {
    let received = Received {
        source: ADDRESSES[from].into(),
        dest: packet.path.dest,
        traffic_class: packet.path.traffic_class,
        sl: packet.path.sl,
        headers: &packet.headers,
        data,
        port: 1,
    };
    devices[1 - from].handle_packet(now, &received);
}
