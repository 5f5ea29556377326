//! Several queue pairs through one bottleneck.

use std::collections::BTreeMap;

use ferroce_dcqcn::CongestionPoint;
use ferroce_device::impair::Bottleneck;
use ferroce_device::{
    AccessFlags, Counter, Direction, HcaConfig, Impairment, Memory, MrInfo, Mtu, QpAttr, QpState,
    Rate, SendOp, SendWr, Sge,
};

use ferroce_wire::Qpn;

use super::{HOLD, set};
use ferroce_testing::register::switch_adaptive;
use ferroce_testing::{A, B, Bounds, Window, World, attr};

/// Bytes of a message: the resolution of a flow's throughput.
const MESSAGE: u32 = 16 << 10;
/// Messages that a flow keeps posted: more than its window.
const POSTED: usize = 64;

/// Between two samples of the flows.
const STEP_NS: u64 = 200_000;

struct Incast {
    pair: World,
    flows: Vec<Qpn>,
    regions: [MrInfo; 2],
    /// Messages posted, of each flow.
    posted: BTreeMap<Qpn, usize>,
    /// Bytes through the bottleneck in a run, of each flow.
    done: Vec<u64>,
    /// The queue's length, sampled at every step of a run.
    queue: Vec<u64>,
}

impl Incast {
    fn new(flows: usize, link: Impairment, assignments: &[&str]) -> Self {
        let bounds = Bounds {
            window: Window::Fixed(2 << 20), // rates are to keep the queue short
            ..Bounds::default()
        };
        let mut pair = World::within([0, 1].map(|_| (HcaConfig::default(), bounds)));
        pair.carries_bytes = false;
        pair.sides
            .iter()
            .for_each(|side| set(&side.hca, assignments));
        let hca = &mut pair.sides[B].hca;
        hca.set_impairment(Direction::Ingress, link).unwrap();
        let attr = QpAttr {
            path_mtu: Mtu::Mtu1024,
            timeout: 17,
            ..attr()
        };
        let flows: Vec<_> = (0..flows)
            .map(|_| {
                let ends = [A, B].map(|side| pair.sides[side].create_qp());
                pair.connect(ends, attr);
                ends[A]
            })
            .collect();
        let regions = [A, B].map(|side| {
            let side = &mut pair.sides[side];
            let memory = Memory::Phantom {
                addr: 0,
                len: MESSAGE.into(),
            };
            side.hca
                .reg_mr(side.pd, memory, AccessFlags::all())
                .unwrap()
        });
        Self {
            pair,
            posted: flows.iter().map(|qpn| (*qpn, 0)).collect(),
            done: vec![0; flows.len()],
            queue: Vec::new(),
            flows,
            regions,
        }
    }

    /// Keeps the first `flows` flows busy for `ns`.
    fn run(&mut self, flows: usize, ns: u64) {
        self.done.fill(0);
        self.queue.clear();
        for _ in 0..ns / STEP_NS {
            for flow in 0..flows {
                let qpn = self.flows[flow];
                while self.posted[&qpn] < POSTED {
                    self.post(flow);
                }
            }
            self.pair.run_for(STEP_NS);
            for completion in std::mem::take(&mut self.pair.sides[A].completions) {
                *self.posted.get_mut(&completion.qpn).unwrap() -= 1;
                self.done[completion.wr_id as usize] += u64::from(MESSAGE);
            }
            let (state, now) = (self.pair.sides[B].hca.state(), self.pair.now);
            self.queue
                .push(state.queue_bytes(Direction::Ingress, now).unwrap());
        }
    }

    fn post(&mut self, flow: usize) {
        let [local, remote] = self.regions;
        let sge = Sge {
            addr: local.va,
            length: MESSAGE,
            lkey: local.key.lkey(),
        };
        let write = SendOp::Write {
            va: remote.va,
            rkey: remote.key.rkey(),
            imm: None,
        };
        let qpn = self.flows[flow];
        *self.posted.get_mut(&qpn).unwrap() += 1;
        self.pair.post(A, qpn, SendWr::new(flow as u64, write, sge));
    }

    /// Jain's index of the first `flows`.
    fn jain(&self, flows: usize) -> f64 {
        let rates = self.done[..flows].iter().map(|bytes| *bytes as f64);
        let (sum, squares) = rates.fold((0.0, 0.0), |(s, q), rate| (s + rate, q + rate * rate));
        sum * sum / (flows as f64 * squares)
    }

    /// Share of the bottleneck's time that the flows' messages took, headers estimated.
    fn busy(&self) -> f64 {
        let packets = 1024.0 / (1024.0 + 16.0);
        let bits = self.done.iter().sum::<u64>() as f64 * 8.0;
        bits / packets / (self.queue.len() as u64 * STEP_NS) as f64
    }

