//! The shares of a port, of priorities, and of paths.

use ferroce_fabric::{Routing, Schedule, Span, Time, TransferId};

use crate::net::*;

/// Pauses of two ingress ports alternate, so that two senders get the same rate.
#[test]
fn two_senders_share_a_port() {
    let bytes = 20_000_000;
    let played =
        Net::new(star(3, LINK)).play(vec![transfer(1, 0, bytes), transfer(2, 0, bytes)], job());
    let one = pipeline(&packets(bytes.into(), 4_096), 2, LINK.rate, LINK.delay);
    let [first, last] = [0, 1].map(|it| ratio(played.took(it), one));
    // Both together use the port's rate; and neither is ahead by more than a threshold of pauses
    // and its distance from resumption, less than 1 % of 20 MB.
    assert!(
        (2.0 - 0.01..2.0 + 0.01).contains(&first.max(last)),
        "{first} {last}"
    );
    assert!(first.min(last) > 1.9, "{first} {last}");
    assert_eq!(played.timeouts(), 0);
}

/// The first priority takes as long as if it were alone, except for one frame that is being sent.
#[test]
fn a_higher_priority_does_not_wait() {
    let mut net = Net::new(star(3, LINK));
    net.switch.lossless = 0xff;
    net.switch.buffer_bytes = 128 << 20;
    let mut urgent = transfer(2, 0, 5_000_000);
    urgent.job = 1;
    urgent.at = micros(100);
    let low = transfer(1, 0, 10_000_000);
    let played = net.play_all(vec![low, urgent], vec![], vec![job_of(1), job_of(5)]);
    let alone = pipeline(&packets(5_000_000, 4_096), 2, LINK.rate, LINK.delay);
    let frame = serialization(packets(4_096, 4_096)[0], LINK.rate);
    let took = played.took(1);
    assert!(alone <= took && took <= alone + frame, "{alone:?} {took:?}");
    let all = [5_000_000, 10_000_000]
        .map(|it| packets(it, 4_096))
        .concat();
    let all = pipeline(&all, 2, LINK.rate, LINK.delay);
    let off = ratio(played.end().since(Time::ZERO), all) - 1.0;
    assert!(off.abs() < 1e-3, "the port is never idle: {off}");
}

/// Priorities with weights get bytes in proportion to them, while all have something to send.
#[test]
fn weights_are_shares() {
    let mut net = Net::new(star(4, LINK));
    net.switch.lossless = 0xff;
    net.switch.buffer_bytes = 128 << 20;
    net.switch.schedule = Schedule::Weighted([1, 9, 3, 1, 1, 1, 1, 0]);
    // In proportion to the weights, so that all end at the same time if their shares are right.
    let sizes = [9_000_000, 3_000_000, 1_000_000];
    let transfers = (0..).zip(sizes).map(|(job, bytes)| {
        let mut it = transfer(1 + u32::from(job), 0, bytes);
        it.job = job;
        it
    });
    let jobs = vec![job_of(1), job_of(2), job_of(3)];
    let played = net.play_all(transfers.collect(), vec![], jobs);
    let end = played.end().since(Time::ZERO);
    for it in 0..3 {
        // The turns are at most 9 KiB, and a frame of 4 KiB exceeds its turn by less than that: a
        // hundred frames of 13 MB.
        let share = ratio(played.took(it), end);
        assert!(share > 0.98, "{it}: {share}");
    }
}

/// The priority of weight 0 is served before all others.
#[test]
fn weight_zero_goes_first() {
    let mut net = Net::new(star(3, LINK));
    net.switch.lossless = 0xff;
    net.switch.buffer_bytes = 128 << 20;
    net.switch.schedule = Schedule::Weighted([1, 1, 1, 0, 1, 1, 1, 1]);
    let mut first = transfer(1, 0, 5_000_000);
    first.job = 1;
    let other = transfer(2, 0, 5_000_000);
    let played = net.play_all(vec![other, first], vec![], vec![job_of(6), job_of(3)]);
    let alone = pipeline(&packets(5_000_000, 4_096), 2, LINK.rate, LINK.delay);
    let frame = serialization(packets(4_096, 4_096)[0], LINK.rate);
    assert!(played.took(1) <= alone + frame);
}

