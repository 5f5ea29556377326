//! The work of the helper thread while the program is inactive, and how it and the program hand the
//! device to each other.

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{
    Node, Over, PATIENCE, address, attr, connect, impatient, impatient_attr, nothing_was_lost,
    patient, patient_attr, pattern, total, wait_until,
};
use ferroce_device::{
    Attr, Completion, Counter, CqId, Direction, Event, Hca, QpAttr, QpInit, QpModify, QpState,
    QpType, RecvWr, SendOp, SendWr, Sges, VerbsError, WcStatus,
};
use ferroce_runtime::{Device, DeviceConfig, Endpoint};
use ferroce_wire::Qpn;

const LEN: usize = 256 << 10;

fn pair(test: u8) -> (Node, Node, (Qpn, Qpn)) {
    let a = Node::with_config(patient(address(43, test, 0)), LEN);
    let b = Node::with_config(patient(address(43, test, 1)), LEN);
    let qps = connect(&a, &b, &patient_attr());
    (a, b, qps)
}

fn to_state(state: QpState) -> QpModify {
    QpModify::to(state, Attr::empty(), QpAttr::default())
}

/// Moves a new queue pair to ERR.
fn fail(hca: &mut Hca, qpn: Qpn) -> Result<(), VerbsError> {
    hca.modify_qp(qpn, &QpModify::init(QpAttr::default()), None)?;
    hca.modify_qp(qpn, &to_state(QpState::Err), None)
}

/// Polls until a completion comes, as a program that never sleeps.
fn spin(device: &Device, cq: CqId) -> Completion {
    let started = Instant::now();
    let mut out = Vec::new();
    while device.poll(cq, 1, &mut out).unwrap() == 0 {
        assert!(started.elapsed() < PATIENCE);
    }
    out[0]
}

#[test]
fn a_target_that_makes_no_calls_is_served() {
    let (a, b, (at_a, _)) = pair(0);
    let half = LEN / 2;
    for (round, idle) in [0, 3, 300, 1].map(Duration::from_millis).iter().enumerate() {
        thread::sleep(*idle);
        let bytes = pattern(half, round as u64);
        a.buffer.write(0, &bytes);
        a.post(at_a, 1, b.remote(0).write(), a.sge(0, half as u32));
        a.succeed(1);
        assert_eq!(b.bytes(0, half), bytes);
        a.post(at_a, 2, b.remote(0).read(), a.sge(half, half as u32));
        a.succeed(1);
        assert_eq!(a.bytes(half, half), bytes);
        a.post(at_a, 3, b.remote(half).add(1), a.sge(0, 8));
        a.post(at_a, 4, b.remote(half + 8).swap(0, 7), a.sge(0, 8));
        a.succeed(2);
        assert_eq!(b.buffer.load(half), 1 + round as u64);
        assert_eq!(b.buffer.load(half + 8), 7);
    }
    nothing_was_lost(&a);
}

/// A queue pair with the address of no device as its peer.
fn towards_nobody(test: u8) -> (Node, Qpn, Duration) {
    let node = Node::with_config(impatient(address(43, test, 0)), LEN);
    let qpn = node.qp();
    connect_to_nobody(test, &node, qpn);
    let total = total(&node.device, &impatient_attr());
    (node, qpn, total)
}

fn connect_to_nobody(test: u8, node: &Node, qpn: Qpn) {
    let own = node.endpoint(qpn);
    let nobody = Endpoint {
        address: address(43, test, 9),
        ..own
    };
    let connected = node.device.connect(own, nobody, &impatient_attr());
    connected.unwrap();
}

fn write(node: &Node, qpn: Qpn) {
    node.post(qpn, 1, node.remote(0).write(), node.sge(0, 100));
}

