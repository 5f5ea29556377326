//! The runs of a drill: one for each combination of what is asked for.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use ferroce_adp::Profile;
use ferroce_base::units::TIME;
use ferroce_device::Span;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::adapter::Adapter;
use super::forecast::Forecast;
use super::page::page;
use super::plan::{Plan, Rail};
use super::progress::Progress;
use super::record::Record;
use super::rehearse::{self, Hosts, Limits};
use super::release::Release;
use super::report::{self, Row};
use super::settings::Settings;
use super::site::{Ports, Site};
use super::trouble::Trouble;
use super::verdict::Verdict;
use crate::adp;
use crate::explain::endurance_of;
use crate::json::drill as json;
use crate::output::{Failure, Output};
use crate::put;

/// What is asked for, whatever the library.
#[derive(Args, Debug)]
pub(super) struct Campaign {
    /// Hosts of the ring
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=8))]
    hosts: u8,
    /// Rails of each host: devices with a port each
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=4))]
    rails: u8,
    /// Each card has two ports: two rails of a host are those of one device
    #[arg(long)]
    two_ports: bool,
    /// Channels from each host to the next
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    channels: u8,
    #[command(flatten)]
    trouble: Trouble,
    /// Profiles of adaptive retransmission (a TOML file or a built-in profile, such as link-flap), or
    /// firmware for none, comma-separated: a run for each
    #[arg(long, value_name = "FILE", value_delimiter = ',', default_value = FIRMWARE)]
    profile: Vec<PathBuf>,
    /// A variable of the library's; given with several values, a run for each
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// How long to watch after an outage [default: 3s; 20s if the library recovers ports]
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

/// A policy by its name.
struct Policy {
    name: String,
    profile: Option<Profile>,
}

/// What a run is about.
struct Case<'a, A: Adapter> {
    release: &'a Release,
    settings: &'a Settings<A::Mode>,
    policy: &'a Policy,
    plan: &'a Plan,
}

