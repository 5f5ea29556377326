//! How much faster a sweep is on more threads: `cargo bench -p ferroce-sweep`.
//!
//! Each round runs the same points on one thread and on as many as there are processors, in turn, and
//! the median of the rounds' ratios is printed. On a machine that does nothing else it is close to the
//! number of processors.

use std::error::Error;
use std::thread;
use std::time::Duration;

use ferroce_sweep::{Halt, Options, Plan, Shard, Sweep, run};

const ROUNDS: usize = 5;

const SWEEP: &str = r#"
scenario = "scenario.toml"
seeds = 12
[[axis]]
field = "job[0].bytes"
values = ["4MiB", "8MiB"]
"#;

const SCENARIO: &str = r#"
[topology]
kind = "leaf-spine"
leaves = 4
spines = 2
hosts_per_leaf = 4
[[job]]
workload = "ring-all-reduce"
bytes = "8MiB"
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let sweep = Sweep::parse(SWEEP)?;
    let plan = Plan::new(&sweep, SCENARIO, &mut |_| Err("no files".into()), "bench")?;
    let processors = thread::available_parallelism()?.get();
    let time = |threads| -> Result<Duration, Box<dyn Error>> {
        let directory = tempfile::tempdir()?;
        let options = Options {
            shard: Shard::WHOLE,
            threads,
            points_max: usize::MAX,
            again: false,
        };
        let ran = run(
            &plan,
            directory.path(),
            options,
            &|| Halt::No,
            None,
            &|_| {},
        )?;
        Ok(ran.elapsed)
    };
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let (one, all) = (time(1)?, time(processors)?);
        let ratio = one.as_secs_f64() / all.as_secs_f64();
        println!(
            "{} points: {one:.2?} on one thread, {all:.2?} on {processors}: {ratio:.2} times as fast",
            plan.points.len()
        );
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    println!(
        "median: {:.2} times as fast on {processors} threads",
        ratios[ROUNDS / 2]
    );
    Ok(())
}
