//! The scenario files of these tests, run as `ferroce sim run` runs them.

use std::fs;
use std::path::Path;

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
