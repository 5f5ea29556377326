//! `ferroce demo --congestion`: queue pairs that share a bottleneck under DCQCN.
//!
//! | module | purpose |
//! |---|---|
//! | `plan` | what the demo will do |
//! | `run` | the run and its samples |
//! | `course` | the samples, and the figures computed from them |
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
use ferroce_base::units::{Invalid, RATE};
use ferroce_dcqcn::Rate;
use ferroce_dcqcn::presets::{PRESETS, Preset};
use ferroce_os::Tap;

use self::plan::Plan;
use super::progress::Progress;
use super::report::digits;
use super::{Command, Shown, units};
use crate::output::Document as _;
use crate::output::{Failure, filled_columns};

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
    /// QPs that share the bottleneck, 1 to 8 [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=FLOWS_MAX))]
    flows: Option<u8>,
    /// Rate of the bottleneck, 10Mbit to 100Gbit [default: 4Gbit]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    bottleneck: Option<Rate>,
    /// Length of the run, 100ms to 60min [default: 6s]
    #[arg(long, value_name = "TIME", value_parser = units::run_time)]
    time: Option<u64>,
    /// Parameters of congestion control: a preset of `ferroce cc preset` [default: paper]
    #[arg(long, value_name = "NAME", value_parser = preset)]
    preset: Option<&'static Preset>,
    /// Width of the terminal picture, 60 to 400 [default: the terminal's]
    #[arg(long, value_name = "COLS", value_parser = clap::value_parser!(u16).range(60..=400))]
    width: Option<u16>,
}

/// Length of a run unless said otherwise.
const TIME_NS: u64 = 6_000_000_000;

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

    /// Refuses options of this demo without it, and a run in which too little passes the bottleneck.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if !self.congestion {
            // clap's `requires` lets them pass beside an option that excludes --congestion.
            return match self.first_given() {
                Some(option) => Err(Failure::input(format_args!(
                    "{option} is an option of --congestion: add --congestion, or leave {option} out"
                ))),
                None => Ok(()),
            };
        }
        let (time, bottleneck) = (self.time_ns(), self.rate());
        let shortest_ns = plan::shortest_ns(bottleneck);
        if time >= shortest_ns {
            return Ok(());
        }
        Err(Failure::input(format_args!(
            "--time: in {} s too few packets pass a bottleneck of {bottleneck}; write {}ms or more, or \
             raise --bottleneck",
            digits(time as f64 / 1e9),
            shortest_ns.div_ceil(1_000_000),
        )))
    }

    /// The first option that only this demo has, of those given.
    fn first_given(&self) -> Option<&'static str> {
        let options = [
            ("--flows", self.flows.is_some()),
            ("--bottleneck", self.bottleneck.is_some()),
            ("--time", self.time.is_some()),
            ("--preset", self.preset.is_some()),
            ("--width", self.width.is_some()),
        ];
        let mut given = options.into_iter().filter(|(_, is_given)| *is_given);
        given.next().map(|(option, _)| option)
    }

    fn time_ns(&self) -> u64 {
        self.time.unwrap_or(TIME_NS)
    }

    fn rate(&self) -> Rate {
        self.bottleneck.unwrap_or(Rate::from_mbps(4_000))
    }
}

/// Makes the run that the command asks for.
pub(super) fn show(command: &Command, tap: Option<Tap>) -> Result<Shown, Failure> {
    let options = &command.congestion;
    let preset = options.preset.map_or_else(|| preset("paper"), Ok);
    let preset = preset.map_err(Failure::broken)?;
    let plan = Plan {
        seed: command.seed,
        flows: options.flows.unwrap_or(2).into(),
        length_ns: options.time_ns(),
        bottleneck: options.rate(),
        red: plan::red(options.rate()),
        params: preset.params(),
        preset: preset.name,
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
        text: report::text(
            &plan,
            &course,
            options.width.map_or_else(filled_columns, usize::from),
        ),
        json: report::document(&plan, &course)
            .line()
            .map_err(io::Error::from)?,
        svg: svg.transpose().map_err(io::Error::other)?,
        too_busy: report::too_busy(&plan, &course).is_some(),
        wrong_under: (!course.verified).then(|| run::UNDER.to_owned()),
    })
}
