//! A silent peer: each queue pair notices by itself, with its own timers.

use ferroce_admission::Bounds;
use ferroce_device::{HcaConfig, Mtu, Personality, QpAttr, SendWr, Span, WcStatus};

use crate::link::{Link, Receiver};
use ferroce_testing::{B, Region, SEND, attr, recv_wr};

const LEN: usize = 16 << 10;

type Request = fn(&Region, &Region) -> SendWr;

const WRITE: Request = |remote, own| SendWr::new(0, remote.write(), own.whole());
const SENDS: Request = |_, own| SendWr::new(0, SEND, own.whole());
const READ: Request = |remote, own| SendWr::new(0, remote.read(), own.whole());

/// The shortest time after which a queue pair considers its peer silent.
const WAIT: Span = Span::from_nanos(4_194_304);
const BOUND: u32 = 2 << 20;

fn with_mtu(path_mtu: Mtu) -> QpAttr {
    QpAttr {
        path_mtu,
        timeout: 14,
        ..attr()
    }
}

/// Queue pairs that each have a request for B; nothing has been sent yet.
fn posted(qps: usize, mtu: Mtu, wr: Request) -> Link {
    let bounds = Bounds {
        peer_bytes: BOUND,
        response_bytes: BOUND / 2,
        ..Bounds::default()
    };
    let config = HcaConfig {
        personality: Personality {
            initial_exponent: Some(10),
            quantiser: false,
            ..Personality::default()
        },
        ..HcaConfig::default()
    };
    let receiver = Receiver {
        buffer: u64::from(2 * BOUND),
        ..Receiver::default()
    };
    let mut link = Link::new(config, bounds, [receiver; 2]);
    let pairs = link.connect(B, qps, with_mtu(mtu));
    let [own, remote] = link.regions(B, LEN);
    for [a, b] in &pairs {
        let request = recv_wr(1, &remote);
        link.pair.sides[B].hca.post_recv(*b, request).unwrap();
        link.post(*a, wr(&remote, &own));
    }
    link
}

/// How long it takes until `qps` queue pairs have all given up on a dead peer.
fn given_up(qps: usize, mtu: Mtu, wr: Request) -> Span {
    let mut link = posted(qps, mtu, wr);
    link.lose_every(1);
    let began = link.pair.now;
    link.run();
    let done = &link.side().completions;
    assert_eq!(done.len(), qps);
    assert!(done.iter().all(|wc| wc.status == WcStatus::RetryExcErr));
    let last = done.iter().map(|wc| wc.timestamp).max().unwrap();
    last.since(began)
}

#[test]
fn many_queue_pairs_give_up_on_a_dead_peer_as_fast_as_one() {
    for mtu in [Mtu::Mtu1024, Mtu::Mtu4096] {
        for wr in [WRITE, SENDS, READ] {
            let one = given_up(1, mtu, wr);
            let crowd = given_up(500, mtu, wr);
            assert!(crowd <= one * 21 / 20, "{mtu:?}: {crowd}, one {one}");
        }
    }
}

/// The peer was only busy. Each waiting queue pair has sent one packet meanwhile, and all of them
/// fit the buffer: 4,000 packets of 4 KiB would be several times its size.
#[test]
fn many_probes_do_not_overrun_a_stalled_peer() {
    for wr in [WRITE, READ] {
        let mut link = posted(4_000, Mtu::Mtu4096, wr);
        link.stop(B, 2 * WAIT - Span::from_nanos(1));
        link.run();
        assert_eq!(link.drops(), 0);
        let done = &link.side().completions;
        assert_eq!(done.len(), 4_000);
        assert!(done.iter().all(|wc| wc.status == WcStatus::Success));
    }
}
