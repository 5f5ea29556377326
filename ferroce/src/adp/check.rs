//! `ferroce adp check`: what is wrong or suspicious about a profile.

use std::fmt::Write as _;

use clap::Args;
use ferroce_adp::file::Document;
use ferroce_adp::{
    AckTimeoutFloor, Endurance, FieldName, Policy, PolicyKind, Profile, QpTimeouts, Report, Rule,
    Warning,
};
use ferroce_time::Span;
use serde::Serialize;

use super::endurance::{EnduranceJson, qp_name, span_range};
use super::import::remark;
use super::{FileArg, floor, parse, place, read_text, refusal, retry_count, timeout_code};
use crate::output::{Failure, Output, Table};

/// Check a profile for errors and warnings, and show which outages QPs survive with it
///
/// Without --timeout and --retry-cnt two QPs are looked at: 14/7, which is perftest's, and 20/7,
/// which is NCCL's. A warning is deadly if jobs die of the profile, or their network.
///
/// Takes all that `ferroce adp import` reads, such as a register dump of a card.
///
/// Exits with 0 if the profile is valid, warnings or not, and with 2 if a device would refuse it.
#[derive(Args, Debug)]
#[command(after_help = crate::cli::EXIT_CODES)]
pub(crate) struct Check {
    #[command(flatten)]
    file: FileArg,
    /// ACK timeout of the QP, a code of 5 bits: 4.096 us doubled T times, 0 = never [default: 14]
    #[arg(long, value_name = "T", value_parser = timeout_code)]
    timeout: Option<u8>,
    /// Retry count of the QP, 3 bits: 7 means seven [default: 7]
    #[arg(long, value_name = "R", value_parser = retry_count)]
    retry_cnt: Option<u8>,
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
    deadly: bool,
    violations: Vec<Finding<'a>>,
    warnings: Vec<Finding<'a>>,
    notes: Vec<Finding<'a>>,
    problems: Vec<Problem>,
    /// How QPs fare with the profile.
    qps: Vec<QpJson>,
}

#[derive(Serialize)]
struct QpJson {
    timeout: u8,
    retry_cnt: u8,
    /// Null if the timer is off.
    #[serde(flatten)]
    endurance: Option<EnduranceJson>,
}

/// A violation has `allowed`, a warning or a note has `text`, and a warning says if it is deadly.
#[derive(Serialize)]
struct Finding<'a> {
    field: String,
    value: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    instead: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadly: Option<bool>,
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
            deadly: None,
            line: document.line(field),
            decision: rule.decision(),
        }
    }

    fn warning(document: &Document, found: &'a Warning) -> Self {
        let Warning {
            rule,
            field,
            value,
            instead,
            ..
        } = found;
        Self {
            text: Some(&found.text),
            deadly: Some(found.is_deadly),
            ..Self::new(document, *rule, *field, *value, instead)
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
        let imported = match parse(file, &read_text(file)?) {
            Ok(imported) => imported,
            Err(problems) if self.json => {
                let problems = problems.found.into_iter();
                let problems = problems
                    .map(|(line, text)| Problem { line, text })
                    .collect();
                to.json(&Findings {
                    problems,
                    ..Findings::default()
                })?;
                return Err(Failure::Said);
            }
            Err(problems) => return Err(Failure::Input(problems.lines)),
        };
        remark(&imported, to)?;
        let document = imported.document;
        let floor = floor(self.min_ack_timeout_limit_disabled);
        let qps = self.qps();
        let report = check(&document, &qps, floor);
        let is_valid = report.is_valid();
        let fares = fares(&document, &qps, floor);
        if self.json {
            to.json(&findings(&document, &report, &fares))?;
            return if is_valid { Ok(()) } else { Err(Failure::Said) };
        }
        if !is_valid {
            return Err(Failure::Input(refusal(file, &document, &report)));
        }
        let mut text = format!("{}: valid", file.display());
        let _ = match report.warnings.len() {
            0 => writeln!(text),
            1 => writeln!(text, ", 1 warning"),
            n => writeln!(text, ", {n} warnings"),
        };
        let warnings = report.warnings.iter().map(|found| match found.is_deadly {
            true => (found, "deadly"),
            false => (found, "warning"),
        });
        for (found, kind) in warnings.chain(report.notes.iter().map(|found| (found, "note"))) {
            let place = place(file, document.line(found.field));
            let _ = writeln!(text, "{place}: {kind}: {found}");
        }
        let _ = write!(text, "\n{}", table(&fares));
        to.text(&text)
    }

    /// The QPs to look at.
    fn qps(&self) -> Vec<QpTimeouts> {
        match (self.timeout, self.retry_cnt) {
            (None, None) => COMMON_QPS.to_vec(),
            (timeout, retry_cnt) => vec![QpTimeouts {
                timeout: timeout.unwrap_or(14),
                retry_cnt: retry_cnt.unwrap_or(7),
            }],
        }
    }
}

