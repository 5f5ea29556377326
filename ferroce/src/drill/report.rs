//! The table of a drill.

use super::forecast::Forecast;
use super::record::Record;
use super::verdict::{End, Verdict};
use crate::output::Table;
use crate::output::lines::indented;

/// A run, and what it has shown.
#[derive(Debug)]
pub(super) struct Row {
    /// Version, setting, policy: what tells it from others.
    pub(super) keys: [String; 3],
    /// What the drill set in the hosts' environment.
    pub(super) variables: Vec<(String, String)>,
    pub(super) plan: String,
    pub(super) verdict: Verdict,
    pub(super) forecast: Option<Forecast>,
    pub(super) record: Record,
}

impl Row {
    /// Whether the run went otherwise than expected.
    pub(super) fn disagrees(&self) -> bool {
        let forecast = self.forecast.as_ref();
        self.verdict.wrong_words > 0 || forecast.is_some_and(|it| !it.agrees(&self.verdict))
    }
}

/// The runs as a table, with remarks below it. Columns that are the same in all rows are left out.
pub(super) fn text(library: &str, rows: &[Row]) -> String {
    let key_names = [library, "setting", "policy"];
    let differs = |key: &usize| rows.iter().any(|row| row.keys[*key] != rows[0].keys[*key]);
    let shown: Vec<usize> = (0..key_names.len())
        .filter(|key| *key == 0 || differs(key))
        .collect();
    let mut header: Vec<&str> = shown.iter().map(|key| key_names[*key]).collect();
    header.extend([
        "plan", ">still s", ">over s", ">back s", "rails", ">wrong", "result", "expected",
    ]);
    let mut table = Table::new(&header);
    for row in rows {
        let verdict = &row.verdict;
        let mut cells: Vec<String> = shown.iter().map(|key| row.keys[*key].clone()).collect();
        let mark = if row.disagrees() { "! " } else { "" };
        let expected = row
            .forecast
            .map_or_else(|| "-".to_owned(), |it| it.to_string());
        cells.extend([
            row.plan.clone(),
            format!("{:.2}", verdict.standstill_s),
            seconds(verdict.failed_over_s),
            seconds(verdict.back_s),
            format!("{}/{}", verdict.rails.1, verdict.rails.0),
            (verdict.wrong_words * 8).to_string(),
            result(verdict),
            format!("{mark}{expected}"),
        ]);
        table.row(cells);
    }
    let mut text = table.to_string();
    for row in rows {
        let messages = row.record.complaints();
        if messages.is_empty() {
            continue;
        }
        let keys: Vec<_> = shown.iter().map(|key| row.keys[*key].as_str()).collect();
        text += &format!("\n{}, {}:\n", keys.join(", "), row.plan);
        for message in messages {
            text += &indented(&message);
        }
    }
    text
}

fn seconds(time: Option<f64>) -> String {
    time.map_or_else(|| "-".to_owned(), |it| format!("{it:.1}"))
}

fn result(verdict: &Verdict) -> String {
    match (&verdict.end, verdict.ended_s) {
        (End::Survived, _) => "survived".to_owned(),
        (End::Stuck, _) => "stuck".to_owned(),
        (End::Failed { code, .. }, Some(at)) => format!("error {code}, {at:.1} s"),
        (End::Failed { code, .. }, None) => format!("error {code}"),
        (End::Died { host, how }, _) => format!("h{host} {how}"),
    }
}
