//! Connections with a peer that follows the standard and Linux's rules, and shares no code with
//! ours.

use ferroce_device::cm::{CmEventKind, CmState, CommId, ConnectRequest, Transport};
use ferroce_wire::cm::{Private, RejectReason};
use ferroce_wire::{Psn, Qpn};

use super::linux::{self, Bytes, Linux, State};
use super::net::{A, B, Net, SERVICE, WAIT_NS, address};
use super::{DREP, DREQ, MRA, REJ, REP, REQ, RTU};

/// A device of ours, and Linux at the address of the second.
struct Foreign {
    net: Net,
    linux: Linux,
    /// The number of messages that Linux has taken.
    taken: usize,
}

impl Foreign {
    fn new() -> Self {
        let mut net = Net::of(1);
        net.world.sides[A].hca.cm_mut().listen(SERVICE, 4).unwrap();
        Self {
            net,
            linux: Linux::new(address(B), 0x11),
            taken: 0,
        }
    }

    /// Linux sends.
    fn send(&mut self, message: Bytes) {
        self.net.inject_bytes(self.linux.address, A, &message.0);
        self.settle();
    }

    /// Linux takes the messages on the wire, and its answers arrive.
    fn settle(&mut self) {
        loop {
            self.net.settle();
            let Some(seen) = self.net.seen.get(self.taken) else {
                break;
            };
            self.taken += 1;
            let message = Bytes(seen.mad.emit());
            if let Some(answer) = self.linux.take(message) {
                self.net.inject_bytes(self.linux.address, A, &answer.0);
            }
        }
    }

    fn last(&self) -> Bytes {
        Bytes(self.net.seen.last().unwrap().mad.emit())
    }

    fn event(&mut self) -> (CommId, CmEventKind) {
        let event = self.net.world.sides[A].hca.poll_cm_event().unwrap();
        (event.comm, event.kind)
    }

    /// Linux requests a connection; returns this side's.
    fn asked(&mut self) -> CommId {
        let req = self.linux.connect(address(A), SERVICE.0);
        self.send(req);
        let (comm, kind) = self.event();
        assert!(matches!(kind, CmEventKind::Request { .. }), "{kind:?}");
        comm
    }

    fn accept(&mut self, comm: CommId) {
        let (now, reply) = (self.net.world.now, self.net.reply(0x222));
        self.net.world.sides[A]
            .hca
            .cm_mut()
            .accept(now, comm, &reply)
            .unwrap();
        self.settle();
    }

    /// Linux has requested a connection, and it was accepted.
    fn connected(&mut self) -> CommId {
        let comm = self.asked();
        self.accept(comm);
        let (_, kind) = self.event();
        assert!(matches!(kind, CmEventKind::Established { .. }), "{kind:?}");
        comm
    }

    fn connect(&mut self, request: &ConnectRequest) -> CommId {
        let now = self.net.world.now;
        let comm = self.net.world.sides[A]
            .hca
            .cm_mut()
            .connect(now, request)
            .unwrap();
        self.settle();
        comm
    }
}

#[test]
fn both_sides_agree_on_a_request_from_linux() {
    let mut foreign = Foreign::new();
    let req = foreign.linux.connect(address(A), SERVICE.0);
    foreign.send(req);
    let (comm, kind) = foreign.event();
    let CmEventKind::Request { req, .. } = kind else {
        panic!("{kind:?}");
    };
    // This side begins to send where Linux expects the first packet.
    assert_eq!(u64::from(req.starting_psn.value()), foreign.linux.rq_psn);
    assert_eq!((req.responder_resources, req.initiator_depth), (5, 6));
    assert_eq!(
        (req.retry_count.value(), req.rnr_retry_count.value()),
        (7, 6)
    );
    assert_eq!((req.ack_timeout.value(), req.mtu.value()), (19, 3));
    assert_eq!(req.ca_guid, foreign.linux.guid);

    let reply = foreign.net.reply(0x222);
    foreign.accept(comm);
    // And Linux begins where this side expects it.
    assert_eq!(foreign.linux.sq_psn, u64::from(reply.starting_psn.value()));
    assert_eq!(foreign.linux.remote_qpn, 0x222);
    // Linux may have as much outstanding as this side accepts.
    assert_eq!(
        (
            foreign.linux.initiator_depth,
            foreign.linux.responder_resources
        ),
        (2, 1)
    );
    assert_eq!(
        (foreign.linux.rnr_retry_count, foreign.linux.timeout),
        (7, 19)
    );
    assert_eq!(foreign.linux.state, State::Established);
    assert_eq!(foreign.net.state(A, comm), Some(CmState::Established));
}

