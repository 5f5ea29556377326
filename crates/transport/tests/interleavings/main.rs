//! Whatever a wire does to the packets of two queue pairs, each message is delivered exactly once
//! and in order with the right bytes, or the queue pair ends in the documented error.
//!
//! `FERROCE_RUNS` says how many random scenarios to try, `FERROCE_SEED` where to begin; a
//! failing one prints its seed, and `FERROCE_SEED=<seed> FERROCE_RUNS=1` repeats it.

#[path = "../common/mod.rs"]
mod common;
mod oracle;
mod play;
mod scenario;

use ferroce_testing::seeds;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use scenario::{Scenario, scenario};

proptest! {
    #![proptest_config(Config { cases: 48, failure_persistence: None, ..Config::default() })]

    #[test]
    fn messages_arrive_once_and_in_order_or_fail_as_documented(
        scenario in scenario(),
    ) {
        play::play(&scenario);
    }

    /// Copies cost bandwidth, never time: recovery from them must not need a timer.
    #[test]
    fn a_wire_that_only_duplicates_never_costs_a_timeout(scenario in scenario()) {
        let scenario = Scenario {
            loss_per_mille: 0,
            delay_per_mille: 0,
            timeout: 0,
            rnr_retry: 7,
            ..scenario
        };
        let outcome = play::play(&scenario);
        prop_assert!(outcome.completed);
    }
}

#[test]
fn seeded_runs() {
    let strategy = scenario();
    let mut completed = 0;
    let runs = seeds::each(1_000, |seed| {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let scenario = strategy.new_tree(&mut runner).unwrap().current();
        completed += u64::from(play::play(&scenario).completed);
    });
    // A test in which everything fails proves little.
    assert!(
        2 * completed >= runs || runs < 100,
        "{completed} of {runs} completed"
    );
    println!("{completed} of {runs} completed without an error");
}
