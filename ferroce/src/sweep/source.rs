//! The sweep file, and the results directory.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use ferroce_sweep::{Plan, PlanError, Sweep};

use crate::adp::place;
use crate::output::{Failure, Output};

/// The version that makes and runs plans.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A sweep that needs no file, and its scenario.
struct BuiltIn {
    name: &'static str,
    sweep: &'static str,
    scenario: &'static str,
}

const BUILT_IN: &[BuiltIn] = &[BuiltIn {
    name: "survival",
    sweep: include_str!("../../../sweeps/survival.toml"),
    scenario: include_str!("../../../sweeps/flap.toml"),
}];

/// Which sweep.
#[derive(Args, Clone, Debug)]
pub(super) struct Which {
    /// Sweep file (TOML), the directory of a sweep that was planned, or the built-in sweep "survival"
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
                "--out goes with a sweep file; a directory has its own results",
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
                "cannot read {}: {error}; name a sweep file, a directory with a plan, or survival",
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
            read(&scenario.with_file_name(name))
        })
    }
}

fn built_in(name: &Path) -> Option<&'static BuiltIn> {
    let known = BUILT_IN.iter().find(|known| Path::new(known.name) == name);
    known.filter(|_| !name.exists())
}

fn read_sweep(file: &Path, text: &str) -> Result<Sweep, Failure> {
    Sweep::parse(text).map_err(|problems| {
        let mut lines = String::new();
        for problem in &problems.0 {
            let _ = writeln!(
                lines,
                "{}: error: {}",
                place(file, problem.line),
                problem.text
            );
        }
        Failure::Input(lines)
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
        let mut lines = String::new();
        match error {
            PlanError::Scenario(error) => {
                for problem in &error.problems {
                    let place = place(scenario, problem.line);
                    let _ = writeln!(lines, "{place}: error: {}", problem.text);
                }
            }
            PlanError::Points(problems) => {
                for problem in problems {
                    let _ = writeln!(lines, "{}: error: {problem}", file.display());
                }
            }
            error => {
                let _ = writeln!(lines, "{}: error: {error}", file.display());
            }
        }
        Failure::Input(lines)
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
