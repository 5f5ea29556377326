//! The effect of an impaired link on packets.

use ferroce_dcqcn::{CongestionPoint, Rate};

use super::*;
use crate::impair::{Bottleneck, BurstLoss};
use crate::settings::Personality;

impl HeldPacket for u32 {
    fn is_ecn_capable(&self) -> bool {
        true
    }

    fn apply_damage(&mut self, damage: &Damage) {
        *self |= Self::from(damage.ecn_mark) << 31;
        *self |= Self::from(damage.corrupt_bit.is_some()) << 30;
    }
}

const BYTES: u32 = 1_000;

/// A link and the state of its device.
struct Impairer {
    link: Active<u32>,
    state: DeviceState,
}

impl Impairer {
    fn new(impairment: Impairment) -> Self {
        let mut link = Self {
            link: Active::new(Direction::Egress, 7),
            state: DeviceState::new(Personality::default()),
        };
        link.set(Time::ZERO, impairment);
        link
    }

    fn set(&mut self, now: Time, impairment: Impairment) {
        self.link.set(&impairment, now, &self.state);
    }

    /// Puts a packet on the link; returns it if it passes at once.
    fn put(&mut self, now: Time, mut packet: u32) -> Option<u32> {
        match self.link.admit(now, BYTES, &self.state)? {
            Release::Now(damage) => {
                packet.apply_damage(&damage);
                return Some(packet);
            }
            Release::Later(later) => self.link.hold(later, packet),
        }
        None
    }

    fn poll(&mut self, now: Time) -> Option<u32> {
        self.link.poll(now, &self.state)
    }
}

/// What comes out of 10 000 packets, one a microsecond, with the time it comes out.
fn run(impairment: Impairment) -> Vec<(u64, u32)> {
    let mut link = Impairer::new(impairment);
    let mut out = Vec::new();
    for n in 0..10_000u32 {
        let now = Time::from_nanos(u64::from(n) * 1000);
        while let Some(packet) = link.poll(now) {
            out.push((now.as_nanos(), packet));
        }
        if let Some(packet) = link.put(now, n) {
            out.push((now.as_nanos(), packet));
        }
    }
    while let Some(at) = link.link.next() {
        out.extend(link.poll(at).map(|packet| (at.as_nanos(), packet)));
    }
    out
}

#[test]
fn loss_and_bursts_lose_what_they_say() {
    let random = run(Impairment {
        loss: 0.1,
        ..Impairment::default()
    });
    assert!((8_800..9_200).contains(&random.len()), "{}", random.len());
    let burst = BurstLoss {
        enter: 0.001,
        mean_length: 20.0,
    };
    let bursts = run(Impairment {
        burst: Some(burst),
        ..Impairment::default()
    });
    let gaps = bursts.windows(2).filter(|w| w[1].1 - w[0].1 > 1).count();
    let lost = 10_000 - bursts.len();
    assert!(gaps > 0 && lost > 5 * gaps, "{lost} lost in {gaps} gaps");
}

#[test]
fn jitter_keeps_the_order_and_reordering_does_not() {
    let steady = run(Impairment {
        delay: Span::from_nanos(5_000),
        jitter: Span::from_nanos(50_000),
        ..Impairment::default()
    });
    assert!(steady.is_sorted_by_key(|(_, n)| *n));
    assert!(
        steady
            .iter()
            .all(|(at, n)| at - u64::from(*n) * 1000 >= 5_000)
    );
    let mixed = run(Impairment {
        reorder: 0.01,
        reorder_by: Span::from_nanos(20_000),
        ..Impairment::default()
    });
    assert_eq!(mixed.len(), 10_000);
    assert!(!mixed.is_sorted_by_key(|(_, n)| *n));
}

