//! Acknowledgements: coalescing, when they are requested, which packets they may cover.

use ferroce_transport::{Counter, Mtu};
use ferroce_wire::{Opcode, Psn};

use crate::common::{A, B, Fate, Setup};

#[test]
fn acknowledgements_that_wait_are_coalesced() {
    let mut pair = Setup::default().connect();
    pair.silence(A);
    for wr_id in 0..10 {
        pair.write(A, wr_id, 10);
    }
    pair.transmit();
    for packet in pair.log.clone() {
        pair.deliver(B, &packet.headers, &packet.payload);
    }
    pair.transmit();
    assert_eq!(pair.sent(B), ["ACK 9"]);
    let ack = pair.log.last().unwrap().headers;
    assert_eq!(ack.aeth().unwrap().msn, 10);
    pair.run_for(10_000);
    pair.expect_sent(A, 0..10);
}

#[test]
fn an_acknowledgement_that_waits_is_not_coalesced_past_a_read() {
    let mut pair = Setup::default().connect();
    pair.silence(A);
    pair.write(A, 0, 10);
    pair.write(A, 1, 10);
    pair.read(A, 2, 10);
    pair.write(A, 3, 10);
    pair.write(A, 4, 10);
    pair.transmit();
    for packet in pair.log.clone() {
        pair.deliver(B, &packet.headers, &packet.payload);
    }
    pair.transmit();
    assert_eq!(
        pair.sent(B),
        ["ACK 1", "RDMA READ response only 2", "ACK 4"]
    );
}

#[test]
fn a_message_longer_than_the_window_needs_no_timer() {
    for mtu in Mtu::ALL {
        for window_packets in [1, 2, 3, 4, 7, 16, 100] {
            let mut pair = Setup {
                mtu,
                window_bytes: window_packets * mtu.bytes(),
                timeout: 0,
                ..Setup::default()
            }
            .connect();
            pair.write(A, 1, 50_001);
            pair.read(A, 2, 50_001);
            pair.run();
            pair.expect_sent(A, [1, 2]);
            assert_eq!(pair.count(A, Counter::RetransmittedPackets), 0);
        }
    }
}

#[test]
fn the_window_bounds_what_is_in_flight() {
    let mut pair = Setup {
        window_bytes: 8 << 10,
        ..Setup::default()
    }
    .connect();
    pair.write(A, 1, 60_000);
    pair.read(A, 2, 60_000);
    let mut most = 0;
    while pair.step(None) {
        most = most.max(pair[A].qp.in_flight());
    }
    pair.expect_sent(A, [1, 2]);
    assert_eq!(most, 8);
}

#[test]
fn the_next_acknowledgement_covers_a_lost_one() {
    let mut pair = Setup::default().connect();
    pair.lose_psn(1, B, false, 0);
    pair.write(A, 0, 10);
    pair.write(A, 1, 10);
    pair.run();
    pair.expect_sent(A, [0, 1]);
    assert_eq!(pair.count(A, Counter::RetransmittedPackets), 0);
}

#[test]
fn old_acknowledgements_change_nothing() {
    let mut pair = Setup::default().connect();
    pair.rule(1, Fate::Late(50_000), |p| p.from == B);
    for wr_id in 0..3 {
        pair.write(A, wr_id, 10);
    }
    pair.run();
    pair.expect_sent(A, 0..3);
    assert_eq!(pair.count(A, Counter::RxUnexpectedResponse), 0);
}

#[test]
fn an_acknowledgement_of_an_unsent_psn_is_counted_and_dropped() {
    let mut pair = Setup::default().connect();
    pair.write(A, 0, 10);
    pair.run();
    let mut ack = pair.log.last().unwrap().headers;
    assert_eq!(ack.opcode(), Opcode::RcAcknowledge);
    for ahead in [1, 100, 0x7f_fff0] {
        ack.psn = Psn::new(0xff_fff0).wrapping_add(ahead);
        pair.forge(A, ack, &[]);
    }
    assert_eq!(pair.count(A, Counter::RxUnexpectedResponse), 3);
    pair.write(A, 1, 10);
    pair.run();
    pair.expect_sent(A, [0, 1]);
}
