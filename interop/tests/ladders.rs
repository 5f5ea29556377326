//! A profile that is applied while 64 queue pairs of 8 processes retransmit takes effect at their
//! next timer, and disturbs no data. The program `ladders` prints how far timers are off.

use ferroce_interop::lab::Lab;
use ferroce_interop::ladders::{Compared, observe};

#[test]
fn a_profile_takes_effect_at_the_next_timer_of_each_queue_pair() {
    // From the firmware's own ladder to a profile, and from that to another one.
    let seen = observe(&Lab::new("ladders"), &["fast-recovery", "patient"]);
    assert!(
        seen.left_out * 4 <= seen.expected,
        "{} of {} not compared",
        seen.left_out,
        seen.expected
    );
    let strays: Vec<&Compared> = seen.compared.iter().filter(|one| !one.agrees()).collect();
    assert!(strays.is_empty(), "not as predicted: {strays:#?}");

    // All work is complete, or the program had failed; and the device has seen no error either.
    assert_eq!(seen.counter("req_cqe_error"), 0);
    let adaptive = seen.counter("roce_adp_retrans");
    let in_bins: u64 = seen.bins.iter().map(|bin| bin.count).sum();
    assert_eq!(in_bins, adaptive);
    // The bins hold how long each timer was to run; those of a few that ran out while it was light
    // are there, too.
    for bin in &seen.bins {
        let predicted = seen.predicted_in(bin);
        assert!(bin.count >= predicted, "{predicted} predicted in {bin:?}");
    }
    // Whatever left again did so for a reason that is counted. A timer and a NAK of one moment are
    // two reasons.
    let others = ["local_ack_timeout_err", "packet_seq_err"].map(|name| seen.counter(name));
    let reasons = adaptive + others.iter().sum::<u64>();
    assert!(
        (seen.compared.len() as u64..=reasons).contains(&seen.repeats),
        "{} repeats for {reasons} reasons",
        seen.repeats
    );
}
