//! What a device is told when something has to be sent again: slow restart and windows follow from it.

use ferroce_adp::{AckTimeoutFloor, Policy, PolicyKind};
use ferroce_transport::{Counter, WcStatus};

use crate::common::{A, B, Fate, Pair, Repeat, Setup};

/// A timer that fails the queue pair, or that begins again without a packet, repeats nothing.
#[test]
fn each_timeout_that_repeats_something_is_told() {
    for (kind, floor) in [
        (PolicyKind::FIRMWARE, AckTimeoutFloor::DEFAULT),
        (PolicyKind::FIRMWARE, AckTimeoutFloor::Disabled),
        (PolicyKind::IB, AckTimeoutFloor::DEFAULT),
    ] {
        let policy = Policy {
            floor,
            ..Policy::new(kind)
        };
        let mut pair = Setup {
            policy,
            ..Setup::default()
        }
        .connect();
        pair.silence(A);
        pair.write(A, 1, 10);
        pair.run();
        assert_eq!(pair.sends(A), [(1, WcStatus::RetryExcErr)]);
        let host = &pair[A].host;
        let waits: Vec<_> = host.expiries.iter().map(|it| Some(it.wait)).collect();
        let first = usize::from(floor == AckTimeoutFloor::Disabled);
        assert_eq!(host.losses, waits[first..waits.len() - 1], "{policy:?}");
        assert_eq!(
            host.losses.len() as u64,
            pair.count(A, Counter::RetransmittedPackets)
        );
    }
}

fn losses_of(pair: &Pair) -> usize {
    assert!(pair[A].host.losses.iter().all(Option::is_none));
    pair[A].host.losses.len()
}

#[test]
fn each_flight_with_a_gap_is_told_once() {
    for repeat in [Repeat::GoBack, Repeat::Agreed] {
        let mut pair = Setup {
            repeat: [repeat; 2],
            ..Setup::default()
        }
        .connect();
        for lost in [2, 3, 7] {
            pair.lose_psn(1, A, true, lost);
        }
        for wr_id in 0..10 {
            pair.write(A, wr_id, 10);
        }
        pair.run();
        pair.expect_sent(A, 0..10);
        assert_eq!(losses_of(&pair), 1, "{repeat:?}");
    }
}

#[test]
fn a_lost_response_is_told_once() {
    let mut pair = Setup::default().connect();
    pair.rule(1, Fate::Lost, |packet| packet.from == B);
    pair.read(A, 1, 10_000);
    pair.run();
    pair.expect_sent(A, [1]);
    assert_eq!(pair.count(A, Counter::ImpliedNakSeqErr), 1);
    assert_eq!(losses_of(&pair), 1);
}

/// The receiver asks for the wait: nothing was lost.
#[test]
fn a_receiver_that_is_not_ready_is_no_loss() {
    let mut pair = Setup::default().connect();
    pair.send(A, 1, 10);
    pair.run_for(20_000_000);
    assert!(pair.count(A, Counter::RnrNakRetryErr) > 0);
    assert_eq!(losses_of(&pair), 0);
}
