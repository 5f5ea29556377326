//! Priorities that are paused instead of dropped.

use ferroce_device::{Qos, Trust, VlanId};
use ferroce_fabric::topology::CableSpec;
use ferroce_fabric::{Fault, JobConfig, Rate, Span, Time, Transfer};

use crate::net::*;

/// The longest frame on the wire.
fn frame() -> u64 {
    packets(4_096, 4_096)[0]
}

/// What a port may still receive after it asks for a pause: the pause waits for a frame that is
/// being sent, and takes its own time and that of the cable. Meanwhile the other end continues, and
/// then finishes the frame that it has begun; what is on the cable arrives as well.
pub(crate) fn headroom(rate: Rate, delay: Span) -> u64 {
    let on_the_way = u128::from(rate.bps()) * u128::from(2 * delay.as_picos());
    let on_the_way = on_the_way.div_ceil(8_000_000_000_000) as u64;
    2 * frame() + PAUSE_WIRE + on_the_way
}

/// An incast in a fabric whose buffers are small enough for pauses.
fn incast(senders: u32, bytes: u32, link: CableSpec) -> (Net, Vec<Transfer>) {
    let mut net = Net::new(star(senders + 1, link));
    net.switch.headroom_bytes = headroom(link.rate, link.delay);
    let ports = u64::from(senders) + 1;
    net.switch.buffer_bytes = ports * net.switch.headroom_bytes + (400 << 10);
    let transfers = (1..=senders).map(|src| transfer(src, 0, bytes));
    (net, transfers.collect())
}

#[test]
fn an_incast_loses_nothing() {
    for (senders, bytes) in [(16, 1 << 20), (64, 256 << 10)] {
        let (net, transfers) = incast(senders, bytes, LINK);
        let played = net.play(transfers, job());
        assert_eq!(played.of_switches(|it| it.dropped_lossless), 0);
        assert_eq!(played.timeouts(), 0);
        assert!(played.pauses() > u64::from(senders), "{}", played.pauses());
        assert!(played.of_switches(|it| it.buffer_max) <= net.switch.buffer_bytes);
        let each = packets(bytes.into(), 4_096);
        let all: Vec<u64> = (0..senders).flat_map(|_| each.iter().copied()).collect();
        let busy = pipeline(&all, 2, LINK.rate, LINK.delay);
        // The port always has something to send: pauses end before the buffer is empty.
        let took = ratio(played.end().since(Time::ZERO), busy);
        assert!((1.0 - 1e-3..1.01).contains(&took), "{senders}: {took}");
    }
}

/// The computed headroom is enough, at any rate and any length of cable.
#[test]
fn computed_headroom_is_enough() {
    for (gbit, delay_ns) in [(10, 100), (100, 10), (100, 5_000), (400, 1_000), (25, 0)] {
        let link = CableSpec::new(gbps(gbit), Span::from_nanos(delay_ns));
        for senders in [2, 3, 8] {
            let (mut net, transfers) = incast(senders, 1 << 20, link);
            // In both directions, so that pauses wait for frames.
            let back = (1..=senders).map(|dst| transfer(0, dst, 1 << 20));
            net.switch.pause_alpha_log2 = -8;
            let played = net.play(transfers.into_iter().chain(back).collect(), job());
            let dropped = played.of_switches(|it| it.dropped_lossless);
            assert_eq!(dropped, 0, "{senders} at {gbit} Gb/s over {delay_ns} ns");
            assert!(played.pauses() > 0);
        }
    }
}

/// Less than what is on the cable is not enough, and that is counted; dropped packets are sent
/// again.
#[test]
fn too_small_headroom_is_counted() {
    let (mut net, transfers) = incast(8, 1 << 20, LINK);
    let enough = net.switch.headroom_bytes;
    net.switch.headroom_bytes = enough / 4;
    net.switch.buffer_bytes = 9 * net.switch.headroom_bytes + (400 << 10);
    let played = net.play(transfers, job());
    assert!(played.of_switches(|it| it.dropped_lossless) > 0);
    assert_eq!(played.of_switches(|it| it.dropped_full), 0);
}

/// Hosts 0 to 4 on one switch, 5 to 9 on the other. All but one of the former send to host 5.
fn over_the_middle() -> (Net, Vec<Transfer>) {
    let mut net = Net::new(dumbbell(5, LINK));
    net.switch.buffer_bytes = 2 << 20;
    net.switch.headroom_bytes = headroom(LINK.rate, LINK.delay);
    let incast = [0, 1, 2, 3, 6, 7, 8, 9].map(|src| transfer(src, 5, 2_000_000));
    (net, incast.to_vec())
}

