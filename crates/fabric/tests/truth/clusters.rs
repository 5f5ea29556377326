//! Jobs of clusters without contention, compared with arithmetic.

use ferroce_fabric::workload::{Checkpoint, Experts, Nccl, Pipeline};
use ferroce_fabric::{Span, Time, Workload};

use crate::net::*;

/// How long a job takes on a star.
fn took(workload: Workload) -> Span {
    let hosts = workload.transfers.iter().map(|it| it.src.max(it.dst));
    let hosts = hosts.max().unwrap() + 1;
    let played =
        Net::new(star(hosts, LINK)).play_all(workload.transfers, workload.edges, vec![job()]);
    assert_eq!(played.timeouts(), 0);
    played.0.player.job_outcomes[0]
        .ended
        .unwrap()
        .since(Time::ZERO)
}

/// A message from host to host.
fn message(bytes: u64) -> Span {
    pipeline(&packets(bytes, 4_096), 2, LINK.rate, LINK.delay)
}

/// What keeps a link busy with a message.
fn sending(bytes: u64) -> Span {
    let packets = packets(bytes, 4_096).into_iter();
    packets.fold(Span::ZERO, |sum, wire| sum + serialization(wire, LINK.rate))
}

/// Acknowledgements share the links with messages of the other direction.
#[track_caller]
fn assert_about(workload: Workload, expected: Span) {
    let took = took(workload);
    let share = ratio(took, expected);
    assert!((1.0..1.015).contains(&share), "{took}, not {expected}");
}

#[test]
fn short_pieces_take_a_message_for_each_step() {
    let ring = Nccl::new((0..5).collect(), 5 * 1_000);
    assert_about(ring.ring_all_reduce().unwrap(), message(1_000).times(8));
    assert_about(ring.all_gather().unwrap(), message(1_000).times(4));
    assert_about(ring.reduce_scatter().unwrap(), message(1_000).times(4));
    assert_about(ring.broadcast().unwrap(), message(5_000).times(4));
}

/// Both halves of a piece are on their way at the same time: links are never idle.
#[test]
fn long_pieces_keep_every_link_busy() {
    let half = 512 << 10;
    let ring = Nccl::new((0..4).collect(), 4 * 2 * half);
    let expected = sending(half).times(2 * 6) + message(half) - sending(half);
    assert_about(ring.ring_all_reduce().unwrap(), expected);
    // Four loops of the same, each of which begins where the one before ends.
    let loops = Nccl {
        chunk: 2 * half,
        bytes: 4 * ring.bytes,
        ..ring
    };
    let share = ratio(took(loops.ring_all_reduce().unwrap()), expected.times(4));
    assert!((0.98..1.02).contains(&share), "{share}");
}

#[test]
fn a_slow_nvlink_is_the_bottleneck() {
    // Two nodes of two: each of the three steps of all pieces passes the one NVLink hop of both nodes.
    let it = Nccl {
        gpus_per_node: 2,
        nvlink: gbps(1),
        ..Nccl::new((0..4).collect(), 4 * 4_000)
    };
    let hop = gbps(1).transmission(4_000);
    assert!(hop > message(4_000).times(2));
    assert_eq!(took(it.all_gather().unwrap()), hop.times(3));
    // With a fast one, the longest way has two messages and a hop.
    let fast = Nccl {
        nvlink: gbps(3_600),
        ..it
    };
    let hop = gbps(3_600).transmission(4_000);
    assert_eq!(
        took(fast.all_gather().unwrap()),
        message(4_000).times(2) + hop
    );
}

#[test]
fn a_tree_takes_its_depth_up_and_down() {
    // Nodes 1 and 3 below 2, and 2 below 0: two messages meet at node 2 on the way up, and leave it one after
    // the other on the way down.
    let tree = Nccl::new((0..4).collect(), 4_000);
    let expected = message(4_000).times(4) + sending(4_000).times(2);
    assert_about(tree.tree_all_reduce().unwrap(), expected);
}

#[test]
fn experts_compute_between_two_messages() {
    let (compute, think) = (Span::from_micros(30), Span::from_micros(7));
    let it = Experts {
        ranks: vec![0, 1],
        bytes: 8_000,
        layers: 3,
        compute,
        think,
        at: Time::ZERO,
    };
    let layer = message(4_000).times(2) + compute;
    assert_eq!(took(it.build().unwrap()), layer.times(3) + think.times(2));
}

#[test]
fn a_pipeline_fills_and_drains() {
    let stage = Span::from_micros(100);
    let of = |microbatches| {
        let it = Pipeline {
            ranks: vec![0, 1, 2],
            stages: 3,
            bytes: 4_000,
            microbatches,
            compute: stage,
            rounds: 1,
            at: Time::ZERO,
        };
        took(it.build().unwrap())
    };
    // Forward and backward through three stages, with two messages each way.
    assert_eq!(of(1), stage.times(3 * 3) + message(4_000).times(4));
    // Another microbatch takes another pass forward and backward of a stage, and at most two messages more.
    for microbatches in 2..8 {
        let least = stage.times(3 * (3 + microbatches - 1));
        let most = least + message(4_000).times(4 + 2 * (microbatches - 1));
        let took = of(microbatches as u32);
        assert!(
            (least..=most).contains(&took),
            "{microbatches}: {took} of {least} to {most}"
        );
    }
}

#[test]
fn checkpoints_wait_for_their_time_and_the_one_before() {
    let interval = Span::from_millis(1);
    let it = Checkpoint {
        writers: vec![0],
        servers: vec![1],
        bytes: 4_000,
        interval,
        rounds: 3,
        at: Time::ZERO,
    };
    assert_eq!(
        took(it.build().unwrap()),
        interval.times(2) + message(4_000)
    );
    let often = Checkpoint {
        interval: Span::from_nanos(1),
        ..it
    };
    // A writer knows that its server has all a cable's delay later.
    let known = message(4_000) + LINK.delay;
    assert_eq!(
        took(often.build().unwrap()),
        known.times(2) + message(4_000)
    );
}
