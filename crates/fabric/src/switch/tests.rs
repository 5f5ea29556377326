//! Queues, marks and accounting of one switch.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};

use super::*;
use crate::frame::Ecn;

fn frame(packet: u32, bytes: u16, priority: u8, ingress: u16) -> Frame {
    Frame {
        packet,
        bytes,
        source: 0,
        dest: 0,
        flow: 0,
        priority,
        ecn: Ecn::Capable,
        ingress,
        takes_any_path: false,
    }
}

/// A frame is marked by what it leaves behind: never up to kmin, in proportion up to kmax, always above.
#[test]
fn marks_follow_the_queue_that_is_left_behind() {
    let red = CongestionPoint::new(10_000, 40_000, 200_000).unwrap();
    let config = SwitchConfig {
        ecn: Some(red),
        ..SwitchConfig::default()
    };
    for (left, expected) in [
        (0, 0.0),
        (10_000, 0.0),
        (16_000, 0.04),
        (25_000, 0.1),
        (39_000, 0.2 * 29.0 / 30.0),
        (41_000, 1.0),
    ] {
        let mut switch = Switch::new(0, [0, 1], config.clone(), 1);
        for packet in 0..left / 1_000 {
            switch.enqueue(0, frame(packet, 1_000, 0, 1)).unwrap();
        }
        let runs = 20_000;
        let mut marked = 0;
        for _ in 0..runs {
            switch.enqueue(0, frame(0, 1_000, 0, 1)).unwrap();
            let (frame, _) = switch.dequeue(0).unwrap();
            marked += u32::from(frame.ecn == Ecn::Marked);
        }
        let share = f64::from(marked) / f64::from(runs);
        // Five standard deviations of a binomial distribution.
        let band = 5.0 * (expected * (1.0 - expected) / f64::from(runs)).sqrt();
        let off = (share - expected).abs();
        assert!(off <= band, "{left} bytes: {share}, not {expected}");
        assert_eq!(switch.counters.marked, u64::from(marked));
    }
}

/// Whatever comes and goes: each queue keeps its order, and the books agree.
#[test]
fn queues_keep_their_order() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
    let (ports, shared, headroom) = (4_u16, 60_000, 5_000);
    for run in 0..20 {
        let lossless = run * 13;
        let config = SwitchConfig {
            lossless,
            headroom_bytes: headroom,
            buffer_bytes: shared + headroom * u64::from(ports) * u64::from(lossless.count_ones()),
            schedule: match run % 2 {
                0 => Schedule::Strict,
                _ => Schedule::Weighted([0, 1, 2, 3, 4, 1, 0, 9]),
            },
            ..SwitchConfig::default()
        };
        let mut switch = Switch::new(0, (0..ports).map(u32::from), config, 1);
        let mut queues = vec![VecDeque::new(); usize::from(ports) * PRIORITIES];
        for packet in 0..2_000 {
            let egress = rng.random_range(0..ports);
            if rng.random_bool(0.55) {
                let priority = rng.random_range(0..PRIORITIES);
                let bytes = rng.random_range(60..4_200);
                let ingress = rng.random_range(0..ports);
                let it = frame(packet, bytes, priority as u8, ingress);
                if switch.enqueue(egress, it).is_ok() {
                    queues[usize::from(egress) * PRIORITIES + priority].push_back(packet);
                }
            } else if rng.random_bool(0.02) {
                switch.set_paused(egress, rng.random());
            } else if let Some((it, _)) = switch.dequeue(egress) {
                assert_eq!(
                    switch.ports[usize::from(egress)].paused >> it.priority & 1,
                    0
                );
                let queue = usize::from(egress) * PRIORITIES + usize::from(it.priority);
                assert_eq!(queues[queue].pop_front(), Some(it.packet));
            }
            switch.audit();
        }
        for egress in 0..ports {
            switch.set_paused(egress, 0);
            while switch.dequeue(egress).is_some() {}
        }
        assert_eq!(switch.frames(), 0);
        let pausing = switch.ports.iter().map(|port| port.pausing);
        assert_eq!(pausing.max(), Some(0), "an empty switch pauses nobody");
        switch.audit();
    }
}
