//! F22: one port goes down for each possible cause.

use ferroce_device::carrier::{Outages, Schedule};
use ferroce_device::impair::Blackout;
use ferroce_device::{
    AccessFlags, Counter, Direction, Event, Impairment, QpState, SendWr, Span, Time, WcStatus,
};
use ferroce_testing::{A, B, World, config};

use super::of_port;

const DOWN_UP: [Event; 2] = [Event::PortError { port: 1 }, Event::PortActive { port: 1 }];

fn us(us: u64) -> Span {
    Span::from_micros(us)
}

fn once(first: Time, length: Span) -> Schedule {
    Schedule::new(vec![Outages::once(first, length)]).unwrap()
}

fn set(pair: &World, id: usize, schedule: Schedule) {
    let state = pair.sides[id].hca.state();
    state.set_schedule(pair.now, schedule).unwrap();
}

fn downed(pair: &World, id: usize) -> u64 {
    pair.sides[id].hca.state().link_downed(pair.now)
}

#[test]
fn a_write_outlasts_a_short_outage_of_either_port() {
    for id in [A, B] {
        let (mut pair, qpns) = World::connected();
        pair.log = Some(Vec::new());
        let (begin, length) = (pair.now.after(us(10)), us(150));
        set(&pair, id, once(begin, length));
        let source = pair.sides[A].register(1 << 20, AccessFlags::empty());
        let sink = pair.sides[B].register(1 << 20, AccessFlags::all());
        source.fill(1);
        pair.run_for(50_000);
        assert!(!pair.sides[id].hca.port_is_up(pair.now, 1));
        pair.post(A, qpns[A], SendWr::new(1, sink.write(), source.whole()));
        pair.run();
        assert_eq!(pair.sides[A].completions.len(), 1);
        assert_eq!(pair.sides[A].completions[0].status, WcStatus::Success);
        assert!(sink.bytes() == source.bytes());
        assert_eq!(of_port(&pair.sides[id]), DOWN_UP);
        assert_eq!(
            of_port(&pair.sides[1 - id]),
            [],
            "it sees no more than silence"
        );
        assert_eq!([downed(&pair, id), downed(&pair, 1 - id)], [1, 0]);
        assert!(pair.count(id, Counter::ImpairBlackout) > 0);
        let dark = begin..begin.after(length);
        let log = pair.log.take().unwrap();
        let leaks = log
            .iter()
            .filter(|it| it.from == id && dark.contains(&it.at));
        assert_eq!(leaks.count(), 0);
    }
}

#[test]
fn a_queue_pair_fails_while_the_port_is_down_and_works_again() {
    let (mut pair, qpns) = World::connected();
    set(&pair, A, Schedule::down_from(pair.now));
    let source = pair.sides[A].register(64, AccessFlags::empty());
    let sink = pair.sides[B].register(64, AccessFlags::all());
    pair.post(A, qpns[A], SendWr::new(1, sink.write(), source.whole()));
    pair.run();
    let statuses: Vec<_> = pair.sides[A]
        .completions
        .iter()
        .map(|it| it.status)
        .collect();
    assert_eq!(statuses, [WcStatus::RetryExcErr]);
    assert_eq!(of_port(&pair.sides[A]), [Event::PortError { port: 1 }]);
    set(&pair, A, Schedule::default());
    for id in [A, B] {
        pair.sides[id].move_to(qpns[id], QpState::Reset);
    }
    pair.connect(qpns, ferroce_testing::attr());
    pair.post(A, qpns[A], SendWr::new(2, sink.write(), source.whole()));
    pair.run();
    assert_eq!(pair.sides[A].completions[1].status, WcStatus::Success);
    assert_eq!(of_port(&pair.sides[A]), DOWN_UP);
}

#[test]
fn a_blackout_affects_the_port_only_if_it_drops_the_carrier() {
    for (carrier, direction) in [
        (false, Direction::Egress),
        (true, Direction::Egress),
        (true, Direction::Ingress),
    ] {
        let (mut pair, _) = World::connected();
        let link = Impairment {
            blackouts: vec![Blackout {
                from: pair.now.after(us(5)),
                length: us(20),
            }],
            carrier,
            ..Impairment::default()
        };
        pair.sides[A].hca.set_impairment(direction, link).unwrap();
        pair.run_for(100_000);
        let told = if carrier { &DOWN_UP[..] } else { &[] };
        assert_eq!(of_port(&pair.sides[A]), told);
        assert_eq!(downed(&pair, A), u64::from(carrier));
    }
}

#[test]
fn the_port_follows_the_host_s_interface() {
    let (mut pair, _) = World::connected();
    set(&pair, A, once(pair.now.after(us(50)), us(100)));
    // Down from 20 to 100 and by schedule from 50 to 150: one outage.
    pair.run_for(20_000);
    let now = pair.now;
    pair.sides[A].hca.set_host_carrier(now, 1, false);
    pair.sides[A].hca.set_host_carrier(now, 1, false);
    pair.run_for(80_000);
    let now = pair.now;
    pair.sides[A].hca.set_host_carrier(now, 1, true);
    assert!(!pair.sides[A].hca.port_is_up(now, 1));
    pair.run();
    assert_eq!(of_port(&pair.sides[A]), DOWN_UP);
    // A device that starts without a carrier has not lost one.
    let mut new = World::new([config()]);
    let now = new.now;
    new.sides[A].hca.begin_with_host_carrier(now, 1, false);
    assert!(!new.sides[A].hca.port_is_up(now, 1));
    new.sides[A].hca.set_host_carrier(now, 1, true);
    new.settle();
    assert_eq!(of_port(&new.sides[A]), [Event::PortActive { port: 1 }]);
}

/// As for a process that was stopped meanwhile.
#[test]
fn a_late_call_reports_all_changes_in_order() {
    let mut pair = World::new([config()]);
    let flaps = Outages {
        first: pair.now.after(us(10)),
        length: us(1),
        every: us(3),
        times: 5_000,
    };
    set(&pair, A, Schedule::new(vec![flaps]).unwrap());
    let now = pair.now;
    pair.sides[A].hca.handle_settings(now);
    pair.now = now.after(Span::from_secs(1));
    pair.run();
    let told = of_port(&pair.sides[A]);
    assert_eq!(told.len(), 10_000);
    assert!(told.chunks(2).all(|pair| pair == DOWN_UP));
    assert_eq!(downed(&pair, A), 5_000);
}
