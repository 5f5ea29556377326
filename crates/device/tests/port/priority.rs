//! Priorities: which packet leaves next, and which packets a pause stops.

use ferroce_dcqcn::Params;
use ferroce_device::{
    Data, HcaConfig, Personality, Qos, QpAttr, SendTo, SendWr, Sge, Trust, UdAddress, VlanId,
    WcStatus, WriteLockError,
};
use ferroce_testing::{A, B, Dice, Fate, SEND, attr};
use ferroce_testing::{card, flight::Flight};
use ferroce_wire::{BthFlags, Connection, Headers, Opcode, PKEY_DEFAULT, Place, Psn, cnp};

use super::Cards;

/// A traffic class with this priority.
fn class(priority: u8) -> u8 {
    priority << 5
}

/// Cards of 100 Gb/s with a queue pair in each of these priorities.
fn cards(priorities: &[u8]) -> Cards {
    let mut cards = Cards::new(100_000, 0);
    for priority in priorities {
        cards.add(attr(), class(*priority));
    }
    cards
}

#[test]
fn a_pause_stops_its_priority_and_no_other() {
    let mut cards = cards(&[3, 3, 0, 5]);
    for qp in 0..4 {
        cards.write(qp, 32 * 4096);
    }
    let now = cards.pair.now;
    cards.pair.sides[A].hca.set_paused(now, 1, 1 << 3);
    assert_eq!(cards.pair.sides[A].hca.paused(1), 1 << 3);
    cards.pair.run();
    assert_eq!([0, 1, 2, 3].map(|qp| cards.sent(qp).len()), [0, 0, 32, 32]);
    let hca = &mut cards.pair.sides[A].hca;
    assert!(!hca.wants_transmit(), "it would spin");
    assert_eq!(
        hca.poll_timeout(),
        None,
        "nothing happens until the pause ends"
    );

    let now = cards.pair.now;
    hca.set_paused(now, 1, 0);
    assert!(hca.wants_transmit());
    cards.pair.run();
    assert_eq!(cards.sent(0)[0].at, now, "at once");
    assert_eq!([0, 1].map(|qp| cards.sent(qp).len()), [32, 32]);
    assert_eq!(cards.pair.sides[A].completions.len(), 4);
}

/// Two queue pairs have each other's priority, depending on the field that the port trusts.
#[test]
fn a_pause_stops_the_priority_of_the_trusted_field() {
    for (trust, vlan, sent) in [
        (Trust::Dscp, 0, [0, 32]),
        (Trust::Dscp, 100, [0, 32]),
        (Trust::Pcp, 100, [32, 0]),
        // Without a tag, all packets have priority 0.
        (Trust::Pcp, 0, [32, 32]),
    ] {
        let qos = Qos {
            trust,
            vlan: VlanId::new(vlan),
        };
        let mut cards = Cards::with(
            HcaConfig {
                qos,
                ..card(100_000)
            },
            0,
        );
        for (by_dscp, by_pcp) in [(3, 5), (5, 3)] {
            cards.add_with(attr(), class(by_dscp), by_pcp);
        }
        let now = cards.pair.now;
        cards.pair.sides[A].hca.set_paused(now, 1, 1 << 3);
        for qp in 0..2 {
            cards.write(qp, 32 * 4096);
        }
        cards.pair.run();
        assert_eq!([0, 1].map(|qp| cards.sent(qp).len()), sent, "{qos:?}");
    }
}

#[test]
fn a_pause_lets_the_packet_finish_that_is_leaving() {
    let mut cards = cards(&[3]);
    cards.write(0, 4 * 4096);
    cards.pair.settle();
    let (now, hca) = (cards.pair.now, &mut cards.pair.sides[A].hca);
    let departure = hca.departure();
    assert!(departure > now);
    hca.set_paused(now, 1, 1 << 3);
    // The port is busy, and nothing may leave when it is free.
    assert_eq!(hca.poll_timeout(), None);
    cards.pair.run_until(departure);
    assert_eq!(cards.sent(0).len(), 1);
}

#[test]
fn the_higher_priority_goes_first() {
    let mut cards = cards(&[1, 6, 4]);
    cards.write(0, 64 * 4096);
    cards.pair.run_for(2_000);
    let low = cards.sent(0).len();
    assert!((5..10).contains(&low), "{low}");
    cards.write(2, 3 * 4096);
    cards.write(1, 3 * 4096);
    cards.pair.run();
    let order = cards.order();
    assert_eq!(order[low..low + 6], [1, 1, 1, 2, 2, 2], "{order:?}");
    assert!(order[low + 6..].iter().all(|qp| *qp == 0));
    assert_eq!(order.len(), 70);
}

