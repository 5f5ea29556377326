//! Hosts with two links: what these carry together, and what is left when one of them is down.

use ferroce_device::{Counter, Pairing, WcStatus};
use ferroce_fabric::{
    Fault, JobConfig, OnError, Span, Standing, Time, Topology, Transfer, Workload,
};

use crate::net::*;

const BOTH: [Pairing; 2] = [Pairing::Ports, Pairing::Bond];

/// Two leaves that share four hosts, and two spines. Cables 0 to 3 are those of first links and lead to
/// leaf0; those of second links, [`second`], lead to leaf1.
fn pod(pairing: Pairing) -> Topology {
    let pod = leaf_spine(2, 2, 2, LINK);
    pod.with_second_links(pairing).unwrap()
}

fn second(topology: &Topology, host: u32) -> usize {
    topology.cables.len() - topology.hosts as usize + host as usize
}

/// Messages of 1 MB, one after the other by each link.
fn messages(count: usize, src: u32, dst: u32) -> Vec<Transfer> {
    vec![transfer(src, dst, 1_000_000); count]
}

/// One queue pair by each link for all messages.
fn shared() -> JobConfig {
    JobConfig {
        qp_per_transfer: false,
        ..job()
    }
}

#[test]
fn two_links_carry_twice_as_much_as_one() {
    for pairing in BOTH {
        let star = star(2, LINK).with_second_links(pairing).unwrap();
        for topology in [pod(pairing), star] {
            let played = Net::new(topology).play(messages(40, 0, 1), shared());
            let by_one = vec![packets(1_000_000, 4_096); 20].concat();
            let by_one = pipeline(&by_one, 2, LINK.rate, LINK.delay);
            let share = ratio(played.end().since(Time::ZERO), by_one);
            assert!((1.0..1.02).contains(&share), "{pairing:?}: {share}");
        }
    }
}

/// Each link is paused for itself: only the queue pairs of a link whose switch has no room wait.
#[test]
fn a_pause_of_one_link_leaves_the_other_alone() {
    let incast = |topology| {
        // The second message of each pair takes the second link. Three senders fill the ports that
        // lead to host 3.
        let mut transfers = Vec::new();
        for src in 0..3 {
            transfers.push(transfer(src, 3, 5_000_000));
        }
        transfers.push(transfer(0, 1, 1)); // by link 1
        let mut free = transfer(0, 1, 1_000_000);
        free.at = micros(200);
        transfers.push(free);
        Net::new(topology).play(transfers, shared())
    };
    let played = incast(pod(Pairing::Ports));
    assert!(played.pauses() > 0);
    let alone = pipeline(&packets(1_000_000, 4_096), 2, LINK.rate, LINK.delay);
    let took = ratio(played.took(4), alone);
    assert!((0.999..1.001).contains(&took), "{took}");
    assert_eq!(played.timeouts(), 0);
}

/// The leaf of all first links is gone for a while; hosts know after 1 ms.
fn reboot(pairing: Pairing, config: JobConfig) -> ferroce_fabric::Simulation {
    let mut net = Net::new(pod(pairing));
    let leaf = net.topology.find("leaf0").unwrap();
    let cables = net.topology.cables.iter().enumerate();
    let of_leaf = cables.filter(|(_, cable)| cable.ends.contains(&leaf));
    for (cable, _) in of_leaf {
        net.faults.push((micros(300), Fault::CableDown(cable)));
        net.faults.push((micros(5_000_000), Fault::CableUp(cable)));
    }
    net.faults.push((micros(1_300), Fault::Reroute));
    net.faults.push((micros(5_001_000), Fault::Reroute));
    let transfers: Vec<_> = (0..4)
        .flat_map(|src| messages(20, src, (src + 1) % 4))
        .collect();
    let workload = Workload {
        transfers,
        edges: Vec::new(),
        jobs: vec!["ring".into()],
    };
    let mut simulation = net.simulation(workload, vec![config]);
    while simulation.run(10_000).unwrap() == Standing::Running {
        simulation.fabric.audit();
    }
    simulation.fabric.audit();
    simulation
}

#[test]
fn a_bond_survives_the_reboot_of_a_leaf() {
    let bond = reboot(Pairing::Bond, shared());
    let outcome = bond.player.job_outcomes[0];
    assert_eq!((outcome.died, outcome.failures), (None, 0), "{outcome:?}");
    let ended = outcome.ended.unwrap();
    // What was lost is repeated after a timeout of 67 ms, and one link carries it.
    assert!(ended < micros(500_000), "{ended:?}");
    for host in 0..4 {
        let hca = &bond.fabric.host(host).hca;
        let state = hca.link_state(1).unwrap();
        assert_eq!(state.link_downed(ended), 1, "{host}");
        let other = hca.link_state(2).unwrap();
        assert_eq!(other.link_downed(ended), 0, "{host}");
        let lost = [state, other].map(|it| it.counter(Counter::ImpairBlackout));
        assert_eq!(lost, [0, 0], "cables lose packets, and not devices");
    }
}

#[test]
fn queue_pairs_fail_with_their_port_and_come_back_by_the_other() {
    let ports = reboot(Pairing::Ports, shared());
    let outcome = ports.player.job_outcomes[0];
    let (died, status) = outcome.died.unwrap();
    assert_eq!(status, WcStatus::RetryExcErr);
    assert!(died > micros(500_000), "{died:?}");

    let again = JobConfig {
        on_error: OnError::Reconnect(Span::from_millis(1)),
        ..shared()
    };
    let ports = reboot(Pairing::Ports, again);
    let outcome = ports.player.job_outcomes[0];
    assert_eq!(outcome.delivered, outcome.transfers, "{outcome:?}");
    let ended = outcome.ended.unwrap();
    assert!(
        ended < micros(5_000_000),
        "only when the leaf is back: {ended:?}"
    );
    for connection in ports.player.connections() {
        assert_eq!(connection.link, 2, "{connection:?}");
    }
    assert_eq!(outcome.failures, 4, "of eight connections");
}

/// Both links of a bond down: as if it had one.
#[test]
fn a_bond_is_cut_off_only_without_any_link() {
    let mut net = Net::new(pod(Pairing::Bond));
    let second = second(&net.topology, 0);
    for cable in [0, second] {
        net.faults.push((micros(100), Fault::CableDown(cable)));
        net.faults.push((micros(100), Fault::Reroute));
        net.faults.push((micros(150_000), Fault::CableUp(cable)));
        net.faults.push((micros(150_000), Fault::Reroute));
    }
    let played = net.play(messages(20, 0, 3), shared());
    assert!(played.end() > micros(150_000));
    assert!(played.timeouts() > 0);
}
