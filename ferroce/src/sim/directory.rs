//! A results directory, which is either complete or absent.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ferroce_fabric::Simulation;
use ferroce_scenario::Scenario;
use ferroce_scenario::results::{Flow, Results};

use super::page;
use super::tables::{self, Format};
use crate::output::Document as _;
use crate::output::Failure;
use crate::output::lines::lines;

/// What tells a directory of results from others.
pub(super) const MARK: &str = "summary.json";
const REPORT: &str = "report.html";
pub(super) const SCENARIO: &str = "scenario.toml";

/// A run that has ended, and how its tables are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finished<'a> {
    /// The scenario as it was run.
    pub(super) text: &'a str,
    pub(super) scenario: &'a Scenario,
    pub(super) simulation: &'a Simulation,
    pub(super) results: &'a Results,
    pub(super) formats: &'a [Format],
}

/// A directory that results will be written to.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Whether it replaces an existing one.
    replaces: bool,
}

impl Directory {
    /// Checks that it can be written, before the work is done.
    pub(super) fn check(path: PathBuf, force: bool) -> Result<Self, Failure> {
        let shown = path.display();
        let replaces = path.symlink_metadata().is_ok();
        if replaces && !force {
            return Err(Failure::input(format_args!(
                "{shown} exists; name a directory that does not, or add --force"
            )));
        }
        let is_ours = || path.join(MARK).is_file() || is_empty(&path);
        if replaces && !is_ours() {
            return Err(Failure::input(format_args!(
                "{shown} is not a directory of results: it has no {MARK}; name another one"
            )));
        }
        let directory = Self { path, replaces };
        // A run should not be lost because the place cannot be written to.
        let draft = directory.draft();
        fs::create_dir(&draft).map_err(|error| directory.cannot(&error))?;
        let _ = fs::remove_dir(&draft);
        Ok(directory)
    }

    /// Writes everything to a draft beside it, which then gets its name.
    pub(super) fn write(&self, run: &Finished<'_>) -> Result<(), Failure> {
        let draft = self.draft();
        let written = fs::create_dir(&draft)
            .and_then(|()| files(&draft, run))
            .and_then(|()| self.publish(&draft));
        written.map_err(|error| {
            let _ = fs::remove_dir_all(&draft);
            self.cannot(&error)
        })
    }

    /// What was written, and what to look at first.
    pub(super) fn written(&self) -> String {
        let path = self.path.display();
        let text = format!(
            "written to {path}: {REPORT} for a browser, {MARK} for programs, tables, {SCENARIO}"
        );
        format!("\n{}", lines(&text))
    }

    fn publish(&self, draft: &Path) -> io::Result<()> {
        if !self.replaces {
            return fs::rename(draft, &self.path);
        }
        let old = self.beside("old");
        fs::rename(&self.path, &old)?;
        fs::rename(draft, &self.path)?;
        fs::remove_dir_all(&old)
    }

    fn draft(&self) -> PathBuf {
        self.beside("partial")
    }

    fn beside(&self, what: &str) -> PathBuf {
        let mut name: OsString = self.path.file_name().unwrap_or_default().into();
        name.push(format!(".{what}-{}", std::process::id()));
        self.path.with_file_name(name)
    }

    fn cannot(&self, error: &io::Error) -> Failure {
        Failure::broken(format_args!(
            "cannot write {}: {error}; nothing was left behind; name a directory below one that exists, is \
             yours and has room",
            self.path.display()
        ))
    }
}

fn is_empty(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

fn files(directory: &Path, run: &Finished<'_>) -> io::Result<()> {
    let write = |name: &str, text: &str| fs::write(directory.join(name), text);
    let (scenario, results) = (run.scenario, run.results);
    write(SCENARIO, run.text)?;
    let samples = &run.simulation.samples;
    tables::write(directory, scenario, samples, results, run.formats)?;
    write("fct.txt", &fct(results))?;
    write(REPORT, &page::page(scenario, run.simulation, results))?;
    // Last, so that a directory that has it is whole.
    let json = results.summary.lines()?;
    write(MARK, &format!("{json}\n"))
}

/// Flows that have completed, in the columns and the order of HPCC's simulator: source and destination
/// address, ports, bytes, start, completion time, ideal completion time.
fn fct(results: &Results) -> String {
    let address = |host: u32| 0x0b00_0001 + (host / 256) * 0x0001_0000 + (host % 256) * 0x100;
    let done = |it: &Flow| it.fct_ns.map(|fct| (it.start_ns + fct, fct, *it));
    let mut done: Vec<_> = results.flows.iter().filter_map(done).collect();
    done.sort_by_key(|(at, _, it)| (*at, it.transfer));
    let mut text = String::new();
    for (_, fct, it) in done {
        let _ = writeln!(
            text,
            "{:08x} {:08x} {} 100 {} {} {fct} {}",
            address(it.src),
            address(it.dst),
            10_000 + it.transfer % 50_000,
            it.bytes,
            it.start_ns,
            it.ideal_ns
        );
    }
    text
}
