//! Two devices on loopback against the bare program, in one run.

use std::process::ExitCode;

use clap::Parser;
use ferroce_bench::bare::{self, Stream};
use ferroce_bench::pair::{Carrier, Operation};
use ferroce_bench::{BARE_CONTENTION_MAX, DEVICE_CONTENTION_MAX, median, pair, undisturbed};
use ferroce_benches::{Rounds, finish};

/// The device on loopback beside the bare program of loopback_limit: WRITE streams and the latency
/// of an 8-byte WRITE. Quote the ratios.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    rounds: Rounds,
    /// Leave the bare program out, for a profiler
    #[arg(long)]
    no_bare: bool,
}

#[derive(Debug, serde::Serialize)]
struct Row {
    workload: String,
    unit: &'static str,
    bare: f64,
    ferroce: f64,
    /// Median over the rounds of the ratio within each.
    ratio: f64,
    goal: &'static str,
}

fn main() -> ExitCode {
    let args = Args::parse();
    finish("loopback_pair", measure(&args), args.rounds.json, |rows| {
        table(rows)
    })
}

fn measure(args: &Args) -> Result<Vec<Row>, Box<dyn std::error::Error>> {
    let streams: Vec<Stream> = Stream::standard()
        .into_iter()
        .map(|stream| args.rounds.stream(stream))
        .collect();
    let (bare_ping, ping) = (args.rounds.ping(64), args.rounds.ping(8));
    let wanted = |place: usize| args.rounds.wants(place);
    let mut pairs = vec![Vec::new(); streams.len() + 1];
    for _ in 0..args.rounds.rounds {
        for (place, stream) in streams
            .iter()
            .enumerate()
            .filter(|(place, _)| wanted(*place))
        {
            let bare = match args.no_bare {
                true => bare::Throughput::default(),
                false => undisturbed(BARE_CONTENTION_MAX, || bare::stream(stream))?,
            };
            let ferroce = undisturbed(DEVICE_CONTENTION_MAX, || {
                pair::stream(Carrier::Udp, Operation::Write, stream)
            })?;
            pairs[place].push((bare.gbps, ferroce.gbps));
        }
        if wanted(streams.len()) {
            let bare = undisturbed(BARE_CONTENTION_MAX, || bare::ping_pong(&bare_ping))?;
            let ferroce = undisturbed(DEVICE_CONTENTION_MAX, || {
                pair::ping_pong(Carrier::Udp, &ping)
            })?;
            pairs[streams.len()].push((bare.p50_ns / 1e3, ferroce.p50_ns / 1e3));
        }
    }
    let mut rows = Vec::new();
    for (place, runs) in pairs
        .iter()
        .enumerate()
        .filter(|(_, runs)| !runs.is_empty())
    {
        let (workload, unit, goal) = match streams.get(place) {
            Some(s) => (
                format!(
                    "WRITE {}, {} outstanding, MTU {}",
                    s.message_bytes, s.outstanding, s.mtu_bytes
                ),
                "Gb/s",
                if s.message_bytes >= 64 << 10 {
                    ">= 0.8"
                } else {
                    ">= 0.6"
                },
            ),
            None => (
                "8-byte WRITE, one way (bare: 64-byte ping-pong)".into(),
                "us",
                "<= 1.6",
            ),
        };
        rows.push(Row {
            workload,
            unit,
            bare: median(runs.iter().map(|(bare, _)| *bare)),
            ferroce: median(runs.iter().map(|(_, ferroce)| *ferroce)),
            ratio: median(runs.iter().map(|(bare, ferroce)| ferroce / bare)),
            goal,
        });
    }
    Ok(rows)
}

fn table(rows: &[Row]) -> String {
    let row = |row: &Row| {
        vec![
            row.workload.clone(),
            row.unit.into(),
            format!("{:.2}", row.bare),
            format!("{:.2}", row.ferroce),
            format!("{:.2}", row.ratio),
            row.goal.into(),
        ]
    };
    ferroce_benches::table(
        ["workload", "unit", "bare", "ferroce", "ratio", "goal"],
        2..6,
        rows.iter().map(row),
    )
}
