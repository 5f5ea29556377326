//! Requests that name another sender than their packet's source.

use std::net::{IpAddr, SocketAddr};

use ferroce_device::Counter;
use ferroce_device::cm::CmEventKind;
use ferroce_wire::Qpn;
use ferroce_wire::cm::{
    AddressHeader, Mad, Message, PortSpace, Private, RejectReason, Req, ServiceId, SidrRep, SidrReq,
};

use super::net::{B, Net, SERVICE, address, req_of};
use super::{REJ, SIDR_REP};

/// How a request is handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Asked,
    Refused,
    /// There is no answer.
    Dropped,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn header(source: &str, dest: &str) -> [u8; 36] {
    let source = SocketAddr::new(ip(source), 4660);
    let dest = ip(dest);
    AddressHeader { source, dest }.emit()
}

fn req(gid: IpAddr, private: &[u8]) -> Req {
    Req {
        local_comm_id: 1,
        service_id: SERVICE,
        qpn: Qpn::new(0x111),
        private: Private::new(private).unwrap(),
        ..req_of(gid)
    }
}

fn sidr(private: &[u8]) -> SidrReq {
    SidrReq {
        request_id: 1,
        service_id: SERVICE,
        private: Private::new(private).unwrap(),
        ..SidrReq::default()
    }
}

/// Delivers a message from `source` to a listening device at `dest`.
fn fate(source: IpAddr, dest: IpAddr, message: impl Into<Message>) -> Fate {
    let mut net = Net::new();
    let message = message.into();
    net.world.sides[B].address = dest;
    net.inject_between(source, dest, B, &Mad { tid: 1, message }.emit());
    net.settle();
    let events = net.events(B);
    let answers = net.seen.iter().map(|seen| seen.mad.message);
    match (events.as_slice(), answers.collect::<Vec<_>>().as_slice()) {
        ([CmEventKind::Request { source: from, .. }], [])
        | ([CmEventKind::SidrRequest { source: from, .. }], []) => {
            assert_eq!(*from, source);
            Fate::Asked
        }
        ([], [Message::Rej(rej)]) => {
            assert_eq!(rej.reason, RejectReason::INVALID_GID);
            Fate::Refused
        }
        ([], [Message::SidrRep(rep)]) => {
            assert_eq!(rep.status, SidrRep::REJECTED);
            Fate::Refused
        }
        ([], []) => Fate::Dropped,
        other => panic!("{other:?}"),
    }
}

/// Addresses of other hosts and of groups, and unspecified ones: the queue pair would send there.
#[test]
fn a_request_comes_from_the_gid_that_it_names() {
    let (source, own) = (ip("10.0.0.7"), address(B));
    assert_eq!(fate(source, own, req(source, b"")), Fate::Asked);
    for gid in [
        "10.0.0.8",
        "0.0.0.0",
        "::",
        "255.255.255.255",
        "239.1.2.3",
        "ff0e::1",
        "127.0.0.1",
        "::1",
        "fd00::7",
    ] {
        assert_eq!(fate(source, own, req(ip(gid), b"")), Fate::Refused, "{gid}");
    }
    // The same holds for its own address.
    assert_eq!(fate(source, own, req(own, b"")), Fate::Refused);
    assert_eq!(fate(own, own, req(ip("127.0.0.1"), b"")), Fate::Refused);
}

/// No packet should have such a source; if one had, the answer would go there.
#[test]
fn a_request_comes_from_one_host() {
    for source in ["0.0.0.0", "::", "255.255.255.255", "239.1.2.3", "ff0e::1"] {
        let (source, own) = (ip(source), address(B));
        assert_eq!(fate(source, own, req(source, b"")), Fate::Dropped);
        assert_eq!(fate(source, own, sidr(b"")), Fate::Dropped);
    }
}

/// What rdma_get_peer_addr and rdma_get_local_addr show a program.
#[test]
fn a_request_comes_from_the_address_that_its_header_names() {
    let (source, own) = (ip("10.0.0.7"), address(B));
    let both = |private: &[u8]| {
        let of_req = fate(source, own, req(source, private));
        assert_eq!(of_req, fate(source, own, sidr(private)));
        of_req
    };
    let here = own.to_string();
    assert_eq!(both(&header("10.0.0.7", &here)), Fate::Asked);
    assert_eq!(both(&header("::ffff:10.0.0.7", &here)), Fate::Asked);
    for liar in [
        "10.0.0.8",
        "127.0.0.1",
        "0.0.0.0",
        "239.1.2.3",
        "::1",
        "fd00::7",
    ] {
        assert_eq!(both(&header(liar, &here)), Fate::Refused, "{liar}");
        assert_eq!(both(&header("10.0.0.7", liar)), Fate::Refused, "to {liar}");
    }
    // Data that begin otherwise are not interpreted.
    assert_eq!(both(b"please"), Fate::Asked);
}

