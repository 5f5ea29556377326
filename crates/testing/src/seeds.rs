//! Runs with different seeds.

use std::env;

/// Tries many seeds, each of which is a run. `FERROCE_SEED` says where to begin, `FERROCE_RUNS` how
/// many to try; a run that panics prints its seed.
pub fn each(default_runs: u64, mut run: impl FnMut(u64)) -> u64 {
    let first = number("FERROCE_SEED", 1);
    let runs = number("FERROCE_RUNS", default_runs);
    for seed in first..first + runs {
        named(seed, &mut run);
    }
    runs
}

/// A run that prints its seed if it panics.
pub fn named<T>(seed: u64, run: impl FnOnce(u64) -> T) -> T {
    let _named = Named(seed);
    run(seed)
}

fn number(name: &str, default: u64) -> u64 {
    match env::var(name) {
        Ok(text) => text.parse().expect("a decimal number"),
        Err(_) => default,
    }
}

struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("failed with FERROCE_SEED={}", self.0);
        }
    }
}
