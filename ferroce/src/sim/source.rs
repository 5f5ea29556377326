//! Scenarios by file or built-in name.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use ferroce_scenario::{Scenario, ScenarioError, text_with};

use crate::output::Failure;
use crate::output::lines::finding;
use crate::scenario_files;

macro_rules! built_in {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../scenarios/", $name, ".toml")),
        )
    };
}

/// The scenarios that need no file.
pub(crate) const BUILT_IN: &[(&str, &str)] = &[
    built_in!("flap-all-reduce"),
    built_in!("flap-plain-timeouts"),
    built_in!("outage-too-long"),
    built_in!("switch-reboot"),
    built_in!("bond-leaf-reboot"),
    built_in!("bulk-outage"),
    built_in!("degraded-link"),
    built_in!("ring-collisions"),
    built_in!("storage-failover"),
    built_in!("nic-reset"),
    built_in!("silent-host"),
    built_in!("loss-timeout-8"),
    built_in!("loss-timeout-19"),
    built_in!("spurious-profile"),
    built_in!("incast-pfc"),
    built_in!("incast-lossy"),
    built_in!("incast-selective"),
    built_in!("slow-and-flapping"),
    built_in!("nccl-rails"),
    built_in!("dcqcn-defaults"),
    built_in!("dcqcn-barre"),
];

/// Their names.
pub(crate) fn names() -> Vec<String> {
    BUILT_IN
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect()
}

/// Which scenario, and what is changed of it.
#[derive(Args, Debug)]
pub(super) struct Which {
    /// Scenario file (TOML), or the name of a built-in one: see `ferroce sim list`
    #[arg(value_name = "SCENARIO")]
    scenario: String,
    /// Change a value: a path in the file such as seed, switch.buffer, job.timeout (of all jobs) or
    /// job[0].timeout, and a value as in the file
    #[arg(long, value_name = "PATH=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// Seed of everything random [default: that of the scenario]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl Which {
    pub(super) fn source(&self) -> Result<Source, Failure> {
        Source::open(&self.scenario)
    }

    pub(super) fn values(&self) -> Vec<(String, String)> {
        let seed = self.seed.map(|seed| ("seed".to_owned(), seed.to_string()));
        self.set.iter().cloned().chain(seed).collect()
    }
}

pub(super) fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((path, value)) if !path.is_empty() => Ok((path.trim().into(), value.trim().into())),
        _ => Err("write both sides of the =, for example job.timeout=18".into()),
    }
}

/// The text of a scenario, and where it is.
#[derive(Debug)]
pub(crate) struct Source {
    /// A built-in name, or a file.
    pub(crate) name: PathBuf,
    pub(super) text: String,
    /// What files are relative to that it refers to; none if it is built in.
    directory: Option<PathBuf>,
}

impl Source {
    pub(crate) fn open(name: &str) -> Result<Self, Failure> {
        let path = PathBuf::from(name);
        let built_in = BUILT_IN.iter().find(|(known, _)| *known == name);
        if let Some((_, text)) = built_in.filter(|_| !path.exists()) {
            return Ok(Self {
                name: path,
                text: (*text).to_owned(),
                directory: None,
            });
        }
        let text = fs::read_to_string(&path).map_err(|error| {
            Failure::input(format_args!(
                "cannot read {name}: {error}; name a scenario file, or one of `ferroce sim list`"
            ))
        })?;
        let directory = path.parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(Self {
            name: path,
            text,
            directory: Some(directory),
        })
    }

    pub(super) fn parse(&self, values: &[(String, String)]) -> Result<Scenario, ScenarioError> {
        Scenario::parse_with(&self.text, values, &mut |name| {
            let Some(directory) = &self.directory else {
                return Err("built-in scenarios refer to no files".into());
            };
            scenario_files::read(&directory.join(name)).map_err(|error| error.to_string())
        })
    }

    /// The file with these values in it: as it is if there are none, else without its comments.
    pub(super) fn text_with(&self, values: &[(String, String)]) -> Result<Cow<'_, str>, Failure> {
        if values.is_empty() {
            return Ok(Cow::Borrowed(&self.text));
        }
        let text = text_with(&self.text, values);
        let text = text.map_err(|error| self.refused(&error))?;
        let mut whole = String::new();
        for (path, value) in values {
            let _ = writeln!(whole, "# --set {path}={value}");
        }
        Ok(Cow::Owned(whole + &text))
    }

    pub(crate) fn scenario(&self, values: &[(String, String)]) -> Result<Scenario, Failure> {
        self.parse(values).map_err(|error| self.refused(&error))
    }

    fn refused(&self, error: &ScenarioError) -> Failure {
        let mut lines = String::new();
        for problem in &error.problems {
            let line = finding(&self.name, problem.line, "error", &problem.text);
            lines += &(line + "\n");
        }
        Failure::Input(lines)
    }
}
