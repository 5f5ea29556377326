//! Measures throughput by message size: programs on Ferroce, over UDP and over shared memory, and
//! the alternatives without RDMA, in one run; and plots it.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use ferroce_bench::bare::{self, Stream};
use ferroce_bench::median;
use ferroce_bench::programs::{Bench, messages};
use ferroce_benches::picture::{self, Curve};
use ferroce_benches::{ferroce_or_beside, finish};

/// ib_write_bw over `ferroce run`, with packets in shared memory and over UDP, beside the bare program
/// of loopback_limit, UCX over shared memory (with memory that it shares itself, and with malloc's) and
/// over TCP, and iperf3: payload in Gb/s for sizes of messages from 8 bytes to 1 MiB, and ib_write_lat.
/// Quote the ratios.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Length of each measurement, in seconds: programs that count messages get as many as take about as long
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Rounds; each takes everything once, and the table shows medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// The program ferroce [default: beside this one, where `cargo build --release` leaves it]
    #[arg(long)]
    ferroce: Option<PathBuf>,
    /// Only these sizes, in bytes
    #[arg(long, value_delimiter = ',', default_values_t = SIZES)]
    sizes: Vec<usize>,
    /// Draw the curves into this SVG file
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Show and draw what an earlier run has printed as JSON, and measure nothing
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

const SIZES: [usize; 6] = [8, 512, 4 << 10, 16 << 10, 64 << 10, 1 << 20];
const LATENCY_ROUNDS: u64 = 50_000;

/// Gb/s with messages of a size, measured for some seconds.
type Measure = fn(&Bench, usize, f64) -> Result<f64, Box<dyn Error>>;
const MEASURES: [(&str, Measure); 7] = [
    ("Ferroce, shared memory", |bench, bytes, seconds| {
        ferroce(bench, "shm", bytes, seconds)
    }),
    ("Ferroce, UDP", |bench, bytes, seconds| {
        ferroce(bench, "udp", bytes, seconds)
    }),
    ("bare UDP", |_, bytes, seconds| {
        Ok(bare::stream(&Stream::of_messages(bytes, seconds))?.gbps)
    }),
    ("UCX, posix shared memory", |bench, bytes, seconds| {
        let messages = messages(bytes, seconds);
        Ok(bench.ucx_shm("ucp_put_bw", bytes, messages)?.rate.gbps)
    }),
    ("UCX, posix, malloc", |bench, bytes, seconds| {
        let messages = messages(bytes, seconds / 4.0);
        Ok(bench.ucx_shm_heap("ucp_put_bw", bytes, messages)?.rate.gbps)
    }),
    ("UCX, TCP", |bench, bytes, seconds| {
        let messages = messages(bytes, seconds);
        Ok(bench.ucx_tcp("ucp_put_bw", bytes, messages)?.rate.gbps)
    }),
    ("iperf3", |bench, bytes, seconds| {
        Ok(bench.iperf3(bytes, messages(bytes, seconds))?)
    }),
];

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Report {
    curves: Vec<Curve>,
    /// Microseconds of ib_write_lat with 8 bytes, one way, by shared memory and by UDP.
    latency_us: [f64; 2],
}

fn main() -> ExitCode {
    let args = Args::parse();
    finish("rates", report(&args), args.json, Report::table)
}

fn report(args: &Args) -> Result<Report, Box<dyn Error>> {
    let report = match &args.from {
        Some(path) => serde_json::from_str(&fs::read_to_string(path)?)?,
        None => measure(args)?,
    };
    if let Some(path) = &args.picture {
        let title = "Payload over the size of messages, one stream between two processes";
        fs::write(path, picture::rates(title, &report.curves)?)?;
    }
    Ok(report)
}

fn measure(args: &Args) -> Result<Report, Box<dyn Error>> {
    let bench = Bench::new(ferroce_or_beside(args.ferroce.as_deref())?)?;
    let mut runs = vec![vec![Vec::new(); args.sizes.len()]; MEASURES.len()];
    let mut latencies = [const { Vec::new() }; 2];
    for _ in 0..args.rounds {
        for (place, bytes) in args.sizes.iter().enumerate() {
            for ((_, how), runs) in MEASURES.iter().zip(&mut runs) {
                runs[place].push(how(&bench, *bytes, args.seconds)?);
            }
        }
        for (link, latencies) in ["shm", "udp"].into_iter().zip(&mut latencies) {
            latencies.push(bench.perftest_latency(link, "ib_write_lat", 8, LATENCY_ROUNDS)?);
        }
    }
    let middle = |runs: &Vec<f64>| median(runs.iter().copied());
    let curves = MEASURES.iter().zip(&runs).map(|((name, _), runs)| Curve {
        name: (*name).to_owned(),
        points: args
            .sizes
            .iter()
            .copied()
            .zip(runs.iter().map(middle))
            .collect(),
    });
    Ok(Report {
        curves: curves.collect(),
        latency_us: [middle(&latencies[0]), middle(&latencies[1])],
    })
}

fn ferroce(bench: &Bench, link: &str, bytes: usize, seconds: f64) -> Result<f64, Box<dyn Error>> {
    let messages = messages(bytes, seconds);
    Ok(bench.perftest(link, "ib_write_bw", bytes, messages)?.gbps)
}

impl Report {
    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_preset(NOTHING);
        let sizes = self.curves.first().map(|curve| &curve.points);
        let sizes = sizes.into_iter().flatten();
        let head = sizes.map(|(bytes, _)| format!("{bytes} B"));
        table.set_header(std::iter::once("Gb/s".to_owned()).chain(head));
        for curve in &self.curves {
            let figures = curve.points.iter().map(|(_, gbps)| format!("{gbps:.3}"));
            table.add_row(std::iter::once(curve.name.clone()).chain(figures));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let [shm, udp] = self.latency_us;
        format!(
            "{}\n\nib_write_lat 8 B, one way: {shm:.2} us by shared memory, {udp:.2} us by UDP\n",
            table.trim_fmt()
        )
    }
}
