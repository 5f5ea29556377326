//! Measures the cost of a post and a poll, compared with a lock and a clock reading.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use ferroce_bench::median;
use ferroce_bench::programs::{Bench, Error as ProgramError, output_of};
use ferroce_benches::{ferroce_or_beside, finish};

/// `ibv_post_send` of 8 bytes behind other requests, and `ibv_poll_cq` of an empty queue, as a program in
/// C calls them (`benches/programs/post.c`, needs a C compiler and libibverbs-dev). Quote the ratios.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Rounds; the table shows medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
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
    let bench = Bench::new(ferroce_or_beside(args.ferroce.as_deref())?)?;
    let directory = tempfile::tempdir()?;
    let program = compile(directory.path())?;
    let rounds = (0..args.rounds).map(|_| post(&bench, &program));
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

fn compile(directory: &Path) -> Result<PathBuf, ProgramError> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/post.c");
    let program = directory.join("post");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O2", "-Wall", "-o"])
        .args([&program, &source]);
    output_of("cc", compiler.arg("-libverbs"))?;
    Ok(program)
}

/// What the program measures, in the order in which it does: what was done, and how many nanoseconds it
/// took.
fn post(bench: &Bench, program: &Path) -> Result<Vec<(String, f64)>, ProgramError> {
    let text = bench.on_device("udp", program)?;
    let figure = |line: &str| {
        let (what, figure) = line.split_once('\t')?;
        Some((what.to_owned(), figure.parse().ok()?))
    };
    let figures = text.lines().map(figure).collect::<Option<_>>();
    figures.ok_or_else(|| ProgramError::Unreadable {
        program: "post".to_owned(),
        says: text,
    })
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
