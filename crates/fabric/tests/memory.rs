//! The memory of a host whose queue pair has worked and rests; packets take none.

use ferroce_fabric::{
    Simulation, Span, Standing, SwitchConfig, Time, Topology, Transfer, Workload,
};

#[path = "../benches/cards/mod.rs"]
mod cards;

/// Hosts of a star, every second of which sends bytes to the next one.
fn used(hosts: u32, bytes: u32) -> Simulation {
    let topology = Topology::star(hosts, cards::CABLE).unwrap();
    let transfer = |src| Transfer {
        src,
        dst: src + 1,
        bytes,
        at: Time::ZERO,
        think: Span::ZERO,
        job: 0,
    };
    let workload = Workload {
        transfers: (0..hosts).step_by(2).map(transfer).collect(),
        edges: Vec::new(),
        jobs: vec!["pairs".into()],
    };
    let qps = cards::Use {
        depth: 16,
        qp_per_transfer: false,
        threads: 1,
    };
    cards::simulation(topology, SwitchConfig::default(), workload, qps)
}

#[test]
fn a_resting_host_with_a_used_queue_pair_takes_at_most_8_kib() {
    let taken = |hosts| {
        let mut kept = None;
        let info = allocation_counter::measure(|| {
            let mut simulation = used(hosts, 4 << 20);
            assert_eq!(simulation.run(u64::MAX), Ok(Standing::Over));
            simulation.fabric.rest();
            kept = Some(simulation);
        });
        drop(kept);
        info.bytes_current
    };
    // Memory that all hosts share does not count.
    let (few, many) = (taken(16), taken(144));
    let each = (many - few) / 128;
    println!("{each} bytes a host");
    assert!(each <= 8 << 10, "{each} bytes a host");
}

#[test]
fn packets_take_no_memory_once_as_many_are_under_way_as_ever() {
    let mut simulation = used(2, 64 << 20);
    assert_eq!(simulation.run(20_000), Ok(Standing::Running));
    let before = simulation.fabric.hops();
    let info = allocation_counter::measure(|| {
        assert_eq!(simulation.run(20_000), Ok(Standing::Running));
    });
    let hops = simulation.fabric.hops() - before;
    assert!(hops > 5_000, "{hops}");
    assert_eq!(
        info.count_total, 0,
        "allocations while {hops} frames arrived"
    );
}
