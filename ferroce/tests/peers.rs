//! What `ferroce dev show` prints about the peers of programs.

use std::time::Duration;

use ferroce_device::{
    AccessFlags, Buffer, CqId, Memory, MrInfo, QpAttr, QpInit, QpType, SendOp, SendWr, Sge,
    WcStatus,
};
use ferroce_runtime::{AttachOptions, Device, Endpoint};
use ferroce_wire::{Psn, Qpn};
use serde_json::{Value, json};

use crate::common::{Place, address};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Node {
    device: Device,
    cq: CqId,
    mr: MrInfo,
}

impl Node {
    fn attach(place: &Place, name: &str) -> Self {
        let device = Device::attach(&place.registry(), name, AttachOptions::default()).unwrap();
        let (cq, mr) = device.with(|hca| {
            let pd = hca.alloc_pd().unwrap();
            let memory = Memory::Buffer(Buffer::zeroed(64));
            let mr = hca.reg_mr(pd, memory, AccessFlags::all()).unwrap();
            (hca.create_cq(16).unwrap(), mr)
        });
        Self { device, cq, mr }
    }

    fn endpoint(&self) -> Endpoint {
        let init = QpInit::new(QpType::Rc, self.mr.pd, self.cq);
        Endpoint {
            address: self.device.address().ip(),
            qpn: self.device.with(|hca| hca.create_qp(&init).unwrap()),
            psn: Psn::new(0),
        }
    }

    /// A queue pair that is connected to one of the other device's.
    fn connect(&self, other: &Self) -> Qpn {
        let (own, others) = (self.endpoint(), other.endpoint());
        let attr = QpAttr {
            access: AccessFlags::all(),
            ..QpAttr::default()
        };
        self.device.connect(own, others, &attr).unwrap();
        other.device.connect(others, own, &attr).unwrap();
        own.qpn
    }

    /// Writes 8 bytes.
    fn write(&self, qpn: Qpn, to: &Self) {
        let op = SendOp::Write {
            va: to.mr.va,
            rkey: to.mr.key.rkey(),
            imm: None,
        };
        let sge = Sge {
            addr: self.mr.va,
            length: 8,
            lkey: self.mr.key.lkey(),
        };
        let request = SendWr::new(1, op, sge);
        self.device.post_send(qpn, [request]).unwrap();
        let mut done = Vec::new();
        self.device.wait(self.cq, 1, &mut done, PATIENCE).unwrap();
        assert_eq!(done[0].status, WcStatus::Success);
    }
}

#[test]
fn dev_show_says_what_carries_packets_to_each_peer() {
    let own = address(43, 1);
    let place = Place::with("a", &own.to_string());
    let others = [2, 3].map(|host| address(43, host).to_string());
    place.good(format!("dev add b {}", others[0]));
    place.good(format!("dev add c {} --link udp", others[1]));
    let shown = |name| -> Value {
        let text = place.good(format!("dev show {name} -j"));
        serde_json::from_str::<Value>(&text).unwrap()["devices"][0].clone()
    };
    assert_eq!(shown("a")["peers"], json!([]));

    let [a, b, c] = ["a", "b", "c"].map(|name| Node::attach(&place, name));
    for other in [&b, &c] {
        let qpns = [(); 2].map(|()| a.connect(other));
        a.write(qpns[0], other);
    }
    // It has not sent anything to itself yet.
    a.connect(&a);
    let peer = |peer: &str, link: &str, qps: u32| {
        let (pid, comm) = (std::process::id(), &shown("a")["peers"][0]["comm"]);
        json!({ "peer": peer, "link": link, "queue_pairs": qps, "pid": pid, "comm": comm })
    };
    let mut undecided = peer(&own.to_string(), "", 2);
    undecided["link"].take();
    let expected = [
        undecided,
        peer(&others[0], "shm", 2),
        peer(&others[1], "udp", 2),
    ];
    assert_eq!(shown("a")["peers"], json!(expected));
    assert_eq!(
        shown("b")["peers"],
        json!([peer(&own.to_string(), "shm", 2)])
    );
    assert_eq!(
        shown("c")["peers"],
        json!([peer(&own.to_string(), "udp", 2)])
    );

    let text = place.good("dev show a");
    let lines: Vec<_> = text.lines().skip(1).collect();
    let begins = [
        format!("    peer {own} link undecided qps 2 pid "),
        format!("    peer {} link shm qps 2 pid ", others[0]),
        format!("    peer {} link udp qps 2 pid ", others[1]),
    ];
    assert_eq!(lines.len(), begins.len(), "{text}");
    for (line, begin) in lines.iter().zip(&begins) {
        assert!(line.starts_with(begin), "{line}");
    }
    drop((a, b, c));
    assert_eq!(shown("a")["peers"], json!([]));
}
