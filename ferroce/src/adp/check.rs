//! `ferroce adp check`: errors and warnings about a profile.

use std::fmt::Write as _;

use clap::Args;
use ferroce_adp::file::Document;
use ferroce_adp::{QpTimeouts, Report, Violation, Warning};
use ferroce_designer::figures::{Words, qp_name};
use ferroce_designer::findings::{COMMON_QPS, Fare, check, fares};

use super::import::remark;
use super::input::{
    ExtendedRetryArgs, FileArg, floor, parse, read_text, refusal, retry_count, timeout_code,
};
use crate::json::adp as json;
use crate::output::lines::finding;
use crate::output::{Failure, Output, Table};

/// Check a profile for errors and warnings, and show which outages QPs survive with it
///
/// Without --timeout and --retry-cnt two QPs are checked: 14/7, perftest's default, and 20/7,
/// NCCL's. A warning is deadly if the profile makes jobs or their network fail.
///
/// Takes all that `ferroce adp import` reads, such as a register dump of a card.
///
/// Exits with 0 if the profile is valid, warnings or not, and with 2 if a device would refuse it.
#[derive(Args, Debug)]
#[command(after_help = crate::output::EXIT_CODES)]
pub(crate) struct Check {
    #[command(flatten)]
    file: FileArg,
    /// ACK timeout of the QP, a code of 5 bits: 4.096 us doubled T times, 0 = never [default: 14]
    #[arg(long, value_name = "T", value_parser = timeout_code)]
    timeout: Option<u8>,
    /// Retry count of the QP, 3 bits: 7 means seven [default: 7]
    #[arg(long, value_name = "R", value_parser = retry_count)]
    retry_cnt: Option<u8>,
    #[command(flatten)]
    extended: ExtendedRetryArgs,
    /// Take timeouts below 16 as they are, as the register field of this name does
    #[arg(long)]
    min_ack_timeout_limit_disabled: bool,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

impl Check {
    pub(crate) fn run(self, to: &mut Output<'_>) -> Result<(), Failure> {
        let file = &self.file.file;
        let imported = match parse(file, &read_text(file)?) {
            Ok(imported) => imported,
            Err(problems) if self.json => {
                to.document(&json::Check {
                    problems: problems.found.into_iter().map(Into::into).collect(),
                    ..json::Check::default()
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
            to.document(&findings(&document, &report, &fares))?;
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
            let (line, found) = (document.line(found.field), found.to_string());
            let _ = writeln!(text, "{}", finding(file, line, kind, &found));
        }
        let _ = write!(text, "\n{}", table(&fares));
        to.text(&text)
    }

    /// The QPs to look at.
    fn qps(&self) -> Vec<QpTimeouts> {
        let of = |timeout, retry_cnt| self.extended.qp(timeout, retry_cnt);
        match (self.timeout, self.retry_cnt) {
            (None, None) => (COMMON_QPS.iter())
                .map(|qp| of(qp.timeout, qp.retry_cnt))
                .collect(),
            (timeout, retry_cnt) => vec![of(timeout.unwrap_or(14), retry_cnt.unwrap_or(7))],
        }
    }
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
        let words = Words::of(endurance.as_ref());
        table.row(vec![
            qp_name(*qp),
            words.survives,
            words.resumes_within,
            words.gives_up_after,
            words.retransmissions,
        ]);
    }
    table
}

fn findings(document: &Document, report: &Report, fares: &[Fare]) -> json::Check {
    let violation = |found: &Violation| json::Violation {
        field: found.field.to_string(),
        value: found.value,
        allowed: found.allowed.clone(),
        instead: found.instead.clone(),
        line: document.line(found.field),
        decision: found.rule.decision(),
    };
    let finding = |found: &Warning| json::Finding {
        field: found.field.to_string(),
        value: found.value,
        text: found.text.clone(),
        instead: found.instead.clone(),
        deadly: found.is_deadly,
        line: document.line(found.field),
        decision: found.rule.decision(),
    };
    let fare = |(qp, endurance): &Fare| json::Fare {
        qp: (*qp).into(),
        endurance: endurance.map(Into::into),
    };
    json::Check {
        valid: report.is_valid(),
        deadly: report.is_deadly(),
        violations: report.violations.iter().map(violation).collect(),
        warnings: report.warnings.iter().map(finding).collect(),
        notes: report.notes.iter().map(finding).collect(),
        problems: Vec::new(),
        queue_pairs: fares.iter().map(fare).collect(),
    }
}