/// perftest's, which is also that of many programs' own, and NCCL's.
pub(crate) const COMMON_QPS: [QpTimeouts; 2] = [
    QpTimeouts {
        timeout: 14,
        retry_cnt: 7,
    },
    QpTimeouts {
        timeout: 20,
        retry_cnt: 7,
    },
];

/// What is found about a profile with any of these QPs.
pub(crate) fn check(document: &Document, qps: &[QpTimeouts], floor: AckTimeoutFloor) -> Report {
    let reports = qps.iter().map(|qp| document.check_for(*qp, floor));
    reports.reduce(Report::and).unwrap_or_default()
}

/// A QP, and how it fares unless its timer is off.
type Fare = (QpTimeouts, Option<Endurance>);

fn fares(document: &Document, qps: &[QpTimeouts], floor: AckTimeoutFloor) -> Vec<Fare> {
    let Ok(profile) = Profile::try_from(*document.raw()) else {
        return Vec::new();
    };
    let mut policy = Policy::new(PolicyKind::Profile(profile));
    policy.floor = floor;
    let fares = qps.iter().map(|qp| (*qp, Endurance::of(&policy, *qp)));
    fares.collect()
}

fn table(fares: &[Fare]) -> Table {
    let header = [
        "QP",
        ">survives",
        ">resumes within",
        ">gives up after",
        ">retransmissions",
    ];
    let mut table = Table::new(&header);
    for (qp, endurance) in fares {
        let never = || Span::NEVER.to_string();
        let Some(found) = endurance else {
            let row = [
                qp_name(*qp),
                "nothing".to_owned(),
                never(),
                never(),
                "0".to_owned(),
            ];
            table.row(row.to_vec());
            continue;
        };
        let survives = match found.survives {
            Span::ZERO => "nothing".to_owned(),
            Span::NEVER => "anything".to_owned(),
            survives => survives.at_least().to_string(),
        };
        let (resumes, retransmissions) = match (found.survives, found.retransmissions) {
            (Span::ZERO, _) => (never(), "0".to_owned()),
            (_, u64::MAX) => (
                found.resumes_within.at_most().to_string(),
                "no limit".to_owned(),
            ),
            (_, count) => (
                found.resumes_within.at_most().to_string(),
                count.to_string(),
            ),
        };
        let gives_up = span_range(found.gives_up_first, found.gives_up_last);
        table.row(vec![
            qp_name(*qp),
            survives,
            resumes,
            gives_up,
            retransmissions,
        ]);
    }
    table
}

fn findings<'a>(document: &Document, report: &'a Report, fares: &[Fare]) -> Findings<'a> {
    let violations = report.violations.iter().map(|found| Finding {
        allowed: Some(&found.allowed),
        ..Finding::new(
            document,
            found.rule,
            found.field,
            found.value,
            &found.instead,
        )
    });
    let warnings = |found: &'a [Warning]| {
        let found = found.iter().map(|found| Finding::warning(document, found));
        found.collect()
    };
    Findings {
        valid: report.is_valid(),
        deadly: report.is_deadly(),
        violations: violations.collect(),
        warnings: warnings(&report.warnings),
        notes: warnings(&report.notes),
        problems: Vec::new(),
        qps: fares
            .iter()
            .map(|(qp, endurance)| QpJson {
                timeout: qp.timeout,
                retry_cnt: qp.retry_cnt,
                endurance: endurance.map(Into::into),
            })
            .collect(),
    }
}
