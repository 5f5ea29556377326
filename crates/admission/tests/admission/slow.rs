//! A slow peer: a few thousand packets a second, as with an emulated machine, or more but with
//! stalls that are longer than timers, as with a machine that is busy with other work.

use ferroce_admission::{Bounds, Window};
use ferroce_device::{Counter, HcaConfig, Mtu, Personality, QpAttr, SendWr, Span, WcStatus};

use crate::link::{Link, Receiver, Stalls};
use ferroce_testing::{B, Region, SEND, attr, recv_wr};

const MESSAGES: usize = 96;

/// A peer and the path to it.
#[derive(Clone, Copy, Debug)]
struct Kind {
    ends: [Receiver; 2],
    /// The first timeout: 4.096 us times two to the power of this.
    exponent: u8,
    /// How many packets of each message measure the peer.
    packets: u32,
}

/// The first timeout is 4 ms, and 64 KiB at an MTU of 1024 are 13 ms of work.
fn slow() -> Kind {
    let slow = Receiver {
        buffer: 256 << 10,
        packet_ns: 200_000,
        stalls: None,
    };
    Kind {
        ends: [Receiver::default(), slow],
        exponent: 10,
        packets: 32,
    }
}

/// Both ends get a processor only from time to time.
fn stalling() -> Kind {
    let stalls = Some(Stalls {
        works: Span::from_millis(5),
        stalls: Span::from_millis(5),
    });
    let near = Receiver {
        stalls,
        ..Receiver::default()
    };
    let far = Receiver {
        buffer: 4 << 20,
        packet_ns: 20_000,
        stalls,
    };
    Kind {
        ends: [near, far],
        exponent: 12,
        packets: 128,
    }
}

/// The result of a run.
#[derive(Debug)]
struct Seen {
    took: Span,
    /// Packets that were retransmitted, as a share of those needed.
    repeated: f64,
}

type Request = fn(&Region, &Region) -> SendWr;

const WRITE: Request = |remote, own| SendWr::new(0, remote.write(), own.whole());
const SENDS: Request = |_, own| SendWr::new(0, SEND, own.whole());

/// Keeps queue pairs busy until all messages have arrived.
fn run(
    kind: Kind,
    window: Window,
    qps: usize,
    mtu: Mtu,
    wr: Request,
    lose_every: Option<u64>,
) -> Seen {
    let bounds = Bounds {
        window,
        ..Bounds::default()
    };
    let config = HcaConfig {
        personality: Personality {
            initial_exponent: Some(kind.exponent),
            quantiser: false,
            ..Personality::default()
        },
        ..HcaConfig::default()
    };
    let mut link = Link::new(config, bounds, kind.ends);
    if let Some(n) = lose_every {
        link.lose_every(n);
    }
    let attr = QpAttr {
        path_mtu: mtu,
        timeout: 14,
        ..attr()
    };
    let pairs = link.connect(B, qps, attr);
    let len = (kind.packets * mtu.bytes()) as usize;
    let [own, remote] = link.regions(B, len);
    for n in 0..MESSAGES {
        let [a, b] = pairs[n % qps];
        let request = recv_wr(1, &remote);
        link.pair.sides[B].hca.post_recv(b, request).unwrap();
        link.post(a, wr(&remote, &own));
    }
    let began = link.pair.now;
    link.run();
    let done = &link.side().completions;
    assert_eq!(done.len(), MESSAGES);
    assert!(done.iter().all(|wc| wc.status == WcStatus::Success));
    let last = done.iter().map(|wc| wc.timestamp).max().unwrap();
    let packets = MESSAGES as u32 * kind.packets;
    let repeated = link.count(Counter::RetransmittedPackets) as f64;
    Seen {
        took: last.since(began),
        repeated: repeated / f64::from(packets),
    }
}

/// The shortest time that any of several fixed windows takes.
fn best(kind: Kind, qps: usize, mtu: Mtu, wr: Request, lose_every: Option<u64>) -> u64 {
    let windows = [32, 64, 256].map(|kib| Window::Fixed(kib << 10));
    let run = |window| run(kind, window, qps, mtu, wr, lose_every);
    let times = windows.map(|window| run(window).took.as_nanos());
    times.into_iter().min().unwrap()
}

fn each(judge: impl Fn(usize, Mtu, Request)) {
    for qps in [1, 16] {
        for (mtu, wr) in [(Mtu::Mtu1024, WRITE), (Mtu::Mtu4096, SENDS)] {
            judge(qps, mtu, wr);
        }
    }
}

/// Few packets are retransmitted, and no fixed window is much better.
fn judge(kind: Kind, repeated_max: f64) {
    each(|qps, mtu, wr| {
        let seen = run(kind, Window::Auto, qps, mtu, wr, None);
        assert!(seen.repeated < repeated_max, "{qps} {mtu:?}: {seen:?}");
        let best = best(kind, qps, mtu, wr, None);
        let ratio = seen.took.as_nanos() as f64 / best as f64;
        assert!(ratio < 1.2, "{qps} {mtu:?}: {seen:?}, {best} ns");
    });
}

#[test]
fn a_slow_peer_is_not_overloaded() {
    judge(slow(), 0.05);
}

#[test]
fn a_peer_that_stalls_is_kept_busy() {
    judge(stalling(), 0.05);
}

#[test]
fn a_lossy_path_to_a_slow_peer_takes_less_than_twice_as_long() {
    each(|qps, mtu, wr| {
        let clean = run(slow(), Window::Auto, qps, mtu, wr, None);
        let lossy = run(slow(), Window::Auto, qps, mtu, wr, Some(100));
        let ratio = lossy.took.as_nanos() as f64 / clean.took.as_nanos() as f64;
        assert!(ratio < 2.0, "{qps} {mtu:?}: {clean:?} {lossy:?}");
    });
}

/// After each loss, everything behind it is sent again: what a large window gains in stalls must
/// not be lost there.
#[test]
fn losses_on_the_path_to_a_stalling_peer_shrink_the_window() {
    each(|qps, mtu, wr| {
        let lossy = run(stalling(), Window::Auto, qps, mtu, wr, Some(100));
        let best = best(stalling(), qps, mtu, wr, Some(100));
        let ratio = lossy.took.as_nanos() as f64 / best as f64;
        assert!(ratio < 1.3, "{qps} {mtu:?}: {lossy:?}, {best} ns");
    });
}