#[test]
fn a_cnp_overtakes_data_and_waits_for_its_own_priority_alone() {
    let mut cards = cards(&[3]);
    cards.write(0, 64 * 4096);
    let marked = Headers::send(Connection::Rc, Place::Only, None).to(cards.qpns[0][A], Psn::ZERO);
    let is_cnp = |sent: &&ferroce_testing::flight::Sent| {
        (sent.from, sent.headers.opcode()) == (A, Opcode::Cnp)
    };
    let cnps = |cards: &Cards| {
        cards
            .pair
            .log
            .as_ref()
            .unwrap()
            .iter()
            .filter(is_cnp)
            .count()
    };
    cards.pair.settle();
    let now = cards.pair.now;
    cards.pair.sides[A].hca.set_paused(now, 1, 1 << 6);
    cards
        .pair
        .give(A, class(3) | 0b11, &marked, Data::Length(0));
    cards.pair.run_for(2_000);
    let sent = cards.sent(0).len();
    assert_eq!(cnps(&cards), 0);
    assert!(sent > 5, "data go on: {sent}");

    let now = cards.pair.now;
    cards.pair.sides[A].hca.set_paused(now, 1, 1 << 3);
    cards.pair.run_for(2_000);
    assert_eq!(cnps(&cards), 1);
    let log = cards.pair.log.as_ref().unwrap();
    let last = log.iter().rfind(|sent| sent.from == A).unwrap();
    assert_eq!(
        last.headers.opcode(),
        Opcode::Cnp,
        "it waited for its own pause alone"
    );

    // Without the pause it leaves next, however much waits.
    cards.pair.sides[A].hca.set_paused(cards.pair.now, 1, 0);
    cards.pair.run_for(1_000_000);
    cards.write(0, 64 * 4096);
    cards.pair.settle();
    let next = cards.pair.log.as_ref().unwrap().len();
    cards
        .pair
        .give(A, class(3) | 0b11, &marked, Data::Length(0));
    cards.pair.run_for(1_000);
    let log = cards.pair.log.as_ref().unwrap();
    assert_eq!(log[next].headers.opcode(), Opcode::Cnp);
}

#[test]
fn datagrams_leave_in_their_order_each_with_its_priority() {
    const QKEY: u32 = 7;
    let mut cards = cards(&[]);
    let [a, b] = [A, B].map(|id| cards.pair.sides[id].create_ud(QKEY));
    let to = |traffic_class| {
        SendTo::Datagram(UdAddress {
            path: ferroce_device::Path {
                dest: [10, 0, 0, 2].into(),
                traffic_class,
                sl: 0,
                port: 1,
            },
            qpn: b,
            qkey: QKEY,
        })
    };
    let sge = Sge {
        length: 100,
        ..cards.regions[A].whole()
    };
    let now = cards.pair.now;
    cards.pair.sides[A].hca.set_paused(now, 1, 1 << 2);
    for priority in [5, 2, 7] {
        let wr = SendWr {
            to: to(class(priority)),
            ..SendWr::new(0, SEND, sge)
        };
        cards.pair.post(A, a, wr);
    }
    cards.pair.run();
    let sent = |cards: &Cards| cards.pair.sides[A].sent.0;
    assert_eq!(
        sent(&cards),
        1,
        "the next one is paused, and nobody overtakes it"
    );
    cards.pair.sides[A]
        .hca
        .set_paused(cards.pair.now, 1, 1 << 7);
    cards.pair.run();
    assert_eq!(sent(&cards), 2);
    cards.pair.sides[A].hca.set_paused(cards.pair.now, 1, 0);
    cards.pair.run();
    assert_eq!(sent(&cards), 3);
}

#[test]
fn a_pause_times_out_only_packets_already_sent() {
    let mut cards = cards(&[3]);
    let victim = cards.qpns[0][B];
    let is_its = move |flight: &Flight| flight.dest_qp == Some(victim);
    cards.pair.net().rules.strike(1, Fate::Lost, is_its);
    cards.write(0, 4096);
    cards.pair.settle();
    let now = cards.pair.now;
    cards.pair.sides[A].hca.set_paused(now, 1, 1 << 3);
    // Far longer than all retries take.
    cards.pair.run_for(10_000_000_000);
    assert_eq!(cards.pair.sides[A].expiries().len(), 1);
    assert_eq!(cards.sent(0).len(), 1);
    let resumed = cards.pair.now;
    cards.pair.sides[A].hca.set_paused(resumed, 1, 0);
    cards.pair.run();
    assert_eq!(cards.sent(0)[1].at, resumed);
    assert_eq!(cards.pair.sides[A].expiries().len(), 1);
    assert_eq!(cards.pair.sides[A].completions[0].status, WcStatus::Success);
}

