//! Requests for connections, over the wire, that name another sender than their packet's source: a
//! program that accepted one would send to a host that never asked.

mod common;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use common::stranger::Stranger;
use common::{Node, PATIENCE, Place, address, check_all_kinds, patient_attr};
use ferroce_device::cm::{CmEventKind, ConnectRequest, Transport};
use ferroce_device::{Counter, Ece, Hca, Mtu};
use ferroce_registry::{DeviceSpec, LinkSetting};
use ferroce_wire::cm::{
    AddressHeader, Bits, Mad, Message, PortSpace, Private, RejectReason, Req, ServiceId, SidrRep,
    SidrReq,
};
use ferroce_wire::{Packet, Psn, Qpn, ROCE_V2_PORT};

const SERVICE: ServiceId = ServiceId::new(PortSpace::Tcp, 7174);

/// A device that listens.
fn listener(address: IpAddr) -> Node {
    listening(Node::open(address, 64 << 10))
}

fn listening(node: Node) -> Node {
    node.device.join().unwrap();
    node.device
        .with(|hca| hca.cm_mut().listen(SERVICE, 16))
        .unwrap();
    node
}

fn header<const N: usize>(source: IpAddr, dest: IpAddr) -> Private<N> {
    let source = SocketAddr::new(source, 4660);
    Private::new(&AddressHeader { source, dest }.emit()).unwrap()
}

fn req(name: u32, gid: IpAddr, private: Private<92>) -> Req {
    Req {
        local_comm_id: name,
        service_id: SERVICE,
        qpn: Qpn::new(0x111 + name),
        mtu: Bits::saturating(3),
        local_gid: gid.into(),
        private,
        ..Req::default()
    }
}

fn sidr(name: u32, private: Private<216>) -> SidrReq {
    SidrReq {
        request_id: name,
        service_id: SERVICE,
        private,
        ..SidrReq::default()
    }
}

/// The next event of a device.
fn event(node: &Node) -> CmEventKind {
    let started = Instant::now();
    loop {
        node.device.progress();
        if let Some(event) = node.device.with(Hca::poll_cm_event) {
            return event.kind;
        }
        assert!(started.elapsed() < PATIENCE, "no event");
    }
}

fn ask(stranger: &Stranger, message: impl Into<Message>) {
    let message = message.into();
    let mad = Mad { tid: 1, message }.emit();
    let headers = ferroce_wire::cm::headers(Psn::ZERO);
    stranger.send(&stranger.packet(headers, &mad));
}

/// The answer to a request that the device does not pass to its program.
fn answer(stranger: &Stranger, node: &Node) -> Message {
    let mut bytes = [0; 1024];
    let started = Instant::now();
    let wait = Duration::from_millis(10);
    stranger.socket.set_read_timeout(Some(wait)).unwrap();
    let len = loop {
        node.device.progress();
        if let Ok(len) = stranger.socket.recv(&mut bytes) {
            break len;
        }
        assert!(started.elapsed() < PATIENCE, "no answer");
    };
    let packet = Packet::new_checked(&bytes[..len]).unwrap();
    let mad = Mad::parse(packet.payload()).unwrap();
    assert_eq!(node.device.with(Hca::poll_cm_event), None);
    mad.message
}

