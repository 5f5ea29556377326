//! Selective repeat: what is sent again, how both ends find each other, and bad reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_testing::seeds;
use ferroce_transport::{Counter, Mtu, QpState, WcStatus};
use ferroce_wire::{Aeth, BthFlags, ExtensionValues, Headers, NakCode, Opcode, Psn, Syndrome};

use crate::common::{A, B, Dice, Fate, Id, Packet, Pair, Repeat, Setup};

fn pair(repeat: [Repeat; 2]) -> Pair {
    Setup {
        repeat,
        ..Setup::default()
    }
    .connect()
}

fn agreed() -> Pair {
    pair([Repeat::Agreed; 2])
}

/// Packets that only queue pairs know that repeat selectively.
fn is_own(packet: &Packet) -> bool {
    packet.headers.flags.contains(BthFlags::SELECTIVE)
        || packet.opcode() == Opcode::RcAcknowledgeReport
}

/// What A sends again.
fn again(pair: &Pair) -> Vec<u32> {
    let mut seen = Vec::new();
    let mut again = Vec::new();
    let start = pair.attr(A).sq_psn;
    for packet in pair.log.iter().filter(|it| it.from == A && it.is_request()) {
        match seen.contains(&packet.headers.psn) {
            true => again.push(packet.headers.psn.since(start)),
            false => seen.push(packet.headers.psn),
        }
    }
    again
}

#[test]
fn only_what_is_missing_goes_again() {
    let mut pair = agreed();
    for lost in [2, 3, 7] {
        pair.lose_psn(1, A, true, lost);
    }
    for wr_id in 0..10 {
        pair.write(A, wr_id, 10);
    }
    pair.run();
}

#[test]
fn a_long_message_with_holes_arrives_whole() {
    for (mtu, repeat) in [
        (Mtu::Mtu256, Repeat::Agreed),
        (Mtu::Mtu4096, Repeat::Agreed),
        (Mtu::Mtu1024, Repeat::Forced),
    ] {
        let mut pair = Setup {
            repeat: [repeat; 2],
            mtu,
            memory_bytes: 1 << 20,
            window_bytes: 1 << 20,
            ..Setup::default()
        }
        .connect();
        pair.recv(B, 7, 1 << 20);
        for lost in [0, 5, 6, 100] {
            pair.lose_psn(1, A, true, lost);
        }
        pair.send(A, 1, 1 << 20);
        pair.run();
        pair.expect_sent(A, [1]);
        pair.expect_received(B, [7]);
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
        assert_eq!(again(&pair), [0, 5, 6, 100], "{mtu:?} {repeat:?}");
    }
}

#[test]
fn a_packet_lost_twice_goes_three_times() {
    let mut pair = agreed();
    pair.lose_psn(2, A, true, 2);
    for wr_id in 0..6 {
        pair.write(A, wr_id, 10);
    }
    pair.run_for(3_000);
    // Something new must arrive, or a timer has to find out.
    for wr_id in 6..10 {
        pair.write(A, wr_id, 10);
    }
    pair.run();
    assert_eq!(again(&pair), [2, 2]);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
    pair.expect_sent(A, 0..10);
}

#[test]
fn a_lost_report_is_repeated_or_a_timer_helps() {
    for posted_later in [0, 4] {
        let mut pair = agreed();
        pair.lose_psn(1, A, true, 2);
        pair.lose(3, Opcode::RcAcknowledgeReport);
        for wr_id in 0..6 {
            pair.write(A, wr_id, 10);
        }
        pair.run_for(3_000);
        for wr_id in 6..6 + posted_later {
            pair.write(A, wr_id, 10);
        }
        pair.run();
        assert!(again(&pair).len() <= 2, "{:?}", again(&pair));
        pair.expect_sent(A, 0..6 + posted_later);
    }
}

#[test]
fn responses_that_are_here_are_not_asked_for_again() {
    for repeat in [Repeat::Forced, Repeat::Agreed] {
        // With any peer: it is a READ like others.
        let mut pair = pair([repeat, Repeat::GoBack]);
        for lost in [3, 9] {
            pair.lose_psn(1, B, false, lost);
        }
        pair.read(A, 1, 20_000);
        pair.write(A, 2, 10);
        pair.run();
        let reads = pair
            .log
            .iter()
            .filter(|it| it.opcode() == Opcode::RcReadRequest);
        let lengths = reads.map(|it| it.headers.reth().unwrap().length);
        assert_eq!(lengths.collect::<Vec<_>>(), [20_000, 1024, 1024]);
        pair.expect_sent(A, [1, 2]);
        let [here, there] = [(A, pair[A].local), (B, pair[B].remote)];
        let bytes = [here, there].map(|(id, mr)| pair.bytes(id, mr.part(20, 19_980)));
        assert!(bytes[0] == bytes[1]);
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
    }
}

