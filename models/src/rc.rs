//! The protocol of reliable connections, explored with [stateright](https://docs.rs/stateright).
//!
//! There is no second description of the protocol that could differ from the product: the states are two real
//! queue pairs with their memory and the packets between them. From each state every step is taken that a
//! program, the network or a timer can take, and each state that results is visited once.

mod connection;
#[path = "../../crates/transport/tests/common/host.rs"]
#[allow(dead_code, reason = "the tests of the product use the rest")]
mod host;
mod oracle;
mod scenario;

use std::num::NonZero;
use std::thread;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Property};

use self::connection::{Connection, Step};
use self::scenario::{SCENARIOS, Scenario};

/// A scenario, for stateright.
struct Protocol(&'static Scenario);

impl Model for Protocol {
    type State = Connection;
    type Action = Step;

    fn init_states(&self) -> Vec<Connection> {
        vec![Connection::new(self.0)]
    }

    fn actions(&self, connection: &Connection, steps: &mut Vec<Step>) {
        steps.extend(connection.steps());
    }

    fn next_state(&self, connection: &Connection, step: Step) -> Option<Connection> {
        Some(connection.after(step))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("assertions hold", |_, it: &Connection| it.panic.is_none()),
            Property::always("completes in order", |_, it| oracle::completes_in_order(it)),
            Property::always("has the bytes", |_, it| oracle::has_the_bytes(it)),
            Property::always("recovers", |_, it| oracle::recovers(it)),
        ]
    }
}

/// Explores the scenarios whose names contain the text. False if a property does not hold that should, or all
/// do in spite of a flaw.
pub fn check(text: &str) -> bool {
    let chosen = SCENARIOS.iter().filter(|it| it.name.contains(text));
    chosen.map(explore).fold(true, |all, is_good| all & is_good)
}

fn explore(scenario: &'static Scenario) -> bool {
    let started = Instant::now();
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let checker = Protocol(scenario).checker().threads(threads);
    // The nearest states first, so that a way to break a property is short.
    let explored = checker.finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let broken = explored.discoveries();
    let is_good = broken.is_empty() != scenario.flaw.is_some();
    let seconds = started.elapsed().as_secs_f64();
    let verdict = if is_good { "ok" } else { "FAILED" };
    let states = explored.unique_state_count();
    let mut noticed: Vec<_> = broken.keys().collect();
    noticed.sort();
    let notices = match scenario.flaw {
        Some(flaw) => format!("notices {flaw:?} by {noticed:?}, "),
        None => String::new(),
    };
    println!(
        "{verdict} {}: {states} states, {notices}{seconds:.1} s",
        scenario.name
    );
    if !is_good {
        for (property, path) in broken {
            let end = path.last_state().clone();
            println!(
                "not \"{property}\" after {:?}\n{end:?}",
                path.into_actions()
            );
        }
    }
    is_good
}
