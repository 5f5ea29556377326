//! Random fabrics, workloads and faults: invariants that always hold.
//!
//! `FERROCE_RUNS` sets the number of runs, `FERROCE_SEED` the first seed; a failing run prints its
//! seed.

use std::collections::BTreeMap;

use ferroce_dcqcn::{CongestionPoint, Params, presets};
use ferroce_device::{Counter, Mtu, Pairing, Personality, Qos, QpAttr, Trust, VlanId};
use ferroce_fabric::topology::{CableSpec, Ports};
use ferroce_fabric::{
    Fault, Host, JobConfig, Loss, NodeId, OnError, Routing, Schedule, Simulation, Span, Standing,
    StormAction, SwitchConfig, Time, Topology, Transfer, TransferId, WatchdogConfig, Workload,
};
use ferroce_prm::roce_accl as reg;
use ferroce_testing::{Dice, seeds};
use ferroce_wire::ethernet::VLAN_TAG_LEN;
use rayon::ThreadPoolBuilder;

use crate::lossless::headroom;
use crate::net::*;

/// More than any of the runs needs: one that exceeds it makes no progress.
const EVENTS_MAX: u64 = 500_000;
/// When the last fault is over.
const HEALED: Time = Time::from_nanos(5_000_000);

/// A simulation to be run.
struct Plan {
    net: Net,
    workload: Workload,
    jobs: Vec<JobConfig>,
}

impl Plan {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let jobs: Vec<_> = (0..dice.within(1..=3))
            .map(|_| any_job(&mut dice))
            .collect();
        let topology = any_topology(&mut dice);
        let mut net = Net::new(topology);
        net.seed = seed;
        net.switch = any_switch(&mut dice, &net.topology);
        net.personality = Personality {
            adaptive: dice.chance(50),
            min_ack_timeout: dice.below(17) as u8,
            ..Personality::default()
        };
        net.congestion = any_congestion(&mut dice);
        net.selective = dice.chance(50);
        net.routed = dice.chance(50);
        // A separate generator, so that the rest of a seed's run stays the same.
        let mut late = Dice::new(!seed);
        net.personality.slow_restart = late.chance(50);
        let switches = [&reg::ROCE_SLOW_RESTART_IDLE_EN, &reg::ROCE_TX_WINDOW_EN];
        net.switched = switches.into_iter().filter(|_| late.chance(50)).collect();
        net.qos = Qos {
            trust: dice.pick(&Trust::ALL),
            vlan: VlanId::new(dice.pick(&[0, 1, 4094])),
        };
        net.faults = any_faults(&mut dice, &net.topology);
        net.until = Time::ZERO.after(Span::from_secs(24 * 3_600));
        let workload = any_workload(&mut dice, net.topology.hosts, jobs.len() as u16);
        workload.check(&net.topology).unwrap();
        Self {
            net,
            workload,
            jobs,
        }
    }

    /// Runs it to the end on some threads, and audits it every `events` events.
    fn play(&self, events: u64, threads: usize) -> Simulation {
        let net = Net {
            parts: threads,
            ..self.net.clone()
        };
        let mut simulation = net.simulation(self.workload.clone(), self.jobs.clone());
        if threads > 1 {
            let pool = ThreadPoolBuilder::new().num_threads(threads);
            simulation.use_threads(pool.build().unwrap(), 0);
        }
        loop {
            let standing = simulation.run(events).unwrap();
            simulation.fabric.audit();
            match standing {
                Standing::Running => assert!(
                    simulation.events() < EVENTS_MAX,
                    "it does not end: {:?} at {:?}",
                    simulation.player.job_outcomes,
                    simulation.fabric.now()
                ),
                Standing::Over => return simulation,
                other => panic!("{other:?}: {:?}", simulation.player.job_outcomes),
            }
        }
    }

    /// Checks the result.
    fn judge(&self, simulation: &Simulation) {
        let player = &simulation.player;
        for (job, outcome) in self.jobs.iter().zip(&player.job_outcomes) {
            // Nothing is lost silently: an undelivered message belongs to a job that was told of an
            // error.
            match outcome.died {
                Some(_) => assert!(job.on_error == OnError::Abort && outcome.failures > 0),
                None => {
                    assert_eq!(outcome.acknowledged, outcome.transfers, "{outcome:?}");
                    assert_eq!(outcome.delivered, outcome.transfers, "{outcome:?}");
                    assert!(outcome.ended.is_some() || outcome.transfers == 0);
                }
            }
        }
        let mut lasts: BTreeMap<Option<u32>, (Time, Time)> = BTreeMap::new();
        let mut by_start: Vec<_> = (0..self.workload.transfers.len()).collect();
        by_start.sort_by_key(|it| player.outcomes[*it].started);
        for index in by_start {
            let (it, outcome) = (&self.workload.transfers[index], player.outcomes[index]);
            assert!(outcome.started >= it.at, "{index} began too early");
            assert!(outcome.started <= outcome.delivered);
            assert!(outcome.delivered <= outcome.acknowledged);
            let job = &self.jobs[usize::from(it.job)];
            let is_shared = !job.qp_per_transfer && !job.split_data;
            if is_shared && !it.is_work() && outcome.delivered < Time::NEVER {
                // Messages of a queue pair complete in order; the order of those at the same time
                // is not checked here.
                let connection = player.connection_of(TransferId(index as u32));
                let last = lasts.entry(connection).or_default();
                assert!(
                    last.1 <= outcome.delivered || last.0 == outcome.started,
                    "{index} came before one that was posted earlier"
                );
                *last = (outcome.started, outcome.delivered.max(last.1));
            }
        }
        for (before, after) in &self.workload.edges {
            let outcome = |it: &TransferId| player.outcomes[it.0 as usize];
            let it = &self.workload.transfers[after.0 as usize];
            let think = it.think;
            let started = match it.is_work() {
                true => outcome(after).delivered,
                false => outcome(after).started,
            };
            assert!(
                started == Time::NEVER || started >= outcome(before).delivered.after(think),
                "{after:?} did not wait"
            );
        }
        let switches = self.net.topology.hosts..self.net.topology.nodes();
        for switch in switches {
            let counters = simulation.fabric.switch(NodeId(switch));
            assert_eq!(counters.dropped_lossless, 0, "{counters:?}");
            assert!(counters.buffer_max <= self.net.switch.buffer_bytes);
        }
    }
}

