//! `ferroce sim new`: a scenario of a cluster's size.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use ferroce_base::units::{RATE, SIZE};
use ferroce_fabric::Rate;
use ferroce_scenario::{Draft, DraftJob, DraftTopology};

use crate::output::{Failure, Output};

const EXAMPLES_AND_EXIT_CODES: &str = "Examples:
  ferroce sim new --nodes 128 --gpus 8 --bytes 1GiB -o cluster.toml
  ferroce sim new --nodes 16 --topology leaf-spine --job experts -o moe.toml

Exit codes:
  0  success
  1  the file could not be written
  2  bad input: flags or values; the message says what to write instead";

/// Rates of cables.
const RATES: RangeInclusive<u64> = 1_000_000_000..=3_200_000_000_000;
/// Bytes of a job.
const BYTES: RangeInclusive<u64> = 1..=64 << 30;

/// Print a scenario for a cluster of this size, with comments, ready to run and to edit
///
/// Switches are connected without oversubscription, with marks, pauses and buffers for the rate of the
/// cables. The jobs all-reduce, all-gather, reduce-scatter and broadcast are done as NCCL does them.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES_AND_EXIT_CODES)]
pub(super) struct New {
    /// Servers
    #[arg(long, value_name = "N")]
    nodes: u32,
    /// GPUs of a server, each with a card
    #[arg(long, value_name = "N", default_value_t = 8)]
    gpus: u32,
    /// Rate of every cable
    #[arg(long, value_name = "RATE", default_value = "400Gbit", value_parser = rate)]
    rate: Rate,
    /// How cards are connected: rail connects those with the same number
    #[arg(long, default_value = "rail", value_parser = one_of(DraftTopology::NAMES))]
    topology: DraftTopology,
    /// What the cluster does
    #[arg(long, default_value = "all-reduce", value_parser = one_of(DraftJob::NAMES))]
    job: DraftJob,
    /// Bytes of the buffer, or of what each passes on or writes
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = bytes)]
    bytes: u64,
    /// Write a new file instead
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl New {
    pub(super) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let draft = Draft {
            nodes: self.nodes,
            gpus: self.gpus,
            rate: self.rate,
            topology: self.topology,
            job: self.job,
            bytes: self.bytes,
        };
        let text = draft.text().map_err(Failure::input)?;
        match &self.output {
            None => to.text(&text),
            Some(path) => write_new(path, &text),
        }
    }
}

/// Writes a file that is not there yet: an edited scenario must not be lost.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::input(format_args!(
            "{} exists; remove it, or name another file",
            path.display()
        )),
        _ => Failure::broken(format_args!("cannot write {}: {error}", path.display())),
    })
}

fn rate(text: &str) -> Result<Rate, String> {
    let bps = RATE.read_in(text, RATES);
    bps.map(Rate::from_bps).map_err(|error| error.to_string())
}

fn bytes(text: &str) -> Result<u64, String> {
    SIZE.read_in(text, BYTES).map_err(|error| error.to_string())
}

/// One of these names.
fn one_of<T: Copy + Send + Sync>(
    names: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let words = names.iter().map(|(name, _)| *name);
    PossibleValuesParser::new(words).try_map(move |word| {
        let found = names.iter().find(|(name, _)| *name == word);
        found.map(|(_, value)| *value).ok_or("unknown name")
    })
}