/// Host 9's switch pauses the other switch, which pauses its hosts.
#[test]
fn pauses_go_from_switch_to_switch() {
    let (net, transfers) = over_the_middle();
    let played = net.play(transfers, job());
    let middle = 10;
    let pauses_of = |cable, end| played.0.fabric.line(cable, end).pauses;
    assert!(pauses_of(middle, 1) > 0, "between switches");
    assert_eq!(pauses_of(middle, 0), 0, "nothing goes that way");
    for host in [0, 1, 2, 3, 6, 7, 8, 9] {
        assert!(pauses_of(host, 1) > 0, "host {host}");
    }
    assert_eq!(played.of_switches(|it| it.dropped_lossless), 0);
    assert_eq!(played.timeouts(), 0);
}

/// A flow to an idle host is delayed because it uses the same cable as others that are paused, and
/// only then.
#[test]
fn flows_behind_a_paused_one_wait() {
    let took = |lossless: bool| {
        let (mut net, mut transfers) = over_the_middle();
        if !lossless {
            net.switch.lossless = 0;
            net.switch.buffer_bytes = 1 << 30;
        }
        // Without pauses, the 8 MB of the four flows over the middle have passed it after 640 us,
        // and wait in front of host 5 until 1,280 us.
        let mut victim = transfer(4, 6, 200_000);
        victim.at = micros(700);
        transfers.push(victim);
        net.play(transfers, job()).took(8)
    };
    let alone = pipeline(&packets(200_000, 4_096), 3, LINK.rate, LINK.delay);
    let (paused, free) = (ratio(took(true), alone), ratio(took(false), alone));
    assert!((1.0..1.01).contains(&free), "{free}");
    // With pauses, the middle carries the four flows as fast as host 5's port allows, at half its
    // rate, of which they take their share.
    assert!(paused > 2.0, "{paused} paused, {free} else");
}

/// A switch pauses the class of an incast, and a second class passes that has the other priority in
/// the field that is not trusted.
#[test]
fn a_pause_stops_one_class_by_the_trusted_field() {
    for (trust, vlan) in [(Trust::Dscp, 0), (Trust::Dscp, 7), (Trust::Pcp, 7)] {
        let bytes = 4_000_000;
        let (mut net, mut transfers) = incast(4, bytes, LINK);
        net.qos = Qos {
            trust,
            vlan: VlanId::new(vlan),
        };
        // From a sender of the incast to another one, so that only pauses could delay it.
        let mut other = transfer(1, 2, 1_000_000);
        (other.job, other.at) = (1, micros(50));
        transfers.push(other);
        let class = |(dscp, pcp): (u8, u8)| JobConfig {
            sl: pcp,
            ..job_of(dscp)
        };
        let jobs = match trust {
            Trust::Dscp => [(3, 5), (5, 3)],
            Trust::Pcp => [(5, 3), (3, 5)],
        };
        net.switch.lossless = 1 << 3;
        let played = net.play_all(transfers, vec![], jobs.map(class).to_vec());
        assert!(played.pauses() > 4, "{trust}");
        assert_eq!(played.of_switches(|it| it.dropped_lossless), 0, "{trust}");
        let tag = 4 * u64::from(vlan > 0);
        let frames = packets(1_000_000, 4_096).into_iter().map(|it| it + tag);
        let frames: Vec<_> = frames.collect();
        let alone = pipeline(&frames, 2, LINK.rate, LINK.delay);
        let took = ratio(played.took(4), alone);
        // The higher priority waits only for a frame that is being sent.
        assert!((1.0..1.01).contains(&took), "{trust}: {took}");
    }
}

/// A port that was paused when a cable was cut does not stay paused: neither those behind the cable
/// nor those whose frames were discarded.
#[test]
fn a_cut_cable_leaves_no_port_paused() {
    let cables = [
        ("a sender's", 0),
        ("the middle", 10),
        ("the receiver's", 5),
        ("another sender's", 7),
    ];
    for (name, cable) in cables {
        for at_us in (25..325).step_by(50) {
            for down_us in [1, 300] {
                let (mut net, mut transfers) = over_the_middle();
                transfers.iter_mut().for_each(|it| it.bytes = 500_000);
                net.faults = vec![
                    (micros(at_us), Fault::CableDown(cable)),
                    (micros(at_us + down_us), Fault::CableUp(cable)),
                ];
                let played = net.play(transfers, job());
                let dropped = played.of_switches(|it| it.dropped_lossless);
                assert_eq!(dropped, 0, "{name} after {at_us} us for {down_us} us");
            }
        }
    }
}