/// Everything that a simulation leaves behind, as text.
fn record(simulation: &Simulation) -> String {
    let (fabric, player) = (&simulation.fabric, &simulation.player);
    let cables = 0..fabric.topology().cables.len();
    let lines = cables.flat_map(|cable| [fabric.line(cable, 0), fabric.line(cable, 1)]);
    let lines: Vec<_> = lines.collect();
    let switches = fabric.topology().hosts..fabric.topology().nodes();
    let switches: Vec<_> = switches.map(|it| fabric.switch(NodeId(it))).collect();
    format!(
        "{:?} {} {:?} {:?} {:?} {lines:?} {switches:?}",
        fabric.now(),
        fabric.hops(),
        player.outcomes,
        player.job_outcomes,
        player.timeouts,
    )
}

fn any_link(dice: &mut Dice) -> CableSpec {
    let rate = dice.pick(&[10, 25, 40, 100, 400]);
    let delay = dice.pick(&[0, 1, 500, 1_000, 20_000]);
    CableSpec::new(gbps(rate), Span::from_nanos(delay))
}

fn any_topology(dice: &mut Dice) -> Topology {
    let link = any_link(dice);
    let mut up_to = |most| dice.within(1..=most) as u32;
    let mut topology = match up_to(6) {
        1 => star(1 + up_to(5), link),
        2 => dumbbell(up_to(3), link),
        3 => leaf_spine(1 + up_to(2), up_to(3), up_to(3), link),
        4 => chain(&vec![link; up_to(5) as usize]),
        // Enough hosts to be simulated in parts.
        5 => leaf_spine(2 * up_to(2), up_to(3), 16, link),
        _ => Topology::pair(link).unwrap(),
    };
    if dice.chance(30) {
        let pairing = dice.pick(&[Pairing::Ports, Pairing::Bond]);
        // Not with an odd number of leaves, nor without a switch.
        topology = topology
            .clone()
            .with_second_links(pairing)
            .unwrap_or(topology);
    }
    if dice.chance(30) {
        for cable in &mut topology.cables {
            let link = any_link(dice);
            (cable.rate, cable.delay) = (link.rate, link.delay);
        }
    }
    topology
}

