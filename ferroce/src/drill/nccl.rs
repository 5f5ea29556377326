//! `ferroce drill nccl`.

mod fetch;
mod host;
mod settings;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use ferroce_adp::Profile;
use ferroce_base::units::TIME;
use ferroce_device::Span;
use ferroce_nccl::{Interface, Version};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

pub(super) use self::host::Host;
use self::settings::{Failover, Settings};
use super::Hosts;
use super::forecast::Forecast;
use super::page::page;
use super::plan::Plan;
use super::progress::Progress;
use super::protocol::Report;
use super::record::Record;
use super::rehearse::{self, Limits};
use super::report::{self, Row};
use super::site::Site;
use super::trouble::Trouble;
use super::verdict::Verdict;
use crate::adp;
use crate::explain::endurance_of;
use crate::json::drill as json;
use crate::output::{Failure, Output, exit_codes};
use crate::put;

const EXAMPLES: &str = exit_codes!(
    "Examples:
  ferroce drill nccl --nccl 2.27.7,2.32.3 --outage 300ms,3s
  ferroce drill nccl --library ./libnccl.so.2 --rails 1 --profile link-flap
  ferroce drill nccl --nccl 2.32.3 --failover on,recovery --outage forever
  ferroce drill nccl --nccl 2.32.3 --env NCCL_IB_TIMEOUT=14 -o drill.html
  ferroce drill nccl --nccl 2.32.3 --events plan.txt   1s h0r0 down for 300ms"
);

/// Rehearse failures with NCCL: its InfiniBand code, as released, sends around a ring of processes on this
/// host while a port goes down
///
/// No GPU is needed: buffers are in host memory. Each host of the ring is a process with devices of its
/// own on loopback addresses, which exist only for the drill. Every byte that arrives is checked. The table
/// says for how long traffic stood still, when it moved to other rails and back, how it ended, and what
/// `ferroce explain timeout` predicts; a run that went otherwise is marked with !.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Drill {
    /// Releases of NCCL, comma-separated; those that are not in the cache are downloaded with pip
    #[arg(long = "nccl", value_name = "VERSION", value_delimiter = ',')]
    versions: Vec<String>,
    /// A library of your own, libnccl.so.2
    #[arg(long, value_name = "FILE")]
    library: Vec<PathBuf>,
    /// Hosts of the ring
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=8))]
    hosts: u8,
    /// Rails of each host: devices with a port each
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=4))]
    rails: u8,
    /// Channels from each host to the next
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    channels: u8,
    /// Use each rail for channels of its own, instead of all rails for each channel: without it rails are
    /// merged, which failover requires
    #[arg(long)]
    separate: bool,
    #[command(flatten)]
    trouble: Trouble,
    /// Profiles of adaptive retransmission (a TOML file or a built-in profile, such as link-flap), or
    /// firmware for none, comma-separated: a run for each
    #[arg(long, value_name = "FILE", value_delimiter = ',', default_value = FIRMWARE)]
    profile: Vec<PathBuf>,
    /// A variable of NCCL's; given with several values, a run for each
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// NCCL's failover: off, on, recovery (on, and back), comma-separated: a run for each
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_enum)]
    failover: Vec<Failover>,
    /// How long to watch after an outage [default: 3s; 20s with recovery]
    #[arg(long, value_name = "TIME", value_parser = time)]
    after: Option<Span>,
    /// Begin a step of a channel only every so often: less traffic, for a capture [default: at once]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pace: Option<Span>,
    /// Record the packets of each host (pcapng); the numbers of run and host are added to the name
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Write a page with the timeline of each run
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

/// What stands for no profile.
const FIRMWARE: &str = "firmware";
/// How long beyond the last queue pair's end traffic may take to move again.
const SLACK: Span = Span::from_secs(10);

/// A library and its release.
#[derive(Clone, Debug)]
struct Release {
    version: Version,
    file: PathBuf,
}

/// A policy by its name.
struct Policy {
    name: String,
    profile: Option<Profile>,
}

