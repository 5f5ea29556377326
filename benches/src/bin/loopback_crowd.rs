//! A crowd of queue pairs on loopback beside a few.

use std::process::ExitCode;

use clap::Parser;
use ferroce_bench::{DEVICE_CONTENTION_MAX, median, undisturbed};
use ferroce_benches::crowd::{Crowd, stream};
use ferroce_benches::finish;
use ferroce_device::Mtu;

/// Throughput of a device with many busy queue pairs beside that with a few, which all send to one
/// peer. Quote the ratio.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// How many are many
    #[arg(long, default_value_t = 1000)]
    many: usize,
    /// How many are a few
    #[arg(long, default_value_t = 8)]
    few: usize,
    /// Length of each measurement, in seconds
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Rounds; each takes both once at every length and MTU, and the table shows medians
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

/// Lengths of a WRITE, and MTUs.
const WORKLOADS: [(usize, Mtu); 4] = [
    (64 << 10, Mtu::Mtu4096),
    (4 << 10, Mtu::Mtu4096),
    (64 << 10, Mtu::Mtu1024),
    (4 << 10, Mtu::Mtu1024),
];

#[derive(Debug, serde::Serialize)]
struct Row {
    message_bytes: usize,
    mtu_bytes: u32,
    few_gbps: f64,
    many_gbps: f64,
    /// Median over the rounds of the ratio within each.
    ratio: f64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    finish("loopback_crowd", measure(&args), args.json, |rows| {
        table(&args, rows)
    })
}

fn measure(args: &Args) -> Result<Vec<Row>, Box<dyn std::error::Error>> {
    let mut rows = Vec::new();
    for (message_bytes, mtu) in WORKLOADS {
        let gbps = |queue_pairs| {
            let crowd = Crowd {
                queue_pairs,
                message_bytes,
                mtu,
                seconds: args.seconds,
            };
            undisturbed(DEVICE_CONTENTION_MAX, || stream(&crowd)).map(|run| run.gbps)
        };
        let runs = (0..args.rounds).map(|_| Ok((gbps(args.few)?, gbps(args.many)?)));
        let runs: Vec<(f64, f64)> = runs.collect::<Result<_, ferroce_bench::pair::Error>>()?;
        rows.push(Row {
            message_bytes,
            mtu_bytes: mtu.bytes(),
            few_gbps: median(runs.iter().map(|(few, _)| *few)),
            many_gbps: median(runs.iter().map(|(_, many)| *many)),
            ratio: median(runs.iter().map(|(few, many)| many / few)),
        });
    }
    Ok(rows)
}

fn table(args: &Args, rows: &[Row]) -> String {
    let head = [
        "WRITE, bytes".into(),
        "MTU".into(),
        format!("{} queue pairs, Gb/s", args.few),
        format!("{}, Gb/s", args.many),
        "ratio".to_owned(),
    ];
    let row = |row: &Row| {
        vec![
            row.message_bytes.to_string(),
            row.mtu_bytes.to_string(),
            format!("{:.2}", row.few_gbps),
            format!("{:.2}", row.many_gbps),
            format!("{:.2}", row.ratio),
        ]
    };
    ferroce_benches::table(head, 0..5, rows.iter().map(row))
}
