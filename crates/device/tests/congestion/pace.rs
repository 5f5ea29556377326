//! How a limited queue pair sends.

use ferroce_device::{Counter, Mtu, QpAttr, QpState};
use ferroce_wire::{PKEY_DEFAULT, cnp};

use super::{HOLD, Stream, mark, set};
use ferroce_prm::roce_accl as reg;
use ferroce_testing::register::{image, write};
use ferroce_testing::{A, B, attr};

/// Header, sometimes RETH, and ICRC: what counts besides the payload.
const FRAME_MAX: f64 = 32.0;
const FRAME_MIN: f64 = 16.0;

/// A stream that is held at `mbps`.
pub(super) fn held_at(mbps: u32, mtu: Mtu) -> Stream {
    let mut stream = Stream::with(
        QpAttr {
            path_mtu: mtu,
            timeout: 17,
            ..attr()
        },
        &[&[&*format!("rate_to_set_on_first_cnp={mbps}")], &HOLD[..]].concat(),
    );
    let headers = cnp::headers(stream.a, PKEY_DEFAULT);
    stream
        .pair
        .give(A, 0, &headers, ferroce_device::Data::Length(0));
    assert_eq!(stream.limit_mbps(), Some(mbps.into()));
    stream
}

#[test]
fn the_rate_is_held_from_1_mbps_to_10_gbps() {
    for (mbps, mtu, ns) in [
        (1, Mtu::Mtu256, 3_000_000_000),
        (1, Mtu::Mtu4096, 4_000_000_000),
        (7, Mtu::Mtu1024, 2_000_000_000),
        (100, Mtu::Mtu1024, 500_000_000),
        (1_000, Mtu::Mtu4096, 100_000_000),
        (10_000, Mtu::Mtu4096, 30_000_000),
        (10_000, Mtu::Mtu1024, 20_000_000),
    ] {
        let mut stream = held_at(mbps, mtu);
        let payload = stream.run(ns, 25_000.max(ns / 4_000), super::MESSAGE) as f64;
        let packets = payload / f64::from(mtu.bytes());
        let seen = |frame| (payload + packets * frame) * 8e3 / ns as f64;
        let (least, most) = (seen(FRAME_MIN), seen(FRAME_MAX));
        let wanted = f64::from(mbps);
        assert!(
            most > 0.98 * wanted && least < 1.02 * wanted,
            "{mbps} Mb/s, {mtu:?}: {least}..{most}"
        );
        assert_eq!(stream.limit_mbps(), Some(wanted));
        let repeated = stream.pair.count(A, Counter::RetransmittedPackets);
        assert_eq!(repeated, 0, "{mbps} Mb/s, {mtu:?}");
        assert_eq!(stream.pair.sides[A].state(stream.a), QpState::Rts);
    }
}

#[test]
fn batches_leave_and_not_single_packets() {
    let mut stream = held_at(10_000, Mtu::Mtu4096);
    let (moments, packets) = (stream.pair.moments, stream.pair.sides[A].sent.0);
    stream.run(10_000_000, 1_000_000, super::MESSAGE);
    let moments = stream.pair.moments - moments;
    let packets = stream.pair.sides[A].sent.0 - packets;
    assert!(packets > 2_500, "{packets} packets");
    assert!(
        moments * 4 < packets,
        "{moments} moments, {packets} packets"
    );
}

#[test]
fn an_idle_queue_pair_gets_at_most_a_short_burst() {
    let mut stream = held_at(100, Mtu::Mtu1024);
    stream.pair.run_for(1_000_000_000);
    let bytes = stream.run(1_000, 1_000, super::MESSAGE);
    // Half a millisecond at 100 Mb/s are 6 KB, and the last turn in it begins a burst of 4 KB.
    assert!((8_192..=10_240).contains(&bytes), "{bytes} bytes at once");
}

