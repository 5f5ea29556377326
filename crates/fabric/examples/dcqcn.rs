//! Compares both DCQCN algorithms with published models and simulators, in virtual time:
//!
//! ```sh
//! cargo run --release -p ferroce-fabric --example dcqcn
//! ```
//!
//! Flows share a marked bottleneck, under the algorithm of the DCQCN paper and under that of NVIDIA's
//! adapters. The exit code is 1 if a value lies outside its band; `tests/truth/reaction.rs` checks the
//! same values.

use std::error::Error;
use std::process::ExitCode;

use ferroce_fabric::validation::{
    against_convergence_bound, against_fluid_model, against_published_stability,
    against_reference_simulator,
};

/// Numbers of flows for which the authors of the fluid model give a fixed point.
const FLOWS: [u32; 4] = [2, 4, 8, 10];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut fluid = Vec::new();
    for flows in FLOWS {
        fluid.extend(against_fluid_model(flows)?);
    }
    let groups = [
        ("The paper's algorithm and its fluid model, 40 Gb/s", fluid),
        ("Convergence", against_convergence_bound()?),
        (
            "Stability of the fluid model",
            against_published_stability(),
        ),
        (
            "NVIDIA's algorithm and HPCC's simulator, 100 Gb/s",
            against_reference_simulator()?,
        ),
    ];
    let mut outside = 0;
    for (title, checks) in groups {
        println!("{title}");
        for check in checks {
            println!("  {check}");
            outside += usize::from(!check.holds());
        }
    }
    if outside > 0 {
        eprintln!("{outside} values are outside their bands");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
