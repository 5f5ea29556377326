//! How much memory a host takes whose queue pair has worked and rests, and that packets take none.

use std::sync::Arc;

use ferroce_fabric::topology::CableSpec;
use ferroce_fabric::{
    Fabric, FabricConfig, JobConfig, OnError, Player, Rate, Simulation, Span, Standing,
    SwitchConfig, Time, Topology, Transfer, Workload, card,
};
use ferroce_hca::{Hca, HcaConfig, HostProfile, Mtu, Personality, QpAttr, Settings};

const RATE: Rate = Rate::from_mbps(100_000);

/// Hosts of a star, every second of which sends some bytes to the next one.
fn used(hosts: u32, bytes: u32) -> Simulation {
    let cable = CableSpec::new(RATE, Span::from_micros(1));
    let topology = Topology::star(hosts, cable).unwrap();
    let settings = Arc::new(Settings::new(Personality::default()));
    let devices = (0..hosts).map(|host| {
        let config = HcaConfig {
            host: HostProfile::card(RATE),
            speed: RATE,
            ..card(host.into())
        };
        Hca::with_settings(config, Arc::clone(&settings))
    });
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
    let config = FabricConfig {
        topology,
        switch: SwitchConfig::default(),
        seed: 1,
    };
    let fabric = Fabric::new(config, devices).unwrap();
    let job = JobConfig {
        attr: QpAttr {
            path_mtu: Mtu::Mtu4096,
            timeout: 14,
            retry_cnt: 7,
            ..QpAttr::default()
        },
        traffic_class: 2,
        depth: 16,
        qp_per_transfer: false,
        on_error: OnError::Abort,
    };
    let player = Player::new(workload, vec![job]);
    Simulation::new(fabric, player, Vec::new(), None, Time::NEVER)
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
    // What all hosts share does not count.
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
