//! Scenario files of the simulator.

use ferroce_fabric::Standing;
use ferroce_scenario::Scenario;

/// Events after which a run has shown enough.
const EVENTS: u64 = 20_000;
/// Hosts and transfers that are worth a run.
const SMALL: usize = 64;

/// Any scenario file is a scenario or is refused with a reason, and a small one runs with its books in
/// order.
pub fn scenario(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // What is large takes its time and its memory as it must.
    if has_large_number(text) {
        return;
    }
    let scenario = match Scenario::parse(text, &mut |name| Err(format!("no file {name}"))) {
        Ok(scenario) => scenario,
        Err(error) => {
            assert!(!error.problems.is_empty(), "a reason");
            assert!(error.problems.iter().all(|it| !it.text.is_empty()));
            return;
        }
    };
    let _ = scenario.check();
    if scenario.topology.hosts as usize > SMALL || scenario.workload.transfers.len() > SMALL {
        return;
    }
    let Ok(mut simulation) = scenario.simulation() else {
        return;
    };
    let mut standing = Standing::Running;
    while standing == Standing::Running && simulation.events() < EVENTS {
        match simulation.run(1_000) {
            Ok(it) => standing = it,
            Err(_) => return,
        }
    }
    simulation.fabric.audit();
}

/// Whether a number has more than three digits, or an exponent.
fn has_large_number(text: &str) -> bool {
    let mut digits = 0;
    text.chars().any(|c| {
        digits = match c {
            '0'..='9' => digits + 1,
            '_' | '.' => digits,
            'a'..='f' | 'A'..='F' | 'x' if digits > 0 => digits + 3,
            _ => 0,
        };
        digits > 3
    })
}
