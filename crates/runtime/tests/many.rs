//! Many devices, queue pairs and threads in one process.

mod common;

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Node, Over, PATIENCE, address, attr, check_all_kinds, connect, pattern};
use ferroce_device::{Counter, SendOp, SendWr, WcStatus};
use ferroce_wire::Qpn;

#[test]
fn five_devices_talk_to_each_other() {
    let nodes: Vec<_> = (0..5)
        .map(|host| Node::open(address(41, 0, host), 256 << 10))
        .collect();
    for (i, a) in nodes.iter().enumerate() {
        let others = nodes.iter().enumerate().filter(|&(j, _)| j != i);
        for (_, b) in others {
            let qps = connect(a, b, &attr());
            check_all_kinds(a, b, qps, 50_001 + i, i as u64);
        }
    }
}

#[test]
fn devices_work_side_by_side() {
    thread::scope(|scope| {
        for n in 0..3 {
            scope.spawn(move || {
                let a = Node::open(address(41, 1, 2 * n), 1 << 20);
                let b = Node::open(address(41, 1, 2 * n + 1), 1 << 20);
                let qps = connect(&a, &b, &attr());
                for seed in 0..8 {
                    check_all_kinds(&a, &b, qps, 300_000, seed);
                }
            });
        }
    });
}

const QPS: usize = 64;
const THREADS: usize = 4;
const ROUNDS: usize = 4;
/// Requests of one queue pair in one round.
const KINDS: usize = 6;
/// The part of either buffer that each queue pair has.
const SLOT: usize = 64 << 10;
const LEN: usize = 16 << 10;
// Places in a slot.
const SOURCE: usize = 0;
const SINK: usize = 16 << 10;
const WORDS: usize = 32 << 10;
const RECEIVES: usize = 40 << 10;
const READ_FROM: usize = 48 << 10;
const SEND_LEN: usize = 1000;

/// Four threads post to 64 queue pairs of one device, and all of them take completions from one
/// queue, for any queue pair: some poll, some sleep. The peer's program sleeps.
#[test]
fn threads_share_a_device() {
    let a = Node::open(address(41, 2, 0), QPS * SLOT);
    let b = Node::open(address(41, 2, 1), QPS * SLOT);
    let qps: Vec<_> = (0..QPS).map(|_| connect(&a, &b, &attr())).collect();
    for (n, &(_, at_b)) in qps.iter().enumerate() {
        let slot = n * SLOT;
        a.buffer.write(slot + SOURCE, &pattern(LEN, n as u64));
        b.buffer.write(slot + READ_FROM, &pattern(LEN, !n as u64));
        for round in 0..ROUNDS {
            let offset = slot + RECEIVES + round * SEND_LEN;
            b.post_recv(at_b, 0, offset, SEND_LEN as u32);
            b.post_recv(at_b, 1, offset, 0);
        }
    }

    let taken = Mutex::new(HashSet::new());
    let left = AtomicUsize::new(QPS * ROUNDS * KINDS);
    let started = Instant::now();
    let take = |thread: usize| {
        let mut out = Vec::new();
        let device = &a.device;
        if thread.is_multiple_of(2) {
            device.poll(a.cq, 7, &mut out).unwrap();
        } else {
            let pause = Duration::from_millis(20);
            device.wait(a.cq, 7, &mut out, pause).unwrap();
        }
        let mut taken = taken.lock().unwrap();
        for completion in out {
            assert_eq!(completion.status, WcStatus::Success, "{completion:?}");
            assert!(taken.insert(completion.wr_id), "{completion:?} came twice");
            left.fetch_sub(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (a, b, qps, left, take) = (&a, &b, &qps, &left, &take);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    for n in (thread..QPS).step_by(THREADS) {
                        let requests = requests(a, b, n, round);
                        a.device.post_send(qps[n].0, requests).unwrap();
                        take(thread);
                    }
                }
                while left.load(Ordering::Relaxed) > 0 {
                    assert!(started.elapsed() < PATIENCE, "{left:?} are missing");
                    take(thread);
                }
            });
        }
    });

    assert_eq!(b.succeed(QPS * ROUNDS * 2).len(), QPS * ROUNDS * 2);
    for n in 0..QPS {
        let (slot, source) = (n * SLOT, pattern(LEN, n as u64));
        assert_eq!(b.bytes(slot + SINK, LEN), source, "WRITE of {n}");
        assert_eq!(a.bytes(slot + SINK, LEN), pattern(LEN, !n as u64), "READ");
        for round in 0..ROUNDS {
            let offset = slot + RECEIVES + round * SEND_LEN;
            assert_eq!(b.bytes(offset, SEND_LEN), source[round..][..SEND_LEN]);
            let results = slot + WORDS + 16 * round;
            assert_eq!(a.buffer.load(results), 3 * round as u64, "FETCH_ADD");
            assert_eq!(a.buffer.load(results + 8), round as u64, "CMP_SWAP");
        }
        assert_eq!(b.buffer.load(slot + WORDS), 3 * ROUNDS as u64);
        assert_eq!(b.buffer.load(slot + WORDS + 8), ROUNDS as u64);
    }
    assert_eq!(b.count(Counter::RxMalformed), 0);
}

