//! Cards with two ports, each with its own address, state and counters.

use ferroce_device::{
    Attr, Counter, Event, Pairing, Path, QpAttr, QpModify, QpState, VerbsError, WcStatus,
};
use ferroce_testing::{A, B, attr};

use super::{connected, count, memories, of_ports, pair, set, write};

#[test]
fn queue_pairs_of_both_ports_share_memory_and_count_apart() {
    let mut world = pair(Pairing::Ports);
    assert_eq!(world.sides[A].hca.ports(), 2);
    let memories = memories(&mut world, 10_000);
    for port in [1, 2] {
        let qpns = connected(&mut world, port);
        assert_eq!(write(&mut world, qpns[A], &memories), WcStatus::Success);
        let (_, attr, path) = world.sides[A].hca.query_qp(qpns[A]).unwrap();
        assert_eq!((attr.port, path.unwrap().port), (port, port));
        let other = 3 - port;
        let counts = [A, B].map(|id| {
            let count = |link, counter| count(&world, id, link, counter);
            [port, other].map(|link| {
                count(link, Counter::RdmaTxPackets) + count(link, Counter::RdmaRxPackets)
            })
        });
        // The second round finds what the first has counted at the other port.
        assert_eq!(counts[A][1] > 0, port == 2, "{counts:?}");
        assert!(counts.iter().all(|count| count[0] > 0), "{counts:?}");
    }
    assert_eq!(memories[1].bytes(), memories[0].bytes());
    assert_eq!(count(&world, B, 1, Counter::RxWriteRequests), 1);
    assert_eq!(count(&world, B, 2, Counter::RxWriteRequests), 1);
}

#[test]
fn a_port_that_goes_down_stops_its_own_queue_pairs_only() {
    let mut world = pair(Pairing::Ports);
    let memories = memories(&mut world, 64);
    let (first, second) = (connected(&mut world, 1), connected(&mut world, 2));
    set(&mut world, A, 2, false);
    assert_eq!(
        of_ports(&mut world.sides[A]),
        [Event::PortError { port: 2 }]
    );
    let now = world.now;
    let hca = &mut world.sides[A].hca;
    assert!(hca.port_is_up(now, 1) && !hca.port_is_up(now, 2));
    assert_eq!(write(&mut world, first[A], &memories), WcStatus::Success);
    assert_eq!(
        write(&mut world, second[A], &memories),
        WcStatus::RetryExcErr
    );
    assert!(count(&world, A, 2, Counter::ImpairBlackout) > 0);
    assert_eq!(count(&world, A, 1, Counter::ImpairBlackout), 0);
    assert!(count(&world, A, 2, Counter::LocalAckTimeoutErr) > 0);
    assert_eq!(count(&world, A, 1, Counter::LocalAckTimeoutErr), 0);
    set(&mut world, A, 2, true);
    assert_eq!(
        of_ports(&mut world.sides[A]),
        [Event::PortActive { port: 2 }]
    );
    assert_eq!(of_ports(&mut world.sides[B]), []);
}

#[test]
fn packets_for_a_queue_pair_of_the_other_port_are_refused() {
    let mut world = pair(Pairing::Ports);
    let memories = memories(&mut world, 64);
    let qpns = connected(&mut world, 1);
    // A sends from port 1 to the address of B's second port, whose queue pairs are others.
    let (other, dest) = (world.sides[A].create_qp(), world.sides[B].address_at(2));
    let attr = QpAttr {
        dest_qpn: qpns[B],
        ..attr()
    };
    world.sides[A].connect(other, dest, attr);
    assert_eq!(write(&mut world, other, &memories), WcStatus::RetryExcErr);
    assert!(count(&world, B, 2, Counter::RxWrongPeer) > 0);
    assert_eq!(memories[1].bytes(), [0; 64]);
}

#[test]
fn a_port_that_is_not_there_is_refused() {
    let mut world = pair(Pairing::Ports);
    let qpn = world.sides[A].create_qp();
    for port in [0, 3, 255] {
        let init = QpModify::init(QpAttr { port, ..attr() });
        let refused = world.sides[A].hca.modify_qp(qpn, &init, None::<Path>);
        let error = refused.unwrap_err().to_string();
        assert!(
            error.contains("port_num") && error.contains("1 to 2"),
            "{error}"
        );
    }
    let error = world.sides[A].hca.set_lag_port(qpn, 3).unwrap_err();
    assert!(matches!(error, VerbsError::OutOfRange { .. }), "{error}");
    let reset = QpModify::to(QpState::Reset, Attr::empty(), QpAttr::default());
    world.sides[A].hca.modify_qp(qpn, &reset, None).unwrap();
}

#[test]
fn only_queue_pairs_of_the_port_lose_their_address() {
    let mut world = pair(Pairing::Ports);
    let memories = memories(&mut world, 64);
    let (first, second) = (connected(&mut world, 1), connected(&mut world, 2));
    world.sides[A].hca.handle_gid_change(2, true);
    world.settle();
    assert_eq!(
        of_ports(&mut world.sides[A]),
        [Event::GidChange { port: 2 }]
    );
    assert_eq!(write(&mut world, first[A], &memories), WcStatus::Success);
    assert_eq!(
        write(&mut world, second[A], &memories),
        WcStatus::RetryExcErr
    );
}
