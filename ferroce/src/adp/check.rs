//! `ferroce adp check`: what is wrong or suspicious about a profile.

use std::fmt::Write as _;

use clap::Args;
use ferroce_adp::file::Document;
use ferroce_adp::{FieldName, Report, Rule};
use serde::Serialize;

use super::{CommonQpArgs, FileArg, floor, parse, place, read_text, refusal};
use crate::output::{Failure, Output};

/// Check a profile for errors and warnings
///
/// Exits with 0 if the profile is valid, warnings or not, and with 2 if a device would refuse it.
#[derive(Args, Debug)]
#[command(after_help = crate::cli::EXIT_CODES)]
pub(crate) struct Check {
    #[command(flatten)]
    file: FileArg,
    #[command(flatten)]
    qp: CommonQpArgs,
    /// Take timeouts below 16 as they are, as the register field of this name does
    #[arg(long)]
    min_ack_timeout_limit_disabled: bool,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

#[derive(Default, Serialize)]
struct Findings<'a> {
    valid: bool,
    violations: Vec<Finding<'a>>,
    warnings: Vec<Finding<'a>>,
    problems: Vec<Problem>,
}

/// A violation has `allowed`, a warning has `text`.
#[derive(Serialize)]
struct Finding<'a> {
    field: String,
    value: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    instead: &'a str,
    line: Option<usize>,
    decision: Option<&'static str>,
}

impl<'a> Finding<'a> {
    fn new(
        document: &Document,
        rule: Rule,
        field: FieldName,
        value: i64,
        instead: &'a str,
    ) -> Self {
        Self {
            field: field.to_string(),
            value,
            allowed: None,
            text: None,
            instead,
            line: document.line(field),
            decision: rule.decision(),
        }
    }
}

#[derive(Serialize)]
struct Problem {
    line: Option<usize>,
    text: String,
}

impl Check {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let file = &self.file.file;
        let document = match parse(file, &read_text(file)?) {
            Ok(document) => document,
            Err(problems) if self.json => {
                let problems = problems.error.problems.iter();
                let problems = problems
                    .map(|problem| Problem {
                        line: problem.line(),
                        text: problem.to_string(),
                    })
                    .collect();
                to.json(&Findings {
                    problems,
                    ..Findings::default()
                })?;
                return Err(Failure::Said);
            }
            Err(problems) => return Err(Failure::Input(problems.lines)),
        };
        let report = document.check_for(self.qp.qp(), floor(self.min_ack_timeout_limit_disabled));
        let Report {
            violations,
            warnings,
        } = &report;
        let is_valid = violations.is_empty();
        if self.json {
            let violations = violations.iter().map(|found| Finding {
                allowed: Some(&found.allowed),
                ..Finding::new(
                    &document,
                    found.rule,
                    found.field,
                    found.value,
                    &found.instead,
                )
            });
            let warnings = warnings.iter().map(|found| Finding {
                text: Some(&found.text),
                ..Finding::new(
                    &document,
                    found.rule,
                    found.field,
                    found.value,
                    &found.instead,
                )
            });
            to.json(&Findings {
                valid: is_valid,
                violations: violations.collect(),
                warnings: warnings.collect(),
                problems: Vec::new(),
            })?;
            return if is_valid { Ok(()) } else { Err(Failure::Said) };
        }
        if !is_valid {
            return Err(Failure::Input(refusal(file, &document, &report)));
        }
        let mut text = format!("{}: valid", file.display());
        let _ = match warnings.len() {
            0 => writeln!(text),
            1 => writeln!(text, ", 1 warning"),
            n => writeln!(text, ", {n} warnings"),
        };
        for warning in warnings {
            let place = place(file, document.line(warning.field));
            let _ = writeln!(text, "{place}: warning: {warning}");
        }
        to.text(&text)
    }
}
