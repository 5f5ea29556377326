//! A peer that takes its time: some thousand packets a second, as an emulated machine does.

use ferroce_hca::{Counter, HcaConfig, Mtu, Personality, QpAttr, SendWr, Span, WcStatus, Window};

use crate::link::{Link, Receiver};
use ferroce_testing::{B, Region, SEND, attr, recv_wr};

const LEN: usize = 64 << 10;
const MESSAGES: usize = 48;
const PACKET_NS: u64 = 200_000;

/// What a run came to.
#[derive(Debug)]
struct Seen {
    took: Span,
    /// Packets sent again, of all that were needed.
    repeated: f64,
}

type Request = fn(&Region, &Region) -> SendWr;

const WRITE: Request = |remote, own| SendWr::new(0, remote.write(), own.whole());
const SENDS: Request = |_, own| SendWr::new(0, SEND, own.whole());

/// Keeps queue pairs busy until all messages are through. Timers begin with 4 ms, as a card's do.
fn run(window: Window, qps: usize, mtu: Mtu, wr: Request, lose_every: Option<u64>) -> Seen {
    let config = HcaConfig {
        window,
        personality: Personality {
            initial_exponent: Some(10),
            ..Personality::default()
        },
        ..HcaConfig::default()
    };
    let slow = Receiver {
        buffer: 256 << 10,
        packet_ns: PACKET_NS,
    };
    let mut link = Link::new([config; 2], [Receiver::default(), slow]);
    if let Some(n) = lose_every {
        link.lose_every(n);
    }
    let attr = QpAttr {
        path_mtu: mtu,
        timeout: 14,
        ..attr()
    };
    let pairs = link.connect(B, qps, attr);
    let [own, remote] = link.regions(B, LEN);
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
    let packets = (MESSAGES * LEN) as f64 / f64::from(mtu.bytes());
    let repeated = link.count(Counter::RetransmittedPackets) as f64;
    Seen {
        took: last.since(began),
        repeated: repeated / packets,
    }
}

/// The least time that any fixed window takes.
fn best(qps: usize, mtu: Mtu, wr: Request) -> Seen {
    let windows = [16, 32, 64].map(|kib| Window::Fixed(kib << 10));
    let runs = windows.map(|window| run(window, qps, mtu, wr, None));
    runs.into_iter().min_by_key(|seen| seen.took).unwrap()
}

#[test]
fn it_is_not_drowned() {
    for (qps, mtu) in [1, 16]
        .into_iter()
        .flat_map(|qps| [(qps, Mtu::Mtu1024), (qps, Mtu::Mtu4096)])
    {
        for wr in [WRITE, SENDS] {
            let seen = run(Window::Auto, qps, mtu, wr, None);
            let best = best(qps, mtu, wr);
            assert!(seen.repeated < 0.05, "{qps} {mtu:?}: {seen:?}");
            let (took, least) = (seen.took, best.took);
            assert!(took <= least * 12 / 10, "{qps} {mtu:?}: {seen:?}, {best:?}");
        }
    }
}

#[test]
fn a_lossy_way_to_it_costs_less_than_as_much_again() {
    for qps in [1, 16] {
        for wr in [WRITE, SENDS] {
            let clean = run(Window::Auto, qps, Mtu::Mtu1024, wr, None);
            let lossy = run(Window::Auto, qps, Mtu::Mtu1024, wr, Some(100));
            assert!(lossy.took < clean.took * 2, "{qps}: {clean:?} {lossy:?}");
        }
    }
}
