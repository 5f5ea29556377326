//! Random policies are identified, or left undecided.

mod random;

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use random::{Packet, QPN, judge};

const RUNS: u64 = 200;

#[test]
fn random_policies_are_identified_or_left_undecided() {
    let (mut decided, mut wrong, mut seen) = (0, Vec::new(), 0);
    for verdict in (0..RUNS).filter_map(|seed| judge(seed, |packets, _| packets)) {
        if verdict.waits >= 4 {
            seen += 1;
            decided += u32::from(verdict.is_decided);
        }
        wrong.extend(verdict.wrong);
    }
    assert!(
        wrong.is_empty(),
        "{} wrong\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(decided * 10 >= seen * 9, "{decided} of {seen} decided");
}

/// What a capture may lack, or have too much.
type Disturbance = fn(Vec<Packet>, &mut Xoshiro256PlusPlus) -> Vec<Packet>;

fn own(packets: &[Packet]) -> impl Iterator<Item = &Packet> {
    packets.iter().filter(|(.., qpn)| *qpn == QPN)
}

/// It begins in the middle of the outage.
fn begins_late(packets: Vec<Packet>, rng: &mut Xoshiro256PlusPlus) -> Vec<Packet> {
    let from = rng.random_range(0..own(&packets).count());
    let from = own(&packets).nth(from).unwrap().0;
    packets.into_iter().filter(|(at, ..)| *at >= from).collect()
}

/// It lacks packets.
fn has_holes(packets: Vec<Packet>, rng: &mut Xoshiro256PlusPlus) -> Vec<Packet> {
    packets
        .into_iter()
        .filter(|_| rng.random_range(0..20) > 0)
        .collect()
}

/// It has packets twice.
fn has_echoes(packets: Vec<Packet>, rng: &mut Xoshiro256PlusPlus) -> Vec<Packet> {
    let echo = |(at, psn, qpn): Packet| {
        let delay = rng.random_range(1_000..40_000);
        [(at, psn, qpn), (at + delay, psn, qpn)]
    };
    packets.into_iter().flat_map(echo).collect()
}

/// It lacks all that was sent during the outage.
fn is_blind(packets: Vec<Packet>, rng: &mut Xoshiro256PlusPlus) -> Vec<Packet> {
    let count = own(&packets).count();
    let gone = 1..rng.random_range(1..=count);
    let mut number = 0;
    let seen = packets.into_iter().filter(|(.., qpn)| {
        number += usize::from(*qpn == QPN);
        *qpn != QPN || !gone.contains(&(number - 1))
    });
    seen.collect()
}

#[test]
fn a_disturbed_capture_is_never_certain_and_wrong() {
    let disturbances: [Disturbance; 4] = [begins_late, has_holes, has_echoes, is_blind];
    for (kind, disturb) in disturbances.into_iter().enumerate() {
        let verdicts = (0..RUNS).filter_map(|seed| judge(seed, disturb));
        let wrong = verdicts.filter_map(|verdict| verdict.wrong);
        let certain = wrong.filter(|wrong| wrong.contains("sure: Certain"));
        let certain: Vec<String> = certain.collect();
        assert!(
            certain.is_empty(),
            "{} wrong with disturbance {kind}\n{}",
            certain.len(),
            certain.join("\n")
        );
    }
}