#[test]
fn both_sides_agree_on_a_request_to_linux() {
    let mut foreign = Foreign::new();
    let request = foreign.net.request(A, B, 0x111);
    let comm = foreign.connect(&request);
    let linux = &foreign.linux;
    assert_eq!(linux.sq_psn, u64::from(request.starting_psn.value()));
    assert_eq!((linux.initiator_depth, linux.responder_resources), (4, 3));
    assert_eq!((linux.retry_count, linux.rnr_retry_count), (6, 5));
    assert_eq!((linux.timeout, linux.path_mtu), (19, 3));

    let rep = foreign.linux.accept(3, 4);
    foreign.send(rep);
    let (_, kind) = foreign.event();
    let CmEventKind::Reply { rep } = kind else {
        panic!("{kind:?}");
    };
    assert_eq!(u64::from(rep.starting_psn.value()), foreign.linux.rq_psn);
    assert_eq!((rep.responder_resources, rep.initiator_depth), (3, 4));
    assert_eq!(
        (rep.qpn, rep.target_ack_delay.value()),
        (Qpn::new(0x11), 15)
    );
    foreign.net.ready(comm);
    foreign.settle();
    assert_eq!(foreign.linux.state, State::Established);
}

/// What rping of rdma-core wrote in a guest with Linux 6.1 (captured there), and what we write for
/// the same connection.
#[test]
fn our_request_is_linux_s() {
    const CAPTURED: &str = "\
        010702030000000000000002868013590010000000000000591380860000000000000000\
        01061c06505400fffe12345100000000000000000000110100000001000000a0914076a7\
        ffff57f0ffffffff00000000000000000000ffff0a08000300000000000000000000ffff\
        0a0800025f7290000040009800000000000000000000000000000000000000000000000000\
        000000000000000000000000000000000000000040b47d0000000000000000000000000a08\
        00030000000000000000000000000a080002";
    let captured = Bytes(bytes_of(CAPTURED));
    let mut foreign = Foreign::new();
    let mut private = [0; 92];
    private[..36].copy_from_slice(&captured.0[24 + 140..][..36]);
    let request = ConnectRequest {
        dest: [10, 8, 0, 2].into(),
        source: [10, 8, 0, 3].into(),
        traffic_class: 0,
        sl: 0,
        service_id: SERVICE,
        ca_guid: 0x5054_00ff_fe12_3451,
        qpn: Qpn::new(0x11),
        starting_psn: Psn::new(0x91_4076),
        responder_resources: 1,
        initiator_depth: 1,
        flow_control: false,
        retry_count: 7,
        rnr_retry_count: 7,
        mtu: ferroce_device::Mtu::Mtu4096,
        ece: ferroce_device::Ece::default(),
        private: Private(private),
        ..foreign.net.request(A, B, 0x11)
    };
    foreign.connect(&request);
    let own = foreign.last();
    // The sender chooses its GUID and communication ID; it also chooses the flow label, from which
    // Linux derives the UDP port that this device does not vary, and the rate of its port.
    let free = |bytes: Bytes| {
        let mut bytes = bytes.with((0, 0, 32), 0).with((88, 0, 32), 0);
        bytes.0[8..16].fill(0);
        bytes.0
    };
    assert_eq!(free(own), free(captured));
}