fn requests(a: &Node, b: &Node, n: usize, round: usize) -> Vec<SendWr> {
    let slot = n * SLOT;
    let results = slot + WORDS + 16 * round;
    let (word, other) = (b.remote(slot + WORDS), b.remote(slot + WORDS + 8));
    let compare = round as u64;
    let kinds: [_; KINDS] = [
        (
            SendOp::Send { imm: None },
            a.sge(slot + SOURCE + round, SEND_LEN as u32),
        ),
        (
            b.remote(slot + SINK).write(),
            a.sge(slot + SOURCE, LEN as u32),
        ),
        (word.add(3), a.sge(results, 8)),
        (
            b.remote(slot + READ_FROM).read(),
            a.sge(slot + SINK, LEN as u32),
        ),
        (other.swap(compare, compare + 1), a.sge(results + 8, 8)),
        (b.remote(slot + SINK).write_imm(1), a.sge(slot + SOURCE, 9)),
    ];
    let id = |kind: usize| ((n * ROUNDS + round) * KINDS + kind) as u64;
    kinds
        .into_iter()
        .enumerate()
        .map(|(kind, (op, sge))| SendWr::new(id(kind), op, sge))
        .collect()
}

/// A thread that only polls and one that only receives in the background must not keep a third
/// thread from posting.
#[test]
fn posting_is_not_starved() {
    let a = Node::open(address(41, 3, 0), 4 << 20);
    let b = Node::open(address(41, 3, 1), 4 << 20);
    let (at_a, _) = connect(&a, &b, &attr());
    let (back, at_b): (Qpn, Qpn) = connect(&a, &b, &attr());
    const POSTS: usize = 300;
    let over = AtomicBool::new(false);
    let is_over = || over.load(Ordering::Relaxed);
    thread::scope(|scope| {
        // Keeps the helper of `a` busy.
        let stream = scope.spawn(|| {
            let mut streamed = 0;
            while !is_over() {
                b.post(at_b, 0, a.remote(0).write(), b.sge(0, 1 << 20));
                b.succeed(1);
                streamed += 1;
            }
            streamed
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over() {
                    a.device.progress();
                }
            });
        }
        let mut slowest = Duration::ZERO;
        let started = Instant::now();
        let still_on = Over(&over);
        for posted in 0..POSTS {
            assert!(started.elapsed() < PATIENCE, "only {posted} posts");
            let before = Instant::now();
            a.post(at_a, 1, b.remote(2 << 20).write(), a.sge(2 << 20, 8));
            slowest = slowest.max(before.elapsed());
            a.succeed(1);
        }
        drop(still_on);
        let streamed = stream.join().unwrap();
        eprintln!("{POSTS} posts beside {streamed} MiB: slowest {slowest:?}");
    });
    assert_ne!(back, at_a);
}
