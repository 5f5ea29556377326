//! What it costs to hold queue pairs at a rate, in virtual time.
//!
//! UC queue pairs of one device send long WRITEs of memory without bytes to nobody; an element is a
//! packet. All together send 10 Gb/s when limited, so that one queue pair sends batches of 15
//! packets, and each of many a packet at a time, between two sleeps.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ferroce_dcqcn::Params;
use ferroce_hca::{
    AccessFlags, Attr, Counter, CqId, Data, Hca, HcaConfig, Memory, Mtu, Outgoing, Path, QpAttr,
    QpInit, QpModify, QpState, QpType, Received, SendOp, SendWr, Sge, Time, WriteLockError,
};
use ferroce_wire::{PKEY_DEFAULT, Qpn, cnp};

const ADDRESSES: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];
const MESSAGE: u32 = 1 << 30;
const TOTAL_MBPS: u32 = 10_000;
/// As many as a device has numbers for, about.
const MANY: u32 = 65_000;
const PACKETS: u64 = 1_000;
/// What a packet takes at the rate of all together, roughly.
const PACKET_NS: u64 = 3_300;
/// A prime: multiples of it, modulo their number, meet all queue pairs and no neighbours.
const STRIDE: usize = 40_507;

struct Flows {
    hca: Hca,
    cq: CqId,
    qpns: Vec<Qpn>,
    now: Time,
    packet: Outgoing,
    request: SendWr,
}

impl Flows {
    fn new(count: u32, limited: bool) -> Self {
        let mut hca = Hca::new(HcaConfig::default());
        // Of very many each has the least rate, and all together have more.
        let mbps = (TOTAL_MBPS / count).max(1);
        hold(&hca, mbps);
        let pd = hca.alloc_pd().unwrap();
        let cq = hca.create_cq(1 << 18).unwrap();
        let memory = Memory::Phantom {
            addr: 4096,
            len: MESSAGE.into(),
        };
        let mr = hca.reg_mr(pd, memory, AccessFlags::all()).unwrap();
        let init = QpInit::new(QpType::Uc, pd, cq);
        let sge = Sge {
            addr: mr.va,
            length: MESSAGE,
            lkey: mr.key.lkey(),
        };
        let write = SendOp::Write {
            va: mr.va,
            rkey: mr.key.rkey(),
            imm: None,
        };
        let qpns = (0..count).map(|_| connected(&mut hca, &init)).collect();
        let mut flows = Self {
            hca,
            cq,
            qpns,
            now: Time::ZERO,
            packet: Outgoing::empty(),
            request: SendWr::new(0, write, sge),
        };
        if limited {
            flows.limit_all();
        }
        flows.post();
        // The first burst of each, before they sleep one after the other.
        flows.send(4 * u64::from(count));
        flows
    }

    /// Gives each something to send for a long time.
    fn post(&mut self) {
        while self.hca.poll_completion(self.cq).unwrap().is_some() {}
        for qpn in &self.qpns {
            self.hca.post_send(*qpn, self.request.clone()).unwrap();
        }
    }

    /// The first CNP of each, one after the other in no order that memory has: so they wake up.
    fn limit_all(&mut self) {
        let count = self.qpns.len();
        for turn in 0..count {
            self.now = self.now.after(PACKET_NS);
            self.notify(turn * STRIDE % count);
        }
        let handled = self.hca.state().counter(Counter::RpCnpHandled);
        assert_eq!(handled, count as u64);
    }

    /// A CNP for a queue pair arrives.
    fn notify(&mut self, flow: usize) {
        let headers = cnp::headers(self.qpns[flow], PKEY_DEFAULT);
        let received = Received {
            source: ADDRESSES[1].into(),
            dest: ADDRESSES[0].into(),
            traffic_class: 0,
            headers: &headers,
            data: Data::Length(0),
        };
        self.hca.handle_packet(self.now, black_box(&received));
    }

    /// Lets packets out and time pass until there were so many.
    fn send(&mut self, packets: u64) {
        let mut sent = 0;
        while sent < packets {
            while sent < packets && self.hca.poll_transmit_into(self.now, &mut self.packet) {
                black_box(&self.packet);
                sent += 1;
            }
            if sent < packets {
                match self.hca.poll_timeout() {
                    Some(at) => self.now = at.max(self.now),
                    None => self.post(),
                }
                self.hca.handle_timeout(self.now);
            }
        }
    }
}

/// Rates stay where the first CNP puts them.
fn hold(hca: &Hca, mbps: u32) {
    let change = |params: &mut Params| {
        for (name, value) in [
            ("rate_to_set_on_first_cnp", mbps),
            ("rpg_min_dec_fac", 100),
            ("rpg_time_reset", 131_071),
            ("rpg_byte_reset", 0),
            ("rpg_threshold", 31),
            ("rpg_ai_rate", 1),
            ("rpg_hai_rate", 1),
        ] {
            params.assign(&format!("{name}={value}")).unwrap();
        }
        Ok::<_, WriteLockError>(())
    };
    hca.state().change_congestion(change).unwrap();
}

fn connected(hca: &mut Hca, init: &QpInit) -> Qpn {
    let qpn = hca.create_qp(init).unwrap();
    let attr = QpAttr {
        path_mtu: Mtu::Mtu4096,
        dest_qpn: Qpn::new(2),
        ..QpAttr::default()
    };
    let path = Path {
        dest: ADDRESSES[1].into(),
        traffic_class: 2,
    };
    use QpState::{Init, Reset, Rtr, Rts};
    for (from, to) in [(Reset, Init), (Init, Rtr), (Rtr, Rts)] {
        let change = QpModify::step(QpType::Uc, from, to, attr);
        let path = Some(path).filter(|_| change.mask.contains(Attr::AV));
        hca.modify_qp(qpn, &change, path).unwrap();
    }
    qpn
}

fn pacing(c: &mut Criterion) {
    let mut group = c.benchmark_group("pacing");
    group.throughput(Throughput::Elements(PACKETS));
    for (name, limited) in [("unlimited", false), ("limited", true)] {
        for count in [1, 1_000, MANY] {
            let mut flows = Flows::new(count, limited);
            group.bench_function(format!("{count} {name}"), |b| {
                b.iter(|| flows.send(PACKETS));
            });
        }
    }
    group.finish();
}

fn feedback(c: &mut Criterion) {
    let mut group = c.benchmark_group("feedback");
    for count in [1, MANY] {
        let mut flows = Flows::new(count, true);
        let mut next = 0;
        group.bench_function(format!("CNP to one of {count}"), |b| {
            b.iter(|| {
                next = (next + STRIDE) % flows.qpns.len();
                flows.now = flows.now.after(1_000);
                flows.notify(next);
            });
        });
        group.bench_function(format!("rate of one of {count}"), |b| {
            b.iter(|| {
                next = (next + STRIDE) % flows.qpns.len();
                black_box(flows.hca.rate_limit(flows.qpns[next], flows.now))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, pacing, feedback);
criterion_main!(benches);