#[test]
fn a_blackout_lets_nothing_through() {
    let from = Time::from_nanos(2_000_000);
    let blackouts = vec![Blackout {
        from,
        length: Span::from_nanos(3_000_000),
    }];
    let out = run(Impairment {
        blackouts,
        ..Impairment::default()
    });
    assert_eq!(out.len(), 7_000);
    assert!(out.iter().all(|(_, n)| !(2_000..5_000).contains(n)));
}

#[test]
fn duplicates_marks_and_corruption_reach_the_packet() {
    let twice = run(Impairment {
        duplicate: 1.0,
        ..Impairment::default()
    });
    assert_eq!(twice.len(), 20_000);
    let damaged = run(Impairment {
        corrupt: 1.0,
        ecn_mark: 1.0,
        ..Impairment::default()
    });
    assert!(damaged.iter().all(|(_, n)| n >> 30 == 3));
}

#[test]
fn the_same_seed_gives_the_same_link() {
    let bad = || Impairment {
        loss: 0.1,
        reorder: 0.1,
        reorder_by: Span::from_nanos(9_000),
        ..Impairment::default()
    };
    assert_eq!(run(bad()), run(bad()));
}

#[test]
fn a_link_that_has_no_bursts_any_more_leaves_the_one_it_is_in() {
    let endless = Impairment {
        burst: Some(BurstLoss {
            enter: 1.0,
            mean_length: 1e9,
        }),
        ..Impairment::default()
    };
    let mut link = Impairer::new(endless);
    assert_eq!(link.put(Time::ZERO, 1), None);
    let marks = Impairment {
        ecn_mark: 1.0,
        ..Impairment::default()
    };
    link.set(Time::ZERO, marks);
    assert_eq!(link.put(Time::ZERO, 2), Some(1 << 31 | 2));
}

#[test]
fn packets_do_not_overtake_those_held_when_the_link_gets_better() {
    let slow = Impairment {
        delay: Span::from_nanos(500),
        ..Impairment::default()
    };
    let mut link = Impairer::new(slow);
    assert_eq!(link.put(Time::ZERO, 1), None);
    link.set(Time::ZERO, Impairment::default());
    assert_eq!(link.put(Time::from_nanos(100), 2), None);
    assert!(!link.link.is_clear());
    let end = Time::from_nanos(500);
    assert_eq!(link.link.next(), Some(end));
    assert_eq!([link.poll(end), link.poll(end)], [Some(1), Some(2)]);
    assert!(link.link.is_clear());
}

#[test]
fn a_link_holds_so_many_packets_and_no_more() {
    let slow = Impairment {
        delay: Span::NEVER,
        duplicate: 1.0,
        ..Impairment::default()
    };
    let mut link = Impairer::new(slow);
    let lost = |link: &Impairer| link.state.counter(Counter::ImpairLost);
    for n in 0..Impairment::HELD_MAX as u32 / 2 {
        link.put(Time::ZERO, n);
    }
    assert_eq!(lost(&link), 0);
    link.put(Time::ZERO, 0);
    assert_eq!(lost(&link), 1);
}

/// All that waits in the queue is copied as it leaves it.
#[test]
fn copies_take_room_too() {
    let slow = Impairment {
        delay: Span::NEVER,
        duplicate: 1.0,
        bottleneck: Some(Bottleneck {
            limit_bytes: u32::MAX,
            ..Bottleneck::new(Rate::from_mbps(1_000))
        }),
        ..Impairment::default()
    };
    let mut link = Impairer::new(slow);
    for n in 0..=Impairment::HELD_MAX as u32 {
        link.put(Time::ZERO, n);
    }
    assert_eq!(link.link.len(), Impairment::HELD_MAX);
    assert_eq!(link.poll(Time::from_nanos(3_600_000_000_000)), None);
    assert_eq!(link.link.len(), Impairment::HELD_MAX);
    // The first one did not wait, and there was room.
    assert_eq!(link.state.counter(Counter::ImpairDuplicated), 1);
}