#[test]
fn a_request_in_the_name_of_another_host_is_refused() {
    let [own, sender, victim] = [0, 1, 2].map(|host| address(85, 0, host));
    let node = listener(own);
    let stranger = Stranger::new(sender, ROCE_V2_PORT, &node);
    let group = "239.1.2.3".parse().unwrap();
    let nowhere = "0.0.0.0".parse().unwrap();
    let loopback = "127.0.0.1".parse().unwrap();
    for liar in [victim, own, group, nowhere, loopback] {
        let honest = header(sender, own);
        let lie = header(liar, own);
        for request in [req(1, liar, honest), req(2, sender, lie), req(3, liar, lie)] {
            ask(&stranger, request);
            let Message::Rej(rej) = answer(&stranger, &node) else {
                panic!("no REJ for {liar}");
            };
            assert_eq!(rej.reason, RejectReason::INVALID_GID, "{liar}");
            assert_eq!(rej.reason.0, 12);
            assert_eq!(rej.remote_comm_id, request.local_comm_id);
        }
        ask(&stranger, sidr(4, header(liar, own)));
        let Message::SidrRep(rep) = answer(&stranger, &node) else {
            panic!("no SIDR_REP for {liar}");
        };
        assert_eq!((rep.status, rep.request_id), (SidrRep::REJECTED, 4));
    }
    // In its own name it may request.
    ask(&stranger, req(5, sender, header(sender, own)));
    ask(&stranger, sidr(6, header(sender, own)));
    for _ in 0..2 {
        match event(&node) {
            CmEventKind::Request { source, .. } | CmEventKind::SidrRequest { source, .. } => {
                assert_eq!(source, sender);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(node.count(Counter::RxForeignSource), 0);
}

/// From a port that is not a device's, an address of this host is not accepted.
#[test]
fn a_request_of_another_user_of_this_host_is_not_answered() {
    let [own, sender] = [0, 1].map(|host| address(85, 1, host));
    let node = listener(own);
    let stranger = Stranger::new(sender, 0, &node);
    ask(&stranger, req(1, sender, header(sender, own)));
    let started = Instant::now();
    while node.count(Counter::RxForeignSource) == 0 {
        assert!(started.elapsed() < PATIENCE);
        node.device.progress();
    }
    assert_eq!(node.device.with(Hca::poll_cm_event), None);
}

fn connect(from: &Node, to: IpAddr, private: Private<92>) {
    let request = ConnectRequest {
        dest: to,
        source: from.device.address().ip(),
        traffic_class: 0,
        sl: 0,
        service_id: SERVICE,
        ca_guid: 1,
        qpn: Qpn::new(0x111),
        starting_psn: Psn::ZERO,
        transport: Transport::Rc,
        srq: false,
        responder_resources: 1,
        initiator_depth: 1,
        flow_control: false,
        retry_count: 7,
        rnr_retry_count: 7,
        mtu: Mtu::Mtu1024,
        ack_timeout: 19,
        packet_lifetime: 18,
        response_timeout: ConnectRequest::RESPONSE_TIMEOUT,
        max_retries: ConnectRequest::MAX_RETRIES,
        ece: Ece::default(),
        private,
        port: 1,
    };
    let now = from.device.now();
    from.device.join().unwrap();
    from.device
        .with(|hca| hca.cm_mut().connect(now, &request))
        .unwrap();
    from.device.progress();
}

/// Devices at several loopback addresses are separate hosts; a device that sends to itself may use
/// any of them. The rings through which they exchange other packets make no difference.
#[test]
fn devices_on_loopback_are_hosts_of_their_own() {
    for (link, test) in [LinkSetting::Udp, LinkSetting::Shm].into_iter().zip(2..) {
        let place = Place::new();
        let [own, other] = [0, 1].map(|host| address(85, test, host));
        let [node, peer] = [("a", own), ("b", other)].map(|(name, address)| {
            let spec = DeviceSpec {
                link,
                ..DeviceSpec::new(name, address)
            };
            place.registry().add(&spec).unwrap();
            Node::attach(&place.registry(), name, 256 << 10)
        });
        let node = listening(node);
        let qps = common::connect(&node, &peer, &patient_attr());
        check_all_kinds(&node, &peer, qps, 20_000, 1);
        connect(&peer, own, header(other, own));
        let asked = |expected| {
            let CmEventKind::Request { source, req } = event(&node) else {
                panic!("no request of {expected}");
            };
            assert_eq!((source, req.local_gid.ip()), (expected, expected));
        };
        asked(other);
        let loopback = "127.0.0.1".parse().unwrap();
        connect(&node, own, header(loopback, loopback));
        asked(own);
        // The loopback address of another device is not this one's.
        connect(&peer, own, header(loopback, own));
        node.device.progress();
        let CmEventKind::Rejected { reason, .. } = event(&peer) else {
            panic!("no rejection");
        };
        assert_eq!(reason, RejectReason::INVALID_GID);
    }
}
