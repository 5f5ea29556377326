//! Queue pairs held at rates by congestion control, on loopback.

use std::process::ExitCode;

use clap::Parser;
use ferroce_benches::finish;
use ferroce_benches::pacing::{Paced, pace};

/// How well a queue pair keeps to the rate to which congestion control limits it, and what that
/// costs: the program itself sleeps.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Rates, in Mb/s
    #[arg(
        value_delimiter = ',',
        default_value = "1,10,100,1000,5000,10000,20000",
        value_parser = clap::value_parser!(u32).range(1..=100_000)
    )]
    mbps: Vec<u32>,
    /// Length of each measurement, in seconds; after three the rates begin to rise
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    finish("pacing", measure(&args), args.json, |rows| table(rows))
}

fn measure(args: &Args) -> Result<Vec<Paced>, Box<dyn std::error::Error>> {
    let rows = args.mbps.iter().map(|mbps| pace(*mbps, args.seconds));
    Ok(rows.collect::<Result<_, _>>()?)
}

fn table(rows: &[Paced]) -> String {
    let head = [
        "set, Mb/s",
        "seen, Mb/s",
        "off by",
        "packets/s",
        "repeated",
        "sender's CPU",
        "receiver's CPU",
    ];
    let row = |row: &Paced| {
        let off = row.seen_mbps / f64::from(row.set_mbps) - 1.0;
        vec![
            row.set_mbps.to_string(),
            format!("{:.3}", row.seen_mbps),
            format!("{:+.2} %", off * 100.0),
            format!("{:.0}", row.packets),
            row.repeated.to_string(),
            format!("{:.1} %", row.sender_cpu * 100.0),
            format!("{:.1} %", row.receiver_cpu * 100.0),
        ]
    };
    ferroce_benches::table(head, 0..7, rows.iter().map(row))
}
