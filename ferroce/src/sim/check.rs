//! `ferroce sim check`: finds errors and suspicious values in a scenario.

use std::fmt::Write as _;

use clap::Args;
use ferroce_scenario::Finding;

use super::source::Which;
use crate::json::sim as json;
use crate::output::lines::{finding, grouped, lines};
use crate::output::{Failure, Output};

/// Check a scenario without running it: find events that cannot happen, and those certain to end a
/// job
///
/// Exits with 0 if the scenario can be run, warnings or not, and with 2 if it cannot.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub(super) struct Check {
    #[command(flatten)]
    which: Which,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

impl Check {
    pub(super) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let source = self.which.source()?;
        let values = self.which.values();
        if self.json
            && let Err(error) = source.parse(&values)
        {
            let errors = error.problems.into_iter().map(|it| json::Finding {
                line: it.line,
                text: it.text,
            });
            to.document(&json::Check {
                errors: errors.collect(),
                ..json::Check::default()
            })?;
            return Err(Failure::Said);
        }
        let scenario = source.scenario(&values)?;
        let mut findings = scenario.check();
        // A run states these in its result.
        findings.extend(scenario.assumptions().into_iter().map(|it| Finding {
            text: format!("the result may rest on an assumption: {}", it.text),
            ..it
        }));
        if self.json {
            let warnings = findings.into_iter().map(|it| json::Finding {
                line: it.line,
                text: it.text,
            });
            let estimate = scenario.estimate();
            return to.document(&json::Check {
                valid: true,
                errors: Vec::new(),
                warnings: warnings.collect(),
                estimate: Some(json::Estimate {
                    hops: estimate.hops,
                    run_ns: estimate.time.as_nanos(),
                    memory_bytes: estimate.memory,
                    result_bytes: estimate.results,
                }),
            });
        }
        let mut text = format!("{}: can be run", source.name.display());
        let _ = match findings.len() {
            0 => writeln!(text),
            1 => writeln!(text, ", 1 warning"),
            n => writeln!(text, ", {n} warnings"),
        };
        let estimate = scenario.estimate();
        text += &lines(&format!(
            "about {} frame crossings, {} on one thread, {} of memory, at most {} of results",
            rounded(estimate.hops),
            estimate.time.about(),
            megabytes(estimate.memory),
            megabytes(estimate.results)
        ));
        for found in &findings {
            let (line, found) = (found.line, &found.text);
            let _ = writeln!(text, "{}", finding(&source.name, line, "warning", found));
        }
        to.text(&text)
    }
}

/// Two digits are all that an estimate has.
fn rounded(number: u64) -> String {
    let unit = 10_u64.pow(number.checked_ilog10().unwrap_or(0).saturating_sub(1));
    grouped((number + unit / 2) / unit * unit)
}

fn megabytes(bytes: u64) -> String {
    format!("{} MB", rounded(bytes.div_ceil(1_000_000)))
}
