//! Slow restart in a fabric: senders that lost packets come back slowly, as DCQCN has them.

use ferroce_dcqcn::Params;
use ferroce_device::Counter;
use ferroce_fabric::{Fault, Rate, Span, Time, Workload};
use ferroce_prm::roce_accl as reg;

use crate::net::*;

const MS: u64 = 1_000_000;

fn at(ns: u64) -> Time {
    Time::from_nanos(ns)
}

/// Two hosts, one of which sends 1 GB to the other; the cable is cut from 10 ms on, for 100 ms.
fn flapped(slow_restart: bool) -> Net {
    let mut net = Net::new(star(2, LINK));
    net.congestion = Some(Params::default());
    net.personality.slow_restart = slow_restart;
    net.faults = vec![
        (at(10 * MS), Fault::CableDown(0)),
        (at(110 * MS), Fault::CableUp(0)),
    ];
    net
}

/// Runs until the first packet after the outage has been answered; returns the sender's limit then and
/// how its counters stand: timeouts and NAKs, and what slow restart made of them.
fn after_the_outage(slow_restart: bool) -> (Option<Rate>, [u64; 3]) {
    let workload = Workload {
        transfers: vec![transfer(0, 1, 1_000_000_000)],
        edges: Vec::new(),
        jobs: vec!["one".into()],
    };
    let mut simulation = flapped(slow_restart).simulation(workload, vec![job()]);
    let back = |simulation: &ferroce_fabric::Simulation| {
        let hca = &simulation.fabric.host(0).hca;
        hca.counter(Counter::RetransmittedPackets) > 200
    };
    while !back(&simulation) {
        simulation.run(1).unwrap();
    }
    simulation.fabric.audit();
    let now = simulation.fabric.now();
    let hca = &mut simulation.fabric.host_mut(0).hca;
    let count = |counter| hca.counter(counter);
    let timeouts = count(Counter::LocalAckTimeoutErr) + count(Counter::RoceAdpRetrans);
    let naks = count(Counter::PacketSeqErr);
    let counts = [
        timeouts + naks,
        count(Counter::RoceSlowRestartCnps),
        count(Counter::RpCnpHandled),
    ];
    let qpn = hca.look_at_qps().next().unwrap().qp.qpn();
    (hca.rate_limit(qpn, now), counts)
}

#[test]
fn an_outage_slows_the_sender_down_if_configured() {
    let (limit, [losses, cnps, handled]) = after_the_outage(true);
    assert!(losses >= 3, "{losses}");
    assert_eq!((cnps, handled), (losses, losses));
    assert!(limit.unwrap() < LINK.rate, "{limit:?}");
    let (limit, counts) = after_the_outage(false);
    assert_eq!((limit, counts), (None, [losses, 0, 0]));
}

/// Jobs that pause between messages begin each at half the port's speed.
#[test]
fn silences_slow_the_sender_down_if_configured() {
    let took = |idle: bool| {
        let mut net = Net::new(star(2, LINK));
        net.congestion = Some(Params::default());
        if idle {
            net.switched = vec![&reg::ROCE_SLOW_RESTART_IDLE_EN];
        }
        let mut job = job();
        job.qp_per_transfer = false;
        let transfers = (0..4).map(|round| {
            let mut message = transfer(0, 1, 1_000_000);
            message.at = at(round * 20 * MS);
            message
        });
        let played = net.play(transfers.collect(), job);
        let used = played
            .0
            .fabric
            .host(0)
            .hca
            .counter(Counter::RoceSlowRestart);
        let spans: Vec<Span> = (0..4).map(|round| played.took(round)).collect();
        (used, spans)
    };
    let (used, without) = took(false);
    assert_eq!(used, 0);
    let (used, with) = took(true);
    assert_eq!(used, 3, "all but the first");
    assert_eq!(with[0], without[0]);
    for round in 1..4 {
        let slower = ratio(with[round], without[round]);
        // The rate is half the port's after 4 us, and rises by half of the rest every 300 us.
        assert!((1.5..2.0).contains(&slower), "{slower}");
    }
}
