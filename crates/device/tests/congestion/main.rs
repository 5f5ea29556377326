//! DCQCN between two devices, in virtual time.

mod cnp;
mod datagram;
mod incast;
mod pace;
mod priority;
mod shared;
mod slow_restart;
mod tx_window;

use ferroce_dcqcn::Params;
use ferroce_device::{
    AccessFlags, Direction, Hca, HcaConfig, Impairment, Memory, MrInfo, Personality, QpAttr,
    SendWr, Sge, Span, WriteLockError,
};
use ferroce_wire::Qpn;

use ferroce_testing::{A, B, World, attr};

/// Sets parameters, each `NAME=VALUE`.
fn set(hca: &Hca, assignments: &[&str]) {
    let change = |params: &mut Params| {
        for text in assignments {
            params.assign(text).unwrap();
        }
        Ok::<_, WriteLockError>(())
    };
    hca.state().change_congestion(change).unwrap();
}

/// The first CNP sets the rate, later ones do not cut it, and the timers that would raise it are slow.
const HOLD: [&str; 6] = [
    "rpg_min_dec_fac=100",
    "rpg_ai_rate=1",
    "rpg_hai_rate=1",
    "rpg_time_reset=131071",
    "rpg_byte_reset=0",
    "rpg_threshold=31",
];

/// From now on, packets to the device are marked.
fn mark(pair: &mut World, side: usize, probability: f64) {
    let link = Impairment {
        ecn_mark: probability,
        ..Impairment::default()
    };
    let hca = &mut pair.sides[side].hca;
    hca.set_impairment(Direction::Ingress, link).unwrap();
}

/// A stream of WRITEs from A to B, of memory that holds no bytes.
struct Stream {
    pair: World,
    a: Qpn,
    b: Qpn,
    regions: [MrInfo; 2],
}

const MESSAGE: u32 = 64 << 10;

impl Stream {
    fn new(assignments: &[&str]) -> Self {
        Self::with(attr(), assignments)
    }

    fn with(attr: QpAttr, assignments: &[&str]) -> Self {
        // The longest first wait that a device may draw: slow streams lose nothing.
        let personality = Personality {
            initial_exponent: Some(14),
            ..Personality::default()
        };
        let config = HcaConfig {
            personality,
            ..HcaConfig::default()
        };
        Self::between(config, attr, assignments)
    }

    /// The same between two devices with this configuration.
    fn between(config: HcaConfig, attr: QpAttr, assignments: &[&str]) -> Self {
        let mut pair = World::pair(config);
        pair.carries_bytes = false;
        for side in &pair.sides {
            set(&side.hca, assignments);
        }
        let [a, b] = [A, B].map(|side| pair.sides[side].create_qp());
        pair.connect([a, b], attr);
        let regions = [A, B].map(|side| {
            let side = &mut pair.sides[side];
            let memory = Memory::Phantom {
                addr: 0,
                len: u64::from(MESSAGE),
            };
            let all = AccessFlags::all();
            side.hca.reg_mr(side.pd, memory, all).unwrap()
        });
        Self {
            pair,
            a,
            b,
            regions,
        }
    }

    /// Keeps WRITEs of `length` bytes posted at A for `ns`; returns the bytes that left.
    fn run(&mut self, ns: u64, step_ns: u64, length: u32) -> u64 {
        let until = self.pair.now.after(Span::from_nanos(ns));
        let before = self.pair.sides[A].sent.1;
        while self.pair.now < until {
            while self.pair.sides[A].hca.send_queue_used(self.a) < 16 {
                self.post(length);
            }
            self.pair.run_for(step_ns);
        }
        self.pair.sides[A].sent.1 - before
    }

    fn post(&mut self, length: u32) {
        let [local, remote] = self.regions;
        let sge = Sge {
            addr: local.va,
            length,
            lkey: local.key.lkey(),
        };
        let write = ferroce_device::SendOp::Write {
            va: remote.va,
            rkey: remote.key.rkey(),
            imm: None,
        };
        self.pair.post(A, self.a, SendWr::new(0, write, sge));
    }

    /// Mb/s to which A limits itself.
    fn limit_mbps(&mut self) -> Option<f64> {
        let now = self.pair.now;
        let rate = self.pair.sides[A].hca.rate_limit(self.a, now)?;
        Some(rate.bps() as f64 / 1e6)
    }
}
