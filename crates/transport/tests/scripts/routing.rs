//! Adaptive routing: packets overtake each other, and are placed as they come.

use ferroce_testing::seeds;
use ferroce_transport::{Counter, SendOp, SendWr};

use crate::common::{A, B, Dice, Fate, Packet, Pair, Repeat, Setup};

const MTU: u32 = 1024;

fn pair(repeat: [Repeat; 2]) -> Pair {
    Setup {
        repeat,
        window_bytes: 256 << 10,
        memory_bytes: 256 << 10,
        gap_ns: 100,
        ..Setup::default()
    }
    .connect()
}

/// Each packet arrives up to so much later than it could.
fn scatter(pair: &mut Pair, seed: u64, delay_ns: u64) {
    let mut dice = Dice::new(seed);
    pair.net()
        .rules
        .add(move |_| Some(Fate::Late(dice.within(0..=delay_ns))));
}

#[test]
fn late_packets_are_not_lost() {
    const PACKETS: u64 = 3 * 200 + 36 * 3;
    seeds::each(20, |seed| {
        for repeat in [Repeat::RoutedAgreed, Repeat::RoutedForced] {
            let mut pair = pair([repeat; 2]);
            scatter(&mut pair, seed, 100_000);
            pair.recv(B, 100, 200 << 10);
            pair.write(A, 0, 200 << 10);
            pair.send(A, 1, 200 << 10);
            pair.read(A, 2, 200 << 10);
            pair.fetch_add(A, 3, 1);
            for wr_id in 4..40 {
                pair.write(A, wr_id, 3_000);
            }
            pair.run();
            pair.expect_sent(A, 0..40);
            pair.expect_received(B, [100]);
            let of_both = |counter| pair.count(B, counter) + pair.count(A, counter);
            assert_eq!(of_both(Counter::LocalAckTimeoutErr), 0);
            // Those that are later than others by many round trips go again.
            let again = of_both(Counter::DuplicateRequest);
            assert!(again < PACKETS / 20, "{again}");
        }
    });
}

/// Whether each packet's bytes of A's local memory are in B's remote memory.
fn landed<const N: usize>(pair: &Pair) -> [bool; N] {
    let mut part = 0;
    [(); N].map(|()| {
        let at = part * MTU;
        part += 1;
        let local = pair.bytes(A, pair[A].local.part(at, MTU));
        local == pair.bytes(B, pair[B].remote.part(at, MTU))
    })
}

/// The second packet is late, and a second message, which is the third packet of the memory, is not.
#[test]
fn parts_of_a_message_land_as_they_come() {
    for (repeat, expected, kept) in [
        (Repeat::RoutedAgreed, [true, false, true, true, false], MTU),
        (Repeat::Agreed, [true, false, false, false, false], 3 * MTU),
    ] {
        let mut pair = pair([repeat; 2]);
        let start = pair.attr(A).sq_psn;
        pair.net().rules.add(move |packet: &Packet| {
            let is_second = packet.is_request() && packet.headers.psn.since(start) == 1;
            is_second.then_some(Fate::Late(300_000))
        });
        pair.write(A, 0, 4 * MTU);
        let (va, rkey) = pair.target(A);
        let op = SendOp::Write {
            va: va + u64::from(4 * MTU),
            rkey,
            imm: None,
        };
        let sge = pair[A].local.part(4 * MTU, MTU);
        pair.post(A, SendWr::new(1, op, sge));
        pair.run_for(100_000);
        assert_eq!(landed(&pair), expected);
        assert_eq!(pair[B].qp.kept_bytes(), kept);
        let lands_in_order = repeat == Repeat::Agreed;
        assert_eq!(pair[B].qp.lands_in_order(), lands_in_order);
        pair.run();
        assert_eq!(landed(&pair), [true; 5], "{repeat:?}");
        pair.expect_sent(A, 0..2);
        // Without reordering it counts as lost.
        let again = pair.count(A, Counter::RetransmittedPackets);
        assert_eq!(again, u64::from(lands_in_order));
    }
}

/// It is overtaken for longer than round trips explain, and goes again long before a timer runs out.
#[test]
fn a_lost_packet_goes_again_alone() {
    let mut pair = pair([Repeat::RoutedAgreed; 2]);
    pair.lose_psn(1, A, true, 150);
    scatter(&mut pair, 1, 10_000);
    for wr_id in 0..30 {
        pair.write(A, wr_id, 10 * MTU);
    }
    pair.run();
    pair.expect_sent(A, 0..30);
    assert_eq!(pair.count(A, Counter::RetransmittedPackets), 1);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
    assert_eq!(pair.count(B, Counter::DuplicateRequest), 0);
}

#[test]
fn a_peer_that_goes_back_gets_one_path() {
    let mut pair = pair([Repeat::RoutedForced, Repeat::GoBack]);
    assert!(pair[A].qp.uses_many_paths() && !pair[B].qp.uses_many_paths());
    scatter(&mut pair, 1, 10_000);
    for wr_id in 0..30 {
        pair.write(A, wr_id, 10 * MTU);
    }
    pair.run();
    pair.expect_sent(A, 0..30);
    assert!(!pair[A].qp.uses_many_paths());
    pair.expect_same(10 * MTU);
}

/// Behind a timeout, the last response of a READ has come and the first has not: the READ still takes one of
/// the places for READs and atomics at the peer, which otherwise forgets it.
#[test]
fn half_a_read_takes_a_place_at_the_peer() {
    let mut pair = Setup {
        repeat: [Repeat::RoutedAgreed; 2],
        rd_atomic: 2,
        dest_rd_atomic: 2,
        ..Setup::default()
    }
    .connect();
    pair.read(A, 1, 2048);
    pair.read(A, 2, 8);
    pair.silence(B);
    pair.run_for(10_000);
    pair.heal();
    let last = pair.log.iter().filter(|p| p.from == B).nth(1).unwrap();
    let last = last.clone();
    pair.fetch_add(A, 3, 1);
    pair.now = pair[A].qp.poll_timeout().unwrap();
    pair.expire_due(A);
    pair.deliver(A, &last.headers, &last.payload);
    pair.run();
    pair.expect_sent(A, [1, 2, 3]);
}
