//! `ferroce sim check`: what is wrong or suspicious about a scenario.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;

use super::source::Which;
use crate::adp::place;
use crate::output::{Failure, Output};

/// Say what can never happen in a scenario, or surely ends a job, without running it
///
/// Exits with 0 if the scenario can be run, warnings or not, and with 2 if it cannot.
#[derive(Args, Debug)]
#[command(after_help = crate::cli::EXIT_CODES)]
pub(super) struct Check {
    #[command(flatten)]
    which: Which,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

#[derive(Default, Serialize)]
struct Findings {
    valid: bool,
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
}

#[derive(Serialize)]
struct Finding {
    line: Option<usize>,
    text: String,
}

impl Check {
    pub(super) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let source = self.which.source()?;
        let values = self.which.values();
        if self.json
            && let Err(error) = source.parse(&values)
        {
            let errors = error.problems.into_iter().map(|it| Finding {
                line: it.line,
                text: it.text,
            });
            to.json(&Findings {
                errors: errors.collect(),
                ..Findings::default()
            })?;
            return Err(Failure::Said);
        }
        let scenario = source.scenario(&values)?;
        let findings = scenario.check();
        if self.json {
            let warnings = findings.into_iter().map(|it| Finding {
                line: it.line,
                text: it.text,
            });
            return to.json(&Findings {
                valid: true,
                warnings: warnings.collect(),
                ..Findings::default()
            });
        }
        let mut text = format!("{}: can be run", source.name.display());
        let _ = match findings.len() {
            0 => writeln!(text),
            1 => writeln!(text, ", 1 warning"),
            n => writeln!(text, ", {n} warnings"),
        };
        for finding in &findings {
            let place = place(&source.name, finding.line);
            let _ = writeln!(text, "{place}: warning: {}", finding.text);
        }
        to.text(&text)
    }
}
