//! How fast the fabric is: a permutation, k-ary fat-tree.
use ferroce_fabric::topology::{CableSpec, FatTree};
use ferroce_fabric::*;
use ferroce_hca::{Hca, HcaConfig, HostProfile, Mtu, Personality, QpAttr, Settings};
use std::sync::Arc;
use std::time::Instant;

fn main() {
    let k: u32 = std::env::args().nth(1).map_or(8, |k| k.parse().unwrap());
    let mb: u32 = std::env::args().nth(2).map_or(10, |k| k.parse().unwrap());
    let rate = Rate::from_mbps(100_000);
    let delay = Span::from_micros(1);
    let cable = CableSpec::new(rate, delay);
    let topology = FatTree::k_ary(k, cable).unwrap().build().unwrap();
    let hosts = topology.hosts;
    let profile: &'static HostProfile = Box::leak(Box::new(HostProfile::card(rate)));
    let settings = Arc::new(Settings::new(Personality::default()));
    let devices = (0..hosts).map(|host| {
        Hca::with_settings(
            HcaConfig {
                host: profile,
                speed: rate,
                ..card(host.into())
            },
            settings.clone(),
        )
    });
    let red = ferroce_dcqcn::CongestionPoint::new(400_000, 1_600_000, 200_000).unwrap();
    let config = FabricConfig {
        topology,
        switch: SwitchConfig {
            ecn: Some(red),
            lossless: 1,
            ..SwitchConfig::default()
        },
        seed: 1,
    };
    let fabric = Fabric::new(config, devices).unwrap();
    let transfers = (0..hosts)
        .map(|src| Transfer {
            src,
            dst: (src * 37 + hosts / 2 + 5) % hosts,
            bytes: mb << 20,
            at: Time::ZERO,
            think: Span::ZERO,
            job: 0,
        })
        .filter(|t| t.src != t.dst)
        .collect();
    let workload = Workload {
        transfers,
        edges: vec![],
        jobs: vec!["all".into()],
    };
    let job = JobConfig {
        attr: QpAttr {
            path_mtu: Mtu::Mtu4096,
            timeout: 14,
            retry_cnt: 7,
            ..QpAttr::default()
        },
        traffic_class: 2,
        depth: 128,
        qp_per_transfer: true,
        on_error: OnError::Abort,
    };
    let player = Player::new(workload, vec![job]);
    let start = Instant::now();
    let mut simulation = Simulation::new(fabric, player, Vec::new(), None, Time::NEVER);
    assert_eq!(simulation.run(u64::MAX).unwrap(), Standing::Over);
    let Simulation { fabric, player, .. } = simulation;
    let took = start.elapsed().as_secs_f64();
    fabric.audit();
    println!(
        "{hosts} hosts: {:?} {} hops in {took:.3} s: {:.2} M hops/s; {:?}",
        fabric.now(),
        fabric.hops(),
        fabric.hops() as f64 / took / 1e6,
        player.job_outcomes
    );
    println!("timeouts {}", player.timeouts.len());
    let mut fct: Vec<_> = player
        .outcomes
        .iter()
        .map(|o| o.acknowledged.since(o.started).as_picos() / 1_000_000)
        .collect();
    fct.sort();
    println!(
        "fct us {:?} {:?} {:?}",
        fct.first(),
        fct[fct.len() / 2],
        fct.last()
    );
}
