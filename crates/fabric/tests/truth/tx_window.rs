//! Transmission windows in a fabric: an incast into a small buffer loses less.

use ferroce_fabric::{Span, SwitchConfig, Time};
use ferroce_prm::roce_accl as reg;

use crate::net::*;

/// How long eight senders of 4 MB take to one receiver without congestion control and PFC, and how many
/// packets the full queue dropped.
fn incast(windows: bool) -> (Span, u64) {
    let mut net = Net::new(star(9, LINK));
    net.selective = true;
    // Short timers: the last packets of a small window have no successor that reveals their loss.
    net.personality.initial_exponent = Some(4);
    net.switch = SwitchConfig {
        lossless: 0,
        buffer_bytes: 1 << 20,
        ..SwitchConfig::default()
    };
    if windows {
        net.switched = vec![&reg::ROCE_TX_WINDOW_EN];
    }
    let transfers = (1..9).map(|host| transfer(host, 0, 4_000_000)).collect();
    let played = net.play(transfers, job());
    let dropped = played.of_switches(|it| it.dropped_full);
    (played.end().since(Time::ZERO), dropped)
}

#[test]
fn windows_spare_a_small_buffer() {
    let (without, lost) = incast(false);
    let (with, lost_with) = incast(true);
    assert!(lost > 1_000, "{lost}");
    assert!(lost_with * 10 < lost, "{lost_with} of {lost}");
    assert!(with <= without, "{with:?} {without:?}");
}