fn bytes_of(hex: &str) -> [u8; 256] {
    let mut bytes = [0; 256];
    for (byte, at) in bytes.iter_mut().zip((0..hex.len()).step_by(2)) {
        *byte = u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    }
    bytes
}

/// The XRC target has its queue pair where others have a context, and the initiator omits what only
/// a responder has.
#[test]
fn xrc_is_linux_s() {
    let mut foreign = Foreign::new();
    let request = ConnectRequest {
        transport: Transport::Xrc,
        ..foreign.net.request(A, B, 0x111)
    };
    let comm = foreign.connect(&request);
    let req = foreign.last();
    for field in [
        linux::REQ_RESPONDER_RESOURCES,
        linux::REQ_RETRY_COUNT,
        linux::REQ_RNR_RETRY_COUNT,
        linux::REQ_SRQ,
    ] {
        assert_eq!(req.get(field), 0, "{field:?}");
    }
    let rep = foreign.linux.accept(3, 0);
    foreign.send(rep);
    foreign.net.ready(comm);
    let info = foreign.net.world.sides[A]
        .hca
        .cm()
        .connections()
        .next()
        .unwrap();
    assert_eq!(info.remote_qpn, Qpn::new(0x11));

    let mut foreign = Foreign::new();
    foreign.linux.xrc = true;
    foreign.connected();
    assert_eq!(foreign.linux.remote_qpn, 0x222);
    let rep = foreign
        .net
        .seen
        .iter()
        .find(|seen| seen.mad.message.attribute() == REP);
    let rep = Bytes(rep.unwrap().mad.emit());
    assert_eq!((rep.get(linux::REP_QPN), rep.get(linux::REP_SRQ)), (0, 1));
}

#[test]
fn either_ends_the_connection() {
    let mut foreign = Foreign::new();
    let comm = foreign.connected();
    foreign.net.disconnect(A, comm).unwrap();
    foreign.settle();
    assert_eq!(foreign.linux.state, State::TimeWait);
    assert!(matches!(
        foreign.event().1,
        CmEventKind::DisconnectReply { .. }
    ));

    let mut foreign = Foreign::new();
    let comm = foreign.connected();
    let dreq = foreign.linux.disconnect();
    // A message for another queue pair ends nothing, and is not answered.
    let before = foreign.net.seen.len();
    foreign.send(dreq.with((8, 0, 24), 0x223));
    assert_eq!(foreign.net.state(A, comm), Some(CmState::Established));
    assert_eq!(foreign.net.seen.len(), before);
    foreign.send(dreq);
    assert!(matches!(
        foreign.event().1,
        CmEventKind::Disconnected { .. }
    ));
    foreign.net.disconnect(A, comm).unwrap();
    foreign.settle();
    assert_eq!(foreign.linux.state, State::TimeWait);
}

/// Linux finds a request that is given up by GUID and communication ID, whatever else the REJ says.
#[test]
fn a_peer_that_gives_up_is_understood() {
    let mut foreign = Foreign::new();
    let request = foreign.net.request(A, B, 0x111);
    let comm = foreign.connect(&request);
    assert_eq!(foreign.linux.state, State::ReqReceived);
    foreign.net.destroy(A, comm);
    foreign.settle();
    assert_eq!(foreign.linux.state, State::Idle);

    let mut foreign = Foreign::new();
    let comm = foreign.asked();
    let rej = foreign.linux.give_up();
    // A REJ from another device is ignored.
    foreign.send(rej.with((12, 0, 64), foreign.linux.guid + 1));
    assert_eq!(foreign.net.state(A, comm), Some(CmState::ReqReceived));
    foreign.send(rej);
    let reason = RejectReason::TIMEOUT;
    let private = Private::default();
    assert_eq!(
        foreign.event(),
        (comm, CmEventKind::Rejected { reason, private })
    );
}

