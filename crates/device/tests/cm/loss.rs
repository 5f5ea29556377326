use ferroce_device::cm::{CmEventKind, CmState};
use ferroce_wire::cm::{Private, RejectReason};

use super::net::{A, B, Fate, MS, Net, S, TWICE, WAIT_NS};
use super::{DREP, DREQ, MRA, REJ, REP, REQ, RTU};

/// A connection is established and ended, whatever happens to one of its messages.
#[test]
fn a_single_loss_copy_or_delay_changes_only_the_timing() {
    let mishaps = [Fate::Lost, TWICE, Fate::Late(3 * S), Fate::Late(7 * S)];
    for attribute in [REQ, REP, RTU, DREQ, DREP] {
        for fate in mishaps {
            let mut net = Net::new();
            net.strike(attribute, fate);
            let [active, passive] = net.connected([0x111, 0x222]);
            assert_eq!(net.state(A, active), Some(CmState::Established));
            assert_eq!(net.state(B, passive), Some(CmState::Established));
            net.disconnect(A, active).unwrap();
            net.until(B, |kind| matches!(kind, CmEventKind::Disconnected { .. }));
            net.disconnect(B, passive).unwrap();
            net.until(A, |kind| {
                matches!(kind, CmEventKind::DisconnectReply { .. })
            });
            net.run_out();
            for (side, comm) in [(A, active), (B, passive)] {
                let events = net.events(side);
                assert_eq!(
                    events,
                    [CmEventKind::TimeWaitExit],
                    "{attribute:#x} {fate:?}"
                );
                net.destroy(side, comm);
                assert_eq!(net.count(side), 0);
            }
        }
    }
}

#[test]
fn a_lost_request_is_repeated_after_the_path_s_time() {
    let mut net = Net::new();
    net.strike(REQ, Fate::Lost);
    net.connect(0x111);
    net.until_request();
    assert_eq!(net.times(REQ), [0, WAIT_NS]);
}

#[test]
fn a_lost_ready_is_asked_for_again() {
    let mut net = Net::new();
    net.strike(RTU, Fate::Lost);
    net.connected([0x111, 0x222]);
    assert_eq!(net.times(REP), [0, WAIT_NS]);
    assert_eq!(net.times(RTU).len(), 2);
}

#[test]
fn data_makes_up_for_a_lost_ready_message() {
    let mut net = Net::new();
    net.strike(RTU, Fate::Late(100 * MS));
    let active = net.connect(0x111);
    let passive = net.until_request();
    net.accept(passive, 0x222);
    net.until(A, |kind| matches!(kind, CmEventKind::Reply { .. }));
    net.ready(active);
    net.world.sides[B].hca.cm_mut().establish(passive).unwrap();
    net.world.sides[B].hca.cm_mut().establish(passive).unwrap();
    net.run_out();
    let private = Private::default();
    assert_eq!(net.events(B), [CmEventKind::Established { private }]);
}

#[test]
fn a_lost_rejection_is_repeated_and_the_program_not_asked_again() {
    let mut net = Net::new();
    net.strike(REJ, Fate::Lost);
    net.connect(0x111);
    let passive = net.until_request();
    net.destroy(B, passive);
    net.until(A, |kind| {
        matches!(kind, CmEventKind::Rejected { reason, .. } if *reason == RejectReason::CONSUMER)
    });
    net.run_out();
    assert_eq!(net.events(B), []);
    assert_eq!(net.messages(), [(A, REQ), (B, REJ), (A, REQ), (B, REJ)]);
    assert_eq!(net.count(B), 0);
}

/// The peer is silent from the start.
#[test]
fn an_unanswered_request_is_given_up() {
    let mut net = Net::new();
    net.kill(B);
    let active = net.connect(0x111);
    net.until(A, |kind| *kind == CmEventKind::Unreachable);
    let times: Vec<_> = (0..16).map(|n| n * WAIT_NS).collect();
    assert_eq!(net.times(REQ), times);
    assert!(net.world.now.since(net.seen[0].at).as_nanos() >= 16 * WAIT_NS);
    net.destroy(A, active);
    assert_eq!(net.count(A), 0);
}

/// The peer dies after sending its request.
#[test]
fn an_unanswered_reply_is_given_up() {
    let mut net = Net::new();
    net.connect(0x111);
    let passive = net.until_request();
    net.kill(A);
    net.accept(passive, 0x222);
    net.until(B, |kind| *kind == CmEventKind::Unreachable);
    assert_eq!(net.times(REP).len(), 16);
    net.destroy(B, passive);
    assert_eq!(net.count(B), 0);
}