    fn mean_queue(&self) -> f64 {
        self.queue.iter().sum::<u64>() as f64 / self.queue.len() as f64
    }
}

/// For a bottleneck of 1 Gb/s, as docs/congestion.md explains.
const SLOW_BOTTLENECK: [&str; 9] = [
    "ROCE_CC_CNP_MODERATION=2",
    "min_time_between_cnps=1000",
    "rate_reduce_monitor_period=1000",
    "dce_tcp_rtt=1000",
    "dce_tcp_g=1000",
    "rpg_time_reset=1500",
    "rpg_ai_rate=5",
    "rpg_hai_rate=5",
    "rate_to_set_on_first_cnp=60",
];
/// A bottleneck of 1 Gb/s that marks from 50 KB on, and a tenth of the packets just below 1 MB.
fn gigabit() -> Impairment {
    Impairment {
        bottleneck: Some(Bottleneck {
            red: CongestionPoint::new(50_000, 1_000_000, 100_000).ok(),
            ..Bottleneck::new(Rate::from_mbps(1_000))
        }),
        ..Impairment::default()
    }
}
const MS: u64 = 1_000_000;

#[test]
fn flows_share_a_bottleneck_and_keep_it_busy() {
    for flows in [2, 4, 8, 16] {
        let mut incast = Incast::new(flows, gigabit(), &SLOW_BOTTLENECK);
        incast.run(flows, 200 * MS);
        incast.run(flows, 500 * MS);
        let (jain, busy) = (incast.jain(flows), incast.busy());
        let queue = incast.mean_queue();
        let seen = format!("{flows} flows: Jain {jain:.4}, busy {busy:.4}, queue {queue:.0} bytes");
        assert!(jain >= 0.98 && busy > 0.95, "{seen}");
        assert!((20_000.0..1_000_000.0).contains(&queue), "{seen}");
    }
}

#[test]
fn remaining_flows_take_the_share_of_finished_ones() {
    let mut incast = Incast::new(16, gigabit(), &SLOW_BOTTLENECK);
    incast.run(16, 300 * MS);
    // The posted messages leave, and the rates grow by 5 Mb/s every 1.5 ms.
    incast.run(8, 50 * MS);
    incast.run(8, 100 * MS);
    let (jain, busy) = (incast.jain(8), incast.busy());
    assert!(jain > 0.95 && busy > 0.95, "Jain {jain:.4}, busy {busy:.4}");
}

#[test]
fn the_firmwares_parameters_are_too_fast_for_a_slow_bottleneck() {
    // The effect of a CNP ends within 5 us; the queue alone takes 16 ms.
    let mut incast = Incast::new(4, gigabit(), &[]);
    incast.run(4, 1_000 * MS);
    assert!(
        incast.mean_queue() > 1_000_000.0,
        "the windows hold it, not the rates"
    );
}

/// A rate limiter sleeps many times before one timeout. Each time its queue pair returns to the deadline of
/// an entry that the timer heap still has; when other queue pairs are gone, these may be too many.
#[test]
fn sleeps_before_a_timeout_do_not_fill_the_timer_heap() {
    const OTHERS: usize = 63;
    let held = [&["rate_to_set_on_first_cnp=1000"], &HOLD[..]].concat();
    let marks = Impairment {
        bottleneck: Some(Bottleneck::new(Rate::from_mbps(100_000))),
        ecn_mark: 1.0,
        ..Impairment::default()
    };
    let mut incast = Incast::new(1 + OTHERS, marks, &held);
    switch_adaptive(&mut incast.pair.sides[A].hca, false); // waits of half a second
    incast.run(1, 5 * MS);
    let silence = Impairment {
        loss: 1.0,
        ..Impairment::default()
    };
    let hca = &mut incast.pair.sides[A].hca;
    hca.set_impairment(Direction::Ingress, silence).unwrap();
    let moments = incast.pair.moments;
    incast.run(1, 20 * MS);
    let moments = incast.pair.moments - moments;
    assert!(moments > 200, "{moments} moments, of which half are sleeps");
    let hca = &mut incast.pair.sides[A].hca;
    for other in &incast.flows[1..] {
        hca.destroy_qp(*other).unwrap();
        hca.audit();
    }

    // The timeout behind the sleeps still comes.
    assert_eq!(incast.pair.count(A, Counter::RetransmittedPackets), 0);
    let hca = &mut incast.pair.sides[A].hca;
    hca.set_impairment(Direction::Ingress, Impairment::default())
        .unwrap();
    incast.run(1, 1_000 * MS);
    assert!(incast.pair.count(A, Counter::RetransmittedPackets) > 0);
    assert_eq!(incast.pair.sides[A].state(incast.flows[0]), QpState::Rts);
}
