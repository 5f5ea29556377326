//! `ferroce adp compare`: how policies perform in outages and under loss.

pub(super) mod on_fabric;
mod picture;
pub(super) mod report;

use std::path::{Path, PathBuf};

use clap::Args;
use ferroce_adp::{Policy, PolicyKind, QpTimeouts, builtin};
use ferroce_designer::figures::qp_name;
use ferroce_trial::figures::{Fared, Job, jobs};
use ferroce_trial::{Link, MESSAGES, Train, TrialError};

use self::on_fabric::OnFabric;
use super::input::{floor, load, retry_count, timeout_code};
use super::progress::Progress;
use super::trial_args::{LinkArgs, OutageArgs};
use crate::json::adp::{Compared, Configuration};
use crate::output::exit_codes;
use crate::output::{Failure, Output};

const OUTAGES: &str = exit_codes!(
    "What --outages takes:
  lognormal:median=300ms,p99=20s  lengths of this distribution
  list:300ms,2s,20s               these lengths
  flaps:down=2s,up=5s,count=10    a link that goes down as often as that
  FILE or -                       lengths, one on each line, as 0.3 or 300ms;
                                  - reads standard input"
);

/// Compare how policies fare in outages and under loss, in virtual time
///
/// For each outage, two devices on a cable exchange messages in virtual time. The queue pair has a
/// message outstanding when the link goes down, with its own draw of the first wait, and sends 32 more
/// of 16 KiB afterwards, over a link with the given loss and round trips. The same seed gives the same
/// figures.
///
/// With --scenario, the jobs of a scenario of `ferroce sim` face its faults, on a whole fabric;
/// --outages then sets how long its links, switches and hosts are gone.
#[derive(Args, Debug)]
#[command(after_help = OUTAGES)]
pub(crate) struct Compare {
    /// Policies: firmware, ib, built-in profiles or profile files [default: all that are built in]
    #[arg(value_name = "POLICY")]
    policies: Vec<String>,
    #[command(flatten)]
    outages: OutageArgs,
    #[command(flatten)]
    link: LinkArgs,
    /// Compare on this scenario, a file or a built-in one (`ferroce sim list`)
    #[arg(long, value_name = "SCENARIO", conflicts_with_all = ["loss", "rtt"])]
    scenario: Option<String>,
    /// ACK timeout of the QP, a code of 5 bits: 4.096 us doubled T times [default: 14, or the scenario's]
    #[arg(long, value_name = "T", value_parser = timeout_code)]
    timeout: Option<u8>,
    /// Retry count of the QP, 3 bits: 7 means seven [default: 7, or the scenario's]
    #[arg(long, value_name = "R", value_parser = retry_count)]
    retry_cnt: Option<u8>,
    /// How many outages of a distribution, queue pairs that live through flaps, or runs of a scenario
    /// [default: 500; those of a list; 20 runs of a scenario]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: Option<u32>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Take timeouts below 16 as they are, as the register field of this name does
    #[arg(long)]
    min_ack_timeout_limit_disabled: bool,
    /// Draw the time lost and the resume delay as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

/// How one policy fared.
pub(super) struct Tried {
    pub(super) name: String,
    pub(super) jobs: Vec<Job>,
    pub(super) fared: Fared,
}

impl Compare {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let policies = self.policies()?;
        let (configuration, title, results) = match &self.scenario {
            Some(name) => self.on_fabric(&OnFabric::open(name)?, &policies)?,
            None => self.on_a_pair(&policies)?,
        };
        if let Some(path) = &self.svg {
            let svg = picture::draw(&title, &results).map_err(std::io::Error::other)?;
            std::fs::write(path, svg).map_err(|error| {
                Failure::input(format_args!(
                    "cannot write {}: {error}; name a file in a directory that exists and is yours",
                    path.display()
                ))
            })?;
        }
        if self.json {
            let policies = results.iter().map(|it| report::fared(&it.name, &it.fared));
            return to.document(&Compared {
                configuration,
                policies: policies.collect(),
            });
        }
        let per = if self.scenario.is_some() {
            "run"
        } else {
            "outage"
        };
        to.text(&format!(
            "{}\n\n{}\n{}",
            title,
            report::table(&results),
            report::legend(per)
        ))
    }

    fn on_a_pair(
        &self,
        policies: &[(String, Policy)],
    ) -> Result<(Configuration, String, Vec<Tried>), Failure> {
        let outages = self.outages.required()?;
        let qp = self.qp();
        let count = self.count.unwrap_or_else(|| outages.usual_count());
        let trains = outages.outages.trains(count, self.seed);
        let link = self.link.link();
        let progress = Progress::new("comparing", policies.len() as u64);
        let results = policies.iter().map(|(name, policy)| {
            let result = try_policy(name, policy, qp, &link, &trains, self.seed);
            progress.step("");
            result
        });
        let results = results.collect::<Result<Vec<_>, _>>()?;
        let title = format!(
            "{}; {}; QP {}; seed {}",
            outages.title(count, &trains),
            self.link,
            qp_name(qp),
            self.seed
        );
        let configuration = Configuration {
            outages: Some(outages.text.clone()),
            loss: Some(self.link.loss()),
            round_trip: Some(self.link.round_trip().to_string()),
            messages: Some(MESSAGES),
            timeout: Some(qp.timeout),
            retry_cnt: Some(qp.retry_cnt),
            ..self.configuration(trains.len())
        };
        Ok((configuration, wrapped(&title), results))
    }

