//! Compares unmodified programs on one device with the limits of UDP sockets and with the
//! alternatives without RDMA, in one run.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use ferroce_benches::bare::{self, PingPong, Stream, Throughput};
use ferroce_benches::programs::{Bench, Error, StateDir};
use ferroce_benches::{BARE_CONTENTION_MAX, finish, median, undisturbed};

/// perftest over `ferroce run`, a server and a client on one device, beside the bare program of
/// loopback_limit, iperf3 and UCX over TCP. Quote the ratios.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Length of each measurement, in seconds
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Rounds; each takes every program once, and the table shows medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// The device's address
    #[arg(long, default_value = "127.99.1.1")]
    address: IpAddr,
    /// The address of the client's device, if it is to have one of its own
    #[arg(long)]
    client_address: Option<IpAddr>,
    /// The program ferroce [default: beside this one, where `cargo build --release` leaves it]
    #[arg(long)]
    ferroce: Option<PathBuf>,
    /// Only the programs whose name contains this; may be given several times
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

const KIB_4: usize = 4 << 10;
const KIB_16: usize = 16 << 10;
const KIB_64: usize = 64 << 10;
const MIB: usize = 1 << 20;
/// Messages of UCX, which counts them instead of the time.
const UCX_BYTES: u64 = 2 << 30;
const UCX_SMALL: u64 = 1_000_000;
/// What iperf3 writes at a time unless told otherwise.
const IPERF_BYTES: usize = 128 << 10;
const LATENCY_ROUNDS: u32 = 50_000;

/// What is measured, in the order of a round: its name, its unit, how.
type Measure = fn(&Bench) -> Result<f64, Box<dyn std::error::Error>>;
const MEASURES: &[(&str, &str, Measure)] = &[
    ("bare stream 64 KiB", "Gb/s", |bench| stream(bench, KIB_64)),
    ("ib_write_bw 64 KiB", "Gb/s", |bench| {
        gbps(bench, "ib_write_bw", KIB_64)
    }),
    ("ib_send_bw 64 KiB", "Gb/s", |bench| {
        gbps(bench, "ib_send_bw", KIB_64)
    }),
    ("ib_read_bw 64 KiB", "Gb/s", |bench| {
        gbps(bench, "ib_read_bw", KIB_64)
    }),
    ("UCX over TCP 64 KiB", "Gb/s", |bench| {
        ucx_gbps(bench, KIB_64)
    }),
    ("iperf3", "Gb/s", |bench| Ok(bench.iperf3(IPERF_BYTES)?)),
    ("bare stream 1 MiB", "Gb/s", |bench| stream(bench, MIB)),
    ("ib_write_bw 1 MiB", "Gb/s", |bench| {
        gbps(bench, "ib_write_bw", MIB)
    }),
    ("ib_send_bw 1 MiB", "Gb/s", |bench| {
        gbps(bench, "ib_send_bw", MIB)
    }),
    ("ib_read_bw 1 MiB", "Gb/s", |bench| {
        gbps(bench, "ib_read_bw", MIB)
    }),
    ("UCX over TCP 1 MiB", "Gb/s", |bench| ucx_gbps(bench, MIB)),
    ("bare stream 1 MiB, MTU 1024", "Gb/s", |bench| {
        Ok(bare_stream(bench, MIB, 1024)?.gbps)
    }),
    ("ib_write_bw 1 MiB, MTU 1024", "Gb/s", |bench| {
        Ok(bench.perftest("ib_write_bw", MIB, &["-m", "1024"])?.gbps)
    }),
    ("bare ping-pong 64 B", "us", |_| ping_pong()),
    ("ib_write_lat 8 B", "us", |bench| {
        Ok(bench.perftest_latency("ib_write_lat", 8, LATENCY_ROUNDS)?)
    }),
    ("bare stream 8 B", "million/s", |bench| rate_of_bare(bench)),
    ("ib_write_bw 8 B", "million/s", |bench| {
        rate(bench, "ib_write_bw", &[])
    }),
    ("ib_write_bw 8 B, 64 QPs", "million/s", |bench| {
        rate(bench, "ib_write_bw", &["-q", "64"])
    }),
    ("ib_send_bw 8 B", "million/s", |bench| {
        rate(bench, "ib_send_bw", &[])
    }),
    ("ib_read_bw 8 B", "million/s", |bench| {
        rate(bench, "ib_read_bw", &[])
    }),
    ("UCX over TCP put 8 B", "million/s", |bench| {
        Ok(bench.ucx_tcp("ucp_put_bw", 8, UCX_SMALL)?.messages / 1e6)
    }),
    ("ib_atomic_bw", "million/s", |bench| {
        Ok(bench.perftest_atomic()?.messages / 1e6)
    }),
    ("UCX over TCP fetch-add 8 B", "million/s", |bench| {
        Ok(bench.ucx_tcp("ucp_fadd", 8, UCX_SMALL / 10)?.messages / 1e6)
    }),
    ("bare stream 512 B", "Gb/s", |bench| stream(bench, 512)),
    ("ib_write_bw 512 B", "Gb/s", |bench| {
        gbps(bench, "ib_write_bw", 512)
    }),
    ("bare stream 4 KiB", "Gb/s", |bench| stream(bench, KIB_4)),
    ("ib_write_bw 4 KiB", "Gb/s", |bench| {
        gbps(bench, "ib_write_bw", KIB_4)
    }),
    ("UCX over TCP 4 KiB", "Gb/s", |bench| ucx_gbps(bench, KIB_4)),
    ("bare stream 16 KiB", "Gb/s", |bench| stream(bench, KIB_16)),
    ("ib_write_bw 16 KiB", "Gb/s", |bench| {
        gbps(bench, "ib_write_bw", KIB_16)
    }),
    ("UCX over TCP 16 KiB", "Gb/s", |bench| {
        ucx_gbps(bench, KIB_16)
    }),
];

