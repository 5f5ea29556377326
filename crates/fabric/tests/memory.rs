//! The memory of a host whose queue pair has worked and rests; packets take none.

use ferroce_fabric::results::Summary;
use ferroce_fabric::scenario::Scenario;
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

/// The most memory that a scenario takes, from its file to its summary, and the estimate of it; bytes.
fn peak(text: &str) -> (u64, u64) {
    let mut estimate = 0;
    let info = allocation_counter::measure(|| {
        let scenario = Scenario::parse(text, &mut |_| Err("no files".into())).unwrap();
        estimate = scenario.estimate().memory;
        let mut simulation = scenario.simulation().unwrap();
        let standing = simulation.run(u64::MAX).unwrap();
        assert_eq!(standing, Standing::Over);
        drop(Summary::new(&scenario, &simulation, standing));
    });
    (info.bytes_max, estimate)
}

/// Runs whose memory is mostly that of queue pairs, of waits, of transfers, of what is left of closed
/// connections, of frames, of cables, and of samples.
#[test]
fn the_estimate_of_memory_holds_within_a_factor_of_two() {
    let poisson = "workload = 'poisson'\nsizes = 'FbHdp'\nfor = '20ms'\nload";
    let own = "qp_per_transfer = true";
    for (topology, job) in [
        (
            "kind = 'star'\nhosts = 64",
            "workload = 'all-to-all'\nbytes = '64KiB'".to_owned(),
        ),
        (
            "kind = 'fat-tree'\nk = 8",
            format!("workload = 'all-to-all'\nbytes = '512KiB'\n{own}"),
        ),
        (
            "kind = 'fat-tree'\nk = 8",
            format!("workload = 'all-to-all-in-shifts'\nbytes = '512KiB'\n{own}"),
        ),
        (
            "kind = 'leaf-spine'\nleaves = 2\nspines = 4\nhosts_per_leaf = 32\nhost_links = 'bond'",
            "workload = 'all-to-all'\nbytes = '64KiB'\nrounds = 2".to_owned(),
        ),
        (
            "kind = 'star'\nhosts = 16",
            "workload = 'all-to-all'\nbytes = '64KiB'\nrounds = 256".to_owned(),
        ),
        ("kind = 'star'\nhosts = 16", format!("{poisson} = '30%'")),
        (
            "kind = 'star'\nhosts = 16",
            format!("{poisson} = '30%'\n{own}"),
        ),
        (
            "kind = 'star'\nhosts = 16",
            format!("{poisson} = '95%'\n{own}"),
        ),
        (
            "kind = 'star'\nhosts = 32",
            format!("workload = 'ring-all-reduce'\nbytes = '1MiB'\nrounds = 16\n{own}"),
        ),
        (
            "kind = 'star'\nhosts = 512",
            "workload = 'incast'\nbytes = '64KiB'".to_owned(),
        ),
        (
            "kind = 'fat-tree'\nk = 16",
            "workload = 'permutation'\nbytes = '64KiB'".to_owned(),
        ),
    ] {
        let text = format!("[topology]\n{topology}\n[[job]]\n{job}\n");
        let (peak, estimate) = peak(&text);
        let share = estimate as f64 / peak as f64;
        println!("estimate {estimate}, {share:.2} of {peak} bytes: {topology:?} {job:?}");
        assert!(peak > 3_000_000, "{text} is too small");
        assert!((0.5..2.0).contains(&share), "{text}");
    }
}
