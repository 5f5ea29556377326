//! `ferroce bench`: what the device does on this machine, beside what else can be had on it.
//!
//! | module | content |
//! |---|---|
//! | `plan` | workloads, what does them, and the goals |
//! | `measure` | one measurement |
//! | `rounds` | all of them in turn, and what was seen of other programs meanwhile |
//! | `verdict` | ratios and what is said of them |
//! | `report` | the tables, and the same as JSON |

mod measure;
mod plan;
mod report;
mod rounds;
mod verdict;

use clap::Args;

use self::measure::Bench;
use self::plan::Plan;
use self::rounds::Figures;
use crate::output::lines::lines;
use crate::output::{Failure, Output};

const EXIT_CODES: &str = "Exit codes:
  0  everything was measured; a goal that is missed is a result, not an error
  1  a measurement failed, or the output could not be written
  2  bad input: flags or values; standard error says what and what to write instead
  3  the machine was too noisy for some verdicts; the figures are printed all the same";

/// Measure Ferroce on this machine, beside bare UDP, iperf3 and UCX
///
/// Two devices in this process send each other WRITEs, READs and atomics, over UDP sockets and over
/// shared memory. Beside them run programs that do only what no implementation can omit (bare UDP with
/// the same packets, and a bare ring in shared memory), and, if installed, iperf3 and UCX over TCP. All
/// take turns within each round; the tables show medians, ratios within a round, and whether these reach
/// the goals in docs/benchmarks.md. It takes about a minute and two processors.
#[derive(Args, Debug)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Command {
    /// Rounds, 1 to 1000; fewer than 5 give no verdicts, and more give surer ones
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Length of each measurement in seconds, 0.001 to 60
    #[arg(long, value_name = "S", default_value_t = 0.1, value_parser = seconds)]
    seconds: f64,
    /// Only workloads whose names contain this, as READ or "64 KiB"; may be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Measure Ferroce with perftest, a server and a client process, instead of two threads
    #[arg(long)]
    perftest: bool,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("must be seconds from 0.001 to 60".to_owned()),
    }
}

impl Command {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let plan = Plan::new(&self.only)?;
        let mut bench = Bench::new(self.perftest, self.seconds, &plan)?;
        let figures = Figures::measure(&plan, &mut bench, self.rounds, to)?;
        let judged = verdict::judge(&plan, &figures);
        let document = report::document(&self, &plan, &bench, &figures, &judged);
        match self.json {
            true => to.document(&document)?,
            false => to.text(&report::text(&document))?,
        }
        if let Some(remark) = report::remark(&document) {
            // Below the tables it is about.
            to.out.flush()?;
            to.remark(lines(&remark).trim_end())?;
        }
        match report::is_too_noisy(&document) {
            true => Err(Failure::TooBusy),
            false => Ok(()),
        }
    }
}
