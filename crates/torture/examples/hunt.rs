//! Plays seeds one after the other until one has a finding, and prints that with a short script:
//! `hunt [SEEDS [FROM]]`, at most SEEDS of them. A device that does not return for half a minute is a finding, too.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ferroce_torture::{Coverage, Progress, Watch, generate, play_watched, shrink};

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let mut number = |default| numbers.next().and_then(Result::ok).unwrap_or(default);
    let (seeds, from) = (number(1_000), number(1));
    std::panic::set_hook(Box::new(|_| {})); // a panic is a finding
    let start = Instant::now();
    let mut watch = Watch::new(start);
    let progress = watch.progress();
    let player = thread::spawn(move || hunt(seeds, from, start, &progress));
    while !player.is_finished() {
        if let Some(script) = watch.look(Instant::now(), PATIENCE) {
            let (nth, seconds) = (script.seed - from + 1, start.elapsed().as_secs_f64());
            println!(
                "seed {}, after {nth} seeds and {seconds:.1} s: hang: a call has not returned\n{script}",
                script.seed
            );
            std::process::exit(1);
        }
        thread::sleep(Duration::from_millis(20));
    }
    if player.join().unwrap_or(false) {
        std::process::exit(1);
    }
}

/// Whether there was a finding.
fn hunt(seeds: u64, from: u64, start: Instant, progress: &Arc<Progress>) -> bool {
    let mut coverage = Coverage::default();
    for seed in from..from + seeds {
        let script = generate(seed);
        let report = play_watched(&script, progress);
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
        if let Some((script, finding)) = shrink(&script, 3_000, progress) {
            println!(
                "{} lines: {}: {}\n{script}",
                script.lines.len(),
                finding.rule,
                finding.what
            );
        }
        return true;
    }
    let seconds = start.elapsed().as_secs_f64();
    let (operations, packets) = (coverage.operations(), coverage.packets);
    println!(
        "{seeds} seeds, {operations} operations, {packets} packets in {seconds:.1} s: no finding"
    );
    print!("{coverage}");
    false
}