#[test]
fn a_port_without_a_rate_has_one_priority() {
    let mut cards = Cards::with(ferroce_testing::config(), 0);
    for priority in [1, 6] {
        cards.add(attr(), class(priority));
    }
    cards.pair.sides[A]
        .hca
        .set_paused(cards.pair.now, 1, 1 << 1 | 1 << 6);
    for qp in [0, 1] {
        cards.write(qp, 4 * 4096);
    }
    cards.pair.run();
    assert_eq!(cards.order(), [0, 0, 0, 0, 1, 1, 1, 1]);
}

/// With random pauses, nothing is lost or stuck, or sent while its priority is paused.
#[test]
fn pauses_at_random_only_delay() {
    for seed in 0..10 {
        let mut dice = Dice::new(seed);
        // Nothing is lost, so what waits for a paused acknowledgement must not time out.
        let personality = Personality {
            initial_exponent: Some(14),
            ..Personality::default()
        };
        let config = HcaConfig {
            personality,
            ..card(10_000)
        };
        let mut cards = Cards::with(config, 0);
        for _ in 0..6 {
            let priority = dice.below(8) as u8;
            cards.add(
                QpAttr {
                    timeout: 17,
                    ..attr()
                },
                class(priority),
            );
        }
        let mut writes = 0;
        for _ in 0..100 {
            if dice.chance(50) {
                cards.write(dice.below(6) as usize, dice.below(30_000) as u32);
                writes += 1;
            }
            let (now, paused) = (cards.pair.now, dice.next() as u8);
            cards.pair.sides[A].hca.set_paused(now, 1, paused);
            cards.pair.sides[B]
                .hca
                .set_paused(now, 1, dice.next() as u8);
            let before = cards.pair.log.as_ref().unwrap().len();
            cards.pair.run_for(dice.below(40_000));
            for sent in &cards.pair.log.as_ref().unwrap()[before..] {
                let priority = sent.traffic_class >> 5;
                assert!(sent.from == B || paused >> priority & 1 == 0, "seed {seed}");
            }
            let hca = &cards.pair.sides[A].hca;
            let deadline = hca.poll_timeout();
            assert!(deadline.is_none_or(|at| at > cards.pair.now), "seed {seed}");
        }
        for side in &mut cards.pair.sides {
            side.hca.set_paused(cards.pair.now, 1, 0);
        }
        cards.pair.run();
        let done = &cards.pair.sides[A].completions;
        assert_eq!(done.len(), writes, "seed {seed}");
        assert!(
            done.iter().all(|it| it.status == WcStatus::Success),
            "seed {seed}"
        );
    }
}

/// Congestion control spaces the packets of one queue pair, and another one gets the rest.
#[test]
fn a_limited_queue_pair_keeps_its_rate_and_others_get_the_rest() {
    let mut cards = Cards::new(100_000, 0);
    for side in &cards.pair.sides {
        let change = |params: &mut Params| {
            for text in [
                "rate_to_set_on_first_cnp=10000",
                "rpg_min_dec_fac=100",
                "rpg_ai_rate=1",
                "rpg_hai_rate=1",
                "rpg_time_reset=131071",
                "rpg_byte_reset=0",
                "rpg_threshold=31",
            ] {
                params.assign(text).unwrap();
            }
            Ok::<_, WriteLockError>(())
        };
        side.hca.state().change_congestion(change).unwrap();
    }
    let attr = QpAttr {
        timeout: 17,
        ..attr()
    };
    for _ in 0..3 {
        cards.add(attr, class(3));
    }
    let notification = cnp::headers(cards.qpns[0][A], PKEY_DEFAULT);
    assert!(notification.flags.contains(BthFlags::BECN));
    cards.pair.give(A, 0, &notification, Data::Length(0));
    for _ in 0..4 {
        cards.write(0, 64 * 4096);
        for _ in 0..6 {
            cards.write(1, 64 * 4096);
            cards.write(2, 64 * 4096);
        }
    }
    let began = cards.pair.now;
    cards.pair.run_for(400_000);

    // 4,178 bytes at 10 Gb/s.
    let interval = 3_342_400;
    let at: Vec<u64> = cards
        .sent(0)
        .iter()
        .map(|sent| sent.departure.since(began).as_picos())
        .collect();
    let (first, last) = (at[2], at[at.len() - 1]);
    let mean = (last - first) / (at.len() as u64 - 3);
    assert!(
        mean.abs_diff(interval) < interval / 100,
        "{mean} ps between packets"
    );
    // Each of the other queue pairs may have one packet in front of it.
    let packet = 4178 * 80;
    for pair in at[2..].windows(2) {
        let gap = pair[1] - pair[0];
        assert!(gap.abs_diff(interval) <= 3 * packet, "{gap} ps: {at:?}");
    }
    // The port is never idle, and the others share the rest.
    let all = cards.order().len() as u64;
    assert!(all * packet > 399_000_000, "{all} packets");
    let [one, other] = [1, 2].map(|qp| cards.sent(qp).len());
    assert!(one.abs_diff(other) <= 2, "{one} and {other}");
}
