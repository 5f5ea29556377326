use ferroce_device::cm::{CmEventKind, CmState};
use ferroce_wire::cm::{Private, RejectReason};

use super::net::{A, B, Fate, Net, S};
use super::{DREP, DREQ, REJ, REP, REQ, RTU};

#[test]
fn one_side_asks_and_the_other_agrees() {
    for first in [A, B] {
        let mut net = Net::new();
        let comms = net.connected([0x111, 0x222]);
        net.seen.clear();
        let second = 1 - first;
        net.disconnect(first, comms[first]).unwrap();
        net.disconnect(first, comms[first]).unwrap();
        let private = Private::new(b"bye").unwrap();
        net.until(second, |kind| {
            *kind == CmEventKind::Disconnected { private }
        });
        assert_eq!(
            net.state(second, comms[second]),
            Some(CmState::DreqReceived)
        );
        net.disconnect(second, comms[second]).unwrap();
        net.disconnect(second, comms[second]).unwrap();
        net.until(first, |kind| {
            matches!(kind, CmEventKind::DisconnectReply { .. })
        });
        assert_eq!(net.messages(), [(first, DREQ), (second, DREP)]);
        for side in [A, B] {
            let event = net.until(side, |kind| *kind == CmEventKind::TimeWaitExit);
            assert_eq!(event.comm, comms[side]);
        }
    }
}

#[test]
fn both_sides_ask_at_once() {
    let mut net = Net::new();
    let comms = net.connected([0x111, 0x222]);
    net.seen.clear();
    net.disconnect(A, comms[A]).unwrap();
    net.disconnect(B, comms[B]).unwrap();
    for side in [A, B] {
        net.until(side, |kind| {
            matches!(kind, CmEventKind::Disconnected { .. })
        });
    }
    net.run_out();
    assert_eq!(net.messages(), [(A, DREQ), (B, DREQ), (A, DREP), (B, DREP)]);
    for side in [A, B] {
        assert_eq!(net.events(side), [CmEventKind::TimeWaitExit]);
    }
}

#[test]
fn giving_up_while_asking_is_reported() {
    let mut net = Net::new();
    let active = net.connect(0x111);
    let passive = net.until_request();
    net.destroy(A, active);
    let (reason, private) = (RejectReason::TIMEOUT, Private::default());
    let event = net.until(B, |kind| *kind == CmEventKind::Rejected { reason, private });
    assert_eq!(event.comm, passive);
    assert_eq!(net.messages(), [(A, REQ), (A, REJ)]);
    net.destroy(B, passive);
    assert_eq!((net.count(A), net.count(B)), (0, 0));
}

#[test]
fn a_reply_to_a_peer_that_has_left_is_rejected() {
    let mut net = Net::new();
    let active = net.connect(0x111);
    let passive = net.until_request();
    net.strike(REJ, Fate::Lost);
    net.destroy(A, active);
    net.settle();
    net.accept(passive, 0x222);
    let (reason, private) = (RejectReason::INVALID_COMM_ID, Private::default());
    net.until(B, |kind| *kind == CmEventKind::Rejected { reason, private });
    assert_eq!(net.messages(), [(A, REQ), (A, REJ), (B, REP), (A, REJ)]);
}

/// The peer's process was killed, and another one has its queue pair number or its communication
/// IDs.
#[test]
fn a_restarted_peer_ends_the_connections_of_its_predecessor() {
    let mut net = Net::new();
    let [_, passive] = net.connected([0x111, 0x222]);
    // Another communication ID, the same queue pair.
    let reborn = net.connect(0x111);
    let (reason, private) = (RejectReason::STALE_CONNECTION, Private::default());
    let event = net.until(A, |kind| *kind == CmEventKind::Rejected { reason, private });
    assert_eq!(event.comm, reborn);
    let event = net.until(B, |kind| matches!(kind, CmEventKind::Disconnected { .. }));
    assert_eq!(event.comm, passive);
    // The next attempt works.
    net.connect(0x111);
    net.until_request();
}

#[test]
fn a_reused_communication_id_is_another_connection() {
    let mut net = Net::new();
    let [_, passive] = net.connected([0x111, 0x222]);
    let first = net.seen[0].mad;
    net.inject(super::net::address(A), B, first.tid + 1, first.message);
    let event = net.until(B, |kind| matches!(kind, CmEventKind::Disconnected { .. }));
    assert_eq!(event.comm, passive);
    net.until_request();
}

/// The process has exited afterwards, and cannot repeat what is lost.
#[test]
fn the_last_message_of_a_program_survives_a_loss() {
    for asks in [true, false] {
        let mut net = Net::new();
        let comms = net.connected([0x111, 0x222]);
        if asks {
            net.strike(DREQ, Fate::Lost);
        } else {
            net.disconnect(A, comms[A]).unwrap();
            net.until(B, |kind| matches!(kind, CmEventKind::Disconnected { .. }));
            net.strike(DREP, Fate::Lost);
            net.disconnect(B, comms[B]).unwrap();
        }
        let now = net.world.now;
        let cm = net.world.sides[B].hca.cm_mut();
        cm.destroy_all(now);
        cm.repeat_last();
        net.settle();
        net.kill(B);
        net.until(A, |kind| match kind {
            CmEventKind::Disconnected { .. } => asks,
            CmEventKind::DisconnectReply { .. } => !asks,
            _ => false,
        });
    }
}

#[test]
fn the_end_of_a_program_reaches_all_its_peers() {
    let mut net = Net::new();
    let [_, passive] = net.connected([0x111, 0x222]);
    net.connect(0x113);
    let asked = net.until_request();
    net.connect(0x115);
    let accepted = net.until_request();
    net.accept(accepted, 0x226);
    net.settle();
    net.seen.clear();
    let now = net.world.now;
    net.world.sides[A].hca.cm_mut().destroy_all(now);
    net.run(S);
    let mut ended: Vec<_> = std::iter::from_fn(|| net.world.sides[B].hca.poll_cm_event())
        .map(|event| event.comm)
        .collect();
    ended.sort();
    let mut expected = vec![passive, asked, accepted];
    expected.sort();
    assert_eq!(ended, expected);
    assert!(
        net.messages()
            .iter()
            .all(|(_, kind)| [DREQ, REJ, REP, RTU].contains(kind))
    );
    for comm in expected {
        net.destroy(B, comm);
    }
    net.run_out();
    assert_eq!((net.count(A), net.count(B)), (0, 0));
}
