//! What it costs to hold queue pairs at a rate, in virtual time.
//!
//! UC queue pairs send long WRITEs of memory without bytes to nobody; an element is a packet. All
//! together send 10 Gb/s when limited, so that one queue pair sends batches of 15 packets, and each
//! of many a packet at a time, between two sleeps. 100,000 are on two devices, which take turns as
//! their deadlines do: one has numbers for some 65,500.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ferroce_dcqcn::Params;
use ferroce_device::{
    Counter, CqId, Data, Hca, HcaConfig, Memory, Mtu, Outgoing, QpAttr, QpInit, QpType, Rate,
    Received, SendOp, SendWr, Span, Time, WriteLockError,
};
use ferroce_testing::direct::{ADDRESSES, End, connected};
use ferroce_wire::{PKEY_DEFAULT, Qpn, cnp};

const MESSAGE: u32 = 1 << 30;
const TOTAL_MBPS: u32 = 10_000;
const MANY: u32 = 100_000;
const DEVICE_MAX: u32 = 50_000;
const PACKETS: u64 = 1_000;
/// What a packet takes at 1 Mb/s, roughly, ns.
const CYCLE_NS_MBPS: u64 = 33_000_000;
/// A prime: multiples of it, modulo their number, meet all queue pairs and no neighbours.
const STRIDE: usize = 40_507;

/// Queue pairs on as many devices as they need.
struct Flows {
    devices: Vec<Device>,
    /// The queue pairs, each with its device's place.
    qpns: Vec<(usize, Qpn)>,
    now: Time,
}

impl Flows {
    fn new(count: u32, limited: bool) -> Self {
        let devices = count.div_ceil(DEVICE_MAX);
        // Of very many each has the least rate, and all together have more.
        let mbps = (TOTAL_MBPS / count).max(1);
        let devices = (0..devices).map(|_| Device::new(count / devices, mbps));
        let devices: Vec<_> = devices.collect();
        let of_device = |(place, device): (usize, &Device)| {
            let qpns = device.qpns.clone();
            qpns.into_iter().map(move |qpn| (place, qpn))
        };
        let qpns = devices.iter().enumerate().flat_map(of_device).collect();
        let mut flows = Self {
            devices,
            qpns,
            now: Time::ZERO,
        };
        assert_eq!(flows.qpns.len(), count as usize);
        if limited {
            flows.begin(CYCLE_NS_MBPS / u64::from(mbps * count));
        } else {
            flows.post();
        }
        // What they may send at first, before they sleep one after the other.
        flows.send(4 * u64::from(count));
        flows
    }

    /// Each gets its first CNP and something to send, one after the other in no order that memory
    /// has: so they wake up from then on.
    fn begin(&mut self, distance_ns: u64) {
        let count = self.qpns.len();
        for turn in 0..count {
            self.live_until(self.now.after(Span::from_nanos(distance_ns)));
            let flow = turn * STRIDE % count;
            self.notify(flow);
            let (place, qpn) = self.qpns[flow];
            let device = &mut self.devices[place];
            let request = device.request.clone();
            device.hca.post_send(qpn, request).unwrap();
            device.send(self.now, u64::MAX);
        }
        let handled = |device: &Device| device.hca.state().counter(Counter::RpCnpHandled);
        let handled: u64 = self.devices.iter().map(handled).sum();
        assert_eq!(handled, count as u64);
    }

    fn live_until(&mut self, end: Time) {
        for device in &mut self.devices {
            while let Some(at) = device.hca.poll_timeout().filter(|at| *at <= end) {
                device.hca.handle_timeout(at);
                device.send(at, u64::MAX);
            }
        }
        self.now = end;
    }

    /// A CNP for a queue pair arrives.
    fn notify(&mut self, flow: usize) {
        let (place, qpn) = self.qpns[flow];
        let headers = cnp::headers(qpn, PKEY_DEFAULT);
        let received = Received {
            source: ADDRESSES[1].into(),
            dest: ADDRESSES[0].into(),
            traffic_class: 0,
            sl: 0,
            headers: &headers,
            data: Data::Length(0),
            port: 1,
        };
        let hca = &mut self.devices[place].hca;
        hca.handle_packet(self.now, black_box(&received));
    }

    fn rate(&mut self, flow: usize) -> Option<Rate> {
        let (place, qpn) = self.qpns[flow];
        self.devices[place].hca.rate_limit(qpn, self.now)
    }

    fn post(&mut self) {
        for device in &mut self.devices {
            device.post();
        }
    }

    /// Sends `packets` packets and advances the time as needed.
    fn send(&mut self, packets: u64) {
        let mut left = packets;
        for device in &mut self.devices {
            left -= device.send(self.now, left);
        }
        while left > 0 {
            let waiting = self.devices.iter_mut();
            let next = waiting.filter_map(|device| Some((device.hca.poll_timeout()?, device)));
            if let Some((at, device)) = next.min_by_key(|(at, _)| *at) {
                self.now = self.now.max(at);
                device.hca.handle_timeout(self.now);
                left -= device.send(self.now, left);
            } else {
                self.post();
                for device in &mut self.devices {
                    left -= device.send(self.now, left);
                }
            }
        }
    }
}

struct Device {
    hca: Hca,
    cq: CqId,
    qpns: Vec<Qpn>,
    packet: Outgoing,
    request: SendWr,
}

impl Device {
    /// A device with `count` queue pairs, each held at `mbps` once a CNP has come.
    fn new(count: u32, mbps: u32) -> Self {
        let mut hca = Hca::new(HcaConfig::default());
        hold(&hca, mbps);
        let memory = Memory::Phantom {
            addr: 4096,
            len: MESSAGE.into(),
        };
        let end = End::new(&mut hca, 1 << 18, memory);
        let write = SendOp::Write {
            va: end.memory.va,
            rkey: end.memory.key.rkey(),
            imm: None,
        };
        let init = QpInit {
            qp_type: QpType::Uc,
            ..end.init
        };
        let attr = QpAttr {
            path_mtu: Mtu::Mtu4096,
            ..QpAttr::default()
        };
        let qpns = (0..count)
            .map(|_| connected(&mut hca, &init, ADDRESSES[1], attr))
            .collect();
        Self {
            hca,
            cq: end.cq(),
            qpns,
            packet: Outgoing::empty(),
            request: SendWr::new(0, write, end.sge(MESSAGE)),
        }
    }

    /// Gives each queue pair something to send for a long time.
    fn post(&mut self) {
        while self.hca.poll_completion(self.cq).unwrap().is_some() {}
        for qpn in &self.qpns {
            self.hca.post_send(*qpn, self.request.clone()).unwrap();
        }
    }

    /// Sends what may leave now, at most `packets` packets; returns their number.
    fn send(&mut self, now: Time, packets: u64) -> u64 {
        let mut sent = 0;
        while sent < packets && self.hca.poll_transmit_into(now, &mut self.packet) {
            black_box(&self.packet);
            sent += 1;
        }
        sent
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
                flows.now = flows.now.after(Span::from_nanos(1_000));
                flows.notify(next);
            });
        });
        group.bench_function(format!("rate of one of {count}"), |b| {
            b.iter(|| {
                next = (next + STRIDE) % flows.qpns.len();
                black_box(flows.rate(next))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, pacing, feedback);
criterion_main!(benches);
