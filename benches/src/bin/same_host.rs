//! Two devices of one host over shared memory, beside UDP and beside a bare ring, in one run.

use std::process::ExitCode;

use clap::Parser;
use ferroce_bench::bare::{self, Stream};
use ferroce_bench::pair::{self, Carrier, Operation};
use ferroce_bench::{BARE_CONTENTION_MAX, DEVICE_CONTENTION_MAX, median, undisturbed};
use ferroce_benches::{Rounds, finish};

/// Devices of one host over shared memory beside the same over UDP: WRITE streams, and the latency of an
/// 8-byte WRITE beside that of a bare ring. Quote the ratios.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    rounds: Rounds,
    /// Shared memory alone, for a profiler
    #[arg(long)]
    alone: bool,
    /// Take measurements as they come, also while others use the cores
    #[arg(long)]
    disturbed: bool,
}

impl Args {
    fn contention_max(&self, max: f64) -> f64 {
        if self.disturbed { 1.0 } else { max }
    }
}

/// A line of the table: a workload, its unit, and what it is to reach.
struct Work {
    name: &'static str,
    unit: &'static str,
    goal: &'static str,
    /// Length of a message; 0 for the ping-pong.
    bytes: usize,
}

const WORK: [Work; 4] = [
    Work {
        name: "8-byte WRITE, one way",
        unit: "us",
        goal: "<= 0.8, or 3 x a bare ring",
        bytes: 0,
    },
    Work {
        name: "WRITE 8, 128 outstanding",
        unit: "M/s",
        goal: ">= 3",
        bytes: 8,
    },
    Work {
        name: "WRITE 4096, 128 outstanding",
        unit: "Gb/s",
        goal: ">= 30",
        bytes: 4096,
    },
    Work {
        name: "WRITE 1048576, 128 outstanding",
        unit: "Gb/s",
        goal: "",
        bytes: 1 << 20,
    },
];

#[derive(Debug, serde::Serialize)]
struct Row {
    workload: &'static str,
    unit: &'static str,
    /// Of the ping-pong alone.
    bare_ring: Option<f64>,
    udp: f64,
    shm: f64,
    goal: &'static str,
}

fn main() -> ExitCode {
    let args = Args::parse();
    finish("same_host", measure(&args), args.rounds.json, |rows| {
        table(rows)
    })
}

fn measure(args: &Args) -> Result<Vec<Row>, Box<dyn std::error::Error>> {
    let wanted = |place: usize| args.rounds.wants(place);
    let mut runs = vec![Vec::new(); WORK.len()];
    for _ in 0..args.rounds.rounds {
        for (place, work) in WORK.iter().enumerate().filter(|(place, _)| wanted(*place)) {
            let udp = match args.alone {
                true => 0.0,
                false => one(args, work, Carrier::Udp)?,
            };
            let bare = match work.bytes {
                0 if !args.alone => bare_ring(args)?,
                _ => 0.0,
            };
            runs[place].push([bare, udp, one(args, work, Carrier::Shm)?]);
        }
    }
    let of = |runs: &[[f64; 3]], which: usize| median(runs.iter().map(|run| run[which]));
    let rows = WORK.iter().zip(&runs).filter(|(_, runs)| !runs.is_empty());
    Ok(rows
        .map(|(work, runs)| Row {
            workload: work.name,
            unit: work.unit,
            bare_ring: (work.bytes == 0).then(|| of(runs, 0)),
            udp: of(runs, 1),
            shm: of(runs, 2),
            goal: work.goal,
        })
        .collect())
}

/// The figure of a workload, in its unit.
fn one(args: &Args, work: &Work, carrier: Carrier) -> Result<f64, Box<dyn std::error::Error>> {
    if work.bytes == 0 {
        let latency = undisturbed(args.contention_max(DEVICE_CONTENTION_MAX), || {
            pair::ping_pong(carrier, &args.rounds.ping(8))
        })?;
        return Ok(latency.p50_ns / 1e3);
    }
    let stream = args.rounds.stream(Stream {
        message_bytes: work.bytes,
        ..Stream::default()
    });
    let throughput = undisturbed(args.contention_max(DEVICE_CONTENTION_MAX), || {
        pair::stream(carrier, Operation::Write, &stream)
    })?;
    Ok(match work.unit {
        "M/s" => throughput.messages_per_second / 1e6,
        _ => throughput.gbps,
    })
}

fn bare_ring(args: &Args) -> std::io::Result<f64> {
    let latency = undisturbed(args.contention_max(BARE_CONTENTION_MAX), || {
        bare::ring_ping_pong(&args.rounds.ping(64))
    })?;
    Ok(latency.p50_ns / 1e3)
}

fn table(rows: &[Row]) -> String {
    let row = |row: &Row| {
        vec![
            row.workload.into(),
            row.unit.into(),
            row.bare_ring
                .map(|it| format!("{it:.2}"))
                .unwrap_or_default(),
            format!("{:.2}", row.udp),
            format!("{:.2}", row.shm),
            row.goal.into(),
        ]
    };
    ferroce_benches::table(
        ["workload", "unit", "bare ring", "udp", "shm", "goal"],
        2..5,
        rows.iter().map(row),
    )
}
