//! The sweep file, and the results directory.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use ferroce_sweep::{Plan, PlanError, Problem, Sweep};

use crate::output::lines::finding;
use crate::output::{Failure, Output};
use crate::scenario_files;

/// The version that makes and runs plans.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A sweep that needs no file, and its scenario.
struct BuiltIn {
    name: &'static str,
    sweep: &'static str,
    scenario: &'static str,
}

const BUILT_IN: &[BuiltIn] = &[
    BuiltIn {
        name: "survival",
        sweep: include_str!("../../../sweeps/survival.toml"),
        scenario: include_str!("../../../sweeps/flap.toml"),
    },
    BuiltIn {
        name: "routing",
        sweep: include_str!("../../../sweeps/routing.toml"),
        scenario: include_str!("../../../scenarios/slow-and-flapping.toml"),
    },
];

/// The built-in sweeps as files, with their scenarios unless these are built-in ones themselves.
pub(crate) fn files() -> impl Iterator<Item = (String, &'static str)> {
    BUILT_IN.iter().flat_map(|known| {
        let sweep = Sweep::parse(known.sweep).ok();
        let scenario = sweep.map(|sweep| (sweep.scenario, known.scenario));
        let scenario = scenario.filter(|(file, _)| !file.starts_with(".."));
        let sweep = (format!("{}.toml", known.name), known.sweep);
        [sweep].into_iter().chain(scenario)
    })
}

/// Which sweep.
#[derive(Args, Clone, Debug)]
pub(super) struct Which {
    /// Sweep file (TOML), the directory of a sweep that was planned, or a built-in sweep: survival, routing
    #[arg(value_name = "SWEEP")]
    sweep: PathBuf,
    /// Directory of plan and results [default: NAME.sweep for NAME.toml]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// A plan, and where it is.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) plan: Plan,
    pub(super) directory: PathBuf,
}

impl Which {
    pub(super) fn names_directory(&self) -> bool {
        self.output.is_some()
    }

    /// The plan, not yet written anywhere.
    pub(super) fn plan(&self) -> Result<Planned, Failure> {
        if self.sweep.is_dir() {
            return self.planned();
        }
        let plan = match built_in(&self.sweep) {
            Some(known) => {
                let sweep = read_sweep(&self.sweep, known.sweep)?;
                let resolve = |_: &str| Err("built-in sweeps refer to no files".to_owned());
                make(
                    &self.sweep,
                    &sweep,
                    Path::new(&sweep.scenario),
                    known.scenario,
                    resolve,
                )?
            }
            None => self.read()?,
        };
        let directory = self.output.clone().unwrap_or_else(|| {
            let name = self.sweep.file_stem().unwrap_or(self.sweep.as_os_str());
            let mut name = name.to_owned();
            name.push(".sweep");
            name.into()
        });
        Ok(Planned { plan, directory })
    }

    /// The plan, written into its directory if that does not have it yet.
    pub(super) fn written(&self, to: &mut Output<'_>) -> Result<Planned, Failure> {
        let planned = self.plan()?;
        let Planned { plan, directory } = &planned;
        if self.sweep.is_dir() {
            return Ok(planned);
        }
        if Plan::is_in(directory) {
            match Plan::read(directory) {
                Ok(there) if there == *plan => return Ok(planned),
                _ => to.remark(format_args!(
                    "{} had another plan; results of points that both have are kept",
                    directory.display()
                ))?,
            }
        }
        fs::create_dir_all(directory).map_err(|error| {
            Failure::input(format_args!("cannot make {}: {error}", directory.display()))
        })?;
        plan.write(directory)
            .map_err(|error| cannot_write(&error))?;
        Ok(planned)
    }

    fn planned(&self) -> Result<Planned, Failure> {
        if self.output.is_some() {
            return Err(Failure::input(
                "-o goes with a sweep file; a directory has its own results",
            ));
        }
        let directory = self.sweep.clone();
        Ok(Planned {
            plan: read_plan(&directory)?,
            directory,
        })
    }

    fn read(&self) -> Result<Plan, Failure> {
        let file = &self.sweep;
        let read = |path: &Path| fs::read_to_string(path).map_err(|error| error.to_string());
        let text = read(file).map_err(|error| {
            Failure::input(format_args!(
                "cannot read {}: {error}; name a sweep file, a directory with a plan, or a built-in sweep: survival, routing",
                file.display()
            ))
        })?;
        let sweep = read_sweep(file, &text)?;
        let scenario = file.with_file_name(&sweep.scenario);
        let text = read(&scenario).map_err(|error| {
            Failure::input(format_args!(
                "{}: cannot read its scenario {}: {error}; the name is relative to the sweep file",
                file.display(),
                scenario.display()
            ))
        })?;
        make(file, &sweep, &scenario, &text, |name| {
            let bytes = scenario_files::read(&scenario.with_file_name(name));
            let bytes = bytes.map_err(|error| error.to_string())?;
            let text = String::from_utf8(bytes);
            text.map_err(|_| {
                "it is not text in UTF-8, which a plan needs; Chakra traces can be JSON".into()
            })
        })
    }
}

fn built_in(name: &Path) -> Option<&'static BuiltIn> {
    let known = BUILT_IN.iter().find(|known| Path::new(known.name) == name);
    known.filter(|_| !name.exists())
}

fn read_sweep(file: &Path, text: &str) -> Result<Sweep, Failure> {
    Sweep::parse(text).map_err(|problems| {
        let line = |it: &Problem| finding(file, it.line, "error", &it.text) + "\n";
        Failure::Input(problems.problems.iter().map(line).collect())
    })
}

fn make(
    file: &Path,
    sweep: &Sweep,
    scenario: &Path,
    text: &str,
    mut resolve: impl FnMut(&str) -> Result<String, String> + Send,
) -> Result<Plan, Failure> {
    Plan::new(sweep, text, &mut resolve, VERSION).map_err(|error| {
        let line = |file, line, text: &str| finding(file, line, "error", text) + "\n";
        Failure::Input(match error {
            PlanError::Scenario(error) => {
                let problems = error.problems.iter();
                problems
                    .map(|it| line(scenario, it.line, &it.text))
                    .collect()
            }
            PlanError::Points(problems) => {
                let problems = problems.iter();
                problems
                    .map(|it| line(file, None, &it.to_string()))
                    .collect()
            }
            error => line(file, None, &error.to_string()),
        })
    })
}

/// The plan in a directory, if it is one that this program can run.
pub(super) fn read_plan(directory: &Path) -> Result<Plan, Failure> {
    let plan = Plan::read(directory).map_err(|error| {
        Failure::input(format_args!(
            "cannot read the plan {error}; make one: ferroce sweep plan FILE.toml -o {}",
            directory.display()
        ))
    })?;
    match plan.version == VERSION {
        true => Ok(plan),
        false => Err(Failure::input(format_args!(
            "{} was planned by ferroce {}, and this is {VERSION}: their results are not compared; use that \
             version, or plan again in another directory",
            directory.display(),
            plan.version
        ))),
    }
}

/// A file of a sweep cannot be written.
pub(super) fn cannot_write(error: &dyn std::error::Error) -> Failure {
    Failure::broken(format_args!(
        "cannot write {error}; the results so far are kept: make room, and run the same command again"
    ))
}
