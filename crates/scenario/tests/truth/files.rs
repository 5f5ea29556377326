//! The scenario files of these tests, run as `ferroce sim run` runs them, and the page with what comes out.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use ferroce_fabric::{Simulation, Standing};
use ferroce_scenario::Scenario;
use ferroce_scenario::results::Results;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// A file of the directory of scenarios.
pub(crate) fn file(name: &str) -> Result<String, String> {
    let path = Path::new(CRATE).join("tests/truth/scenarios").join(name);
    fs::read_to_string(path).map_err(|error| error.to_string())
}

/// A scenario by its name, with some values replaced.
pub(crate) fn scenario(name: &str, values: &[(&str, &str)]) -> Scenario {
    let text = file(&format!("{name}.toml")).unwrap();
    let values: Vec<_> = values
        .iter()
        .map(|(path, value)| ((*path).to_owned(), (*value).to_owned()))
        .collect();
    let mut bytes = |name: &str| file(name).map(String::into_bytes);
    let scenario = Scenario::parse_with(&text, &values, &mut bytes);
    scenario.unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Runs a scenario until its jobs are over or its time is up. Queue pairs lose nothing.
pub(crate) fn run(scenario: &Scenario) -> (Simulation, Results) {
    let mut simulation = scenario.simulation().unwrap();
    let standing = loop {
        match simulation.run(1_000_000).unwrap() {
            Standing::Running => simulation.fabric.audit(),
            ended => break ended,
        }
    };
    simulation.fabric.audit();
    let results = Results::new(scenario, &simulation, standing);
    assert_eq!(results.summary.totals.timeouts, 0);
    (simulation, results)
}

/// Compares the table of docs/validation.md that has this header with its rows, which are those of a run.
/// With `UPDATE_DOCS=1` in the environment, the page gets them.
pub(crate) fn publish(header: &str, rows: &[String]) {
    static PAGE: Mutex<()> = Mutex::new(());
    let _held = PAGE.lock();
    let path = Path::new(CRATE).join("../../docs/validation.md");
    let page = fs::read_to_string(&path).unwrap();
    let begin = page.find(header);
    let begin = begin.unwrap_or_else(|| panic!("docs/validation.md has no table {header}"));
    // The row below the header draws a line.
    let below = page[begin..].match_indices('\n').nth(1).map(|(at, _)| at);
    let first = begin + below.unwrap() + 1;
    let end = page[first..]
        .find("\n\n")
        .map_or(page.len(), |at| first + at + 1);
    let rows = rows.concat();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path, format!("{}{rows}{}", &page[..first], &page[end..])).unwrap();
    } else {
        assert_eq!(page[first..end], rows, "run with UPDATE_DOCS=1");
    }
}
