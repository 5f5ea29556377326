//! Requests that wait to leave with others.

mod common;

use std::fs;
use std::hint;
use std::mem;
use std::thread;
use std::time::{Duration, Instant};

use common::{Node, PATIENCE, address, attr, connect};
use ferroce_device::Counter;
use ferroce_wire::Qpn;

const LEN: usize = 4096;
/// Less than the depth of the queue pair.
const DEEP: usize = 1000;

fn sent(node: &Node) -> u64 {
    node.count(Counter::RdmaTxPackets)
}

/// Posts until a request waits for others, for which the helper must be awake; returns the time,
/// and the number of packets that had left. `None` if no request waits soon.
fn until_one_waits(a: &Node, b: &Node, qpn: Qpn) -> Option<(Instant, u64)> {
    a.device.progress();
    (0..DEEP).find_map(|_| {
        let (posted, before) = (Instant::now(), sent(a));
        a.post(qpn, 0, b.remote(0).write(), a.sge(0, 8));
        (sent(a) == before).then_some((posted, before))
    })
}

/// A program that posts and then computes need not poll for its messages to leave: it makes no call
/// of any kind here, as a program that computes makes none. A program that yields its core
/// meanwhile gets it back late, and notices late what has left long ago. The time depends on the
/// machine, so it is printed: `--nocapture` shows it; `--release` gives the time that users see.
#[test]
fn staged_requests_leave_without_the_program() {
    const TRIES: usize = 200;
    const SEARCH: Duration = Duration::from_secs(5);
    let a = Node::open(address(52, 1, 0), LEN);
    let b = Node::open(address(52, 1, 1), LEN);
    let (qpn, _) = connect(&a, &b, &attr());
    let started = Instant::now();
    let mut taken = Vec::new();
    // When all cores are busy, the watch may never be awake, and no request waits.
    while taken.len() < TRIES && started.elapsed() < SEARCH {
        if let Some((posted, before)) = until_one_waits(&a, &b, qpn) {
            while sent(&a) == before {
                assert!(posted.elapsed() < PATIENCE, "it does not leave");
                hint::spin_loop();
            }
            taken.push(posted.elapsed());
        }
        drain(&a);
    }
    taken.sort_unstable();
    let at = |percent: usize| {
        taken
            .get(taken.len() * percent / 100)
            .copied()
            .unwrap_or_default()
    };
    let of = taken.len();
    eprintln!(
        "left after {:?} (median), {:?} (90 %) of {of}",
        at(50),
        at(90)
    );
}

/// The watch yields its core each time it checks. With a slice of the usual length it may not get
/// it back for milliseconds.
#[test]
fn the_helper_asks_for_short_slices() {
    const SHORT_NS: u64 = 100_000;
    let node = Node::open(address(52, 2, 0), LEN);
    // Kernels before 6.12 do not report it.
    let is_short = |slice: &u64| [0, SHORT_NS].contains(slice);
    let started = Instant::now();
    loop {
        let slices = slices_of_helpers();
        if !slices.is_empty() && slices.iter().all(is_short) {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "{slices:?}");
        thread::yield_now();
    }
    drop(node);
}

/// The time slices of this process's helpers, in nanoseconds.
fn slices_of_helpers() -> Vec<u64> {
    let mut slices = Vec::new();
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if !name.starts_with("ferroce-127.") {
            continue;
        }
        let tid: i32 = task.file_name().to_str().unwrap().parse().unwrap();
        // SAFETY: it is made of integers, for which all zeroes is a value.
        let mut attr: libc::sched_attr = unsafe { mem::zeroed() };
        let size = size_of_val(&attr) as u32;
        // SAFETY: `attr` is writable for the `size` bytes announced, and lives longer than the
        // call.
        let told = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attr, size, 0) };
        // The thread may have ended.
        if told == 0 {
            slices.push(attr.sched_runtime);
        }
    }
    slices
}

/// Waits for the remaining completions.
fn drain(node: &Node) {
    let mut out = Vec::new();
    let pause = Duration::from_millis(20);
    while node.device.wait(node.cq, 64, &mut out, pause).unwrap() > 0 {}
}