#[test]
fn atomics_are_executed_once() {
    let mut pair = agreed();
    pair.lose_psn(1, A, true, 1);
    pair.lose_psn(1, B, false, 2);
    for wr_id in 0..4 {
        pair.fetch_add(A, wr_id, 1 << (8 * wr_id));
    }
    pair.run();
    pair.expect_sent(A, 0..4);
    assert_eq!(pair.count(B, Counter::RxAtomicRequests), 4);
}

#[test]
fn a_message_without_a_receive_waits_and_nothing_is_lost() {
    let mut pair = agreed();
    pair.lose_psn(1, A, true, 0);
    for wr_id in 0..5 {
        pair.send(A, wr_id, 3000);
    }
    pair.recv(B, 0, 4096);
    pair.run_for(20_000);
    for wr_id in 1..5 {
        pair.recv(B, wr_id, 4096);
    }
    pair.run();
    pair.expect_sent(A, 0..5);
    pair.expect_received(B, 0..5);
}

#[test]
fn two_that_were_told_to_find_out_with_the_first_loss() {
    let mut pair = pair([Repeat::Forced; 2]);
    pair.lose_psn(1, A, true, 2);
    for wr_id in 0..6 {
        pair.write(A, wr_id, 10);
    }
    pair.run();
    // The missing packet goes alone, and the answer acknowledges the others.
    assert_eq!(again(&pair), [2]);
    assert!(!pair.log.iter().any(is_own));
    for lost in [8, 10] {
        pair.lose_psn(1, A, true, lost);
    }
    for wr_id in 6..14 {
        pair.write(A, wr_id, 10);
    }
    pair.run();
    assert_eq!(again(&pair), [2, 8, 10]);
    assert!(pair.log.iter().any(is_own));
    pair.expect_sent(A, 0..14);
    assert_eq!(pair.count(A, Counter::PacketSeqErr), 1, "the one that told");
}

/// With a peer that goes back, or that knows of nothing, all packets are of the standard.
#[test]
fn nothing_unknown_goes_to_a_peer_that_goes_back() {
    for repeat in [
        [Repeat::Forced, Repeat::GoBack],
        [Repeat::GoBack, Repeat::Forced],
    ] {
        let mut pair = pair(repeat);
        for round in 0..4 {
            pair.lose_psn(1, A, true, 6 * round + 2);
            for wr_id in 0..6 {
                pair.write(A, wr_id, 10);
            }
            pair.run();
        }
        assert!(!pair.log.iter().any(is_own), "{repeat:?}");
        let expected: Vec<u64> = (0..4).flat_map(|_| 0..6).collect();
        pair.expect_sent(A, expected);
        let back = |round: u32| (6 * round + 2)..(6 * round + 6);
        let all: Vec<_> = (0..4).flat_map(back).collect();
        assert_eq!(again(&pair), all, "{repeat:?}");
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
    }
}

/// As many packets go again as were lost, within 5 %, also if packets take many paths; go-back-N beside
/// it.
#[test]
fn as_much_goes_again_as_was_lost() {
    let ratio = |repeat, delay_ns| {
        let (mut again, mut lost) = (0, 0);
        for seed in 1..=15 {
            let of_stream = seeds::named(seed, |seed| stream(repeat, delay_ns, seed));
            again += of_stream.0;
            lost += of_stream.1;
        }
        again as f64 / lost as f64
    };
    let selective = ratio(Repeat::Agreed, 0);
    let routed = ratio(Repeat::RoutedAgreed, 20_000);
    let back = ratio(Repeat::GoBack, 0);
    println!("sent again for each lost packet: {selective:.3}");
    println!("with many paths {routed:.3}, going back {back:.1}");
    for ratio in [selective, routed] {
        assert!((0.95..1.05).contains(&ratio), "{ratio}");
    }
    assert!(back > 10.0, "{back}");
}

/// Messages of all lengths at a loss of up to 5 %, each packet up to so much later than it could be: packets
/// sent again, and lost ones.
fn stream(repeat: Repeat, delay_ns: u64, seed: u64) -> (u64, u64) {
    let mut pair = Setup {
        repeat: [repeat; 2],
        window_bytes: 256 << 10,
        memory_bytes: 256 << 10,
        // What is lost at the very end is a timer's business, which sends the oldest in any case.
        timeout: 14,
        gap_ns: 100,
        latency_ns: 5_000,
        ..Setup::default()
    }
    .connect();
    let mut dice = Dice::new(seed);
    let per_mille = dice.within(1..=50) as u32;
    let mut losses = dice.clone();
    let lost = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&lost);
    pair.net().rules.add(move |packet: &Packet| {
        let is_lost = packet.from == A && losses.per_mille(per_mille);
        counted.fetch_add(is_lost.into(), Ordering::Relaxed);
        Some(match is_lost {
            true => Fate::Lost,
            false => Fate::Late(losses.within(0..=delay_ns)),
        })
    });
    for wr_id in 0..100 {
        let len = dice.within(1..=100_000) as u32;
        pair.write(A, wr_id, len);
    }
    pair.run();
    pair.expect_sent(A, 0..100);
    let lost = lost.load(Ordering::Relaxed);
    (pair.count(A, Counter::RetransmittedPackets), lost)
}