impl Campaign {
    pub(super) fn run<A: Adapter>(&self, library: &A, to: &mut Output<'_>) -> Result<(), Failure> {
        if self.two_ports && self.rails % 2 == 1 {
            return Err(Failure::input(format_args!(
                "invalid number of rails {}: must be 2 or 4 with --two-ports, a port for each",
                self.rails
            )));
        }
        let plans = self.trouble.plans(self.hosts.into(), self.rails.into())?;
        for event in plans.iter().flat_map(|plan| &plan.events) {
            if let Some(reason) = library.refusal(&event.what) {
                return Err(Failure::input(format_args!("{}: {reason}", event.what)));
            }
        }
        let pcap = self.pcap.as_deref().map(put::place).transpose()?;
        let page_file = self.output.as_deref().map(put::place).transpose()?;
        let policies = self.policies()?;
        let settings = Settings::all(&self.env, library.modes(), A::PREFIXES, A::VARIABLE)?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            flag::register(signal, Arc::clone(&stop))?;
        }
        let releases = library.releases(to)?;
        let mut cases = Vec::new();
        for release in &releases {
            for settings in &settings {
                let lacking = |mode| library.lacking(release.version, mode);
                if let Some(reason) = settings.mode.as_ref().and_then(lacking) {
                    to.remark(format_args!(
                        "note: {} {} is left out: {reason}",
                        A::OPTION,
                        settings.name
                    ))?;
                    continue;
                }
                for policy in &policies {
                    cases.extend(plans.iter().map(|plan| Case::<A> {
                        release,
                        settings,
                        policy,
                        plan,
                    }));
                }
            }
        }
        if cases.is_empty() {
            return Err(Failure::input(
                "nothing is left to run; see the notes above",
            ));
        }
        if pcap.is_some() && self.pace.is_none() {
            to.remark(
                "note: at full speed a capture grows by up to 1 GB a second for each host; \
                 --pace 20ms makes it small",
            )?;
        }
        let mut progress = Progress::new(cases.len());
        let mut rows = Vec::new();
        for (number, case) in cases.into_iter().enumerate() {
            let name = format!("{} {}", case.release.version, case.plan.name);
            let pcap = pcap.as_deref().map(|file| named(file, number + 1));
            let row = self.rehearse(library, &case, pcap, &stop, &mut |record| {
                progress.show(number, &name, record);
            })?;
            rows.push(row);
        }
        drop(progress);
        let document = json::Drill {
            library: A::PACKAGE.name,
            hosts: self.hosts,
            rails: self.rails,
            two_ports: self.two_ports,
            channels: self.channels,
            runs: rows.iter().map(Row::json).collect(),
        };
        if let Some(file) = &page_file {
            let title = format!("{} drill", A::TITLE);
            put::file(file, page(&title, &document).as_bytes())?;
        }
        if self.json {
            return to.document(&document);
        }
        to.text(&report::text(A::TITLE, &rows))
    }

    fn rehearse<A: Adapter>(
        &self,
        library: &A,
        case: &Case<'_, A>,
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
        let variables = library.variables(release.version, settings);
        let outlook = library.outlook(release.version, settings);
        let environment = |name: &str| std::env::var(name).ok().filter(|it| !it.is_empty());
        let endurance = endurance_of(
            outlook.app,
            &variables,
            &environment,
            outlook.timeout,
            policy.profile.as_ref(),
        )?;
        let rails = usize::from(self.rails);
        let leaves_a_rail = plan.leaves_a_rail(rails, outlook.recovers);
        let heeds_it = (outlook.heeds_ports && plan.downs_a_port())
            || (outlook.is_a_job && plan.kills_a_host());
        let is_noticed = heeds_it || !outlook.heeds_ports;
        let fails_over = outlook.is_merged && outlook.fails_over && leaves_a_rail && is_noticed;
        let forecast = endurance.zip(plan.outage());
        let forecast = forecast.map(|(it, outage)| match heeds_it {
            true => Forecast::heeding(&it, fails_over),
            false => Forecast::of(&it, outage, fails_over, outlook.attempts),
        });
        let forecast = forecast.map(|it| Forecast {
            aborts: outlook.is_a_job,
            ..it
        });
        let gives_up = endurance.map_or(Span::from_secs(60), |it| it.gives_up_last);
        // Sender and receiver of a connection may notice one after the other.
        let ends = if fails_over { 2 } else { 1 };
        let patience = gives_up * ends.max(outlook.attempts);
        let after = match outlook.recovers {
            true => Span::from_secs(20),
            false => Span::from_secs(3),
        };
        let limits = Limits {
            after: self.after.unwrap_or(after),
            forever: gives_up + SLACK,
            patience: patience + SLACK,
        };
        let site = Site::new(self.hosts.into(), rails, self.ports())?;
        if let Some(profile) = &policy.profile {
            site.set_profile(profile)?;
        }
        let hosts = Ring {
            campaign: self,
            library,
            case,
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
            verdict: Verdict::of(&record, outlook.is_merged),
            forecast,
            record,
        })
    }

    fn ports(&self) -> Ports {
        match self.two_ports {
            true => Ports::Two,
            false => Ports::One,
        }
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
}

/// Starts the hosts of a ring.
struct Ring<'a, A: Adapter> {
    campaign: &'a Campaign,
    library: &'a A,
    case: &'a Case<'a, A>,
    variables: &'a [(String, String)],
    pcap: Option<PathBuf>,
}

impl<A: Adapter> Hosts for Ring<'_, A> {
    fn launcher(&self) -> Result<Option<process::Command>, Failure> {
        let launcher = self.library.launcher(self.case.release)?;
        let variables = self.variables.iter().map(|(name, value)| (name, value));
        Ok(launcher.map(|mut launcher| {
            launcher.envs(variables);
            launcher
        }))
    }

    fn command(&self, host: usize) -> Result<process::Command, Failure> {
        let rails = 0..usize::from(self.campaign.rails);
        let ports = self.campaign.ports();
        let rails = rails.map(|rail| ports.name(Rail { host, rail }));
        let rails: Vec<_> = rails.collect();
        let Case {
            release, settings, ..
        } = self.case;
        let mut command = self.library.host(release, settings, &rails)?;
        let (hosts, channels) = (self.campaign.hosts, self.campaign.channels);
        command.arg("--host").arg(host.to_string());
        command.arg("--hosts").arg(hosts.to_string());
        command.arg("--channels").arg(channels.to_string());
        let pace = self.campaign.pace.unwrap_or(Span::ZERO);
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
