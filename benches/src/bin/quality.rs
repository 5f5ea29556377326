//! Measures the quality of `ferroce identify` and `ferroce adp fit`, with any seed.

use std::process::ExitCode;

use clap::Parser;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use ferroce_benches::finish;
use ferroce_benches::quality::{Effort, Fitted, Identified, fit, identify};
use serde::Serialize;

/// How many random policies `identify` tells apart, and how much less time fitted profiles lose than those
/// that Ferroce comes with.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Seed of the policies, and of the searches and what they are judged by
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Random policies to identify
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    policies: u64,
    /// Rounds of each search
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Profiles of each round
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: u32,
    /// Outages that each profile is tried on
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

#[derive(Serialize)]
struct Quality {
    seed: u64,
    identify: Identified,
    fit: Vec<Fitted>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    finish("quality", measure(&args), args.json, text)
}

fn measure(args: &Args) -> Result<Quality, Box<dyn std::error::Error>> {
    let effort = Effort {
        rounds: args.rounds,
        steps: args.steps,
        count: args.count,
    };
    Ok(Quality {
        seed: args.seed,
        identify: identify(args.seed, args.policies),
        fit: fit(args.seed, effort)?,
    })
}

fn text(quality: &Quality) -> String {
    let it = &quality.identify;
    let share = 100.0 * it.decided as f64 / it.of_four_waits.max(1) as f64;
    let identified = format!(
        "identify: {} policies, {} wrong; {} of the {} with four waits or more decided ({share:.1} %)",
        it.policies, it.wrong, it.decided, it.of_four_waits
    );
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header([
        "outages, cost of each in s",
        "fitted",
        "best shipped",
        "",
        "firmware",
        "plain IB",
        "fitted/shipped",
        "search, s",
    ]);
    let seconds = |ns: u64| format!("{:.3}", ns as f64 / 1e9);
    for row in &quality.fit {
        table.add_row([
            row.outages.to_owned(),
            seconds(row.cost_ns),
            seconds(row.shipped_ns),
            row.shipped.to_owned(),
            seconds(row.firmware_ns),
            seconds(row.ib_ns),
            format!("{:.3}", row.cost_ns as f64 / row.shipped_ns.max(1) as f64),
            format!("{:.0}", row.seconds),
        ]);
    }
    for at in [1, 2, 4, 5, 6, 7] {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("seed {}\n{identified}\n\n{table}", quality.seed)
}
