//! `ferroce demo --congestion`: queue pairs that share a marked bottleneck under DCQCN.
//!
//! | module | does |
//! |---|---|
//! | `plan` | what will be done |
//! | `run` | the run, and the samples taken meanwhile |
//! | `course` | the samples, and the figures that follow from them |
//! | `terminal` | the course in characters |
//! | `report` | table, conclusion, JSON |
//! | `picture` | the course as SVG |

mod course;
mod picture;
mod plan;
mod report;
mod run;
mod terminal;

use std::io;

use clap::Args;
use ferroce_dcqcn::Rate;
use ferroce_dcqcn::presets::{PRESETS, Preset};
use ferroce_udp::Tap;
use ferroce_units::{Invalid, RATE};

use self::plan::Plan;
use super::progress::Progress;
use super::report::digits;
use super::{Command, Shown, to_json, units};
use crate::output::Failure;

/// Queue pairs that can be told apart.
const FLOWS_MAX: i64 = terminal::SIGNS.len() as i64;

/// What only this demo asks.
#[derive(Args, Clone, Debug)]
pub(super) struct Options {
    /// Show congestion control instead: QPs that join and leave a bottleneck, which marks packets
    #[arg(
        long,
        conflicts_with_all = ["loss", "blackout", "profile", "timeout", "retry_cnt", "bytes"]
    )]
    congestion: bool,
    /// QPs that share the bottleneck, 1 to 8
    #[arg(long, value_name = "N", default_value_t = 2, requires = "congestion",
          value_parser = clap::value_parser!(u8).range(1..=FLOWS_MAX))]
    flows: u8,
    /// Rate of the bottleneck, 10Mbit to 100Gbit
    #[arg(long, value_name = "RATE", default_value = "4Gbit", requires = "congestion",
          value_parser = rate)]
    bottleneck: Rate,
    /// Length of the run, 100ms to 60min
    #[arg(long, value_name = "TIME", default_value = "6s", requires = "congestion",
          value_parser = units::run_time)]
    time: u64,
    /// Parameters of congestion control: a preset of `ferroce cc preset`
    #[arg(long, value_name = "NAME", default_value = "paper", requires = "congestion",
          value_parser = preset)]
    preset: &'static Preset,
    /// Columns of the terminal picture, 60 to 400
    #[arg(long, value_name = "COLS", default_value_t = 94, requires = "congestion",
          value_parser = clap::value_parser!(u16).range(60..=400))]
    width: u16,
}

fn rate(text: &str) -> Result<Rate, Invalid> {
    let [from, to] = [10, 100_000].map(|mbps| Rate::from_mbps(mbps).bps());
    RATE.read_in(text, from..=to).map(Rate::from_bps)
}

fn preset(name: &str) -> Result<&'static Preset, String> {
    Preset::named(name).ok_or_else(|| {
        let names: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
        format!(
            "there is none of that name; choose one of {}",
            names.join(", ")
        )
    })
}

impl Options {
    /// Whether this demo is to be shown.
    pub(super) fn is_wanted(&self) -> bool {
        self.congestion
    }

    /// Refuses a run in which too little passes the bottleneck.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let shortest_ns = plan::shortest_ns(self.bottleneck);
        if !self.congestion || self.time >= shortest_ns {
            return Ok(());
        }
        Err(Failure::input(format_args!(
            "--time: in {} s too few packets pass a bottleneck of {}; write {}ms or more, or raise \
             --bottleneck",
            digits(self.time as f64 / 1e9),
            self.bottleneck,
            shortest_ns.div_ceil(1_000_000),
        )))
    }
}

/// Makes the run that the command asks for.
pub(super) fn show(command: &Command, tap: Option<Tap>) -> Result<Shown, Failure> {
    let options = &command.congestion;
    let plan = Plan {
        seed: command.seed,
        flows: options.flows.into(),
        length_ns: options.time,
        bottleneck: options.bottleneck,
        red: plan::red(options.bottleneck),
        params: options.preset.params(),
        preset: options.preset.name,
        addresses: command.addresses,
        tap,
    };
    let mut progress = Progress::of_time();
    let course = run::run(&plan, &mut |share| progress.show_share(share));
    drop(progress);
    let course = course.map_err(Failure::broken)?;
    let svg = command.svg.is_some();
    let svg = svg.then(|| picture::draw(&course, plan.bottleneck.bps(), &plan.to_string()));
    Ok(Shown {
        text: report::text(&plan, &course, options.width.into()),
        json: to_json(&report::Json::new(&plan, &course))?,
        svg: svg.transpose().map_err(io::Error::other)?,
        too_busy: report::too_busy(&plan, &course).is_some(),
        wrong_under: (!course.verified).then(|| run::UNDER.to_owned()),
    })
}
