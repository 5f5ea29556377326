//! How fast the fabric is: link crossings a second, in k-ary fat-trees of 16 to 8,192 hosts.
//!
//! `cargo bench -p ferroce-fabric --bench hops [-- K [MEGABYTES [THREADS]]]`. Each host sends to another one of a
//! permutation, with DCQCN, retransmission timers, ECN and PFC, over links of 100 Gb/s and 1 us, at an
//! MTU of 4,096 bytes (spec/performance.md, section 4). Acknowledgements and CNPs count as what they
//! are, packets that cross links. Beside it, in the same run, pushes and pops of a binary heap with a
//! thousand entries: what the machine can do just now.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Instant;

use ferroce_dcqcn::CongestionPoint;
use ferroce_fabric::topology::FatTree;
use ferroce_fabric::workload::permutation;
use ferroce_fabric::{Simulation, Standing, SwitchConfig, Time};

mod cards;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|it| it != "--bench");
    let mut next = || arguments.next().and_then(|it| it.parse::<u32>().ok());
    let runs = match (next(), next(), next()) {
        (Some(k), megabytes, threads) => vec![(k, megabytes.unwrap_or(10), threads.unwrap_or(1))],
        (None, ..) => vec![
            (4, 20, 1),
            (8, 10, 1),
            (16, 2, 1),
            (16, 2, 2),
            (32, 1, 1),
            (32, 1, 2),
        ],
    };
    println!("  hosts  threads  M hops/s  hops/heap op  M events/s       s  peak MiB");
    for (k, megabytes, threads) in runs {
        let heap = heap_ops();
        let mut simulation = simulation(k, megabytes, threads as usize);
        let hosts = simulation.fabric.topology().hosts;
        let start = Instant::now();
        assert_eq!(simulation.run(u64::MAX), Ok(Standing::Over));
        let seconds = start.elapsed().as_secs_f64();
        let heap = heap.max(heap_ops());
        let hops = simulation.fabric.hops() as f64 / seconds;
        println!(
            "{hosts:7}{threads:9}{:10.2}{:14.2}{:12.2}{seconds:8.2}{:10}",
            hops / 1e6,
            hops / heap,
            simulation.events() as f64 / seconds / 1e6,
            peak_mib()
        );
        simulation.fabric.audit();
    }
}

fn simulation(k: u32, megabytes: u32, threads: usize) -> Simulation {
    let topology = FatTree::k_ary(k, cards::CABLE).unwrap().build().unwrap();
    let hosts: Vec<u32> = (0..topology.hosts).collect();
    let bytes = u64::from(megabytes) << 20;
    let workload = permutation(&hosts, bytes, Time::ZERO, 1).unwrap();
    let switch = SwitchConfig {
        ecn: CongestionPoint::new(400_000, 1_600_000, 200_000).ok(),
        lossless: 1,
        ..SwitchConfig::default()
    };
    let qps = cards::Use {
        depth: 128,
        qp_per_transfer: true,
        threads,
    };
    cards::simulation(topology, switch, workload, qps)
}

/// Pushes and pops of a heap a second.
fn heap_ops() -> f64 {
    const OPS: u64 = 2_000_000;
    let mut heap: BinaryHeap<_> = (0..1_000_u64).map(Reverse).collect();
    let start = Instant::now();
    let mut state = 1_u64;
    for _ in 0..OPS {
        let Some(Reverse(at)) = heap.pop() else { break };
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        heap.push(Reverse(at + 1 + (state >> 54)));
    }
    black_box(&heap);
    OPS as f64 / start.elapsed().as_secs_f64()
}

/// The most memory that this process has had.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|it| it.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) >> 10
}
