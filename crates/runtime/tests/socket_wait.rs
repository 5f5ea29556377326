//! Sleeping on a socket, a deadline and a waker. No test depends on how fast the machine is: a
//! sleep may always be longer than asked, never shorter, and a wake-up must come at all.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_os::{Clock, Waiter, Wake, tighten_timer_slack};
use ferroce_sockets::{Options, RecvBuffers, Socket};

/// Long enough to mean "never came".
const LONG: Duration = Duration::from_secs(60);

fn bind() -> Socket {
    Socket::bind(SocketAddr::from(([127, 0, 0, 1], 0)), &Options::default()).unwrap()
}

/// Checks without sleeping.
fn look(waiter: &mut Waiter, socket: &Socket) -> Wake {
    waiter.wait(socket, Some(Duration::ZERO), false).unwrap()
}

#[test]
fn time_is_not_up_early() {
    let (socket, mut waiter) = (bind(), Waiter::new().unwrap());
    tighten_timer_slack().unwrap();
    for timeout in [0, 1, 1_000, 100_000, 999_999, 1_000_001, 30_000_000].map(Duration::from_nanos)
    {
        let start = Instant::now();
        assert_eq!(
            waiter.wait(&socket, Some(timeout), false).unwrap(),
            Wake::default()
        );
        assert!(start.elapsed() >= timeout);
    }
}

#[test]
fn a_packet_wakes() {
    let (a, b, mut waiter) = (bind(), bind(), Waiter::new().unwrap());
    let expected = Wake {
        readable: true,
        ..Wake::default()
    };
    thread::scope(|scope| {
        scope.spawn(|| a.send(b.address(), 0, b"x", 1).map(|_| ()).unwrap());
        assert_eq!(waiter.wait(&b, Some(LONG), false).unwrap(), expected);
    });
    // It stays readable until it is read.
    assert_eq!(waiter.wait(&b, None, false).unwrap(), expected);
    assert_eq!(b.recv(&mut RecvBuffers::new(2)).unwrap(), 1);
    assert_eq!(look(&mut waiter, &b), Wake::default());
}

#[test]
fn room_to_send_is_reported_only_on_request() {
    let (socket, mut waiter) = (bind(), Waiter::new().unwrap());
    assert!(waiter.wait(&socket, Some(LONG), true).unwrap().writable);
    assert_eq!(look(&mut waiter, &socket), Wake::default());
}

#[test]
fn a_waker_wakes_a_sleeper() {
    let (socket, mut waiter) = (bind(), Waiter::new().unwrap());
    let waker = waiter.waker();
    thread::scope(|scope| {
        scope.spawn(|| waker.wake());
        let wake = waiter.wait(&socket, Some(LONG), false).unwrap();
        let expected = Wake {
            woken: true,
            ..Wake::default()
        };
        assert_eq!(wake, expected);
    });
}

#[test]
fn wakes_before_a_wait_end_it_once() {
    let (socket, mut waiter) = (bind(), Waiter::new().unwrap());
    for _ in 0..3 {
        waiter.waker().wake();
    }
    assert!(waiter.wait(&socket, None, false).unwrap().woken);
    assert!(!look(&mut waiter, &socket).woken);
}

#[test]
fn an_early_wake_does_not_hide_a_packet() {
    let (a, b, mut waiter) = (bind(), bind(), Waiter::new().unwrap());
    waiter.waker().wake();
    assert_eq!(a.send(b.address(), 0, b"x", 1).unwrap().datagrams, 1);
    let wake = waiter.wait(&b, None, false).unwrap();
    assert_eq!(
        wake,
        Wake {
            readable: true,
            writable: false,
            woken: true
        }
    );
}

/// A wake-up between two checks of shared state must not be lost, at any time: the waiter sleeps
/// without a limit until it has seen every value.
#[test]
fn no_wake_up_is_lost() {
    const LAST: u64 = 100_000;
    let (socket, mut waiter) = (bind(), Waiter::new().unwrap());
    let posted = [const { AtomicU64::new(0) }; 2];
    thread::scope(|scope| {
        for counter in &posted {
            let waker = waiter.waker();
            scope.spawn(move || {
                for value in 1..=LAST {
                    counter.store(value, Ordering::Relaxed);
                    waker.wake();
                }
            });
        }
        while posted
            .iter()
            .any(|counter| counter.load(Ordering::Relaxed) < LAST)
        {
            assert!(waiter.wait(&socket, None, false).unwrap().woken);
        }
    });
}

/// A thousandth of the timeout, which the kernel would add by itself, would be 200 us here. Noise
/// is larger than that on a busy machine, so the best of several tries counts, and it is reported
/// rather than judged when every try was disturbed.
#[test]
fn long_sleeps_end_on_time() {
    let (socket, mut waiter) = (bind(), Waiter::new().unwrap());
    tighten_timer_slack().unwrap();
    let timeout = Duration::from_millis(200);
    let late = (0..5)
        .map(|_| {
            let start = Instant::now();
            let _ = waiter.wait(&socket, Some(timeout), false).unwrap();
            start.elapsed() - timeout
        })
        .min();
    eprintln!("200 ms ended {late:?} late at best");
}

#[test]
fn the_clock_goes_forward() {
    let before = Clock.now_ns();
    thread::sleep(Duration::from_millis(2));
    assert!(Clock.now_ns() >= before + 2_000_000);
}
