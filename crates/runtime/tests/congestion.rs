//! DCQCN on real sockets: marks slow a stream down, and it recovers.

mod common;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use common::{Node, PATIENCE, address, attr, connect, cpu_time};
use ferroce_dcqcn::Params;
use ferroce_device::{Counter, Direction, WriteLockError};
use ferroce_testing::{longest_wait, skip};
use ferroce_wire::Qpn;

const LEN: usize = 1 << 20;

fn set(node: &Node, assignments: &[&str]) {
    let change = |params: &mut Params| {
        for text in assignments {
            params.assign(text).unwrap();
        }
        Ok::<_, WriteLockError>(())
    };
    let state = node.device.with(|hca| hca.state().clone());
    state.change_congestion(change).unwrap();
}

fn mark(node: &Node, probability: f64) {
    node.impair(Direction::Ingress, &format!("ecn={probability}"));
}

/// How long a WRITE of everything takes.
fn write_all(a: &Node, b: &Node, qpn: Qpn) -> Duration {
    let started = Instant::now();
    a.post(qpn, 1, b.remote(0).write(), a.sge(0, LEN as u32));
    a.succeed(1);
    started.elapsed()
}

/// Tests that measure need the process for themselves.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn marks_slow_a_stream_down_and_their_end_lets_it_recover() {
    let _alone = ALONE.lock();
    let [a, b] = [1, 2].map(|host| Node::open(address(66, 1, host), LEN));
    let (qpn, _) = connect(&a, &b, &attr());
    write_all(&a, &b, qpn);
    assert_eq!(b.count(Counter::NpCnpSent), 0);

    // The first CNP sets the rate, later ones do not cut it.
    let held = [
        "rate_to_set_on_first_cnp=20",
        "rpg_min_dec_fac=100",
        "rpg_time_reset=131071",
        "rpg_byte_reset=0",
        "rpg_ai_rate=1",
        "rpg_hai_rate=1",
    ];
    set(&a, &held);
    mark(&b, 1.0);
    write_all(&a, &b, qpn);
    let cpu = cpu_time();
    let slow = write_all(&a, &b, qpn);
    let cpu = cpu_time() - cpu;
    let sent = b.count(Counter::NpCnpSent);
    //= F13: timeouts count in this counter as well.
    let restarts = a.count(Counter::RoceSlowRestartCnps);
    let handled = a.count(Counter::RpCnpHandled) - restarts;
    assert!(
        sent > 0 && handled > 0 && handled <= sent,
        "{handled} of {sent}"
    );
    // A megabyte at 20 Mb/s takes 420 ms; the timer may have raised the rate slightly.
    assert!(slow > Duration::from_millis(250), "{slow:?}");
    assert!(cpu < slow / 2, "{cpu:?} of the processor in {slow:?}");

    mark(&b, 0.0);
    set(
        &a,
        &[
            "rpg_time_reset=50",
            "rpg_ai_rate=10000",
            "rpg_hai_rate=10000",
        ],
    );
    let started = Instant::now();
    let is_limited = || {
        a.device
            .with(|hca| hca.rate_limit(qpn, ferroce_device::Time::ZERO).is_some())
    };
    while is_limited() {
        assert!(started.elapsed() < PATIENCE, "still limited");
        write_all(&a, &b, qpn);
    }
    while write_all(&a, &b, qpn) >= slow {
        assert!(started.elapsed() < PATIENCE, "as slow as under marks");
    }
}

/// The bytes per second that a queue pair sends at a rate set by its first CNP, as a share of the
/// rate.
fn held_at(test: u8, mbps: u32) -> f64 {
    let [a, b] = [1, 2].map(|host| Node::open(address(66, test, host), LEN));
    let (qpn, _) = connect(&a, &b, &attr());
    let first = format!("rate_to_set_on_first_cnp={mbps}");
    let held = [
        "rpg_min_dec_fac=100",
        "rpg_time_reset=131071",
        "rpg_byte_reset=0",
    ];
    set(&a, &held);
    set(&a, &["rpg_threshold=31", first.as_str()]);
    mark(&b, 1.0);
    let message = 16 << 10;
    let mut posted = 0;
    let mut run = |length: Duration| {
        let started = Instant::now();
        let mut out = Vec::new();
        while started.elapsed() < length {
            for _ in posted..64 {
                a.post(qpn, 1, b.remote(0).write(), a.sge(0, message));
            }
            out.clear();
            a.device.wait(a.cq, 64, &mut out, length).unwrap();
            posted = 64 - out.len();
        }
    };
    run(Duration::from_millis(100));
    mark(&b, 0.0);
    let sent = || 8 * (a.count(Counter::RdmaTxBytes) + 16 * a.count(Counter::RdmaTxPackets));
    // The time without counting matters as well.
    let (started, before) = (Instant::now(), sent());
    run(Duration::from_secs(1));
    let bits = (sent() - before) as f64;
    bits / started.elapsed().as_secs_f64() / (f64::from(mbps) * 1e6)
}

#[test]
fn a_rate_is_held() {
    // A queue pair may be 10 ms late and still make up for it.
    const LATE: Duration = Duration::from_millis(5);
    let _alone = ALONE.lock();
    for (test, mbps) in [(2, 10), (3, 200)] {
        let started = Instant::now();
        let mut in_time = 0;
        loop {
            let (share, waited) = longest_wait(|| held_at(test, mbps));
            // A busy machine may keep the queue pair waiting, but never make it faster.
            assert!(share < 1.1, "{share} of {mbps} Mb/s");
            if share > 0.95 {
                break;
            }
            in_time += u32::from(waited < LATE);
            assert!(in_time < 5, "{share} of {mbps} Mb/s");
            if started.elapsed() > PATIENCE {
                let reason = format!("{mbps} Mb/s: threads wait {waited:?} for a processor here");
                skip("a_rate_is_held", &reason);
                break;
            }
        }
    }
}