#[test]
fn kept_packets_have_a_bound() {
    let mut pair = agreed();
    let start = pair.attr(B).rq_psn;
    let write = |ahead: u32| {
        let values = ExtensionValues::default();
        Headers::with_values(Opcode::RcWriteOnly, &values)
            .to(pair[B].qp.qpn(), start.wrapping_add(ahead))
    };
    let packets: Vec<_> = [1, 2, 1024, 1025, 5_000, 1 << 22, 2, 1024]
        .map(write)
        .into();
    for headers in packets {
        pair.forge(B, headers, &[0; 8]);
    }
    assert_eq!(pair[B].qp.kept_bytes(), 3 * 8);
    pair.move_to(B, QpState::Err);
    assert_eq!(pair[B].qp.kept_bytes(), 0);
}

/// Whatever a report claims, the messages arrive or the queue pair fails, and memory is bounded.
#[test]
fn reports_that_lie_do_no_harm() {
    seeds::each(300, |seed| {
        let mut dice = Dice::new(seed);
        let mut pair = agreed();
        for _ in 0..20 {
            let wr_id = dice.below(1 << 30);
            match dice.below(3) {
                0 => pair.read(A, wr_id, dice.within(1..=20_000) as u32),
                1 => pair.fetch_add(A, wr_id, 1),
                _ => pair.write(A, wr_id, dice.within(1..=20_000) as u32),
            }
            pair.run_for(dice.below(3_000));
            let ahead = dice.pick(&[0, 1, 3, 10, 100, 1 << 23, 0xff_ffff]);
            let headers = report(&pair, A, ahead);
            let bytes: Vec<u8> = (0..dice.below(200)).map(|_| dice.next() as u8).collect();
            pair.forge(A, headers, &bytes);
        }
        pair.run();
        let done = pair.sends(A);
        assert_eq!(done.len(), 20);
        let is_good = |(_, status): &(u64, WcStatus)| {
            matches!(
                status,
                WcStatus::Success | WcStatus::RetryExcErr | WcStatus::WrFlushErr
            )
        };
        assert!(done.iter().all(is_good), "{done:?}");
    });
}

fn report(pair: &Pair, to: Id, ahead: u32) -> Headers {
    let una: Psn = pair[to].qp.next_psn().wrapping_sub(pair[to].qp.in_flight());
    let values = ExtensionValues {
        aeth: Aeth {
            syndrome: Syndrome::Nak(NakCode::SequenceError),
            msn: 1,
        },
        ..ExtensionValues::default()
    };
    let headers = Headers::with_values(Opcode::RcAcknowledgeReport, &values);
    headers.to(pair[to].qp.qpn(), una.wrapping_add(ahead))
}
/// A response that was asked for by itself may come after this side has begun to go back.
#[test]
fn a_late_single_response_fits_a_read_that_goes_back() {
    let mut pair = pair([Repeat::Forced, Repeat::GoBack]);
    pair.read(A, 0, 1024);
    for round in 0..4 {
        pair.lose_psn(1, A, true, 1 + 6 * round + 2);
        for _ in 0..6 {
            pair.write(A, 0, 10);
        }
        pair.run();
    }
    let is_single = |it: &&Packet| it.opcode() == Opcode::RcReadResponseOnly;
    let mut response = pair.log.iter().find(is_single).unwrap().headers;
    pair.lose_psn(1, B, false, 25 + 3);
    pair.read(A, 1, 20_000);
    let asks = |pair: &Pair| {
        let requests = pair.log.iter().map(Packet::opcode);
        requests.filter(|it| *it == Opcode::RcReadRequest).count()
    };
    while asks(&pair) < 3 {
        assert!(pair.step(None));
    }
    response.psn = pair.attr(A).sq_psn.wrapping_add(25 + 3);
    let bytes = pair.bytes(B, pair[B].remote.part(3 * 1024, 1024));
    pair.deliver(A, &response, &bytes);
    pair.run();
    let sent: Vec<u64> = std::iter::repeat_n(0, 25).chain([1]).collect();
    pair.expect_sent(A, sent);
}