#[test]
fn bursts_are_as_long_as_the_register_says() {
    // At 10 Mb/s, where the host's own batches are shorter than a packet.
    for (code, packets) in [(0, 4), (1, 8), (2, 16), (7, 2)] {
        let mut stream = held_at(10, Mtu::Mtu1024);
        let register = image(&[(&reg::CC_BURST_SIZE_SELECT, 1), (&reg::CC_BURST_SIZE, code)]);
        write(&mut stream.pair.sides[A].hca, &register).unwrap();
        stream.run(100_000_000, 100_000, super::MESSAGE);
        let mut bursts = Vec::new();
        for _ in 0..1_000 {
            let bytes = stream.run(100_000, 100_000, super::MESSAGE);
            if bytes > 0 {
                bursts.push(bytes / 1024);
            }
        }
        assert!(bursts.iter().all(|it| *it == packets), "{code}: {bursts:?}");
        // 10 Mb/s for a tenth of a second, whatever the burst.
        let sent = bursts.iter().sum::<u64>() as f64 * 1_040.0;
        let off = sent / 125_000.0 - 1.0;
        assert!(off.abs() < 0.15, "{code}: {sent}");
    }
}

#[test]
fn a_paced_queue_pair_sets_a_timer() {
    let mut stream = held_at(1, Mtu::Mtu4096);
    stream.post(16 << 10);
    stream.pair.settle();
    let (now, hca) = (stream.pair.now, &mut stream.pair.sides[A].hca);
    assert!(!hca.wants_transmit(), "it would spin");
    let ahead = hca.poll_timeout().unwrap().since(now).as_nanos();
    // One packet takes 33 ms; nothing else runs but the ACK timer.
    assert!(ahead <= 33_200_000 && ahead > 0, "{ahead} ns");
    hca.audit();
}

#[test]
fn marks_slow_a_stream_down_and_their_end_lets_it_recover() {
    let fast = &[
        "rate_to_set_on_first_cnp=1000",
        "rpg_time_reset=50",
        "rpg_ai_rate=100",
        "rpg_hai_rate=1000",
        "rpg_max_rate=2000",
    ];
    let mut stream = Stream::new(fast);
    let ms = 1_000_000;
    mark(&mut stream.pair, B, 0.5);
    stream.run(5 * ms, 10_000, super::MESSAGE);
    let marked = stream.run(5 * ms, 10_000, super::MESSAGE);
    assert!(stream.limit_mbps().is_some_and(|mbps| mbps < 2_000.0));

    mark(&mut stream.pair, B, 0.0);
    stream.run(50 * ms, 100_000, super::MESSAGE);
    assert_eq!(stream.limit_mbps(), None, "released");
    let free = stream.run(5 * ms, 10_000, super::MESSAGE);
    assert!(
        free > 2 * marked,
        "{marked} bytes under marks, {free} after"
    );
    assert_eq!(stream.pair.sides[A].state(stream.a), QpState::Rts);
}

#[test]
fn a_new_queue_pair_starts_without_a_limit() {
    let mut stream = held_at(1, Mtu::Mtu1024);
    stream.post(8_192);
    stream.pair.settle();
    for (side, qpn) in [(A, stream.a), (B, stream.b)] {
        stream.pair.sides[side].move_to(qpn, QpState::Reset);
    }
    assert_eq!(stream.limit_mbps(), None);
    stream.pair.connect([stream.a, stream.b], attr());
    stream.pair.sides[A].completions.clear();
    stream.post(8_192);
    stream.pair.run_for(1_000_000);
    assert_eq!(stream.pair.sides[A].completions.len(), 1);
}

#[test]
fn a_change_of_parameters_shows_within_one_increase_period() {
    let mut stream = held_at(100, Mtu::Mtu1024);
    let period_ns = 2_000_000;
    let hca = &stream.pair.sides[A].hca;
    set(hca, &["rpg_time_reset=2000", "rpg_threshold=1"]);
    // The current period ends as it was set.
    stream.run(131_071_000, 1_000_000, super::MESSAGE);
    let before = stream.limit_mbps().unwrap();
    stream.run(10 * period_ns, 100_000, super::MESSAGE);
    let slow = stream.limit_mbps().unwrap() - before;
    assert!(slow > 0.0 && slow <= 10.0, "{slow} Mb/s in ten periods");

    set(&stream.pair.sides[A].hca, &["rpg_ai_rate=200"]);
    let before = stream.limit_mbps().unwrap();
    stream.run(period_ns, 100_000, super::MESSAGE);
    let jump = stream.limit_mbps().unwrap() - before;
    // The current rate moves half-way to the target.
    assert!((100.0..110.0).contains(&jump), "{jump} Mb/s in one period");
}
