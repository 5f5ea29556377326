//! Prints the limits of UDP sockets on this machine: see [`ferroce_bench::bare`].

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use ferroce_bench::bare::{Error, Latency, PingPong, Stream, Throughput, ping_pong, stream};
use ferroce_bench::{BARE_CONTENTION_MAX, undisturbed};
use serde::Serialize;

/// What loopback UDP allows: streams of RDMA WRITE packets with GSO, the invariant CRC and one copy,
/// and a spinning ping-pong. The bars for Ferroce's own benchmarks.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Length of each measurement, in seconds
    #[arg(long, default_value_t = 0.5, value_parser = positive)]
    seconds: f64,
    /// Measurements of each workload; the table shows their median
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Message length in bytes; with --mtu and --outstanding, measures this workload only
    #[arg(long)]
    message: Option<usize>,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096
    #[arg(long, default_value_t = 4096, requires = "message")]
    mtu: usize,
    /// WRITEs under way at once
    #[arg(long, default_value_t = 128, requires = "message")]
    outstanding: usize,
    /// Payload under way at once, in bytes
    #[arg(long, default_value_t = 300_000)]
    window: usize,
    /// Leave the invariant CRC out
    #[arg(long)]
    no_icrc: bool,
    /// Leave the copy into the target's memory out
    #[arg(long)]
    no_copy: bool,
    /// Send each packet with a call of its own
    #[arg(long)]
    no_gso: bool,
    /// Round trips of each ping-pong
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..))]
    ping_rounds: u32,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match measure(&args) {
        Ok(report) if args.json => print(&report.json()),
        Ok(report) => print(&report.table()),
        Err(error) => {
            eprintln!("loopback_limit: {error}");
            return ExitCode::FAILURE;
        }
    };
    match outcome {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("loopback_limit: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn measure(args: &Args) -> Result<Report, Error> {
    let common = |config: Stream| Stream {
        window_bytes: args.window,
        seconds: args.seconds,
        icrc: !args.no_icrc,
        copy: !args.no_copy,
        segmentation: !args.no_gso,
        ..config
    };
    let configs = match args.message {
        Some(message_bytes) => vec![Stream {
            message_bytes,
            mtu_bytes: args.mtu,
            outstanding: args.outstanding,
            ..Stream::default()
        }],
        None => Stream::standard(),
    };
    let mut streams: Vec<_> = configs
        .into_iter()
        .map(|config| StreamReport {
            config: common(config),
            runs: Vec::new(),
        })
        .collect();
    let mut pings = [64, 4112].map(|message_bytes| PingReport {
        config: PingPong {
            message_bytes,
            rounds: args.ping_rounds,
            ..PingPong::default()
        },
        runs: Vec::new(),
    });
    // Each round takes every workload once, so that a slow minute slows them all.
    for _ in 0..args.rounds {
        for report in &mut streams {
            report
                .runs
                .push(undisturbed(BARE_CONTENTION_MAX, || stream(&report.config))?);
        }
        for report in &mut pings {
            report.runs.push(undisturbed(BARE_CONTENTION_MAX, || {
                ping_pong(&report.config)
            })?);
        }
    }
    Ok(Report {
        streams,
        pings: pings.into(),
    })
}

struct Report {
    streams: Vec<StreamReport>,
    pings: Vec<PingReport>,
}

struct StreamReport {
    config: Stream,
    runs: Vec<Throughput>,
}

struct PingReport {
    config: PingPong,
    runs: Vec<Latency>,
}

impl Report {
    fn table(&self) -> String {
        let mut streams = table(&[
            "WRITE bytes",
            "outstanding",
            "MTU",
            "Gb/s",
            "(min - max)",
            "packets/s",
            "messages/s",
            "waited %",
        ]);
        for StreamReport { config, runs } in &self.streams {
            let gbps = Spread::of(runs, |run| run.gbps);
            streams.add_row([
                config.message_bytes.to_string(),
                config.outstanding.to_string(),
                config.mtu_bytes.to_string(),
                format!("{:.1}", gbps.median),
                format!("({:.1} - {:.1})", gbps.min, gbps.max),
                format!(
                    "{:.0}",
                    Spread::of(runs, |run| run.packets_per_second).median
                ),
                format!(
                    "{:.0}",
                    Spread::of(runs, |run| run.messages_per_second).median
                ),
                format!("{:.1}", Spread::of(runs, |run| run.contention).max * 100.0),
            ]);
        }
        let mut pings = table(&[
            "ping-pong bytes",
            "one way us: p50",
            "(min - max of p50)",
            "p90",
            "p99",
            "p99.9",
            "waited %",
        ]);
        for PingReport { config, runs } in &self.pings {
            let us = |pick: fn(&Latency) -> f64| Spread::of(runs, |run| pick(run) / 1e3);
            let p50 = us(|run| run.p50_ns);
            pings.add_row([
                config.message_bytes.to_string(),
                format!("{:.2}", p50.median),
                format!("({:.2} - {:.2})", p50.min, p50.max),
                format!("{:.2}", us(|run| run.p90_ns).median),
                format!("{:.2}", us(|run| run.p99_ns).median),
                format!("{:.2}", us(|run| run.p999_ns).median),
                format!("{:.1}", Spread::of(runs, |run| run.contention).max * 100.0),
            ]);
        }
        format!("{}\n\n{}\n", streams.trim_fmt(), pings.trim_fmt())
    }

    fn json(&self) -> String {
        #[derive(Serialize)]
        struct Line<'a, C> {
            #[serde(flatten)]
            config: &'a C,
            results: serde_json::Value,
        }
        let streams: Vec<_> = self
            .streams
            .iter()
            .map(|StreamReport { config, runs }| Line {
                config,
                results: serde_json::json!({
                    "gbps": Spread::of(runs, |run| run.gbps),
                    "packets_per_second": Spread::of(runs, |run| run.packets_per_second),
                    "messages_per_second": Spread::of(runs, |run| run.messages_per_second),
                    "contention": Spread::of(runs, |run| run.contention),
                }),
            })
            .collect();
        let pings: Vec<_> = self
            .pings
            .iter()
            .map(|PingReport { config, runs }| Line {
                config,
                results: serde_json::json!({
                    "min_ns": Spread::of(runs, |run| run.min_ns),
                    "p50_ns": Spread::of(runs, |run| run.p50_ns),
                    "p90_ns": Spread::of(runs, |run| run.p90_ns),
                    "p99_ns": Spread::of(runs, |run| run.p99_ns),
                    "p999_ns": Spread::of(runs, |run| run.p999_ns),
                    "max_ns": Spread::of(runs, |run| run.max_ns),
                    "contention": Spread::of(runs, |run| run.contention),
                }),
            })
            .collect();
        let report = serde_json::json!({ "streams": streams, "ping_pong": pings });
        format!("{report:#}\n")
    }
}

/// One figure over several runs.
#[derive(Clone, Copy, Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of<T>(runs: &[T], pick: impl Fn(&T) -> f64) -> Self {
        let mut values: Vec<f64> = runs.iter().map(pick).collect();
        values.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (values.first(), values.last()) else {
            return Self {
                median: f64::NAN,
                min: f64::NAN,
                max: f64::NAN,
            };
        };
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Self {
            median: (low + high) / 2.0,
            min,
            max,
        }
    }
}

fn table(headers: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(headers.to_vec());
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn print(text: &str) -> io::Result<()> {
    io::stdout().write_all(text.as_bytes())
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 3600.0 => Ok(value),
        _ => Err(format!(
            "{text} is not a time: give seconds above 0 and up to 3600"
        )),
    }
}