#[test]
fn timers_run_out_while_the_program_sleeps_or_spins() {
    let sleep: fn(&Node) -> Completion = Node::completion;
    for (test, wait) in [(1, sleep), (2, |node| spin(&node.device, node.cq))] {
        let (node, qpn, total) = towards_nobody(test);
        let posted = Instant::now();
        write(&node, qpn);
        let completion = wait(&node);
        // Not a nanosecond before the total; how much later depends on the machine.
        let took = posted.elapsed();
        assert!(took >= total, "{took:?} is less than {total:?}");
        assert_eq!(completion.status, WcStatus::RetryExcErr);
    }
}

/// The helper sleeps without a limit; then the program polls, so that the helper need not act,
/// posts, and never calls again: the helper must still learn of the deadline.
#[test]
fn timers_run_out_after_a_program_that_polled_and_left() {
    let (node, qpn, _) = towards_nobody(3);
    for _ in 0..3 {
        // Long enough for the helper to fall asleep.
        thread::sleep(Duration::from_millis(30));
        let before = node.count(Counter::LocalAckTimeoutErr);
        let mut out = Vec::new();
        node.device.poll(node.cq, 1, &mut out).unwrap();
        write(&node, qpn);
        node.wait_for_count(Counter::LocalAckTimeoutErr, before + 1);
        assert_eq!(node.completion().status, WcStatus::RetryExcErr);
        node.device
            .with(|hca| hca.modify_qp(qpn, &to_state(QpState::Reset), None))
            .unwrap();
        connect_to_nobody(3, &node, qpn);
    }
}

/// Retransmissions also happen while the program sleeps, spins or does something else.
#[test]
fn a_lost_packet_is_repeated_whatever_the_program_does() {
    let a = Node::with_config(impatient(address(43, 4, 0)), LEN);
    let b = Node::open(address(43, 4, 1), LEN);
    let (at_a, _) = connect(&a, &b, &impatient_attr());
    for away in [false, true] {
        for spins in [false, true] {
            if spins {
                a.device.progress();
            }
            a.impair(Direction::Egress, "loss=1");
            a.post(at_a, 1, b.remote(0).write(), a.sge(0, 100));
            a.impair(Direction::Egress, "none");
            if away {
                let before = b.count(Counter::RxWriteRequests);
                b.wait_for_count(Counter::RxWriteRequests, before + 1);
            }
            let completion = if spins {
                spin(&a.device, a.cq)
            } else {
                a.completion()
            };
            assert_eq!(completion.status, WcStatus::Success);
        }
    }
}

/// A packet that the impaired link delays leaves in time even if nothing else happens and only the
/// polling program drives the device.
#[test]
fn delayed_packets_leave_while_the_program_spins() {
    let (a, b, (at_a, _)) = pair(5);
    for node in [&a, &b] {
        node.impair(Direction::Egress, "delay=200us");
        node.impair(Direction::Ingress, "delay=200us");
    }
    for _ in 0..100 {
        a.post(at_a, 1, b.remote(0).write(), a.sge(0, 100));
        assert_eq!(spin(&a.device, a.cq).status, WcStatus::Success);
    }
    nothing_was_lost(&a);
}

/// An answer that waits in the socket when a timer is due ends the wait: a device without a core
/// for a while has not lost a packet.
#[test]
fn an_answer_that_has_arrived_stops_its_timer() {
    let (a, b, _) = pair(15);
    let attr = impatient_attr();
    let (at_a, _) = connect(&a, &b, &attr);
    // The answer then comes when no thread can take it.
    b.impair(Direction::Egress, "delay=30ms");
    let answers = || b.count(Counter::RdmaTxPackets);
    let one_wait = total(&a.device, &attr) / (u32::from(attr.retry_cnt) + 1);
    a.post(at_a, 1, b.remote(0).write(), a.sge(0, 8));
    let started = Instant::now();
    a.device.with(|_| {
        wait_until("it is answered, and late", || {
            answers() > 0 && started.elapsed() >= 2 * one_wait
        });
    });
    a.succeed(1);
    nothing_was_lost(&a);
}

