//! Timers of packets that have left, and of packets that wait for the port.

use ferroce_device::WcStatus;
use ferroce_testing::flight::Flight;
use ferroce_testing::{A, B, Fate};

use super::Cards;

#[test]
fn an_ack_timer_starts_when_the_packet_has_left() {
    // At 10 Mb/s a packet takes 3.3 ms.
    let mut cards = Cards::new(10, 1);
    cards.pair.sides[B].deaf = true;
    cards.write(0, 4096);
    while cards.pair.sides[A].expiries().is_empty() {
        assert!(cards.pair.step());
    }
    let wait = cards.pair.sides[A].expiries()[0].wait;
    let departure = cards.sent(0)[0].departure;
    assert_eq!(cards.pair.now, departure.after(wait));
}

#[test]
fn repeats_queued_at_the_port_do_not_time_out() {
    // Enough others are in front of the repetition that it leaves long after the next timeout.
    let others = 20;
    let mut cards = Cards::new(1_000, others + 1);
    let victim = cards.qpns[others][B];
    let is_its = move |flight: &Flight| flight.dest_qp == Some(victim);
    cards.pair.net().rules.strike(1, Fate::Lost, is_its);
    cards.write(others, 4096);
    cards.pair.settle();
    for qp in 0..others {
        cards.write(qp, 16 * 4096);
    }
    while cards.sent(others).len() < 2 {
        assert!(cards.pair.step());
    }
    let expiries = cards.pair.sides[A].expiries();
    let sent = cards.sent(others);
    let waited = sent[1].at.since(sent[0].departure);
    assert!(waited > 4 * expiries[0].wait, "{waited} was short");
    assert_eq!(expiries.len(), 1, "nothing else was lost: {expiries:?}");
    cards.pair.run();
    let done = &cards.pair.sides[A].completions;
    assert_eq!(done.len(), others + 1);
    assert!(done.iter().all(|it| it.status == WcStatus::Success));
}
