//! A port that flaps under thousands of queue pairs.

use ferroce_device::carrier::{Outages, Schedule};
use ferroce_device::{AccessFlags, Counter, Event, QpState, SendWr, Span, WcStatus};
use ferroce_testing::{A, B, World, attr, config};

use super::of_port;

const PAIRS: usize = 4_000;
const FLAPS: u32 = 40;
const MESSAGES: usize = 5;

/// Each queue pair loses packets in one flap or another, recovers by its timer, and does not hinder
/// the others.
#[test]
fn four_thousand_queue_pairs_survive_a_flapping_port() {
    let mut world = World::new([config(), config()]);
    world.audit_every = u64::MAX; // at the end
    let pairs: Vec<_> = (0..PAIRS)
        .map(|_| {
            let qpns = [A, B].map(|id| world.sides[id].create_qp());
            world.connect(qpns, attr());
            qpns
        })
        .collect();
    let source = world.sides[A].register(4096, AccessFlags::LOCAL_WRITE);
    let sink = world.sides[B].register(4096, AccessFlags::all());
    let start = world.now;
    for id in [A, B] {
        // The flaps of the two ports coincide in part.
        let flaps = Outages {
            first: start.after(Span::from_micros(100 + 50 * id as u64)),
            length: Span::from_micros(300),
            every: Span::from_micros(1_000 + 130 * id as u64),
            times: FLAPS,
        };
        let hca = &mut world.sides[id].hca;
        let schedule = Schedule::new(vec![flaps]).unwrap();
        hca.state().set_schedule(start, schedule).unwrap();
        hca.handle_settings(start);
    }
    for message in 0..MESSAGES {
        for qpns in &pairs {
            let wr = SendWr::new(message as u64, sink.write(), source.whole());
            world.post(A, qpns[A], wr);
        }
        world.run_for(7_000_000);
    }
    world.run();

    let done = &world.sides[A].completions;
    assert_eq!(done.len(), PAIRS * MESSAGES);
    let failed = done.iter().find(|it| it.status != WcStatus::Success);
    assert_eq!(failed, None);
    let lost =
        world.count(A, Counter::LocalAckTimeoutErr) + world.count(A, Counter::RoceAdpRetrans);
    assert!(lost > 0, "no packet met a port that was down");
    for id in [A, B] {
        let expected =
            (0..FLAPS).flat_map(|_| [Event::PortError { port: 1 }, Event::PortActive { port: 1 }]);
        assert!(of_port(&world.sides[id]).into_iter().eq(expected), "{id}");
        let in_error = |it: &&[_; 2]| world.sides[id].state(it[id]) != QpState::Rts;
        assert_eq!(pairs.iter().find(in_error), None);
        world.sides[id].hca.audit();
    }
}
