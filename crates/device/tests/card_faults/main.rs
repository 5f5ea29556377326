//! How a ConnectX was seen to behave when things go wrong, and how this device behaves: each test
//! has the card's figure and cites the decision that it stands for, F1 to F20
//! (`docs/design/card-faults.md`).

mod completions;
mod counters;
mod timeouts;
mod verbs;

use ferroce_device::{
    AccessFlags, Counter, HcaConfig, QpAttr, QpState, SendFlags, SendOp, SendWr, Time, WcStatus,
};
use ferroce_testing::{A, Region, World, attr};
use ferroce_wire::Qpn;

/// The attributes that the card was measured with.
fn measured() -> QpAttr {
    QpAttr {
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 6,
        min_rnr_timer: 12,
        ..attr()
    }
}

/// Two devices with default settings, with a connected queue pair and some memory each.
struct Pair {
    world: World,
    qpns: [Qpn; 2],
    memory: [Region; 2],
}

impl Pair {
    fn new(attr: QpAttr) -> Self {
        Self::with(HcaConfig::default(), attr)
    }

    fn with(config: HcaConfig, attr: QpAttr) -> Self {
        let config = HcaConfig {
            trace_timers: true,
            ..config
        };
        let mut world = World::new([config.clone(), config]);
        let qpns = [0, 1].map(|id| world.sides[id].create_qp());
        let memory = [0, 1].map(|id| world.sides[id].register(1 << 16, AccessFlags::all()));
        world.connect(qpns, attr);
        Self {
            world,
            qpns,
            memory,
        }
    }

    /// A WRITE of `len` bytes from one memory to the other.
    fn write(&self, wr_id: u64, len: u32) -> SendWr {
        SendWr::new(wr_id, self.memory[1].write(), self.memory[0].sge(0, len))
    }

    /// Posts to the first device.
    fn post(&mut self, wr: SendWr) {
        let qpn = self.qpns[A];
        self.world.post(A, qpn, wr);
    }

    /// Posts a WRITE for each of `wr_ids`, none of them signalled.
    fn post_writes(&mut self, wr_ids: std::ops::Range<u64>) {
        for wr_id in wr_ids {
            let flags = SendFlags::empty();
            self.post(SendWr {
                flags,
                ..self.write(wr_id, 64)
            });
        }
    }

    /// Posts a request, runs until all is done, and returns the request's completion.
    fn fate(&mut self, op: SendOp, len: u32) -> Told {
        let sge = self.memory[0].sge(0, len);
        self.post(SendWr::new(1, op, sge));
        self.world.run();
        self.told(A)[0]
    }

    fn move_to_error(&mut self, id: usize) {
        let qpn = self.qpns[id];
        self.world.sides[id].move_to(qpn, QpState::Err);
        self.world.settle();
    }

    /// The completions so far.
    fn told(&self, id: usize) -> Vec<Told> {
        let completions = &self.world.sides[id].completions;
        let told = |wc: &ferroce_device::Completion| (wc.wr_id, wc.status, wc.vendor_err);
        completions.iter().map(told).collect()
    }

    /// When the last request completed.
    fn completed_at(&self, id: usize) -> Time {
        self.world.sides[id].completions.last().unwrap().timestamp
    }

    fn counts<const N: usize>(&self, id: usize, counters: [Counter; N]) -> [u64; N] {
        counters.map(|counter| self.world.count(id, counter))
    }
}

type Told = (u64, WcStatus, u32);

const RETRY_EXC: Told = (1, WcStatus::RetryExcErr, 0x81);
