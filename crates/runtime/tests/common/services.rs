//! Requests for services of the connection manager, between nodes of one device.

use std::time::Instant;

use ferroce_device::Hca;
use ferroce_device::cm::{CmEventKind, SidrReply, SidrRequest};
use ferroce_wire::Qpn;
use ferroce_wire::cm::{Private, ServiceId};

use super::{Node, PATIENCE};

/// Exponents of the times after which a request is repeated: 33 ms and a second.
pub const SOON: u8 = 13;
pub const PATIENTLY: u8 = 18;

/// The queue pair that a node reports for its service.
pub fn qpn_at(node: &Node) -> Qpn {
    Qpn::new(u32::from(node.device.slot()) << 16)
}

/// Requests the queue pair of a service of the node's own device.
pub fn ask(node: &Node, service_id: ServiceId, response_timeout: u8, max_retries: u8) {
    let request = SidrRequest {
        dest: node.device.address().ip(),
        traffic_class: 0,
        sl: 0,
        service_id,
        packet_lifetime: 0,
        response_timeout,
        max_retries,
        private: Private::new(b"who?").unwrap(),
        port: 1,
    };
    let now = node.device.now();
    node.device
        .with(|hca| hca.cm_mut().sidr_request(now, &request))
        .unwrap();
}

/// The result of a request; the nodes answer those that reach them.
pub fn outcome(nodes: &[&Node]) -> CmEventKind {
    let started = Instant::now();
    for node in nodes.iter().cycle() {
        assert!(started.elapsed() < PATIENCE);
        node.device.progress();
        let Some(event) = node.device.with(Hca::poll_cm_event) else {
            continue;
        };
        let CmEventKind::SidrRequest { .. } = event.kind else {
            return event.kind;
        };
        let reply = SidrReply {
            status: 0,
            qpn: qpn_at(node),
            qkey: 7,
            private: Private::new(b"I").unwrap(),
        };
        let reply = |hca: &mut Hca| hca.cm_mut().sidr_reply(event.comm, &reply);
        node.device.with(reply).unwrap();
    }
    unreachable!("there are nodes");
}