fn any_switch(dice: &mut Dice, topology: &Topology) -> SwitchConfig {
    let lossless = dice.pick(&[0, 1, 0xff, 0x55, dice.clone().below(256) as u8]);
    // The headroom of the worst cable, and a frame that comes when all the rest is full. All three
    // frames may have a VLAN tag.
    let cables = topology.cables.iter();
    let headroom = cables.map(|cable| headroom(cable.rate, cable.delay)).max();
    let headroom_bytes = headroom.unwrap() + packets(4_096, 4_096)[0] + 3 * VLAN_TAG_LEN as u64;
    let priorities = u64::from(lossless.count_ones());
    let nodes = topology.hosts..topology.nodes();
    let all = Ports::of(topology);
    let ports = nodes.map(|node| all.at(NodeId(node)).len() as u64).max();
    let ports = ports.unwrap_or(0);
    let shared = dice.pick(&[20 << 10, 100 << 10, 4 << 20]);
    // A lossy priority takes some frames. With room for one, senders that repeat in lockstep can lose
    // the same frame each time.
    let drop_alpha_log2 = match shared < 100 << 10 {
        true => dice.below(2) as i8 + 2,
        false => dice.below(5) as i8 - 1,
    };
    let weights = [0; 8].map(|_| dice.below(5) as u8);
    let ecn = CongestionPoint::new(2_000, 50_000, 500_000).unwrap();
    SwitchConfig {
        buffer_bytes: shared + ports * priorities * headroom_bytes,
        ecn: dice.chance(50).then_some(ecn),
        lossless,
        headroom_bytes,
        pause_alpha_log2: dice.below(12) as i8 - 8,
        resume_offset_bytes: dice.below(10_000),
        drop_alpha_log2,
        schedule: match dice.chance(50) {
            true => Schedule::Strict,
            false => Schedule::Weighted(weights),
        },
        cuts_through: dice.chance(30),
        routing: match dice.below(5) {
            0 => Routing::Random,
            1 => Routing::Adaptive,
            _ => Routing::Hash,
        },
        // One that forwards makes its neighbours drop what has no headroom.
        watchdog: dice.chance(30).then(|| WatchdogConfig {
            detection: Span::from_micros(dice.pick(&[1, 20, 300])),
            restoration: Span::from_micros(dice.pick(&[1, 50])),
            action: StormAction::Drop,
        }),
        ..SwitchConfig::default()
    }
}

fn any_congestion(dice: &mut Dice) -> Option<Params> {
    let all = presets::PRESETS;
    let preset = &all[dice.below(all.len() as u64) as usize];
    dice.chance(50).then(|| preset.params())
}

fn any_job(dice: &mut Dice) -> JobConfig {
    let after = Span::from_micros(dice.pick(&[1, 50, 3_000]));
    let on_error = match dice.chance(50) {
        true => OnError::Abort,
        false => OnError::Reconnect(after),
    };
    // A job without retries that starts all over again fills a small buffer in the same way each
    // time.
    let retries_min = u64::from(on_error != OnError::Abort);
    JobConfig {
        attr: QpAttr {
            path_mtu: dice.pick(&[Mtu::Mtu256, Mtu::Mtu1024, Mtu::Mtu4096]),
            // 1 ms and more: a queue pair that gives up before an answer can arrive makes no
            // progress.
            timeout: dice.within(8..=18) as u8,
            retry_cnt: dice.within(retries_min..=7) as u8,
            rnr_retry: 7,
            ..job().attr
        },
        traffic_class: (dice.below(8) as u8) << 5,
        sl: dice.below(8) as u8,
        depth: dice.pick(&[1, 2, 16]),
        qp_per_transfer: dice.chance(50),
        qps_per_connection: dice.pick(&[1, 1, 3]),
        split_data: dice.chance(30),
        on_error,
    }
}

fn any_workload(dice: &mut Dice, hosts: u32, jobs: u16) -> Workload {
    let count = dice.within(1..=12) as u32;
    let transfers = (0..count).map(|_| {
        let src = dice.below(hosts.into()) as u32;
        let other = 1 + dice.below(u64::from(hosts) - 1) as u32;
        let most = dice.pick(&[1, 300, 5_000, 5_000, 20_000, 60_000]);
        let is_work = dice.chance(15);
        Transfer {
            src,
            dst: if is_work { src } else { (src + other) % hosts },
            bytes: if is_work {
                0
            } else {
                dice.within(1..=most) as u32
            },
            at: Time::from_nanos(dice.pick(&[0, 0, 100, 1_000_000, 3_000_000])),
            think: Span::from_nanos(dice.pick(&[0, 0, 10_000])),
            job: dice.below(jobs.into()) as u16,
        }
    });
    let transfers: Vec<_> = transfers.collect();
    let mut edges = Vec::new();
    for after in 1..count {
        let before = dice.below(after.into()) as u32;
        let job = |it: u32| transfers[it as usize].job;
        // A transfer that waits for a job that dies waits forever.
        if dice.chance(40) && job(before) == job(after) {
            edges.push((TransferId(before), TransferId(after)));
        }
    }
    Workload {
        transfers,
        edges,
        jobs: (0..jobs).map(|job| format!("job{job}")).collect(),
    }
}

