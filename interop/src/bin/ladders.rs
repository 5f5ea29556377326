//! Prints the deviations of the timers of 64 queue pairs in 8 processes, while profiles are applied
//! to them during blackouts.
//!
//!     cargo build --release && cargo run --release -p ferroce-interop --bin ladders [ROUNDS]

use std::process::ExitCode;

use ferroce_interop::lab::Lab;
use ferroce_interop::ladders::{Compared, observe};

/// The profiles of a round; the first one replaces the firmware's own ladder, or the last one.
const PROFILES: [&str; 3] = ["fast-recovery", "patient", "link-flap"];
/// Waits below these are shown apart; the last class has the rest.
const CLASSES_MS: [u64; 3] = [10, 100, 1000];

fn main() -> ExitCode {
    let rounds = std::env::args().nth(1).map_or(Ok(8), |word| word.parse());
    let Ok(rounds @ 1..=50) = rounds else {
        eprintln!("usage: ladders [ROUNDS], 1 to 50, 8 without it");
        return ExitCode::from(2);
    };
    let seen = observe(&Lab::new("ladders"), &PROFILES.repeat(rounds));
    println!("| waits | n | min, ms | p50 | p90 | p99 | max |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    let mut from = 0;
    for below in CLASSES_MS {
        row(&seen.compared, &format!("{from} to {below} ms"), |one| {
            (from..below).contains(&(one.predicted_ns / 1_000_000))
        });
        from = below;
    }
    row(&seen.compared, "on the old ladder", |one| !one.after);
    row(&seen.compared, "on the new ladder", |one| one.after);
    row(&seen.compared, "all", |_| true);
    println!(
        "\n{} messages, {} repeats; {} of {} queue pairs in the dark not compared",
        seen.messages, seen.repeats, seen.left_out, seen.expected
    );
    let strays: Vec<&Compared> = seen.compared.iter().filter(|one| !one.agrees()).collect();
    if strays.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("not as predicted: {strays:#?}");
    ExitCode::FAILURE
}

/// A row of the table: observed minus predicted.
fn row(compared: &[Compared], name: &str, which: impl Fn(&Compared) -> bool) {
    let of_these = compared.iter().filter(|one| which(one));
    let mut errors: Vec<i64> = of_these.map(Compared::error_ns).collect();
    errors.sort_unstable();
    let (Some(min), Some(max)) = (errors.first(), errors.last()) else {
        return;
    };
    let at = |percent: usize| errors[(errors.len() - 1) * percent / 100];
    print!("| {name} | {} |", errors.len());
    for error in [*min, at(50), at(90), at(99), *max] {
        print!(" {:.3} |", error as f64 / 1e6);
    }
    println!();
}
