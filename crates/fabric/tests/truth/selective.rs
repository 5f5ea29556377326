//! Selective repeat in a fabric, compared with go-back-N with and without PFC, as IRN's authors did
//! (Mittal et al., SIGCOMM 2018): without PFC it is far ahead, and about as fast as go-back-N with it.

use ferroce_dcqcn::{CongestionPoint, Params};
use ferroce_device::Counter;
use ferroce_fabric::{Span, SwitchConfig};

use crate::net::*;

/// How long eight senders of 16 MB take to one receiver, how many packets full queues dropped, and how
/// many were sent again.
fn incast(selective: bool, pfc: bool, seed: u64) -> (Span, u64, u64) {
    let mut net = Net::new(star(9, LINK));
    net.selective = selective;
    net.seed = seed;
    net.switch = SwitchConfig {
        lossless: u8::from(pfc),
        buffer_bytes: if pfc { 4 << 20 } else { 1 << 20 },
        ..SwitchConfig::default()
    };
    net.congestion = Some(Params::default());
    net.switch.ecn = CongestionPoint::new(100_000, 400_000, 200_000).ok();
    let transfers = (1..9).map(|host| transfer(host, 0, 16_000_000)).collect();
    let played = net.play(transfers, job());
    let dropped = played.of_switches(|it| it.dropped_full);
    let of_host = |host| {
        let hca = &played.0.fabric.host(host).hca;
        hca.counter(Counter::RetransmittedPackets)
    };
    let again = (1..9).map(of_host).sum();
    (
        played.end().since(ferroce_fabric::Time::ZERO),
        dropped,
        again,
    )
}

/// Without PFC, a timer that finds the last packet of a message takes longer than all else. How many are needed
/// is a matter of chance, so medians are compared, and the shortest time of selective repeat with that of PFC.
#[test]
fn the_order_is_that_of_irn() {
    let sorted = |selective| {
        let mut took = [1, 2, 3, 4, 5, 6, 7].map(|seed| {
            let (took, dropped, again) = incast(selective, false, seed);
            assert!(dropped > 1_000, "{dropped}");
            let is_exact = again.abs_diff(dropped) < dropped / 20;
            assert!(is_exact || !selective, "{again} for {dropped}");
            took
        });
        took.sort();
        took
    };
    let (back, selective) = (sorted(false), sorted(true));
    let (back_with_pfc, dropped, _) = incast(false, true, 1);
    assert_eq!(dropped, 0);
    println!("{back:?} {selective:?} {back_with_pfc:?}");
    assert!(ratio(back[3], selective[3]) > 3.0);
    assert!(ratio(selective[0], back_with_pfc) < 1.5);
}
