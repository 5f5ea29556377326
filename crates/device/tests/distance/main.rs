//! Two devices whose connection passes through the whole range of PSNs, a quarter at a time.
//!
//! With `FERROCE_REAL_LAPS=1`, as `./test soak` sets it, every packet is really sent; otherwise the
//! connection's PSNs are advanced, which must make no difference.

use ferroce_device::{
    AccessFlags, Counter, Memory, MrInfo, Mtu, QpAttr, SendOp, SendWr, Sge, WcStatus,
};
use ferroce_wire::Qpn;

use ferroce_testing::{A, B, LATENCY_NS, Region, World, attr};

/// One packet for each 256 bytes.
const QUARTER_PACKETS: u32 = 1 << 22;
const QUARTER_BYTES: u32 = QUARTER_PACKETS * 256;

struct Connection {
    pair: World,
    qpns: [Qpn; 2],
    own: MrInfo,
    /// Without bytes.
    remote: MrInfo,
    word: Region,
    result: Region,
    wr_id: u64,
}

impl Connection {
    fn new() -> Self {
        let (mut pair, _) = World::connected();
        pair.carries_bytes = false;
        let qpns = [A, B].map(|id| pair.sides[id].create_qp());
        let attr = QpAttr {
            path_mtu: Mtu::Mtu256,
            ..attr()
        };
        pair.connect(qpns, attr);
        let [own, remote] = [A, B].map(|id| {
            let side = &mut pair.sides[id];
            let (addr, len) = (0x1000, QUARTER_BYTES.into());
            let memory = Memory::Phantom { addr, len };
            side.hca
                .reg_mr(side.pd, memory, AccessFlags::all())
                .unwrap()
        });
        let word = pair.sides[B].register(8, AccessFlags::all());
        let result = pair.sides[A].register(8, AccessFlags::all());
        Self {
            pair,
            qpns,
            own,
            remote,
            word,
            result,
            wr_id: 0,
        }
    }

    fn post(&mut self, op: SendOp, sge: Sge) {
        self.wr_id += 1;
        self.pair
            .post(A, self.qpns[A], SendWr::new(self.wr_id, op, sge));
    }

    fn write(&mut self, length: u32) {
        let (va, rkey, imm) = (self.remote.va, self.remote.key.rkey(), None);
        let sge = Sge {
            addr: self.own.va,
            length,
            lkey: self.own.key.lkey(),
        };
        self.post(SendOp::Write { va, rkey, imm }, sge);
    }

    fn read(&mut self) {
        let (va, rkey) = (self.remote.va, self.remote.key.rkey());
        let sge = Sge {
            addr: self.own.va,
            length: 1000,
            lkey: self.own.key.lkey(),
        };
        self.post(SendOp::Read { va, rkey }, sge);
    }

    fn fetch_add(&mut self) {
        let (va, rkey) = (self.word.info.va, self.word.info.key.rkey());
        let sge = self.result.whole();
        self.post(SendOp::FetchAdd { va, rkey, add: 1 }, sge);
    }

    /// All posted requests complete, although the first answer is lost.
    fn finish_without_first_answer(&mut self) {
        self.pair.sides[A].deaf = true;
        self.pair.run_for(3 * LATENCY_NS);
        self.pair.sides[A].deaf = false;
        self.finish();
    }

    /// All posted requests complete.
    fn finish(&mut self) {
        self.pair.run();
        let last = self.pair.sides[A].completions.last().unwrap();
        assert_eq!((last.wr_id, last.status), (self.wr_id, WcStatus::Success));
    }

    /// Advances the connection by a quarter of the PSNs.
    fn pass(&mut self, real: bool) {
        if real {
            self.write(QUARTER_BYTES);
            self.finish();
        } else {
            assert!(self.pair.age(A, self.qpns, QUARTER_PACKETS));
        }
    }
}

/// At each quarter an answer to a WRITE, a READ and an atomic is lost. The peer remembers READs and
/// atomics of all earlier quarters.
#[test]
fn a_lost_answer_costs_one_timeout_at_any_distance() {
    let real = std::env::var_os("FERROCE_REAL_LAPS").is_some();
    let mut world = Connection::new();
    let first = world.pair.sides[B]
        .hca
        .qp(world.qpns[B])
        .unwrap()
        .expected_psn();
    let mut sum = 0;
    for quarter in 0..6 {
        let at = world.pair.sides[B]
            .hca
            .qp(world.qpns[B])
            .unwrap()
            .expected_psn();
        println!(
            "quarter {quarter}: {} PSNs after the first",
            at.since(first)
        );
        world.write(8);
        world.finish_without_first_answer();
        world.read();
        world.finish_without_first_answer();
        for _ in 0..2 {
            world.fetch_add();
            world.finish_without_first_answer();
            let value = |region: &Region| u64::from_ne_bytes(region.bytes().try_into().unwrap());
            assert_eq!(value(&world.result), sum, "what it found");
            sum += 1;
            assert_eq!(value(&world.word), sum, "executed once");
        }
        world.pass(real);
    }
    let timeouts = [Counter::RoceAdpRetrans, Counter::LocalAckTimeoutErr];
    let timeouts: u64 = timeouts.iter().map(|it| world.pair.count(A, *it)).sum();
    assert_eq!(timeouts, 4 * 6);
}