#[test]
fn rejections_reach_linux() {
    for accepted in [false, true] {
        let mut foreign = Foreign::new();
        let (now, reason, private);
        let comm = if accepted {
            let request = foreign.net.request(A, B, 0x111);
            let comm = foreign.connect(&request);
            let rep = foreign.linux.accept(1, 1);
            foreign.send(rep);
            comm
        } else {
            foreign.asked()
        };
        (now, reason, private) = (
            foreign.net.world.now,
            RejectReason::CONSUMER,
            Private::default(),
        );
        let cm = foreign.net.world.sides[A].hca.cm_mut();
        cm.reject(now, comm, reason, private).unwrap();
        foreign.settle();
        assert_eq!(foreign.linux.state, State::Idle, "{accepted}");
    }
}

#[test]
fn a_slow_program_extends_the_timeout_in_both_directions() {
    let mut foreign = Foreign::new();
    let request = foreign.net.request(A, B, 0x111);
    foreign.connect(&request);
    let mra = foreign.linux.ask_for_patience();
    foreign.send(mra);
    foreign.net.run(10 * WAIT_NS);
    assert_eq!(foreign.net.messages(), [(A, REQ)]);
    // And Linux is asked to give our program more time.
    let mut foreign = Foreign::new();
    let req = foreign.linux.connect(address(A), SERVICE.0);
    foreign.send(req);
    foreign.send(req);
    assert_eq!(foreign.net.messages(), [(A, MRA)]);
}

/// A device whose queue pair requests a connection again has forgotten the old one; the same number
/// on another device is another queue pair.
#[test]
fn a_stale_connection_is_one_of_the_same_device() {
    let mut foreign = Foreign::new();
    let comm = foreign.connected();
    let peer = foreign.linux.address;
    let mut other = Linux::new(peer, 0x11);
    (other.guid, other.local_id) = (0x5054_00ff_fe99_9999, 0x7777);
    let req = other.connect(address(A), SERVICE.0);
    foreign.send(req);
    assert!(matches!(foreign.event().1, CmEventKind::Request { .. }));
    assert_eq!(foreign.net.state(A, comm), Some(CmState::Established));
    // After a restart, the same device does not know the connection.
    foreign.net.seen.clear();
    foreign.taken = 0;
    foreign.linux = Linux::new(peer, 0x11);
    foreign.linux.local_id = 0x8888;
    let req = foreign.linux.connect(address(A), SERVICE.0);
    foreign.send(req);
    assert_eq!(foreign.net.messages(), [(A, REJ), (A, DREQ)]);
    assert_eq!(foreign.linux.state, State::Idle);
    assert!(matches!(
        foreign.event().1,
        CmEventKind::Disconnected { .. }
    ));
    assert!(matches!(
        foreign.event().1,
        CmEventKind::DisconnectReply { .. }
    ));
    assert_eq!(foreign.net.state(A, comm), Some(CmState::TimeWait));
    // The next attempt works.
    foreign.linux = Linux::new(peer, 0x11);
    foreign.linux.local_id = 0x9999;
    foreign.asked();
}

/// Every message of a whole connection, in the order that Linux uses.
#[test]
fn a_whole_connection_with_linux() {
    let mut foreign = Foreign::new();
    let comm = foreign.connected();
    foreign.net.disconnect(A, comm).unwrap();
    foreign.settle();
    assert_eq!(foreign.net.messages(), [(A, REP), (A, DREQ)]);
    let mut foreign = Foreign::new();
    let request = foreign.net.request(A, B, 0x111);
    let comm = foreign.connect(&request);
    let rep = foreign.linux.accept(1, 1);
    foreign.send(rep);
    // Linux repeats the REP: the RTU is late.
    foreign.net.ready(comm);
    foreign.settle();
    foreign.send(rep);
    let dreq = foreign.linux.disconnect();
    foreign.send(dreq);
    foreign.net.disconnect(A, comm).unwrap();
    foreign.settle();
    assert_eq!(
        foreign.net.messages(),
        [(A, REQ), (A, RTU), (A, RTU), (A, DREP)]
    );
}
