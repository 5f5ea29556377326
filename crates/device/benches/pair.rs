//! Two devices in memory: what everything but bytes on sockets costs.
//!
//! WRITEs of 8 bytes, 4 KiB and 64 KiB, 16 at a time, with an MTU of 4096 over a perfect link
//! without delay. `real` copies each payload as a host with sockets does: once out of the
//! sender's memory and once into the receiver's. `phantom` carries lengths, as a simulator does.
//! Then the same for thousands of devices, one WRITE at a time.
//! An element is a packet with payload; acknowledgements come on top.
//!
//! Last, beside what the machine does at that time: a WRITE of one hot pair beside copies of 4 KiB,
//! and one of pairs that take turns beside loads of memory that no cache holds.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ferroce_device::{
    Buffer, CqId, Data, Hca, Memory, Outgoing, SendOp, SendWr, Sge, Span, Time, WcStatus,
};
use ferroce_testing::direct::{self, ADDRESSES, End, connected};
use ferroce_wire::Qpn;

const MTU: u32 = 4096;
const OUTSTANDING: u32 = 16;
/// Packets taken from a device before the other one gets them, as from a socket.
const BATCH: usize = 16;

struct Pair {
    devices: [Hca; 2],
    cq: CqId,
    qpn: Qpn,
    now: Time,
    write: Write,
    carries_bytes: bool,
}

/// What a WRITE is made of.
struct Write {
    sge: Sge,
    op: SendOp,
}

/// Places for packets on their way, which all pairs use: none are on it between two calls.
struct Wire {
    batch: Vec<Outgoing>,
    bytes: Vec<Vec<u8>>,
}

impl Wire {
    fn new() -> Self {
        Self {
            batch: std::iter::repeat_with(Outgoing::empty)
                .take(BATCH)
                .collect(),
            bytes: vec![Vec::new(); BATCH],
        }
    }
}

impl Pair {
    fn new(len: u32, carries_bytes: bool) -> Self {
        let mut devices = direct::devices();
        let [(near, qpn), (far, _)] = [0, 1].map(|own| {
            let memory = match carries_bytes {
                true => Memory::Buffer(Buffer::zeroed(len as usize)),
                false => Memory::Phantom {
                    addr: 4096,
                    len: len.into(),
                },
            };
            let hca = &mut devices[own];
            let end = End::new(hca, 1024, memory);
            let qpn = connected(hca, &end.init, ADDRESSES[1 - own], direct::attr());
            (end, qpn)
        });
        let (cq, sge) = (near.cq(), near.sge(len));
        let op = SendOp::Write {
            va: far.memory.va,
            rkey: far.memory.key.rkey(),
            imm: None,
        };
        Self {
            cq,
            qpn,
            now: Time::ZERO,
            write: Write { sge, op },
            carries_bytes,
            devices,
        }
    }

    /// Moves a batch of packets from one device to the other; false if there were none.
    fn carry(&mut self, wire: &mut Wire, from: usize) -> bool {
        let Wire { batch, bytes } = wire;
        let mut count = 0;
        while count < BATCH {
            let packet = &mut batch[count];
            if !self.devices[from].poll_transmit_into(self.now, packet) {
                break;
            }
            if self.carries_bytes {
                let bytes = &mut bytes[count];
                bytes.resize(packet.payload_len as usize, 0);
                assert!(self.devices[from].gather(packet, bytes));
            }
            count += 1;
        }
        for (packet, bytes) in batch[..count].iter().zip(bytes) {
            let data = match self.carries_bytes {
                true => Data::Bytes(bytes),
                false => Data::Length(packet.payload_len.into()),
            };
            direct::deliver(&mut self.devices, self.now, from, black_box(packet), data);
        }
        count > 0
    }

    /// Posts `outstanding` WRITEs and waits until they complete.
    fn round(&mut self, wire: &mut Wire, outstanding: u32) {
        for _ in 0..outstanding {
            let wr = SendWr::new(0, self.write.op, self.write.sge);
            self.devices[0].post_send(self.qpn, wr).unwrap();
        }
        let mut done = 0;
        while done < outstanding {
            self.now = self.now.after(Span::from_nanos(1_000));
            let moved = [self.carry(wire, 0), self.carry(wire, 1)];
            assert!(moved.contains(&true), "{done} of {outstanding} done");
            while let Some(wc) = self.devices[0].poll_completion(self.cq).unwrap() {
                assert_eq!(wc.status, WcStatus::Success);
                done += 1;
            }
        }
    }
}

