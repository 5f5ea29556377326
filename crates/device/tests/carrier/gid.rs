//! F21: a queue pair stays bound to the GID that it had.

use ferroce_device::{AccessFlags, Counter, Event, QpState, SendWr, WcStatus};
use ferroce_testing::{A, B, World, attr};

use super::of_port;

#[test]
fn a_queue_pair_fails_if_its_address_was_lost_temporarily() {
    for id in [A, B] {
        let (mut pair, qpns) = World::connected();
        let source = pair.sides[A].register(64, AccessFlags::empty());
        let sink = pair.sides[B].register(64, AccessFlags::all());
        pair.sides[id].hca.handle_gid_change(1, true);
        pair.sides[id].hca.handle_gid_change(1, false);
        pair.post(A, qpns[A], SendWr::new(1, sink.write(), source.whole()));
        pair.run();
        assert_eq!(pair.sides[A].completions[0].status, WcStatus::RetryExcErr);
        assert_eq!(of_port(&pair.sides[id]), [Event::GidChange { port: 1 }; 2]);
        if id == A {
            assert!(pair.count(A, Counter::TxDropped) > 7);
            assert_eq!(pair.sides[A].sent.0, 0);
        } else {
            assert!(pair.count(B, Counter::RxWrongPeer) > 7);
        }
        // A queue pair that is connected again has the present GID.
        for id in [A, B] {
            pair.sides[id].move_to(qpns[id], QpState::Reset);
        }
        pair.connect(qpns, attr());
        pair.post(A, qpns[A], SendWr::new(2, sink.write(), source.whole()));
        pair.run();
        assert_eq!(pair.sides[A].completions[1].status, WcStatus::Success);
    }
}

#[test]
fn adding_or_removing_another_address_only_raises_an_event() {
    let (mut pair, qpns) = World::connected();
    let source = pair.sides[A].register(64, AccessFlags::empty());
    let sink = pair.sides[B].register(64, AccessFlags::all());
    pair.sides[A].hca.handle_gid_change(1, false);
    pair.post(A, qpns[A], SendWr::new(1, sink.write(), source.whole()));
    pair.run();
    assert_eq!(pair.sides[A].completions[0].status, WcStatus::Success);
    assert_eq!(of_port(&pair.sides[A]), [Event::GidChange { port: 1 }]);
}
