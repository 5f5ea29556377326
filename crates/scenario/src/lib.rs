//! Scenarios of a simulated fabric: what files say, and the results of a run.
//!
//! A [`Scenario`] is read from a TOML file: a fabric, the jobs of its hosts, faults, and what to record. It
//! creates the [`Simulation`](ferroce_fabric::Simulation). [`survey`] reads topologies from what tools write
//! about a fabric that exists, and [`results`] turns what has been simulated into figures.
//!
//! ```
//! use ferroce_fabric::Standing;
//! use ferroce_scenario::Scenario;
//! use ferroce_scenario::results::Results;
//!
//! let text = r#"
//!     [topology]
//!     kind = "star"
//!     hosts = 4
//!     [[job]]
//!     workload = "incast"
//!     bytes = "64KiB"
//! "#;
//! let scenario = Scenario::parse(text, &mut |_| Err("no files".into())).unwrap();
//! let mut simulation = scenario.simulation().unwrap();
//! let standing = loop {
//!     match simulation.run(1_000_000).unwrap() {
//!         Standing::Running => {}
//!         ended => break ended,
//!     }
//! };
//! let results = Results::new(&scenario, &simulation, standing);
//! assert_eq!(results.summary.jobs[0].delivered, 3);
//! ```
#![forbid(unsafe_code)]

mod files;
pub mod results;
mod scenario;
pub mod survey;

pub use files::Resolver;
pub use scenario::{
    Device, Draft, DraftJob, DraftTopology, Estimate, FaultSpan, Finding, Scenario, ScenarioError,
    json_schema, settings_of, text_with,
};