/// Which figures are compared with each other, and the goal.
const RATIOS: &[(&str, &str, &str)] = &[
    ("ib_write_bw 64 KiB", "bare stream 64 KiB", ">= 0.85"),
    ("ib_write_bw 64 KiB", "iperf3", "> 1"),
    ("ib_write_bw 64 KiB", "UCX over TCP 64 KiB", "> 1"),
    ("ib_send_bw 64 KiB", "ib_write_bw 64 KiB", ">= 0.9"),
    ("ib_read_bw 64 KiB", "ib_write_bw 64 KiB", ">= 0.9"),
    ("ib_write_bw 1 MiB", "bare stream 1 MiB", ">= 0.85"),
    ("ib_write_bw 1 MiB", "iperf3", "> 1"),
    ("ib_write_bw 1 MiB", "UCX over TCP 1 MiB", ""),
    ("ib_send_bw 1 MiB", "ib_write_bw 1 MiB", ">= 0.9"),
    ("ib_read_bw 1 MiB", "ib_write_bw 1 MiB", ">= 0.9"),
    (
        "ib_write_bw 1 MiB, MTU 1024",
        "bare stream 1 MiB, MTU 1024",
        ">= 0.85",
    ),
    ("ib_write_lat 8 B", "bare ping-pong 64 B", "<= 1.5"),
    ("ib_write_bw 8 B", "bare stream 8 B", ">= 0.35"),
    ("ib_write_bw 8 B", "UCX over TCP put 8 B", ">= 8"),
    ("ib_write_bw 8 B, 64 QPs", "ib_write_bw 8 B", ">= 0.8"),
    ("ib_send_bw 8 B", "bare stream 8 B", ">= 0.25"),
    ("ib_read_bw 8 B", "bare stream 8 B", ">= 0.2"),
    ("ib_atomic_bw", "bare stream 8 B", ">= 0.2"),
    ("ib_atomic_bw", "UCX over TCP fetch-add 8 B", ""),
    ("ib_write_bw 512 B", "bare stream 512 B", ">= 0.35"),
    ("ib_write_bw 4 KiB", "bare stream 4 KiB", ">= 0.5"),
    ("ib_write_bw 4 KiB", "UCX over TCP 4 KiB", "> 1"),
    ("ib_write_bw 4 KiB", "iperf3", "> 1"),
    ("ib_write_bw 16 KiB", "bare stream 16 KiB", ">= 0.7"),
    ("ib_write_bw 16 KiB", "UCX over TCP 16 KiB", "> 1"),
    ("ib_write_bw 16 KiB", "iperf3", "> 1"),
];

fn main() -> ExitCode {
    let args = Args::parse();
    finish("programs", measure(&args), args.json, Report::table)
}

#[derive(Debug, serde::Serialize)]
struct Report {
    figures: Vec<Figure>,
    ratios: Vec<Ratio>,
}

/// Medians over the rounds.
#[derive(Debug, serde::Serialize)]
struct Figure {
    name: &'static str,
    unit: &'static str,
    median: f64,
    min: f64,
    max: f64,
}

