//! `ferroce adp fit`: searches for the profile that loses the least time in an operator's outages.

mod report;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use ferroce_adp::file::to_toml;
use ferroce_adp::{Demand, Endurance, Policy, PolicyKind};
use ferroce_base::time::Span;
use ferroce_base::units::{Probability, TIME};
use ferroce_trial::fit::{FitError, Question, Round, State};

use super::compare::{Tried, all_policies, kind, try_policy};
use super::input::{CommonQpArgs, floor};
use super::progress::Progress;
use super::trial_args::{Asked, LinkArgs, OutageArgs};
use crate::output::{Failure, Output};

/// Find the profile that loses least in your outages
///
/// The search tries profiles on pairs of devices in virtual time, as `ferroce adp compare` does, and
/// varies the better ones, in rounds that start from different profiles. It looks for the least
/// mean time lost for each outage, where a job that dies costs what --death-costs says. A profile
/// is taken only if `ferroce adp check` has no warning for it with these QPs, and if it keeps
/// within the constraints.
///
/// The profile found is shown beside the other policies on outages that it was not fitted to. The same
/// options give the same profile.
///
/// With --state, a search that was stopped resumes, with the same result; more --rounds continue
/// one that is done.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub(crate) struct Fit {
    #[command(flatten)]
    outages: OutageArgs,
    #[command(flatten)]
    link: LinkArgs,
    #[command(flatten)]
    qp: CommonQpArgs,
    /// Survive every outage up to this long
    #[arg(long, value_name = "TIME", value_parser = time)]
    survive: Option<Span>,
    /// Notice a dead peer within this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    detect_within: Option<Span>,
    /// Keep spurious retransmissions below this share of all packets
    #[arg(long, value_name = "P", default_value = "1%")]
    spurious_below: Probability,
    /// What the death of a job costs: the work since its last checkpoint, and its restart
    #[arg(long, value_name = "TIME", default_value = "5min", value_parser = time)]
    death_costs: Span,
    /// Outages that each profile is tried on
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
    /// Rounds of the search
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Profiles that each round tries
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: u32,
    /// Other outages, on which the profile is compared with other policies
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    evidence: u32,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Take timeouts below 16 as they are, as the register field of this name does
    #[arg(long)]
    min_ack_timeout_limit_disabled: bool,
    /// Save the state of the search in a file, and resume from it
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Write the profile to a file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The card, in the command that programs it
    #[arg(short, long, value_name = "DEV", default_value = "DEV")]
    device: String,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

fn time(text: &str) -> Result<Span, String> {
    const DAY_NS: u64 = 24 * 3_600 * 1_000_000_000;
    let ns = TIME.read_in(text, 1_000_000..=DAY_NS);
    ns.map(Span::from_nanos).map_err(|error| error.to_string())
}

/// A limit of this length is proposed where it would make a difference.
const SOON: Span = Span::from_secs(60);

/// What was found.
struct Found<'a> {
    fit: &'a Fit,
    asked: &'a Asked,
    question: &'a Question,
    best: Round,
    /// On other outages: the fitted profile, then the other policies.
    tried: Vec<Tried>,
    /// Whether each keeps within the constraints.
    meets: Vec<bool>,
    evidence_seed: u64,
}