/// A program that receives a message and at once destroys its queue pair, or the whole device,
/// still has to acknowledge it to the sender.
#[test]
fn the_last_acknowledgement_is_not_lost() {
    let a = Node::with_config(patient(address(43, 6, 0)), LEN);
    for round in 0..20 {
        let b = Node::open(address(43, 6, 1), LEN);
        let (at_a, at_b) = connect(&a, &b, &patient_attr());
        b.post_recv(at_b, 1, 0, 100);
        // The helper of `b` stands back then.
        b.device.progress();
        let send = SendOp::Send { imm: None };
        a.post(at_a, 1, send, a.sge(0, 100));
        assert_eq!(spin(&b.device, b.cq).status, WcStatus::Success);
        if round % 2 == 0 {
            b.device.with(|hca| hca.destroy_qp(at_b)).unwrap();
        }
        drop(b);
        a.succeed(1);
        a.device.with(|hca| hca.destroy_qp(at_a)).unwrap();
    }
    nothing_was_lost(&a);
}

/// The helper sends the pending acknowledgement of a polling program that leaves.
#[test]
fn an_answer_does_not_wait_for_a_program_that_left() {
    let (a, b, (at_a, at_b)) = pair(7);
    for round in 0..50 {
        // Once with the helper asleep on the socket, once while it stands back.
        if round % 2 == 0 {
            thread::sleep(Duration::from_millis(3));
        }
        b.post_recv(at_b, 1, 0, 100);
        b.device.progress();
        let send = SendOp::Send { imm: None };
        a.post(at_a, 1, send, a.sge(0, 100));
        assert_eq!(spin(&b.device, b.cq).status, WcStatus::Success);
        a.succeed(1);
    }
    nothing_was_lost(&a);
}

/// Several threads sleep for the completions of one queue. Each completion wakes one that takes it,
/// and no thread sleeps while one is there.
#[test]
fn sleepers_share_a_queue() {
    let (a, b, (at_a, _)) = pair(8);
    const COUNT: usize = 400;
    let taken = AtomicUsize::new(0);
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut out = Vec::new();
                while taken.load(Ordering::Relaxed) < COUNT {
                    out.clear();
                    let pause = Duration::from_secs(2);
                    let before = Instant::now();
                    let got = a.device.wait(a.cq, 1, &mut out, pause).unwrap();
                    taken.fetch_add(got, Ordering::Relaxed);
                    assert!(got > 0 || before.elapsed() >= pause);
                }
            });
        }
        for n in 0..COUNT {
            let goal = n.saturating_sub(8);
            while taken.load(Ordering::Relaxed) < goal {
                assert!(started.elapsed() < PATIENCE, "{taken:?} of {COUNT}");
                thread::yield_now();
            }
            a.post(at_a, 1, b.remote(0).write(), a.sge(0, 8));
        }
    });
    assert_eq!(taken.into_inner(), COUNT);
}

/// An empty poll must be right even if another thread has the device, because programs go to sleep
/// on it.
#[test]
fn a_poll_sees_what_is_there_beside_other_pollers() {
    let (a, b, (at_a, _)) = pair(9);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                a.device.progress();
            }
        });
        let _over = Over(&over);
        let mut out = Vec::new();
        for round in 1..=500 {
            a.post(at_a, 1, b.remote(0).write(), a.sge(0, 8));
            let in_flight = || a.device.with(|hca| hca.qp(at_a).unwrap().in_flight());
            wait_until("it is acknowledged", || in_flight() == 0);
            let taken = a.device.poll(a.cq, 10, &mut out).unwrap();
            assert_eq!((taken, out.len()), (1, round));
        }
    });
}

#[test]
fn waits_of_every_length() {
    let (a, b, (at_a, _)) = pair(10);
    let mut out = Vec::new();
    let none = |timeout| {
        let started = Instant::now();
        let taken = a.device.wait(a.cq, 1, &mut Vec::new(), timeout).unwrap();
        assert_eq!(taken, 0);
        assert!(started.elapsed() >= timeout);
    };
    none(Duration::ZERO);
    none(Duration::from_nanos(1));
    none(Duration::from_millis(20));
    a.post(at_a, 1, b.remote(0).write(), a.sge(0, 8));
    let taken = a.device.wait(a.cq, 1, &mut out, Duration::MAX).unwrap();
    assert_eq!(taken, 1);
    assert_eq!(a.device.wait(a.cq, 0, &mut out, Duration::ZERO), Ok(0));
    let wrong = a.device.wait(CqId(99), 1, &mut out, Duration::MAX);
    assert!(matches!(wrong, Err(VerbsError::NoSuch { .. })));
}