/// Faults of all kinds, each of which ends, so that everything can complete.
fn any_faults(dice: &mut Dice, topology: &Topology) -> Vec<(Time, Fault)> {
    let mut faults = Vec::new();
    for _ in 0..dice.below(6) {
        let cable = dice.below(topology.cables.len() as u64) as usize;
        let host = dice.below(topology.hosts.into()) as u32;
        let begins = Time::from_nanos(dice.below(HEALED.as_nanos()));
        let lasts = Span::from_nanos(dice.pick(&[1, 2_000, 500_000, 5_000_000]));
        let ends = begins.after(lasts).min(HEALED);
        let share = dice.pick(&[u32::MAX, 1 << 31, 1 << 28, 1 << 24]);
        let (begin, end) = match dice.below(8) {
            0 | 1 => (Fault::CableDown(cable), Fault::CableUp(cable)),
            2 => {
                let loss = Fault::Loss(cable, Loss::random(share));
                (loss, Fault::Loss(cable, Loss::default()))
            }
            3 => {
                let bursts = Loss {
                    good: 0,
                    bad: share,
                    enter: 1 << 28,
                    leave: 1 << 29,
                };
                let loss = Fault::Loss(cable, bursts);
                (loss, Fault::Loss(cable, Loss::default()))
            }
            4 => {
                let corruption = Fault::Corruption(cable, share);
                (corruption, Fault::Corruption(cable, 0))
            }
            5 => {
                let rate = topology.cables[cable].rate;
                (Fault::Rate(cable, gbps(10)), Fault::Rate(cable, rate))
            }
            6 => (
                Fault::Intake(host, Some(gbps(5))),
                Fault::Intake(host, None),
            ),
            _ => (Fault::Silent(host), Fault::Heard(host)),
        };
        faults.extend([(begins, begin), (ends, end)]);
        if dice.chance(20) {
            faults.push((begins, Fault::NicReset(host)));
        }
        if dice.chance(30) {
            faults.push((begins, Fault::Reroute));
        }
    }
    faults.push((HEALED.after(Span::from_nanos(1)), Fault::Reroute));
    faults
}

/// Every run ends, passes its audits, loses no message silently, and is reproducible.
#[test]
fn seeded_runs() {
    let mut parts = 0;
    let runs = seeds::each(200, |seed| {
        let plan = Plan::new(seed);
        let simulation = plan.play(500, 1);
        plan.judge(&simulation);
        if seed.is_multiple_of(5) {
            // Neither the number of audits nor that of threads makes a difference.
            let again = plan.play(77, 3);
            assert_eq!(record(&simulation), record(&again), "a seed repeats a run");
            parts += again.fabric.parts() - 1;
        }
    });
    assert!(runs < 100 || parts > 0, "some fabrics have several parts");
}

/// If every cable loses a packet of a thousand, an all-reduce still ends with success.
#[test]
fn all_reduce_over_bad_cables_ends() {
    let (ranks, chunk) = (16, 4_096);
    let steps = 2 * (ranks - 1);
    let all = (0..steps).flat_map(|_| 0..ranks);
    let transfers: Vec<_> = all
        .map(|rank| transfer(rank, (rank + 1) % ranks, chunk))
        .collect();
    let id = |step: u32, rank: u32| TransferId(step * ranks + rank % ranks);
    let after = |step| (0..ranks).map(move |rank| (step, rank));
    let edges = (1..steps).flat_map(after);
    let edges = edges.map(|(step, rank)| (id(step - 1, rank + ranks - 1), id(step, rank)));
    let workload = Workload {
        transfers,
        edges: edges.collect(),
        jobs: vec!["ring".into()],
    };
    let mut ring = job();
    ring.qp_per_transfer = false;
    let mut repeated = 0;
    let runs = seeds::each(50, |seed| {
        let mut net = Net::new(star(ranks, LINK));
        net.seed = seed;
        let share = (1_u64 << 32) / 1_000;
        let lose = |cable| (Time::ZERO, Fault::Loss(cable, Loss::random(share as u32)));
        net.faults = (0..ranks as usize).map(lose).collect();
        let plan = Plan {
            net,
            workload: workload.clone(),
            jobs: vec![ring.clone()],
        };
        let simulation = plan.play(1_000, 1);
        plan.judge(&simulation);
        let outcome = simulation.player.job_outcomes[0];
        assert_eq!(outcome.died, None, "seven times in a row is too much");
        let hosts = (0..ranks).map(|host| simulation.fabric.host(host));
        let count = |host: &Host| host.hca.counter(Counter::RetransmittedPackets);
        repeated += hosts.map(count).sum::<u64>();
    });
    // 480 messages over two cables, and as many acknowledgements: two losses per run.
    assert!(repeated > runs / 2, "{repeated} in {runs} runs");
}
