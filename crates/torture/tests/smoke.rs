//! Some seeds: what no change may break.

use std::sync::Arc;

use ferroce_torture::{Coverage, HOSTS_MAX, generate, play, shrink};

/// A few seconds, with scripts of a hundred lines and more.
const SEEDS: u64 = 1_000;

#[test]
fn no_seed_finds_anything() {
    let mut coverage = Coverage::default();
    for seed in 1..=SEEDS {
        let script = generate(seed);
        let report = play(&script);
        assert_eq!(
            report.finding, None,
            "seed {seed}: ferroce torture --seeds 1 --from {seed}"
        );
        coverage.add(&report.coverage);
    }
    let (reached, all) = coverage.pairs();
    assert!(2 * reached > all, "{coverage}");
    assert!(coverage.operations() > 100 * SEEDS, "{coverage}");
    for happened in [
        "disconnected",
        "established",
        "no listener",
        "refused",
        "stale",
        "unreachable, to the tick",
    ] {
        let mut dialled = coverage.dials.iter();
        assert!(
            dialled.any(|(name, _)| *name == happened),
            "{happened}: {coverage}"
        );
    }
    assert!(coverage.injected > 0, "{coverage}");
}

#[test]
fn a_seed_always_does_the_same() {
    for seed in 1..50 {
        let script = generate(seed);
        assert_eq!(script, generate(seed));
        assert_eq!(script.to_string().parse(), Ok(script.clone()));
        assert_eq!(play(&script).coverage, play(&script).coverage);
    }
}

#[test]
fn some_seeds_have_thousands_of_queue_pairs() {
    let large = (1..5_000)
        .map(generate)
        .find(|script| script.lines.len() > 10_000);
    let script = large.expect("one in a thousand");
    assert!(script.lines.iter().any(|line| line.host == HOSTS_MAX - 1));
    assert_eq!(play(&script).finding, None);
}

#[test]
fn a_script_without_a_finding_does_not_shrink() {
    assert_eq!(shrink(&generate(1), 10, &Arc::default()), None);
}
