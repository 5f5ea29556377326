//! The fuzz targets on the stable compiler: the corpus, then seeded mutations and random bytes.
//!
//! `FERROCE_FUZZ_RUNS` says how many inputs to make for each target, `FERROCE_FUZZ_SEED` where to
//! begin. A failing input is printed in hexadecimal; `cargo run -p ferroce-fuzz --bin TARGET -- --hex DIGITS`
//! repeats it.

use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use ferroce_base::random::Dice;

use crate::{TARGETS, Target, to_hex};

fn below(dice: &mut Dice, n: usize) -> usize {
    dice.below(n as u64) as usize
}

fn bytes(dice: &mut Dice, len: u64) -> Vec<u8> {
    (0..len).map(|_| dice.next() as u8).collect()
}

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name} is {text}, not a decimal number")),
        Err(_) => default,
    }
}

/// The seeds of a target in the order of their names.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    let mut seeds: Vec<_> = std::fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.expect("a directory can be listed").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "seed")
        })
        .map(|path| {
            let bytes = std::fs::read(&path).expect("a seed can be read");
            (path.display().to_string(), bytes)
        })
        .collect();
    seeds.sort();
    seeds
}

/// An input: random, or a seed with a few changes.
fn make(dice: &mut Dice, seeds: &[(String, Vec<u8>)]) -> Vec<u8> {
    if seeds.is_empty() || dice.below(3) == 0 {
        let len = match dice.below(4) {
            0 => dice.below(64),
            1 => dice.below(300),
            _ => dice.below(1500),
        };
        return bytes(dice, len);
    }
    let mut input = seeds[below(dice, seeds.len())].1.clone();
    for _ in 0..=dice.below(8) {
        let at = below(dice, input.len() + 1);
        match dice.below(6) {
            0 if at < input.len() => input[at] ^= 1 << dice.below(8),
            1 if at < input.len() => input[at] = dice.next() as u8,
            2 => input.insert(at, dice.next() as u8),
            3 if at < input.len() => drop(input.remove(at)),
            4 => {
                let other = &seeds[below(dice, seeds.len())].1;
                let from = below(dice, other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => {
                let len = dice.below(16);
                input.extend(bytes(dice, len));
            }
        }
    }
    input
}

fn run(name: &str, what: &str, target: Target, input: &[u8]) {
    if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(|| target(input))) {
        eprintln!(
            "{name} fails on {what}; repeat it with\n  cargo run -p ferroce-fuzz --bin {name} -- --hex {}",
            to_hex(input)
        );
        panic::resume_unwind(payload);
    }
}

fn smoke(name: &str, runs_default: u64) {
    let (_, target) = TARGETS
        .into_iter()
        .find(|(target, _)| *target == name)
        .expect("a target of this name");
    let seeds = corpus(name);
    assert!(!seeds.is_empty(), "no corpus/{name}/*.seed");
    run(name, "the empty input", target, &[]);
    for (path, bytes) in &seeds {
        run(name, path, target, bytes);
    }
    let first = number("FERROCE_FUZZ_SEED", 1);
    for seed in first..first + number("FERROCE_FUZZ_RUNS", runs_default) {
        let input = make(&mut Dice::new(seed), &seeds);
        run(name, &format!("seed {seed}"), target, &input);
    }
}

#[test]
fn packet() {
    smoke("packet", 100_000);
}

#[test]
fn register() {
    smoke("register", 50_000);
}

#[test]
fn mlxreg() {
    smoke("mlxreg", 50_000);
}

#[test]
fn fault() {
    smoke("fault", 50_000);
}

#[test]
fn outages() {
    smoke("outages", 5_000);
}

#[test]
fn congestion() {
    smoke("congestion", 50_000);
}

#[test]
fn profile() {
    smoke("profile", 50_000);
}

#[test]
fn capture() {
    smoke("capture", 20_000);
}

#[test]
fn cm() {
    smoke("cm", 10_000);
}

#[test]
fn qp_pair() {
    smoke("qp_pair", 5_000);
}

#[test]
fn fwctl() {
    smoke("fwctl", 50_000);
}

#[test]
fn hpcc_topology() {
    smoke("hpcc_topology", 50_000);
}

#[test]
fn survey() {
    smoke("survey", 20_000);
}

#[test]
fn hpcc_flows() {
    smoke("hpcc_flows", 50_000);
}

#[test]
fn htsim_matrix() {
    smoke("htsim_matrix", 50_000);
}

#[test]
fn chakra() {
    smoke("chakra", 20_000);
}

#[test]
fn ring() {
    smoke("ring", 5_000);
}

#[test]
fn scenario() {
    smoke("scenario", 2_000);
}

#[test]
fn sweep() {
    smoke("sweep", 5_000);
}