/// A service outside the port spaces may have any private data.
#[test]
fn only_ip_services_have_addresses_in_their_data() {
    let source = ip("10.0.0.7");
    let service_id = ServiceId(0x1000_0000_0000_0001);
    let mut net = Net::new();
    net.world.sides[B]
        .hca
        .cm_mut()
        .listen(service_id, 1)
        .unwrap();
    let lie = header("10.0.0.8", "10.0.0.9");
    let other = Req {
        service_id,
        ..req(source, &lie)
    };
    net.inject(source, B, 1, other);
    assert_eq!(net.events(B).len(), 1);
    let ib = ServiceId::new(PortSpace::Ib, 1);
    net.world.sides[B].hca.cm_mut().listen(ib, 1).unwrap();
    let ip = Req {
        service_id: ib,
        local_comm_id: 2,
        qpn: Qpn::new(0x112),
        ..other
    };
    net.inject(source, B, 2, ip);
    assert_eq!(net.events(B).len(), 0);
}

#[test]
fn link_local_and_mapped_addresses_are_addresses() {
    let (source, own) = (ip("fe80::7"), ip("fe80::8"));
    let private = header("fe80::7", "fe80::8");
    assert_eq!(fate(source, own, req(source, &private)), Fate::Asked);
    assert_eq!(
        fate(source, own, req(ip("fe80::9"), &private)),
        Fate::Refused
    );
    assert_eq!(
        fate(source, own, sidr(&header("fe80::9", "fe80::8"))),
        Fate::Refused
    );
    // RoCE v2 writes IPv4 addresses as mapped ones, and so does a program with a socket address of
    // IPv6 in its header.
    let (source, own) = (ip("10.0.0.7"), ip("10.0.0.8"));
    let private = header("::ffff:10.0.0.7", "::ffff:10.0.0.8");
    assert_eq!(private[1], 0x60);
    assert_eq!(fate(source, own, req(source, &private)), Fate::Asked);
}

/// A program that resolves a loopback address or the wildcard reaches its own device, and names the
/// address that it was given. Another device on a loopback address is another device.
#[test]
fn loopback_stands_for_the_own_device_only() {
    let own = address(B);
    let here = own.to_string();
    for stand_in in ["127.0.0.1", "127.77.0.1", "0.0.0.0", "::1", "::"] {
        for private in [header(stand_in, stand_in), header(&here, stand_in)] {
            assert_eq!(
                fate(own, own, req(own, &private)),
                Fate::Asked,
                "{stand_in}"
            );
            assert_eq!(fate(own, own, sidr(&private)), Fate::Asked, "{stand_in}");
        }
        for other in ["127.13.0.9", "10.0.0.7"].map(ip) {
            let private = header(stand_in, stand_in);
            assert_eq!(
                fate(other, own, req(other, &private)),
                Fate::Refused,
                "{stand_in}"
            );
            assert_eq!(
                fate(other, own, sidr(&private)),
                Fate::Refused,
                "{stand_in}"
            );
        }
    }
    let other = header("10.0.0.7", &here);
    assert_eq!(fate(own, own, req(own, &other)), Fate::Refused);
}

/// The connection manager has a single receiver.
#[test]
fn a_request_to_a_group_is_dropped() {
    let source = ip("10.0.0.7");
    for group in ["239.1.2.3", "ff0e::1"] {
        let message = req(source, b"");
        assert_eq!(fate(source, ip(group), message), Fate::Dropped, "{group}");
    }
}

/// Forged requests take no place in the backlog, and no state is kept for them.
#[test]
fn forged_requests_leave_no_state() {
    let mut net = Net::new();
    for n in 0..100 {
        let lie = Req {
            local_comm_id: n,
            ..req(ip("10.0.0.8"), b"")
        };
        net.inject(ip("10.0.0.7"), B, 1, lie);
        net.inject(ip("10.0.0.7"), B, 1, sidr(&header("10.0.0.8", "10.0.0.9")));
    }
    net.settle();
    assert_eq!(net.count(B), 0);
    assert_eq!(net.counter(B, Counter::CmBacklogFull), 0);
    assert_eq!(net.counter(B, Counter::CmUnmatched), 200);
    let kinds: Vec<u16> = net.messages().into_iter().map(|(_, kind)| kind).collect();
    assert_eq!(kinds, [REJ, SIDR_REP].repeat(100));
}
