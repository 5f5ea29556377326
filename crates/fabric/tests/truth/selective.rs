//! Selective repeat in a fabric, compared with go-back-N with and without PFC, as IRN's authors did
//! (Mittal et al., SIGCOMM 2018): without PFC it is far ahead, and about as fast as go-back-N with it.

use ferroce_dcqcn::{CongestionPoint, Params};
use ferroce_device::Counter;
use ferroce_fabric::{Span, SwitchConfig};

use crate::net::*;

/// How long eight senders of 16 MB take to one receiver, how many packets full queues dropped, and how
/// many were sent again.
fn incast(selective: bool, pfc: bool) -> (Span, u64, u64) {
    let mut net = Net::new(star(9, LINK));
    net.selective = selective;
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

#[test]
fn the_order_is_that_of_irn() {
    let (back, ..) = incast(false, false);
    let (back_with_pfc, dropped, _) = incast(false, true);
    assert_eq!(dropped, 0);
    let (selective, dropped, again) = incast(true, false);
    assert!(dropped > 1_000, "{dropped}");
    println!("{back:?} {selective:?} {back_with_pfc:?}");
    assert!(
        again.abs_diff(dropped) < dropped / 20,
        "{again} for {dropped}"
    );
    assert!(ratio(back, selective) > 3.0, "{back:?} {selective:?}");
    let to_pfc = ratio(selective, back_with_pfc);
    assert!(to_pfc < 1.5, "{selective:?} {back_with_pfc:?}");
}
