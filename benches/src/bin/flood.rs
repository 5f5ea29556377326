//! Floods two devices that exchange data with everything an attacker can send, in turn.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use ferroce_benches::finish;
use ferroce_benches::flood::{Effort, Flood, Load, Origin, Victims, quiet, under_fire};

/// Two devices exchange WRITEs while an attacker with a processor of its own sends to one of them: what is left
/// of their goodput, what they answer, and what they take of the system. Quote the ratios.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Length of each measurement, in seconds
    #[arg(long, default_value_t = 0.05)]
    seconds: f64,
    /// Rounds; each measures without the flood, with the flood at a bystander, and with it at the victims
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Only the flood with this place in the list, from 0
    #[arg(long)]
    only: Option<usize>,
    /// Only floods from here: own, user or forged
    #[arg(long)]
    from: Option<String>,
    /// Packets sent to a victim that is at rest
    #[arg(long, default_value_t = 2_000)]
    packets: u64,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

#[derive(Debug, serde::Serialize)]
struct Row {
    flood: &'static str,
    /// Whose address the packets have.
    source: &'static str,
    /// Length of the victims' WRITEs, bytes.
    message_bytes: usize,
    /// Packets sent to the victim per second, in millions.
    mpps: f64,
    /// The victims' goodput under the flood, as a part of what it is beside the same flood at a bystander.
    of_beside: f64,
    /// The same as a part of what it is without any.
    of_alone: f64,
    /// How the connection ended, if it did.
    ended: Option<&'static str>,
    /// Bytes that leave a victim at rest for each that comes.
    amplification: f64,
    grown_kib: i64,
    descriptors: i64,
    /// Counters of the victim that rose most, and by how much.
    counters: Vec<(&'static str, u64)>,
}

/// Counters that a row names.
const COUNTERS_MAX: usize = 4;

fn main() -> ExitCode {
    let args = Args::parse();
    finish("flood", measure(&args), args.json, |rows| table(rows))
}

fn measure(args: &Args) -> Result<Vec<Row>, Box<dyn std::error::Error>> {
    let effort = Effort {
        length: Duration::from_secs_f64(args.seconds),
        rounds: args.rounds,
    };
    let mut rows = Vec::new();
    for origin in Origin::ALL {
        if args.from.as_deref().is_some_and(|it| it != origin.name()) {
            continue;
        }
        for (place, flood) in Flood::ALL.into_iter().enumerate() {
            if args.only.is_some_and(|only| only != place) {
                continue;
            }
            for load in [Load::SHORT, Load::LONG] {
                rows.push(row(flood, origin, load, effort, args.packets)?);
            }
        }
    }
    Ok(rows)
}

fn row(
    flood: Flood,
    origin: Origin,
    load: Load,
    effort: Effort,
    packets: u64,
) -> Result<Row, Box<dyn std::error::Error>> {
    let load = Load {
        selective: flood.is_of_selective_repeat(),
        ..load
    };
    let outcome = under_fire(&Victims::open(load)?, flood, origin, effort)?;
    let reply = quiet(&Victims::open(load)?, flood, origin, packets)?;
    let total = |rates: &[f64]| rates.iter().sum::<f64>();
    let ratio = |to: &[f64]| total(&outcome.under) / total(to);
    let mut counters = outcome.counters.clone();
    counters.retain(|(counter, _)| !counter.name().starts_with("rdma_"));
    counters.sort_by_key(|(_, rise)| std::cmp::Reverse(*rise));
    counters.truncate(COUNTERS_MAX);
    Ok(Row {
        flood: flood.name(),
        source: origin.name(),
        message_bytes: load.message_bytes,
        mpps: outcome.sent.packets as f64 / outcome.seconds / 1e6,
        of_beside: ratio(&outcome.beside),
        of_alone: ratio(&outcome.alone),
        ended: outcome.ended.map(|status| status.name()),
        amplification: reply.amplification(),
        grown_kib: outcome.grown_kib,
        descriptors: outcome.opened,
        counters: counters
            .into_iter()
            .map(|(counter, rise)| (counter.name(), rise))
            .collect(),
    })
}

fn table(rows: &[Row]) -> String {
    let row = |row: &Row| {
        let counters = row.counters.iter();
        let counters: Vec<_> = counters
            .map(|(name, rise)| format!("{name} {rise}"))
            .collect();
        vec![
            row.flood.into(),
            row.source.into(),
            row.message_bytes.to_string(),
            format!("{:.2}", row.mpps),
            row.ended
                .map_or_else(|| format!("{:.2}", row.of_beside), str::to_owned),
            format!("{:.2}", row.of_alone),
            format!("{:.2}", row.amplification),
            row.grown_kib.to_string(),
            row.descriptors.to_string(),
            counters.join(", "),
        ]
    };
    ferroce_benches::table(
        [
            "flood",
            "source",
            "WRITE",
            "M packets/s",
            "of beside",
            "of alone",
            "out/in",
            "KiB",
            "fds",
            "counters",
        ],
        2..9,
        rows.iter().map(row),
    )
}
