//! `ferroce cc model`: compares the algorithms with published predictions.

use clap::Args;
use ferroce_dcqcn::RangeError;
use ferroce_fabric::validation::{
    Check, against_convergence_bound, against_fluid_model, against_published_stability,
    against_reference_simulator,
};

use super::super::format::Format;
use crate::demo::digits;
use crate::json::cc as json;
use crate::output::{Failure, Output, Table};

/// Hold the algorithms against published models and simulators, on virtual time
///
/// Flows share a marked bottleneck, once under the algorithm of the DCQCN paper and once under that
/// of the adapters. Each line compares what was seen with what the fluid model, its authors, or
/// another simulator predict. Exit code 1 if one lies outside its band.
#[derive(Args, Debug)]
pub(super) struct Model;

/// Numbers of flows for which the fluid model has a fixed point that its authors give.
const FLOWS: [u32; 4] = [2, 4, 8, 10];

impl Model {
    pub(super) fn run(format: Format, to: &mut Output<'_>) -> Result<(), Failure> {
        let groups = groups().map_err(Failure::broken)?;
        if format.is_json() {
            let groups = groups.iter().map(|(title, checks)| json::Group {
                against: title,
                checks: checks.iter().map(as_json).collect(),
            });
            let groups = groups.collect();
            format.document(&json::Model { groups }, to)?;
        } else {
            for (title, checks) in &groups {
                to.text(&format!("{title}\n{}\n", table(checks)))?;
            }
        }
        let checks = || groups.iter().flat_map(|(_, checks)| checks);
        match checks().filter(|check| !check.holds()).count() {
            0 => Ok(()),
            outside => Err(Failure::broken(format_args!(
                "{outside} of {} values lie outside their bands; this is a bug, please report it",
                checks().count()
            ))),
        }
    }
}

fn groups() -> Result<Vec<(&'static str, Vec<Check>)>, RangeError> {
    let mut paper = Vec::new();
    for flows in FLOWS {
        paper.extend(against_fluid_model(flows)?);
    }
    Ok(vec![
        ("The paper's algorithm and its fluid model, 40 Gb/s", paper),
        ("Its convergence", against_convergence_bound()?),
        (
            "Stability of the fluid model",
            against_published_stability(),
        ),
        (
            "NVIDIA's algorithm and HPCC's simulator, 100 Gb/s",
            against_reference_simulator()?,
        ),
    ])
}

fn table(checks: &[Check]) -> Table {
    let mut table = Table::new(&[
        ">flows",
        "quantity",
        ">predicted",
        ">observed",
        "band",
        "is",
    ]);
    for check in checks {
        let (low, high) = (check.band.start(), check.band.end());
        table.row(vec![
            check.flows.to_string(),
            check.quantity.to_owned(),
            digits(check.predicted),
            digits(check.observed),
            format!("{} to {}", digits(*low), digits(*high)),
            if check.holds() { "ok" } else { "OUTSIDE" }.to_owned(),
        ]);
    }
    table
}

fn as_json(check: &Check) -> json::Check {
    json::Check {
        flows: check.flows,
        quantity: check.quantity,
        predicted: check.predicted,
        observed: check.observed,
        low: *check.band.start(),
        high: *check.band.end(),
        holds: check.holds(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_outside_is_told() {
        let check = |observed| Check {
            flows: 2,
            quantity: "queue KB",
            predicted: 20.0,
            observed,
            band: 20.0..=28.0,
        };
        let text = table(&[check(24.0), check(29.0)]).to_string();
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[1].contains("20.0 to 28.0") && lines[1].ends_with("ok"),
            "{text}"
        );
        assert!(
            lines[2].contains("29.0") && lines[2].ends_with("OUTSIDE"),
            "{text}"
        );
        assert!(!as_json(&check(29.0)).holds);
    }
}
