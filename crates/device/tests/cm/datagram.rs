use ferroce_device::cm::{CmEventKind, SidrReply};
use ferroce_wire::Qpn;
use ferroce_wire::cm::{Private, SidrRep};

use super::net::{A, B, Fate, Net, S, SERVICE, TWICE, address};
use super::{SIDR_REP, SIDR_REQ};

fn answer() -> SidrReply {
    SidrReply {
        status: 0,
        qpn: Qpn::new(0x222),
        qkey: 0x0123_4567,
        private: Private::new(b"me").unwrap(),
    }
}

#[test]
fn a_service_is_found() {
    for attribute in [0, SIDR_REQ, SIDR_REP] {
        for fate in [Fate::Lost, TWICE, Fate::Late(7 * S)] {
            let mut net = Net::new();
            net.strike(attribute, fate);
            let active = net.sidr_request();
            let event = net.until(B, |_| true);
            let CmEventKind::SidrRequest { source, req } = event.kind else {
                panic!("{event:?}");
            };
            assert_eq!((source, req.service_id), (address(A), SERVICE));
            assert_eq!(req.private.0[..5], *b"who?\0");
            net.world.sides[B]
                .hca
                .cm_mut()
                .sidr_reply(event.comm, &answer())
                .unwrap();
            let reply = net.until(A, |_| true);
            let CmEventKind::SidrReply { rep } = reply.kind else {
                panic!("{reply:?}");
            };
            assert_eq!(
                (rep.status, rep.qpn, rep.qkey),
                (0, Qpn::new(0x222), 0x0123_4567)
            );
            assert_eq!((rep.service_id, rep.private), (SERVICE, answer().private));
            net.destroy(A, active);
            net.destroy(B, event.comm);
            net.run_out();
            assert_eq!((net.count(A), net.count(B)), (0, 0));
            assert_eq!((net.events(A), net.events(B)), (vec![], vec![]));
        }
    }
}

#[test]
fn a_refused_and_an_unknown_service_are_reported() {
    let mut net = Net::new();
    net.sidr_request();
    let passive = net.until_request();
    net.destroy(B, passive);
    let is = |kind: &CmEventKind, status| matches!(kind, CmEventKind::SidrReply { rep } if rep.status == status);
    net.until(A, |kind| is(kind, SidrRep::REJECTED));
    net.world.sides[B].hca.cm_mut().unlisten(SERVICE).unwrap();
    net.sidr_request();
    net.until(A, |kind| is(kind, SidrRep::NOT_SUPPORTED));
}

#[test]
fn an_unanswered_request_is_given_up() {
    let mut net = Net::new();
    net.kill(B);
    let active = net.sidr_request();
    net.until(A, |kind| *kind == CmEventKind::Unreachable);
    assert_eq!(net.times(SIDR_REQ).len(), 16);
    net.destroy(A, active);
    net.run_out();
}

#[test]
fn calls_for_connections_do_not_fit() {
    let mut net = Net::new();
    net.sidr_request();
    let passive = net.until_request();
    let (now, reply) = (net.world.now, net.reply(1));
    assert!(
        net.world.sides[B]
            .hca
            .cm_mut()
            .accept(now, passive, &reply)
            .is_err()
    );
    assert!(net.disconnect(B, passive).is_err());
    net.world.sides[B]
        .hca
        .cm_mut()
        .sidr_reply(passive, &answer())
        .unwrap();
    assert!(
        net.world.sides[B]
            .hca
            .cm_mut()
            .sidr_reply(passive, &answer())
            .is_err()
    );
    net.world.sides[B].hca.audit();
}