fn pair(c: &mut Criterion) {
    let mut group = c.benchmark_group("pair in memory");
    for (memory, carries_bytes) in [("real", true), ("phantom", false)] {
        for (size, len) in [("8 B", 8), ("4 KiB", 4 << 10), ("64 KiB", 64 << 10)] {
            let packets = OUTSTANDING * u32::div_ceil(len, MTU);
            group.throughput(Throughput::Elements(packets.into()));
            let (mut pair, mut wire) = (Pair::new(len, carries_bytes), Wire::new());
            group.bench_function(format!("WRITE {size}, {memory}"), |b| {
                b.iter(|| pair.round(&mut wire, OUTSTANDING));
            });
        }
    }
    group.finish();
}

/// Hosts take turns, as in a simulator: in each turn two of them do one WRITE, and nothing that they
/// need is in the processor's caches any more.
fn many(c: &mut Criterion) {
    let mut group = c.benchmark_group("hosts in turn");
    group.throughput(Throughput::Elements(1));
    for hosts in [2, 16_384] {
        let (mut pairs, mut wire) = (Vec::new(), Wire::new());
        let mut next = 0;
        group.bench_function(format!("WRITE 4 KiB, {hosts} hosts"), |b| {
            pairs.resize_with(hosts / 2, || Pair::new(MTU, false));
            b.iter(|| {
                pairs[next].round(&mut wire, 1);
                next = (next + 1) % pairs.len();
            });
        });
    }
    group.finish();
}

/// Rounds of a comparison, in which the two sides take turns.
const ROUNDS: usize = 15;
/// For how long a side works in a round.
const WORK: Duration = Duration::from_millis(20);

/// Nanoseconds for one call of `work`.
fn time(mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut calls = 0;
    while start.elapsed() < WORK {
        (0..100).for_each(|_| work());
        calls += 100;
    }
    start.elapsed().as_nanos() as f64 / f64::from(calls)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints how long WRITEs of `hosts` in turn take beside `bare`, by the medians of both and of the
/// ratios within a round.
fn beside(hosts: usize, what: &str, mut bare: impl FnMut()) {
    let (mut pairs, mut wire) = (Vec::new(), Wire::new());
    pairs.resize_with(hosts / 2, || Pair::new(MTU, false));
    let mut turn = pairs.len();
    let mut write = || {
        turn = if turn + 1 < pairs.len() { turn + 1 } else { 0 };
        pairs[turn].round(&mut wire, 1);
    };
    (0..2 * hosts).for_each(|_| write());
    let rounds: Vec<_> = (0..ROUNDS)
        .map(|_| (time(&mut write), time(&mut bare)))
        .collect();
    let of = |it: fn(&(f64, f64)) -> f64| median(rounds.iter().map(it).collect());
    println!(
        "WRITE 4 KiB + ACK, {hosts} hosts: {:.0} ns; {what}: {:.1} ns; ratio {:.1}",
        of(|(write, _)| *write),
        of(|(_, bare)| *bare),
        of(|(write, bare)| write / bare),
    );
}

/// The next place of a walk through `len` places, a power of two, that no prefetcher foresees.
fn next_place(at: usize, len: usize) -> usize {
    (at.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15)) & (len - 1)
}

fn baseline(_: &mut Criterion) {
    let (from, mut to) = (vec![1_u8; MTU as usize], vec![0; MTU as usize]);
    beside(2, "a copy of 4 KiB", || {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
    });
    // 128 MiB, as much as this number of hosts takes, one cache line at a time; each line holds the
    // index of the next.
    let places = 1 << 21;
    let lines: Vec<[usize; 8]> = (0..places).map(|at| [next_place(at, places); 8]).collect();
    let mut at = 0;
    beside(16_384, "a load from memory", || {
        at = black_box(&lines)[at][0]
    });
}

criterion_group!(benches, pair, many, baseline);
criterion_main!(benches);