/// One that takes `us` for each packet.
fn bottleneck(us: u32, red: Option<CongestionPoint>) -> Impairment {
    Impairment {
        bottleneck: Some(Bottleneck {
            red,
            ..Bottleneck::new(Rate::from_mbps(BYTES * 8 / us))
        }),
        ..Impairment::default()
    }
}

#[test]
fn a_bottleneck_lets_out_packets_at_its_rate_in_order() {
    // Half of the packets that come fit through; 4000 fit into the queue.
    let out = run(bottleneck(2, None));
    assert!((8_990..=9_010).contains(&out.len()), "{}", out.len());
    assert!(out.is_sorted_by_key(|(_, n)| *n));
    let late = out.last().unwrap().0;
    assert_eq!(late, out.len() as u64 * 2_000);
}

#[test]
fn an_underloaded_bottleneck_delays_by_one_packet_time() {
    let out = run(bottleneck(1, CongestionPoint::new(0, 0, 0).ok()));
    assert!(out.iter().all(|(at, n)| at - u64::from(*n) * 1000 == 1_000));
    assert_eq!(out.len(), 10_000, "and none is marked");
}

#[test]
fn packets_are_marked_by_what_they_leave_behind() {
    let red = CongestionPoint::new(2_000, 2_000, 0).ok();
    let mut link = Impairer::new(bottleneck(1, red));
    for n in 0..5 {
        assert_eq!(link.put(Time::ZERO, n), None);
    }
    // The first leaves at once, with no packet behind it. The sixth joins when the third has left.
    let third = Time::from_nanos(2_500);
    let mut out: Vec<_> = std::iter::from_fn(|| link.poll(third)).collect();
    link.put(third, 5);
    while let Some(at) = link.link.next() {
        out.extend(link.poll(at));
    }
    let marked = 1 << 31;
    assert_eq!(out, [0, marked | 1, 2, 3, 4, 5]);
    let marks = link.state.counter(Counter::ImpairEcnMarked);
    assert_eq!(marks, 1);
}

#[test]
fn a_full_queue_drops_and_counts() {
    let mut link = Impairer::new(Impairment {
        bottleneck: Some(Bottleneck {
            limit_bytes: 3_000,
            ..Bottleneck::new(Rate::from_mbps(8))
        }),
        ..Impairment::default()
    });
    for n in 0..5 {
        link.put(Time::ZERO, n);
    }
    assert_eq!(link.state.counter(Counter::ImpairQueueFull), 2);
    let backlog = link.state.backlog(Direction::Egress);
    let queue = link.link.impairment.bottleneck.unwrap();
    assert_eq!(backlog.bytes(&queue, Time::from_nanos(500_000)), 2_500);
}

#[test]
fn waiting_packets_requeue_when_the_rate_changes() {
    let slow = bottleneck(8_000, None);
    let mut link = Impairer::new(slow);
    for n in 0..3 {
        assert_eq!(link.put(Time::ZERO, n), None);
    }
    link.state.backlog(Direction::Egress).clear();
    link.set(Time::from_nanos(1_000), bottleneck(1, None));
    // The first one is on its way already, and the others do not overtake it.
    let first = Time::from_nanos(8_000_000);
    assert_eq!(link.poll(Time::from_nanos(7_999_999)), None);
    let out: Vec<_> = std::iter::from_fn(|| link.poll(first)).collect();
    assert_eq!(out, [0, 1, 2]);
}

#[test]
fn waiting_traffic_continues_without_the_bottleneck() {
    let mut link = Impairer::new(bottleneck(8_000, None));
    for n in 0..3 {
        assert_eq!(link.put(Time::ZERO, n), None);
    }
    link.set(Time::ZERO, Impairment::default());
    assert_eq!(link.put(Time::ZERO, 3), None, "it would overtake");
    let mut out = Vec::new();
    while let Some(at) = link.link.next() {
        assert!(at.as_nanos() <= 8_000_000);
        out.extend(link.poll(at));
    }
    assert_eq!(out, [0, 1, 2, 3]);
    assert!(link.link.is_clear());
}