    fn on_fabric(
        &self,
        fabric: &OnFabric,
        policies: &[(String, Policy)],
    ) -> Result<(Configuration, String, Vec<Tried>), Failure> {
        let outages = self.outages.read()?;
        let count = self.count.unwrap_or(20);
        let lengths = outages
            .as_ref()
            .map(|it| it.outages.trains(count, self.seed));
        let attributes = [("timeout", self.timeout), ("retry_cnt", self.retry_cnt)];
        let runs = fabric.runs(count, self.seed, lengths.as_deref(), attributes)?;
        let progress = Progress::new("comparing", policies.len() as u64);
        let results = policies.iter().map(|(name, policy)| {
            let jobs = fabric.jobs(name, policy, &runs)?;
            progress.step("");
            Ok(Tried {
                name: name.clone(),
                fared: Fared::of(&jobs),
                jobs,
            })
        });
        let results = results.collect::<Result<Vec<_>, Failure>>()?;
        let title = format!(
            "{count} runs of {}{}; seeds {} to {}",
            fabric.name(),
            match (&outages, &lengths) {
                (Some(outages), Some(lengths)) => format!("; {}", outages.title(count, lengths)),
                _ => String::new(),
            },
            self.seed,
            self.seed.wrapping_add(u64::from(count) - 1)
        );
        let configuration = Configuration {
            outages: outages.map(|it| it.text),
            scenario: Some(fabric.name().to_owned()),
            scenario_hash: Some(format!("{:016x}", fabric.hash())),
            timeout: self.timeout,
            retry_cnt: self.retry_cnt,
            ..self.configuration(runs.len())
        };
        Ok((configuration, wrapped(&title), results))
    }

    fn configuration(&self, count: usize) -> Configuration {
        Configuration {
            ferroce_version: env!("CARGO_PKG_VERSION"),
            outages: None,
            scenario: None,
            scenario_hash: None,
            loss: None,
            round_trip: None,
            messages: None,
            timeout: None,
            retry_cnt: None,
            min_ack_timeout_limit_disabled: self.min_ack_timeout_limit_disabled,
            count,
            seed: self.seed,
        }
    }

    fn qp(&self) -> QpTimeouts {
        QpTimeouts {
            timeout: self.timeout.unwrap_or(14),
            retry_cnt: self.retry_cnt.unwrap_or(7),
        }
    }

    /// The policies, by name.
    fn policies(&self) -> Result<Vec<(String, Policy)>, Failure> {
        let names = match self.policies.is_empty() {
            true => all_policies(),
            false => self.policies.clone(),
        };
        let floor = floor(self.min_ack_timeout_limit_disabled);
        let policies = names.into_iter().map(|name| {
            let mut policy = Policy::new(kind(&name)?);
            policy.floor = floor;
            Ok((name, policy))
        });
        policies.collect()
    }
}

/// The names of all policies that are built in.
pub(super) fn all_policies() -> Vec<String> {
    let profiles = builtin::all().iter().map(|it| it.name);
    let names = ["ib", "firmware"].into_iter().chain(profiles);
    names.map(str::to_owned).collect()
}

/// The policy of a name.
pub(super) fn kind(name: &str) -> Result<PolicyKind, Failure> {
    Ok(match name {
        "ib" => PolicyKind::IB,
        //= F14: as a device comes.
        "firmware" => PolicyKind::Firmware {
            quantiser: true,
            initial_exponent: None,
        },
        file => PolicyKind::Profile(load(Path::new(file))?),
    })
}

/// How a policy fares on a pair.
pub(super) fn try_policy(
    name: &str,
    policy: &Policy,
    qp: QpTimeouts,
    link: &Link,
    trains: &[Train],
    seed: u64,
) -> Result<Tried, Failure> {
    let jobs = jobs(policy, qp, link, trains, seed).map_err(|error| match error {
        TrialError::NoTimer => Failure::input(format_args!("{error}; write --timeout 1 or more")),
        TrialError::Flood(..) => Failure::input(format_args!(
            "{name}: {error}; shorten the outages, or see `ferroce adp check`"
        )),
        TrialError::Verbs(_) => Failure::broken(error),
    })?;
    Ok(Tried {
        name: name.to_owned(),
        fared: Fared::of(&jobs),
        jobs,
    })
}

/// Broken into lines that fit a terminal.
pub(super) fn wrapped(title: &str) -> String {
    const WIDTH: usize = 80;
    let mut lines = String::new();
    let mut column = 0;
    for part in title.split("; ") {
        let width = part.chars().count();
        if column > 0 && column + 2 + width > WIDTH {
            lines.push_str(";\n");
            column = 0;
        } else if column > 0 {
            lines.push_str("; ");
            column += 2;
        }
        lines.push_str(part);
        column += width;
    }
    lines
}
