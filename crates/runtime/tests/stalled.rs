//! A thread that gets no processor while packets arrive and timers run: packets that have arrived
//! count before a timer does. The devices have no helper threads, so that the test decides which
//! end stalls.

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::{Node, PATIENCE, address, attr, connect, impatient};
use ferroce_device::{Counter, Direction, Hca, QpAttr};
use ferroce_runtime::{DeviceConfig, Tandem};
use ferroce_wire::Qpn;

const QPS: usize = 8;
/// Enough that their acknowledgements are more than one round of a polling program takes.
const MANY_QPS: usize = 300;
const BYTES: usize = 128 << 10;
/// Longer than several of these devices' timers, which run for 67 ms.
const STALL: Duration = Duration::from_millis(300);

/// Two devices without helper threads, and their queue pairs.
fn nodes(test: u8, count: usize, attr: &QpAttr) -> ([Node; 2], Vec<Qpn>) {
    let nodes = [0, 1].map(|host| {
        let config = DeviceConfig {
            helper: false,
            ..impatient(address(67, test, host))
        };
        Node::with_config(config, QPS * BYTES)
    });
    let [a, b] = &nodes;
    let qps = (0..count).map(|_| connect(a, b, attr).0).collect();
    (nodes, qps)
}

fn post(a: &Node, b: &Node, qps: &[Qpn]) {
    for (n, &qpn) in qps.iter().enumerate() {
        let at = n * BYTES;
        let half = BYTES as u32 / 2;
        let sge = a.sge(at, half);
        a.post(qpn, 0, b.remote(at).read(), sge);
        let sge = a.sge(at + BYTES / 2, half);
        a.post(qpn, 1, b.remote(at + BYTES / 2).write(), sge);
    }
}

fn done(a: &Node) -> usize {
    let mut done = 0;
    let all = |hca: &mut Hca| {
        while hca.poll_completion(a.cq).unwrap().is_some() {
            done += 1;
        }
    };
    a.device.with(all);
    done
}

fn nothing_went_again(node: &Node) {
    for counter in [
        Counter::LocalAckTimeoutErr,
        Counter::RetransmittedPackets,
        Counter::DuplicateRequest,
    ] {
        assert_eq!(node.count(counter), 0, "{counter:?}");
    }
}

/// More has arrived than one round takes.
#[test]
fn a_requester_takes_all_answers_before_a_timer_runs_out() {
    let ([a, b], qps) = nodes(0, MANY_QPS, &attr());
    let mut tandem = Tandem::new([&a.device, &b.device]).unwrap();
    for &qpn in &qps {
        a.post(qpn, 0, b.remote(0).write(), a.sge(0, 8));
    }
    // The window's packets have arrived and are answered.
    let taken = || b.count(Counter::RdmaRxPackets);
    let mut before = u64::MAX;
    while before != taken() {
        before = taken();
        b.device.progress();
    }
    b.device.progress();
    thread::sleep(STALL);
    a.device.progress();
    nothing_went_again(&a);
    // The rest, if there is any.
    let started = Instant::now();
    let mut completed = done(&a);
    while completed < MANY_QPS {
        tandem.drive(Duration::ZERO);
        completed += done(&a);
        assert!(started.elapsed() < PATIENCE);
    }
    nothing_went_again(&a);
}

/// Packets that wait at the other end have not been lost either.
#[test]
fn devices_in_tandem_answer_each_other_before_a_timer_runs_out() {
    let ([a, b], qps) = nodes(1, QPS, &attr());
    let mut tandem = Tandem::new([&a.device, &b.device]).unwrap();
    post(&a, &b, &qps);
    let started = Instant::now();
    let mut completed = 0;
    while completed < 2 * QPS {
        // It stalls before each round.
        thread::sleep(STALL);
        tandem.drive(Duration::ZERO);
        completed += done(&a);
        assert!(started.elapsed() < PATIENCE);
    }
    nothing_went_again(&a);
    nothing_went_again(&b);
}

/// A packet that is really lost is retransmitted when its timer expires, and no core is busy until
/// then.
#[test]
fn devices_in_tandem_sleep_until_a_timer_is_due() {
    // Half a second.
    let patient = QpAttr {
        timeout: 17,
        ..attr()
    };
    let ([a, b], qps) = nodes(2, 1, &patient);
    let mut tandem = Tandem::new([&a.device, &b.device]).unwrap();
    a.impair(Direction::Egress, "loss=1");
    a.post(qps[0], 0, b.remote(0).write(), a.sge(0, 8));
    a.impair(Direction::Egress, "none");
    let started = Instant::now();
    while done(&a) == 0 {
        tandem.drive(PATIENCE);
        assert!(started.elapsed() < PATIENCE);
    }
    assert_eq!(a.count(Counter::LocalAckTimeoutErr), 1);
    assert_eq!(a.count(Counter::RetransmittedPackets), 1);
    assert!(tandem.spent().slept > Duration::from_millis(100));
}
