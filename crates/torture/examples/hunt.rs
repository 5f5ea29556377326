//! Plays seeds one after the other until one has a finding, and prints that with a short script:
//! `hunt [SEEDS [FROM]]`, at most SEEDS of them.

use std::time::Instant;

use ferroce_torture::{Coverage, generate, play, shrink};

fn main() {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let mut number = |default| numbers.next().and_then(Result::ok).unwrap_or(default);
    let (seeds, from) = (number(1_000), number(1));
    std::panic::set_hook(Box::new(|_| {})); // a panic is a finding
    let start = Instant::now();
    let mut coverage = Coverage::default();
    for seed in from..from + seeds {
        let script = generate(seed);
        let report = play(&script);
        coverage.add(&report.coverage);
        let Some(finding) = report.finding else {
            continue;
        };
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "seed {seed}, after {} seeds and {seconds:.1} s: {}: {}",
            seed - from + 1,
            finding.rule,
            finding.what
        );
        if let Some((script, finding)) = shrink(&script, 3_000) {
            println!(
                "{} lines: {}: {}\n{script}",
                script.lines.len(),
                finding.rule,
                finding.what
            );
        }
        std::process::exit(1);
    }
    let seconds = start.elapsed().as_secs_f64();
    let (operations, packets) = (coverage.operations(), coverage.packets);
    println!(
        "{seeds} seeds, {operations} operations, {packets} packets in {seconds:.1} s: no finding"
    );
    print!("{coverage}");
}
