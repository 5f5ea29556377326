//! Packets leave one after the other.

use ferroce_device::{Direction, HcaConfig, Impairment, Span, WcStatus};
use ferroce_testing::{A, B, Dice, LATENCY_NS, card, config};

use super::Cards;

/// Picoseconds of a byte at 100 Gb/s.
const BYTE_PS: u64 = 80;
/// Ethernet, IP and UDP around a packet.
const AROUND: u64 = 66;
/// BTH, payload and ICRC.
const MIDDLE: u64 = AROUND + 12 + 4096 + 4;
/// The same with a RETH.
const FIRST: u64 = MIDDLE + 16;

#[test]
fn packets_leave_as_the_rate_allows_to_the_picosecond() {
    let mut cards = Cards::new(100_000, 1);
    cards.write(0, 16 * 4096);
    let began = cards.pair.now;
    cards.pair.run();

    let sent = cards.sent(0);
    assert_eq!(sent.len(), 16);
    let mut free = began;
    for (index, packet) in sent.into_iter().enumerate() {
        assert_eq!(
            packet.at, free,
            "packet {index} is handed out when the port is free"
        );
        let bytes = if index == 0 { FIRST } else { MIDDLE };
        free = free.after(Span::from_picos(bytes * BYTE_PS));
        assert_eq!(packet.departure, free, "packet {index}");
    }
    // The answer to the last packet takes time as well.
    let answer = Span::from_picos((AROUND + 12 + 4 + 4) * BYTE_PS);
    let done = free.after(Span::from_nanos(2 * LATENCY_NS) + answer);
    let completion = &cards.pair.sides[A].completions[0];
    assert_eq!(
        (completion.status, completion.timestamp),
        (WcStatus::Success, done)
    );
}

#[test]
fn queue_pairs_share_the_port_fairly() {
    for qps in [2, 3, 10] {
        let mut cards = Cards::new(100_000, qps);
        for qp in 0..qps {
            cards.write(qp, 16 * 4096);
        }
        cards.pair.run();
        let order = cards.order();
        assert_eq!(order.len(), 16 * qps);
        // No queue pair is ever more than a packet ahead of another that has something to send.
        let mut sent = vec![0_u32; qps];
        for qp in order {
            sent[qp] += 1;
            let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
            assert!(most - least <= 1, "{sent:?}");
        }
    }
}

#[test]
fn only_a_port_with_waiting_packets_sets_a_timer() {
    let mut cards = Cards::new(100_000, 1);
    let now = cards.pair.now;
    cards.write(0, 2 * 4096);
    let hca = &mut cards.pair.sides[A].hca;
    assert!(hca.wants_transmit());
    assert!(hca.poll_transmit(now).is_some());
    let departure = hca.departure();
    assert_eq!(departure, now.after(Span::from_picos(FIRST * BYTE_PS)));
    assert!(!hca.wants_transmit(), "it would spin");
    assert!(hca.poll_transmit(now).is_none());
    assert_eq!(hca.poll_timeout(), Some(departure));
    hca.handle_timeout(departure);
    assert!(hca.poll_transmit(departure).is_some());
    // The port is busy, but nothing waits for it: only the ACK timer runs.
    assert!(hca.poll_timeout().unwrap() > hca.departure());
    hca.audit();
}

#[test]
fn an_impaired_link_begins_behind_the_port() {
    let mut cards = Cards::new(100_000, 1);
    let delayed = Impairment {
        delay: Span::from_nanos(5_000),
        ..Impairment::default()
    };
    let hca = &mut cards.pair.sides[A].hca;
    hca.set_impairment(Direction::Egress, delayed).unwrap();
    cards.write(0, 4 * 4096);
    let mut left = cards.pair.now;
    cards.pair.run();
    let sent = cards.sent(0);
    assert_eq!(sent.len(), 4);
    for (index, packet) in sent.into_iter().enumerate() {
        let bytes = if index == 0 { FIRST } else { MIDDLE };
        left = left.after(Span::from_picos(bytes * BYTE_PS));
        let arrives = left.after(Span::from_nanos(5_000));
        assert_eq!(
            (packet.at, packet.departure),
            (arrives, arrives),
            "packet {index}"
        );
    }
}

/// A rate changes when packets leave, and not what is delivered.
#[test]
fn a_device_with_a_rate_delivers_what_one_without_delivers() {
    for seed in 0..8 {
        let outcome = |mbps: Option<u32>| {
            let mut config = config();
            if let Some(mbps) = mbps {
                // Half of the runs take only the card's host profile, the others the whole card.
                let card = card(mbps);
                config = match seed % 2 {
                    0 => HcaConfig {
                        host: card.host,
                        ..config
                    },
                    _ => card,
                };
            }
            let mut cards = Cards::with(config, 4);
            cards.pair.audit_every = 16;
            cards.regions[A].fill(seed);
            let lossy = Impairment {
                loss: 0.02,
                ..Impairment::default()
            };
            for side in &mut cards.pair.sides {
                side.hca
                    .set_impairment(Direction::Egress, lossy.clone())
                    .unwrap();
            }
            let mut dice = Dice::new(seed);
            for _ in 0..40 {
                let (qp, length) = (dice.below(4), dice.below(40_000));
                cards.write(qp as usize, length as u32);
                if dice.below(3) == 0 {
                    cards.pair.run_for(dice.below(30_000));
                }
            }
            cards.pair.run();
            let mut done: Vec<_> = cards.pair.sides[A].completions.iter().collect();
            done.sort_by_key(|it| (it.qpn, it.wr_id));
            let done: Vec<_> = done.iter().map(|it| (it.wr_id, it.status)).collect();
            assert!(done.iter().all(|(_, status)| *status == WcStatus::Success));
            (done, cards.regions[B].bytes())
        };
        let without = outcome(None);
        for mbps in [1_000, 100_000] {
            assert_eq!(outcome(Some(mbps)), without, "seed {seed}, {mbps} Mb/s");
        }
    }
}
