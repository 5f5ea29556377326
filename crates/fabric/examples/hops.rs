//! How fast the fabric is: a permutation, k-ary fat-tree.
use ferroce_fabric::*;
use ferroce_hca::{Hca, HcaConfig, HostProfile, Mtu, Personality, QpAttr, Settings};
use std::sync::Arc;
use std::time::Instant;

fn main() {
    let k: u32 = std::env::args().nth(1).map_or(8, |k| k.parse().unwrap());
    let mb: u32 = std::env::args().nth(2).map_or(10, |k| k.parse().unwrap());
    let rate = Rate::from_mbps(100_000);
    let delay = Span::from_micros(1);
    let h = k / 2;
    let hosts = k * k * k / 4;
    let (edges, aggs) = (k * h, k * h);
    let mut cables = Vec::new();
    for host in 0..hosts {
        cables.push(Cable {
            ends: [NodeId(host), NodeId(hosts + host / h)],
            rate,
            delay,
        });
    }
    for pod in 0..k {
        for e in 0..h {
            for a in 0..h {
                cables.push(Cable {
                    ends: [
                        NodeId(hosts + pod * h + e),
                        NodeId(hosts + edges + pod * h + a),
                    ],
                    rate,
                    delay,
                });
            }
        }
    }
    for pod in 0..k {
        for a in 0..h {
            for c in 0..h {
                cables.push(Cable {
                    ends: [
                        NodeId(hosts + edges + pod * h + a),
                        NodeId(hosts + edges + aggs + a * h + c),
                    ],
                    rate,
                    delay,
                });
            }
        }
    }
    let nodes = hosts + edges + aggs + h * h;
    let topology = Topology {
        hosts,
        names: (0..nodes).map(|n| format!("n{n}")).collect(),
        cables,
    };
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
