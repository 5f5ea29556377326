//! Messages that get shorter while they are sent.

use ferroce_transport::{Counter, SendOp, WorkQueue};

use crate::common::{A, B, Pair, Setup};

const PACKETS: u32 = 600;

/// A has begun to write a long message with immediate data, of which some has arrived.
fn writing(prepare: impl FnOnce(&mut Pair)) -> Pair {
    let setup = Setup {
        memory_bytes: 1 << 20,
        ..Setup::default()
    };
    let mut pair = setup.connect();
    prepare(&mut pair);
    pair.recv(B, 7, 10);
    let (va, rkey) = pair.target(A);
    let mtu = pair.attr(A).path_mtu.bytes();
    let imm = Some(1);
    pair.op(A, 0, SendOp::Write { va, rkey, imm }, PACKETS * mtu);
    while pair[B].qp.expected_psn() == pair.attr(B).rq_psn {
        assert!(pair.step(None));
    }
    pair
}

fn shorten(pair: &mut Pair, packets: u32) -> [bool; 2] {
    [
        pair[A].qp.shorten_write(packets),
        pair[B].qp.shorten_arriving(packets),
    ]
}

#[test]
fn both_ends_go_on_with_less() {
    for lost in [None, Some(3), Some(20)] {
        let mut pair = writing(|pair| {
            if let Some(index) = lost {
                pair.lose_psn(1, A, true, index);
            }
        });
        let before = pair[A].qp.unsent_write().unwrap();
        assert_eq!(shorten(&mut pair, 500), [true, true]);
        let after = pair[A].qp.unsent_write().unwrap();
        assert_eq!(
            (after.first, after.unsent + 500),
            (before.first, before.unsent)
        );
        pair.write(A, 1, 10);
        pair.run();
        pair.expect_sent(A, [0, 1]);
        let received = pair.completions(B, WorkQueue::Recv);
        let mtu = pair.attr(A).path_mtu.bytes();
        assert_eq!(received[0].byte_len, (PACKETS - 500) * mtu);
    }
}

#[test]
fn no_more_than_is_unsent_is_taken_out() {
    let mut pair = writing(|_| {});
    let unsent = pair[A].qp.unsent_write().unwrap().unsent;
    assert!(!pair[A].qp.shorten_write(unsent + 1));
    assert!(!pair[B].qp.shorten_arriving(PACKETS));
    assert_eq!(shorten(&mut pair, unsent), [true, true]);
    pair.run();
    pair.expect_sent(A, [0]);
    assert_eq!(pair[A].qp.unsent_write(), None);
    assert_eq!(shorten(&mut pair, 0), [false, false]);
}

#[test]
fn a_message_that_is_sent_again_stays_as_it_is() {
    let mut pair = writing(|_| {});
    pair.silence(B);
    while pair.count(A, Counter::RetransmittedPackets) == 0 {
        assert!(pair.step(None));
    }
    assert!(pair[A].qp.has_unsent());
    assert_eq!(pair[A].qp.unsent_write(), None);
    assert!(!pair[A].qp.shorten_write(1));
}