/// What a run is about.
#[derive(Clone, Copy)]
struct Case<'a> {
    release: &'a Release,
    settings: &'a Settings,
    policy: &'a Policy,
    plan: &'a Plan,
}

impl Drill {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let plans = self.trouble.plans(self.hosts.into(), self.rails.into())?;
        let pcap = self.pcap.as_deref().map(put::place).transpose()?;
        let page_file = self.output.as_deref().map(put::place).transpose()?;
        let policies = self.policies()?;
        let settings = Settings::all(&self.env, &self.failover)?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            flag::register(signal, Arc::clone(&stop))?;
        }
        let releases = self.releases(to)?;
        let mut cases = Vec::new();
        for release in &releases {
            for settings in &settings {
                if let Some(reason) = settings.lacking(release.version) {
                    to.remark(format_args!(
                        "note: failover {} is left out: {reason}",
                        settings.name
                    ))?;
                    continue;
                }
                for policy in &policies {
                    cases.extend(plans.iter().map(|plan| Case {
                        release,
                        settings,
                        policy,
                        plan,
                    }));
                }
            }
        }
        let mut progress = Progress::new(cases.len());
        let mut rows = Vec::new();
        for (number, case) in cases.into_iter().enumerate() {
            let name = format!("{} {}", case.release.version, case.plan.name);
            let pcap = pcap.as_deref().map(|file| named(file, number + 1));
            let row = self.rehearse(case, pcap, &stop, &mut |record| {
                progress.show(number, &name, record);
            })?;
            rows.push(row);
        }
        drop(progress);
        let document = json::Drill {
            library: "nccl",
            hosts: self.hosts,
            rails: self.rails,
            channels: self.channels,
            runs: rows.iter().map(Row::json).collect(),
        };
        if let Some(file) = &page_file {
            put::file(file, page("NCCL drill", &document).as_bytes())?;
        }
        if self.json {
            return to.document(&document);
        }
        to.text(&report::text("NCCL", &rows))
    }

    fn rehearse(
        &self,
        case: Case<'_>,
        pcap: Option<PathBuf>,
        stop: &Arc<AtomicBool>,
        show: &mut dyn FnMut(&Record),
    ) -> Result<Row, Failure> {
        let Case {
            release,
            settings,
            policy,
            plan,
        } = case;
        let variables = settings.variables(release.version);
        let environment = |name: &str| std::env::var(name).ok().filter(|it| !it.is_empty());
        let endurance = endurance_of(
            "nccl",
            &settings::of_queue_pairs(&variables),
            &environment,
            Some(settings::timeout(release.version)),
            policy.profile.as_ref(),
        )?;
        let rails = usize::from(self.rails);
        let is_merged = !self.separate && release.version.interface() > Some(Interface::V8);
        let leaves_a_rail = plan.leaves_a_rail(rails, settings.recovers());
        let fails_over = is_merged && settings.fails_over() && leaves_a_rail;
        let forecast = endurance.zip(plan.outage());
        let forecast = forecast.map(|(it, outage)| Forecast::of(&it, outage, fails_over));
        let gives_up = endurance.map_or(Span::from_secs(60), |it| it.gives_up_last);
        // Sender and receiver of a connection may notice one after the other.
        let patience = if fails_over { gives_up * 2 } else { gives_up };
        let after = match settings.recovers() {
            true => Span::from_secs(20),
            false => Span::from_secs(3),
        };
        let limits = Limits {
            after: self.after.unwrap_or(after),
            forever: gives_up + SLACK,
            patience: patience + SLACK,
        };
        let site = Site::new(self.hosts.into(), rails)?;
        if let Some(profile) = &policy.profile {
            site.set_profile(profile)?;
        }
        let hosts = Ring {
            drill: self,
            library: &release.file,
            variables: &variables,
            pcap,
        };
        let record = rehearse::run(&site, &hosts, plan, limits, stop, show)?;
        Ok(Row {
            keys: [
                release.version.to_string(),
                settings.name.clone(),
                policy.name.clone(),
            ],
            variables,
            plan: plan.name.clone(),
            verdict: Verdict::of(&record, is_merged),
            forecast,
            record,
        })
    }

    fn policies(&self) -> Result<Vec<Policy>, Failure> {
        let policy = |file: &PathBuf| {
            let is_firmware = file.as_os_str() == FIRMWARE;
            let profile = (!is_firmware).then(|| adp::load(file)).transpose()?;
            let name = file.file_stem().unwrap_or(file.as_os_str());
            Ok(Policy {
                name: name.to_string_lossy().into_owned(),
                profile,
            })
        };
        self.profile.iter().map(policy).collect()
    }

    /// The libraries, of which each is loaded once in a process of its own to see that it can be.
    fn releases(&self, to: &mut Output<'_>) -> Result<Vec<Release>, Failure> {
        if self.versions.is_empty() && self.library.is_empty() {
            return Err(Failure::input(
                "no library; name releases of NCCL, as in --nccl 2.27.7,2.32.3, or give --library FILE",
            ));
        }
        let versions = self.versions.iter().map(|text| fetch::version(text));
        let versions = versions.collect::<Result<Vec<_>, _>>()?;
        let mut files = self.library.clone();
        for version in versions {
            files.push(fetch::library(version, to)?);
        }
        files.into_iter().map(probe).collect()
    }
}