/// The peer dies after it accepted, when the connection is complete: the program learns this from
/// its queue pair, and ending the connection takes its time.
#[test]
fn an_unanswered_disconnect_ends_the_connection() {
    let mut net = Net::new();
    let [active, _] = net.connected([0x111, 0x222]);
    net.kill(B);
    net.disconnect(A, active).unwrap();
    net.until(A, |kind| *kind == CmEventKind::DisconnectTimeout);
    net.until(A, |kind| *kind == CmEventKind::TimeWaitExit);
    assert_eq!(net.times(DREQ).len(), 16);
    net.destroy(A, active);
    assert_eq!(net.count(A), 0);
}

#[test]
fn a_destroyed_connection_disconnects_in_the_background() {
    let mut net = Net::new();
    let [active, passive] = net.connected([0x111, 0x222]);
    net.strike(DREQ, Fate::Lost);
    net.destroy(A, active);
    net.until(B, |kind| matches!(kind, CmEventKind::Disconnected { .. }));
    net.destroy(B, passive);
    net.run_out();
    assert_eq!((net.count(A), net.count(B)), (0, 0));
    assert_eq!((net.events(A), net.events(B)), (vec![], vec![]));
}

#[test]
fn a_slow_program_extends_the_peer_s_timeout() {
    let mut net = Net::new();
    net.connect(0x111);
    let passive = net.until_request();
    net.run(2 * WAIT_NS);
    assert_eq!(net.messages(), [(A, REQ), (A, REQ), (B, MRA)]);
    // 4.096 µs · 2^24, instead of an MRA every 6 s.
    net.run(60 * S);
    assert_eq!(net.messages().len(), 3);
    net.accept(passive, 0x222);
    net.until(A, |kind| matches!(kind, CmEventKind::Reply { .. }));
    // The active side needs time as well.
    net.run(2 * WAIT_NS);
    assert_eq!(net.messages()[3..], [(B, REP), (B, REP), (A, MRA)]);
    net.run(60 * S);
    assert_eq!(net.messages().len(), 6);
    assert_eq!((net.events(A), net.events(B)), (vec![], vec![]));
}

#[test]
fn an_extended_timeout_ends() {
    let mut net = Net::new();
    net.connect(0x111);
    net.until_request();
    net.run(2 * WAIT_NS);
    net.kill(B);
    net.run(16 * WAIT_NS + 80 * S);
    assert_eq!(net.events(A), [CmEventKind::Unreachable]);
}

/// Messages are lost from time to time, in both directions, for many connections at once.
#[test]
fn many_losses_copies_and_delays() {
    for seed in 1_u64..=40 {
        let mut net = Net::new();
        let mut dice = seed;
        net.rule(move |_| {
            dice = dice
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            match dice >> 60 {
                0..=4 => Fate::Lost,
                5 | 6 => TWICE,
                7 => Fate::Late(7 * S),
                _ => Fate::Arrives,
            }
        });
        let actives: Vec<_> = (0..8).map(|n| net.connect(0x100 + n)).collect();
        let mut passives = Vec::new();
        for _ in 0..600 {
            net.run(S);
            for event in
                std::iter::from_fn(|| net.world.sides[B].hca.poll_cm_event()).collect::<Vec<_>>()
            {
                match event.kind {
                    CmEventKind::Request { .. } => {
                        net.accept(event.comm, 0x200 + passives.len() as u32);
                        passives.push(event.comm);
                    }
                    CmEventKind::Established { .. } => {}
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
            for event in
                std::iter::from_fn(|| net.world.sides[A].hca.poll_cm_event()).collect::<Vec<_>>()
            {
                assert!(
                    matches!(event.kind, CmEventKind::Reply { .. }),
                    "seed {seed}: {event:?}"
                );
                net.ready(event.comm);
            }
        }
        assert_eq!(passives.len(), actives.len(), "seed {seed}");
        for (side, comm) in actives
            .iter()
            .map(|c| (A, c))
            .chain(passives.iter().map(|c| (B, c)))
        {
            assert_eq!(
                net.state(side, *comm),
                Some(CmState::Established),
                "seed {seed}"
            );
            net.destroy(side, *comm);
        }
        net.run_out();
        assert_eq!((net.count(A), net.count(B)), (0, 0), "seed {seed}");
    }
}
