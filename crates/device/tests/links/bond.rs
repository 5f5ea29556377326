//! Bonds: two links that programs see as one port.

use ferroce_device::cm::SidrRequest;
use ferroce_device::{Counter, Event, Pairing, QpState, SendWr, WcStatus};
use ferroce_testing::{A, B};
use ferroce_wire::cm::{Private, ServiceId};

use super::{connected, count, memories, of_ports, pair, set, write};

fn sent(world: &ferroce_testing::World, id: usize) -> [u64; 2] {
    [1, 2].map(|link| count(world, id, link, Counter::RdmaTxPackets))
}

#[test]
fn queue_pairs_are_spread_or_go_where_they_are_told() {
    let mut world = pair(Pairing::Bond);
    assert_eq!(world.sides[A].hca.ports(), 1);
    let memories = memories(&mut world, 64);
    let qpns: Vec<_> = (0..4).map(|_| connected(&mut world, 1)).collect();
    for qpns in &qpns {
        assert_eq!(write(&mut world, qpns[A], &memories), WcStatus::Success);
    }
    assert_eq!(sent(&world, A), [2, 2]);
    for qpns in &qpns {
        world.sides[A].hca.set_lag_port(qpns[A], 2).unwrap();
        assert_eq!(world.sides[A].hca.lag_port(qpns[A]).unwrap(), (2, 2));
        assert_eq!(write(&mut world, qpns[A], &memories), WcStatus::Success);
    }
    assert_eq!(sent(&world, A), [2, 6]);
    set(&mut world, A, 2, false);
    assert_eq!(world.sides[A].hca.lag_port(qpns[0][A]).unwrap(), (2, 1));
}

#[test]
fn the_port_is_down_only_while_both_links_are() {
    let mut world = pair(Pairing::Bond);
    let memories = memories(&mut world, 64);
    let qpns = [(); 2].map(|()| connected(&mut world, 1));
    for link in [1, 2] {
        set(&mut world, A, link, false);
        for qpns in &qpns {
            assert_eq!(write(&mut world, qpns[A], &memories), WcStatus::Success);
        }
        set(&mut world, A, link, true);
        assert_eq!(of_ports(&mut world.sides[A]), []);
    }
    set(&mut world, A, 1, false);
    set(&mut world, A, 2, false);
    assert_eq!(
        of_ports(&mut world.sides[A]),
        [Event::PortError { port: 1 }]
    );
    let now = world.now;
    assert!(!world.sides[A].hca.port_is_up(now, 1));
    assert_eq!(
        write(&mut world, qpns[0][A], &memories),
        WcStatus::RetryExcErr
    );
    set(&mut world, A, 2, true);
    assert_eq!(
        of_ports(&mut world.sides[A]),
        [Event::PortActive { port: 1 }]
    );
    assert_eq!(write(&mut world, qpns[1][A], &memories), WcStatus::Success);
}

/// Each flap loses what is under way on its link, and nothing else.
#[test]
fn a_stream_survives_a_thousand_flaps_of_either_link() {
    let mut world = pair(Pairing::Bond);
    let memories = memories(&mut world, 1 << 16);
    let qpns = [(); 2].map(|()| connected(&mut world, 1));
    let [source, sink] = &memories;
    let mut posted = 0;
    for flap in 0..1_000 {
        let (id, link) = (flap % 2, (flap / 2 % 2) as u8 + 1);
        for qpns in &qpns {
            world.post(
                A,
                qpns[A],
                SendWr::new(posted, sink.write(), source.whole()),
            );
            posted += 1;
        }
        world.run_for(2_000 + flap as u64);
        set(&mut world, id, link, false);
        world.run_for(20_000);
        set(&mut world, id, link, true);
        world.run();
    }
    let done = &world.sides[A].completions;
    assert_eq!(done.len() as u64, posted);
    assert!(done.iter().all(|it| it.status == WcStatus::Success));
    assert_eq!(sink.bytes(), source.bytes());
    for id in [A, B] {
        assert_eq!(of_ports(&mut world.sides[id]), []);
        let lost = [1, 2].map(|link| count(&world, id, link, Counter::ImpairBlackout));
        assert!(lost.iter().sum::<u64>() < 1_000 * 64, "{lost:?}");
        let downs = [1, 2].map(|link| {
            let state = world.sides[id].hca.link_state(link).unwrap();
            state.link_downed(world.now)
        });
        assert_eq!(downs, [250, 250]);
    }
    assert_eq!(world.sides[A].state(qpns[0][A]), QpState::Rts);
}

/// Whatever the number of queue pairs, each goes on by the link that is up, and comes back.
#[test]
fn thousands_of_queue_pairs_change_links_together() {
    const QPS: usize = 4_000;
    let mut world = pair(Pairing::Bond);
    world.audit_every = 1 << 14;
    let memories = memories(&mut world, 8);
    let [source, sink] = &memories;
    let qpns: Vec<_> = (0..QPS).map(|_| connected(&mut world, 1)).collect();
    let post_all = |world: &mut ferroce_testing::World| {
        for qpns in &qpns {
            world.post(A, qpns[A], SendWr::new(1, sink.write(), source.whole()));
        }
        let before = sent(world, A);
        world.run();
        let after = sent(world, A);
        [0, 1].map(|link| (after[link] - before[link]) as usize)
    };
    assert_eq!(post_all(&mut world), [QPS / 2; 2]);
    for (link, carried) in [(1, [0, QPS]), (2, [QPS, 0])] {
        set(&mut world, A, link, false);
        assert_eq!(post_all(&mut world), carried);
        set(&mut world, A, link, true);
    }
    assert_eq!(post_all(&mut world), [QPS / 2; 2]);
    assert_eq!(of_ports(&mut world.sides[A]), []);
    assert_eq!(world.sides[A].completions.len(), 4 * QPS);
}

/// Messages of the connection manager leave whatever port the program names.
#[test]
fn a_request_by_a_port_that_is_not_there_does_no_harm() {
    let mut world = pair(Pairing::Bond);
    set(&mut world, A, 1, false);
    for port in [0, 1, 2, 3, u8::MAX] {
        let request = SidrRequest {
            dest: world.sides[B].address,
            traffic_class: 0,
            sl: 0,
            port,
            service_id: ServiceId(7),
            packet_lifetime: 0,
            response_timeout: 1,
            max_retries: 1,
            private: Private::default(),
        };
        let now = world.now;
        let cm = world.sides[A].hca.cm_mut();
        cm.sidr_request(now, &request).unwrap();
        world.run_for(100_000);
    }
    assert!(sent(&world, A)[1] > 0);
}
