//! Predicted against observed, with the band:
//! `cargo run -p ferroce-dcqcn --release --example bottleneck`.

use std::process::ExitCode;

use ferroce_dcqcn::RangeError;
use ferroce_dcqcn::validation::{
    Check, against_convergence_bound, against_fluid_model, against_published_stability,
    against_reference_simulator,
};

fn main() -> Result<ExitCode, RangeError> {
    let mut paper = Vec::new();
    for flows in [2, 4, 8, 10] {
        paper.extend(against_fluid_model(flows)?);
    }
    let all_hold = [
        print("The paper's algorithm and its fluid model, 40 Gb/s", &paper),
        print("Its convergence", &against_convergence_bound()?),
        print(
            "Stability of the fluid model",
            &against_published_stability(),
        ),
        print(
            "NVIDIA's algorithm and HPCC's simulator, 100 Gb/s",
            &against_reference_simulator()?,
        ),
    ];
    Ok(ExitCode::from(u8::from(all_hold.contains(&false))))
}

fn print(title: &str, checks: &[Check]) -> bool {
    println!("{title}");
    for check in checks {
        println!("  {check}");
    }
    checks.iter().all(Check::holds)
}