#[derive(Debug, serde::Serialize)]
struct Ratio {
    of: &'static str,
    to: &'static str,
    /// Median over the rounds of the ratio within each.
    ratio: f64,
    goal: &'static str,
}

fn measure(args: &Args) -> Result<Report, Box<dyn std::error::Error>> {
    let state = StateDir::make()?;
    let addresses = [args.address, args.client_address.unwrap_or(args.address)];
    let bench = Bench::new(args.ferroce.as_deref(), &state, addresses, args.seconds)?;
    let is_wanted =
        |name: &str| args.only.is_empty() || args.only.iter().any(|it| name.contains(it));
    let wanted = MEASURES.iter().filter(|(name, ..)| is_wanted(name));
    let mut runs: Vec<_> = wanted.map(|measure| (measure, Vec::new())).collect();
    for _ in 0..args.rounds {
        for ((_, _, how), values) in &mut runs {
            values.push(how(&bench)?);
        }
    }
    let figures = runs.iter().map(|((name, unit, _), values)| Figure {
        name,
        unit,
        median: median(values.iter().copied()),
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    });
    let values = |wanted: &str| runs.iter().find(|((name, ..), _)| *name == wanted);
    let ratios = RATIOS.iter().filter_map(|&(of, to, goal)| {
        let pairs = values(of)?.1.iter().zip(&values(to)?.1);
        let ratio = median(pairs.map(|(of, to)| of / to));
        Some(Ratio {
            of,
            to,
            ratio,
            goal,
        })
    });
    Ok(Report {
        figures: figures.collect(),
        ratios: ratios.collect(),
    })
}

fn stream(bench: &Bench, bytes: usize) -> Result<f64, Box<dyn std::error::Error>> {
    Ok(bare_stream(bench, bytes, 4096)?.gbps)
}

fn rate_of_bare(bench: &Bench) -> Result<f64, Box<dyn std::error::Error>> {
    Ok(bare_stream(bench, 8, 4096)?.messages_per_second / 1e6)
}

fn bare_stream(bench: &Bench, bytes: usize, mtu: usize) -> Result<Throughput, bare::Error> {
    let config = Stream {
        message_bytes: bytes,
        mtu_bytes: mtu,
        seconds: bench.seconds.into(),
        // Room for all 128 messages if they are short.
        window_bytes: match bytes < KIB_4 {
            true => 128 * KIB_4,
            false => Stream::default().window_bytes,
        },
        ..Stream::default()
    };
    undisturbed(BARE_CONTENTION_MAX, || bare::stream(&config))
}

fn rate(bench: &Bench, tool: &str, more: &[&str]) -> Result<f64, Box<dyn std::error::Error>> {
    Ok(bench.perftest(tool, 8, more)?.messages / 1e6)
}

fn ping_pong() -> Result<f64, Box<dyn std::error::Error>> {
    let config = PingPong::default();
    let run = undisturbed(BARE_CONTENTION_MAX, || bare::ping_pong(&config))?;
    Ok(run.p50_ns / 1e3)
}

fn gbps(bench: &Bench, tool: &str, bytes: usize) -> Result<f64, Box<dyn std::error::Error>> {
    Ok(bench.perftest(tool, bytes, &[])?.gbps)
}

fn ucx_gbps(bench: &Bench, bytes: usize) -> Result<f64, Box<dyn std::error::Error>> {
    let messages = UCX_BYTES / bytes as u64;
    let rate: Result<_, Error> = bench.ucx_tcp("ucp_put_bw", bytes, messages);
    Ok(rate?.gbps)
}

impl Report {
    fn table(&self) -> String {
        let mut figures = table(&["program", "unit", "median", "(min - max)"]);
        for figure in &self.figures {
            figures.add_row([
                figure.name.to_owned(),
                figure.unit.to_owned(),
                format!("{:.2}", figure.median),
                format!("({:.2} - {:.2})", figure.min, figure.max),
            ]);
        }
        let mut ratios = table(&["program", "beside", "ratio", "goal"]);
        for ratio in &self.ratios {
            ratios.add_row([
                ratio.of.to_owned(),
                ratio.to.to_owned(),
                format!("{:.2}", ratio.ratio),
                ratio.goal.to_owned(),
            ]);
        }
        format!("{}\n\n{}\n", figures.trim_fmt(), ratios.trim_fmt())
    }
}

fn table(headers: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(headers.to_vec());
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