/// A flow keeps to one path, and many flows spread over all of them.
#[test]
fn flows_spread_over_equal_paths() {
    let (spines, hosts, flows) = (4, 8, 256_u32);
    let mut net = Net::new(leaf_spine(2, spines, hosts, LINK));
    // No flow has to wait: pauses would do no harm, but take time.
    net.switch.buffer_bytes = 256 << 20;
    let frames_each = 5;
    let between = |flow: u32| {
        let mut it = transfer(flow % hosts, hosts + flow / hosts % hosts, 5 * 4_096);
        it.at = micros(u64::from(flow));
        it
    };
    let played = net.play((0..flows).map(between).collect(), job());
    let up: Vec<u64> = (0..spines as usize)
        .map(|spine| played.0.fabric.line(2 * hosts as usize + spine, 0).frames)
        .collect();
    assert_eq!(up.iter().sum::<u64>(), u64::from(flows) * frames_each);
    for frames in up {
        assert_eq!(frames % frames_each, 0, "a flow was torn apart");
        // A binomial distribution: 64 of 256, deviation 6.9; five of these.
        assert!((29..=99).contains(&(frames / frames_each)), "{frames}");
    }
}

/// Each packet of a flow takes its own path; without other traffic, none overtakes another.
#[test]
fn spraying_uses_all_paths_for_one_flow() {
    let mut net = Net::new(leaf_spine(2, 4, 1, LINK));
    net.switch.routing = Routing::Random;
    let bytes = 1_000 * 4_096;
    let played = net.play(vec![transfer(0, 1, bytes)], job());
    for spine in 0..4 {
        let frames = played.0.fabric.line(2 + spine, 0).frames;
        // 250 of 1,000, deviation 13.7; five of these.
        assert!((181..=319).contains(&frames), "{frames}");
    }
    let expected = pipeline(&packets(bytes.into(), 4_096), 4, LINK.rate, LINK.delay);
    assert_eq!(played.took(0), expected);
}

/// 2(N - 1) steps of S/N bytes each, each of which waits for the previous one of the left
/// neighbour.
#[test]
fn a_ring_all_reduce_takes_its_ideal_time() {
    for (ranks, bytes) in [(2, 1_000_000), (8, 8_000_000), (16, 1_600_000)] {
        let (steps, chunk) = (2 * (ranks - 1), bytes / ranks);
        let all = (0..steps).flat_map(|_| 0..ranks);
        let transfers = all.map(|rank| transfer(rank, (rank + 1) % ranks, chunk));
        let id = |step: u32, rank: u32| TransferId(step * ranks + rank % ranks);
        let after = |step| (0..ranks).map(move |rank| (step, rank));
        let edges = (1..steps).flat_map(after);
        let edges = edges.map(|(step, rank)| (id(step - 1, rank + ranks - 1), id(step, rank)));
        let mut ring = job();
        ring.qp_per_transfer = false;
        let net = Net::new(star(ranks, LINK));
        let played = net.play_all(transfers.collect(), edges.collect(), vec![ring]);
        let step = pipeline(&packets(chunk.into(), 4_096), 2, LINK.rate, LINK.delay);
        let ideal = step.times(steps.into());
        let took = ratio(played.end().since(Time::ZERO), ideal);
        // Acknowledgements share the cables with the next step's packets: 88 bytes for each message
        // and each quarter of a window, well below 2 % of the bytes between them; and one may delay
        // each step by its length twice.
        assert!((1.0..1.02).contains(&took), "{ranks} ranks: {took}");
        assert!(step > Span::ZERO);
    }
}
