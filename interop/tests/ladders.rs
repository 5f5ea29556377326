//! A profile that is applied while 64 queue pairs of 8 processes retransmit takes effect at their
//! next timer, and disturbs no data. The program `ladders` prints the deviation of timers.

use ferroce_interop::lab::{Lab, undisturbed};
use ferroce_interop::ladders::{Compared, Observation, observe};

/// Describes what differs from the prediction, or that too little was compared.
fn strays(seen: &Observation) -> Option<String> {
    let (left_out, expected) = (seen.left_out, seen.expected);
    // On a busy machine many of them have no time to settle; a quarter is enough.
    if left_out * 4 > expected * 3 {
        return Some(format!("{left_out} of {expected} not compared"));
    }
    let strays: Vec<&Compared> = seen.compared.iter().filter(|one| !one.agrees()).collect();
    (!strays.is_empty()).then(|| format!("{strays:#?}"))
}

#[test]
fn a_profile_takes_effect_at_the_next_timer_of_each_queue_pair() {
    // From the firmware's own ladder to a profile, and from that to another one.
    let profiles = ["fast-recovery", "patient"];
    let seen = undisturbed(|| observe(&Lab::new("ladders"), &profiles), strays);

    // All work is complete, or the program would have failed; and the device has seen no error.
    assert_eq!(seen.counter("req_cqe_error"), 0);
    let adaptive = seen.counter("roce_adp_retrans");
    let in_bins: u64 = seen.bins.iter().map(|bin| bin.count).sum();
    assert_eq!(in_bins, adaptive);
    // The bins hold the length of each timer; they also include a few that expired while the link
    // was up.
    for bin in &seen.bins {
        let predicted = seen.predicted_in(bin);
        assert!(bin.count >= predicted, "{predicted} predicted in {bin:?}");
    }
    // Every retransmission has a counted reason. A timer and a NAK at the same moment are two
    // reasons. After a timeout one packet is sent alone; if the answer covers more than that, the
    // next missing one is sent as well.
    let others = ["local_ack_timeout_err", "packet_seq_err"].map(|name| seen.counter(name));
    let reasons = adaptive + others.iter().sum::<u64>();
    assert!(
        (seen.compared.len() as u64..=2 * reasons).contains(&seen.repeats),
        "{} repeats for {reasons} reasons",
        seen.repeats
    );
}
