//! Measures the cost of a post and a poll, compared with a lock and a clock reading.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use ferroce_benches::programs::{Bench, StateDir};
use ferroce_benches::{finish, median};

/// `ibv_post_send` of 8 bytes behind other requests, and `ibv_poll_cq` of an empty queue, as a program in
/// C calls them (`benches/programs/post.c`, needs a C compiler and libibverbs-dev). Quote the ratios.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Rounds; the table shows medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// The device's address
    #[arg(long, default_value = "127.99.1.1")]
    address: IpAddr,
    /// The program ferroce [default: beside this one, where `cargo build --release` leaves it]
    #[arg(long)]
    ferroce: Option<PathBuf>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

/// What is measured beside the rest.
const BARE: &str = "lock and clock";
/// The goals, in nanoseconds.
const GOALS: &[(&str, &str)] = &[
    ("post, inline", "<= 60"),
    ("poll of an empty queue", "<= 40"),
];

/// Medians over the rounds.
#[derive(Debug, serde::Serialize)]
struct Row {
    what: String,
    nanoseconds: f64,
    /// Median of what it is within a round.
    ratio: f64,
    goal: &'static str,
}

fn main() -> ExitCode {
    let args = Args::parse();
    finish("post", measure(&args), args.json, |rows| table(rows))
}

fn measure(args: &Args) -> Result<Vec<Row>, Box<dyn std::error::Error>> {
    let state = StateDir::make()?;
    let bench = Bench::new(args.ferroce.as_deref(), &state, [args.address; 2], 1)?;
    let rounds = (0..args.rounds).map(|_| bench.post());
    let rounds: Vec<_> = rounds.collect::<Result<_, _>>()?;
    let named = |round: &[(String, f64)], wanted: &str| {
        let found = round.iter().find(|(what, _)| what == wanted);
        found.map_or(f64::NAN, |(_, figure)| *figure)
    };
    let row = |what: &String| Row {
        what: what.clone(),
        nanoseconds: median(rounds.iter().map(|round| named(round, what))),
        ratio: median(
            rounds
                .iter()
                .map(|round| named(round, what) / named(round, BARE)),
        ),
        goal: GOALS
            .iter()
            .find(|(of, _)| of == what)
            .map_or("", |goal| goal.1),
    };
    Ok(rounds[0].iter().map(|(what, _)| row(what)).collect())
}

fn table(rows: &[Row]) -> String {
    let row = |row: &Row| {
        vec![
            row.what.clone(),
            format!("{:.1}", row.nanoseconds),
            format!("{:.2}", row.ratio),
            row.goal.to_owned(),
        ]
    };
    ferroce_benches::table(
        ["what", "ns", "ratio", "goal, ns"],
        1..4,
        rows.iter().map(row),
    )
}
