//! Outages and links on the command line.

use std::fmt;

use clap::Args;
use ferroce_base::time::Span;
use ferroce_base::units::Probability;
use ferroce_trial::{Link, Outages, Times, Train};

use super::input::stdin;
use crate::output::Failure;

/// Outages of a distribution unless said otherwise.
const COUNT: u32 = 500;
/// Outages that are tried at most.
const COUNT_MAX: usize = 10_000;

/// Which outages.
#[derive(Args, Clone, Debug)]
pub(super) struct OutageArgs {
    /// The outages: a distribution, a list, flaps, a file, or - for standard input
    #[arg(long, value_name = "OUTAGES")]
    outages: Option<String>,
}

/// The link while it is up.
#[derive(Args, Clone, Debug)]
pub(super) struct LinkArgs {
    /// Random loss in each direction while the link is up: a fraction or a percentage, 0 to 50%
    #[arg(long, value_name = "P", default_value = "0%", value_parser = loss)]
    loss: Probability,
    /// How long an acknowledgement takes: a time, lognormal:.. or list:..
    #[arg(
        long,
        value_name = "TIME",
        default_value = "lognormal:median=20us,p99=200us"
    )]
    rtt: Times,
}

fn loss(text: &str) -> Result<Probability, String> {
    let must = "must be a probability between 0 and 0.5 (or 0% to 50%), for example 0.1%";
    let loss = text.parse::<Probability>().ok();
    let loss = loss.filter(|it| it.as_f64() <= 0.5);
    loss.ok_or_else(|| must.to_owned())
}

impl LinkArgs {
    pub(super) fn link(&self) -> Link {
        // At most half of it.
        let loss = (self.loss.as_f64() * 2_f64.powi(32)).round() as u32;
        Link {
            loss,
            round_trip: self.rtt.clone(),
        }
    }

    pub(super) fn loss(&self) -> f64 {
        self.loss.as_f64()
    }

    pub(super) fn round_trip(&self) -> &Times {
        &self.rtt
    }
}

impl fmt::Display for LinkArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loss {}; round trips {}", self.loss, self.rtt)
    }
}

/// Outages, and how they were written.
pub(super) struct Asked {
    pub(super) outages: Outages,
    pub(super) text: String,
}

impl OutageArgs {
    pub(super) fn required(&self) -> Result<Asked, Failure> {
        self.read()?.ok_or_else(|| {
            Failure::input(
                "missing --outages: write lognormal:median=300ms,p99=20s, list:300ms,2s, \
                 flaps:down=2s,up=5s,count=10, or name a file of lengths",
            )
        })
    }

    pub(super) fn read(&self) -> Result<Option<Asked>, Failure> {
        let Some(text) = &self.outages else {
            return Ok(None);
        };
        let kinds = ["lognormal:", "list:", "flaps:"];
        let outages = match kinds.iter().any(|kind| text.starts_with(kind)) {
            true => text.parse::<Outages>(),
            false => {
                let lines = match text.as_str() {
                    "-" => stdin()?,
                    path => read_file(path)?,
                };
                Times::from_lines(&lines).map(Outages::Lengths)
            }
        };
        let outages = outages.map_err(|error| {
            let whose = match (error.line, text.as_str()) {
                (Some(_), "-") => "standard input, ".to_owned(),
                (Some(_), path) => format!("{path}, "),
                _ => String::new(),
            };
            Failure::input(format_args!("--outages: {whose}{error}"))
        })?;
        Ok(Some(Asked {
            outages,
            text: text.clone(),
        }))
    }
}

fn read_file(path: &str) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        Failure::input(format_args!(
            "--outages {path}: cannot read it: {error}; name a file of lengths, or write \
             lognormal:median=300ms,p99=20s, list:300ms,2s or flaps:down=2s,up=5s,count=10"
        ))
    })
}

impl Asked {
    /// The default number of trials.
    pub(super) fn usual_count(&self) -> u32 {
        match &self.outages {
            // At most COUNT_MAX.
            Outages::Lengths(Times::List(list)) => list.len().min(COUNT_MAX) as u32,
            _ => COUNT,
        }
    }

    /// Describes `count` of them.
    pub(super) fn title(&self, count: u32, trains: &[Train]) -> String {
        let longest = trains.iter().map(|train| train.down).max();
        let longest = longest.unwrap_or(Span::ZERO).about();
        match &self.outages {
            Outages::Flaps(_) => format!("{count} queue pairs, {}", self.outages),
            Outages::Lengths(Times::Lognormal { median, p99 }) => format!(
                "{count} outages, lognormal: median {}, p99 {}, longest {longest}",
                median.about(),
                p99.about(),
            ),
            Outages::Lengths(times) => {
                let median = times.quantile(0.5).about();
                format!("{count} outages, median {median}, longest {longest}")
            }
        }
    }
}