/// The release of a library.
fn probe(file: PathBuf) -> Result<Release, Failure> {
    let bad = |reason: &str| Failure::input(format_args!("{}: {reason}", file.display()));
    if let Err(error) = std::fs::metadata(&file) {
        return Err(bad(&error.to_string()));
    }
    let mut command = own_command(&file)?;
    let output = command.arg("--probe").output();
    let output = output.map_err(|error| Failure::broken(format_args!("cannot run it: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let reports = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    for report in reports {
        match report {
            Report::Loaded { version } => {
                if let Some(version) = Version::parse(&version) {
                    return Ok(Release { version, file });
                }
            }
            Report::Refused { reason } => return Err(bad(&reason)),
            _ => {}
        }
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(bad(&format!(
        "the process that loaded it has ended: {}",
        text.trim()
    )))
}

/// The command that runs a library in a process of its own.
fn own_command(library: &Path) -> Result<process::Command, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::broken(format_args!("cannot find out where ferroce is: {error}"))
    })?;
    let mut command = process::Command::new(program);
    command
        .args(["drill", "nccl-host", "--library"])
        .arg(library);
    Ok(command)
}

/// Starts the hosts of a ring.
struct Ring<'a> {
    drill: &'a Drill,
    library: &'a Path,
    variables: &'a [(String, String)],
    pcap: Option<PathBuf>,
}

impl Hosts for Ring<'_> {
    fn command(&self, host: usize) -> Result<process::Command, Failure> {
        let mut command = own_command(self.library)?;
        let (hosts, channels) = (self.drill.hosts, self.drill.channels);
        command.arg("--host").arg(host.to_string());
        command.arg("--hosts").arg(hosts.to_string());
        command.arg("--channels").arg(channels.to_string());
        if self.drill.separate {
            command.arg("--separate");
        }
        let pace = self.drill.pace.unwrap_or(Span::ZERO);
        command.arg("--pace-ns").arg(pace.as_nanos().to_string());
        for (name, value) in self.variables {
            command.env(name, value);
        }
        if let Some(pcap) = &self.pcap {
            command.env("FERROCE_PCAP", named(pcap, format_args!("h{host}")));
        }
        Ok(command)
    }
}

fn time(text: &str) -> Result<Span, String> {
    let ns = TIME.read_in(text, 0..=3_600_000_000_000);
    ns.map(Span::from_nanos)
        .map_err(|invalid| invalid.to_string())
}

/// The name of a file with a word before its suffix.
fn named(file: &Path, word: impl Display) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let suffix = file.extension().unwrap_or_default().to_string_lossy();
    file.with_file_name(format!("{stem}-{word}.{suffix}"))
}