impl Fit {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let asked = self.outages.required()?;
        let question = self.question(&asked)?;
        question.possible().map_err(Failure::input)?;
        if let Some(path) = &self.output {
            // Before the work, so that a bad path does not cost it.
            let file = fs::OpenOptions::new().append(true).create(true).open(path);
            file.map_err(|error| cannot_write(path, &error))?;
        }
        let state = self.search(&question)?;
        let best = question.best(&state.rounds).map_err(Failure::input)?;
        let found = self.evidence(&asked, &question, best)?;
        if let Some(path) = &self.output {
            let toml = to_toml(best.profile.raw());
            fs::write(path, toml).map_err(|error| cannot_write(path, &error))?;
        }
        match self.json {
            true => to.document(&report::json(&found))?,
            false => to.text(&report::text(&found))?,
        }
        self.warn(&found, to)
    }

    /// Without a limit the search trades the notice of dead peers for the survival of outages.
    fn warn(&self, found: &Found<'_>, to: &mut Output<'_>) -> Result<(), Failure> {
        let question = found.question;
        let endurance = Endurance::of(&question.policy(&found.best.profile), question.qp);
        match endurance {
            Some(found) if self.detect_within.is_none() && found.gives_up_last > SOON => {
                to.remark(format_args!(
                    "warning: jobs notice a dead peer only after {}, because nothing limits that; \
                     --detect-within {}s, for example, does",
                    found.gives_up_last.about(),
                    SOON.as_nanos() / 1_000_000_000
                ))
            }
            _ => Ok(()),
        }
    }

    fn question(&self, asked: &Asked) -> Result<Question, Failure> {
        let qp = self.qp.qp();
        if qp.timeout == 0 {
            return Err(Failure::input(
                "timeout 0 turns the timer off, whatever the profile is; write --timeout 1 or more",
            ));
        }
        let spurious_below = self.spurious_below.as_f64();
        if spurious_below == 0.0 {
            return Err(Failure::input(
                "--spurious-below 0%: no profile sends less than nothing again; write 0.1%, for example",
            ));
        }
        Ok(Question {
            outages: asked.outages.clone(),
            link: self.link.link(),
            qp,
            floor: floor(self.min_ack_timeout_limit_disabled),
            demand: Demand {
                survive: self.survive.unwrap_or(Span::ZERO),
                detect_within: self.detect_within.unwrap_or(Span::NEVER),
            },
            spurious_below,
            death: self.death_costs,
            count: self.count,
            rounds: self.rounds,
            steps: self.steps,
            seed: self.seed,
        })
    }

    /// Makes the rounds that are not done.
    fn search(&self, question: &Question) -> Result<State, Failure> {
        let mut state = self.read_state(question)?;
        self.keep(&state)?;
        let left = question.rounds - state.rounds.len() as u32;
        let progress = Progress::new("fitting", u64::from(left) * u64::from(question.steps));
        while let Some(number) = state.next(question) {
            let on_step = |least: Span| {
                progress.step(&format!(
                    "round {} of {}, {}",
                    number + 1,
                    question.rounds,
                    least.about()
                ));
            };
            let round = question
                .round(number, &on_step)
                .map_err(|error| match error {
                    FitError::Impossible(error) => Failure::input(error),
                    error => Failure::broken(error),
                })?;
            state.add(round);
            self.keep(&state)?;
        }
        Ok(state)
    }

    fn read_state(&self, question: &Question) -> Result<State, Failure> {
        let Some(path) = self.state.as_deref().filter(|path| path.exists()) else {
            return Ok(State::new(question));
        };
        let whose = path.display();
        let text = fs::read_to_string(path).map_err(|error| {
            Failure::input(format_args!(
                "cannot read {whose}: {error}; name another file with --state"
            ))
        })?;
        State::read(&text, question)
            .map_err(|error| Failure::input(format_args!("{whose}: {error}")))
    }

    /// Writes the state, whole or not at all.
    fn keep(&self, state: &State) -> Result<(), Failure> {
        let Some(path) = &self.state else {
            return Ok(());
        };
        let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
        let directory = directory.unwrap_or_else(|| Path::new("."));
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(directory)?;
            file.write_all(state.to_json().as_bytes())?;
            file.persist(path).map_err(|error| error.error)?;
            Ok(())
        };
        write().map_err(|error: std::io::Error| cannot_write(path, &error))
    }

    /// How the profile and other policies fare on other outages.
    fn evidence<'a>(
        &'a self,
        asked: &'a Asked,
        question: &'a Question,
        best: Round,
    ) -> Result<Found<'a>, Failure> {
        let evidence_seed = question.seed.wrapping_add(1);
        let trains = question.outages.trains(self.evidence, evidence_seed);
        let others = all_policies();
        let progress = Progress::new("comparing", others.len() as u64 + 1);
        let mut policies = vec![("fitted".to_owned(), PolicyKind::Profile(best.profile))];
        for name in others {
            let kind = kind(&name)?;
            policies.push((name, kind));
        }
        let (mut tried, mut meets) = (Vec::new(), Vec::new());
        for (name, kind) in policies {
            let mut policy = Policy::new(kind);
            policy.floor = question.floor;
            let (qp, link) = (question.qp, &question.link);
            let it = try_policy(&name, &policy, qp, link, &trains, evidence_seed)?;
            meets.push(question.meets(&policy) && question.allows(it.fared.spurious_share));
            tried.push(it);
            progress.step("");
        }
        Ok(Found {
            fit: self,
            asked,
            question,
            best,
            tried,
            meets,
            evidence_seed,
        })
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::input(format_args!(
        "cannot write {}: {error}; name a file in a directory that exists and is yours",
        path.display()
    ))
}
