//! Whatever the links of two devices do, in both directions and at both ends, each message is
//! delivered exactly once and in order with the right bytes, or its queue pair ends in the
//! documented error, in the time that its total timeout allows; and the counters tell what
//! happened.
//!
//! `FERROCE_RUNS` says how many random scenarios to try, `FERROCE_SEED` where to begin; a
//! failing one prints its seed, and `FERROCE_SEED=<seed> FERROCE_RUNS=1` repeats it.

#[path = "../common/mod.rs"]
mod common;
mod dice;
mod oracle;
mod play;
mod scenario;
mod unreliable;

use scenario::Scenario;

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().expect("a decimal number"),
        Err(_) => default,
    }
}

#[test]
fn seeded_runs() {
    let first = number("FERROCE_SEED", 1);
    let runs = number("FERROCE_RUNS", 300);
    let (mut sent, mut done, mut clean) = (0, 0, 0);
    for seed in first..first + runs {
        let _named = Named(seed);
        let outcome = play::play(seed);
        sent += outcome.sent;
        done += outcome.done;
        clean += u64::from(outcome.sent == outcome.done);
    }
    // A test in which everything fails proves little, and so does one in which nothing does.
    assert!(2 * done >= sent || runs < 100, "{done} of {sent} messages");
    assert!(clean < runs || runs < 100, "no run with an error");
    println!("{done} of {sent} messages arrived; {clean} of {runs} runs had no error");
}

#[test]
fn seeded_runs_of_unreliable_services() {
    let first = number("FERROCE_SEED", 1);
    let runs = number("FERROCE_RUNS", 300);
    let (mut sent, mut delivered) = (0, 0);
    for seed in first..first + runs {
        let _named = Named(seed);
        let outcome = unreliable::play(seed);
        sent += outcome.sent;
        delivered += outcome.delivered;
    }
    assert!(2 * delivered >= sent || runs < 100, "most are lost");
    assert!(delivered < sent || runs < 100, "nothing is lost");
    println!("{delivered} of {sent} messages were received");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 1..=12 {
        let _named = Named(seed);
        let run = || {
            let mut trace = Vec::new();
            play::play_once(&Scenario::new(seed), Some(&mut trace));
            trace
        };
        let (first, second) = (run(), run());
        assert!(!first.is_empty());
        play::assert_same(&first, &second);
    }
    let packets = |seed| {
        let mut trace = Vec::new();
        play::play_once(&Scenario::new(seed), Some(&mut trace));
        trace
    };
    assert_ne!(packets(1), packets(2));
}

/// Prints the seed of a run that panics.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("failed with FERROCE_SEED={}", self.0);
        }
    }
}
