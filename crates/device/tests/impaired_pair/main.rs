//! Whatever the links of two devices do, in both directions and at both ends, each message is
//! delivered exactly once and in order with the right bytes, or its queue pair ends in the
//! documented error, in the time that its total timeout allows; and the counters tell what
//! happened.
//!
//! `FERROCE_RUNS` says how many random scenarios to try, `FERROCE_SEED` where to begin; a
//! failing one prints its seed, and `FERROCE_SEED=<seed> FERROCE_RUNS=1` repeats it.

mod dc;
mod oracle;
mod play;
mod scenario;
mod unreliable;

use ferroce_testing::seeds;
use scenario::Scenario;

#[test]
fn seeded_runs() {
    let (mut sent, mut done, mut clean) = (0, 0, 0);
    let runs = seeds::each(300, |seed| {
        let outcome = play::play(seed);
        sent += outcome.sent;
        done += outcome.done;
        clean += u64::from(outcome.sent == outcome.done);
    });
    // A test in which everything fails proves little, and so does one in which nothing does.
    assert!(2 * done >= sent || runs < 100, "{done} of {sent} messages");
    assert!(clean < runs || runs < 100, "no run with an error");
    println!("{done} of {sent} messages arrived; {clean} of {runs} runs had no error");
}

#[test]
fn seeded_runs_of_unreliable_services() {
    let (mut sent, mut delivered) = (0, 0);
    let runs = seeds::each(300, |seed| {
        let outcome = unreliable::play(seed);
        sent += outcome.sent;
        delivered += outcome.delivered;
    });
    assert!(2 * delivered >= sent || runs < 100, "most are lost");
    assert!(delivered < sent || runs < 100, "nothing is lost");
    println!("{delivered} of {sent} messages were received");
}

#[test]
fn seeded_runs_of_the_dynamically_connected_transport() {
    let (mut sent, mut done, mut connects) = (0, 0, 0);
    let runs = seeds::each(1000, |seed| {
        let outcome = dc::play(seed);
        sent += outcome.sent;
        done += outcome.done;
        connects += outcome.connects;
    });
    assert!(2 * done >= sent || runs < 100, "{done} of {sent} messages");
    assert!(done < sent || runs < 100, "no run with an error");
    assert!(connects > 2 * runs || runs < 100, "{connects} connections");
    println!("{done} of {sent} messages arrived over {connects} connections");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut trace = Vec::new();
        play::play_once(&Scenario::new(seed), Some(&mut trace));
        trace
    };
    for seed in 1..=12 {
        let [first, second] = [(); 2].map(|()| seeds::named(seed, run));
        assert!(!first.is_empty());
        play::assert_same(&first, &second);
    }
    assert_ne!(run(1), run(2));
}