/// A receive that a failed queue pair flushes at once wakes a sleeper like any other.
#[test]
fn a_flushed_receive_wakes_a_sleeper() {
    let node = Node::open(address(43, 11, 0), LEN);
    let qpn = node.qp();
    node.device.with(|hca| fail(hca, qpn)).unwrap();
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let started = Instant::now();
            let completion = node.completion();
            (completion.status, started.elapsed())
        });
        // It most likely sleeps by then; otherwise this attempt proves nothing.
        thread::sleep(Duration::from_millis(100));
        node.post_recv(qpn, 1, 0, 100);
        let (status, slept) = sleeper.join().unwrap();
        assert_eq!(status, WcStatus::WrFlushErr);
        assert!(slept < PATIENCE / 2, "woke by its own timeout only");
    });
}

/// A device whose program never takes events does not grow, and keeps the latest ones.
#[test]
fn unread_events_are_bounded() {
    let node = Node::open(address(43, 12, 0), LEN);
    // A completion queue of one entry overruns with the second one, which is an event.
    let overrun = |hca: &mut Hca| {
        let cq = hca.create_cq(1)?;
        let init = QpInit::new(QpType::Rc, node.pd, cq);
        let qpn = hca.create_qp(&init)?;
        fail(hca, qpn)?;
        for wr_id in 0..2 {
            let sges = Sges::new();
            hca.post_recv(qpn, RecvWr { wr_id, sges })?;
        }
        hca.destroy_qp(qpn)?;
        hca.destroy_cq(cq)?;
        Ok::<_, VerbsError>(cq)
    };
    let mut last = None;
    for _ in 0..70_000 {
        last = Some(node.device.with(overrun).unwrap());
    }
    let events = std::iter::from_fn(|| node.device.poll_event()).collect::<Vec<_>>();
    assert_eq!(events.len(), 1 << 16);
    assert_eq!(events.last().copied(), last.map(Event::CqOverrun));
}

/// Two programs that write to each other in turn, as latency is measured: each polls until its
/// request is complete, then reads only its memory.
#[test]
fn programs_that_spin_on_their_memory_are_served() {
    const ROUNDS: u64 = 2000;
    let (a, b, (at_a, at_b)) = pair(14);
    let await_word = |node: &Node, round| {
        wait_until("the word is there", || node.buffer.load(0) == round);
    };
    let write_word = |node: &Node, qpn, peer: &Node, round: u64| {
        node.buffer.write(8, &round.to_ne_bytes());
        node.post(qpn, round, peer.remote(0).write(), node.sge(8, 8));
        let completion = spin(&node.device, node.cq);
        assert_eq!(
            (completion.wr_id, completion.status),
            (round, WcStatus::Success)
        );
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                await_word(&b, round);
                write_word(&b, at_b, &a, round);
            }
        });
        for round in 1..=ROUNDS {
            write_word(&a, at_a, &b, round);
            await_word(&a, round);
        }
    });
    nothing_was_lost(&a);
    nothing_was_lost(&b);
}

/// Requests of a device to itself: the same lock, the same socket.
#[test]
fn a_device_talks_to_itself() {
    let node = Node::with_config(DeviceConfig::new(address(43, 13, 0)), LEN);
    let (own, _) = connect(&node, &node, &attr());
    node.buffer.write(0, &pattern(100_000, 5));
    let request = SendWr::new(1, node.remote(LEN / 2).write(), node.sge(0, 100_000));
    node.device.post_send(own, [request]).unwrap();
    node.succeed(1);
    assert_eq!(node.bytes(LEN / 2, 100_000), pattern(100_000, 5));
}
