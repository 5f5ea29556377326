//! Predicted against observed, with the band: `cargo run -p ferroce-dcqcn --release --example
//! bottleneck -- 2 4 8 10`.

use std::process::ExitCode;

use ferroce_dcqcn::validation::against_fluid_model;

fn main() -> ExitCode {
    let mut flows = Vec::new();
    for argument in std::env::args().skip(1) {
        match argument.parse() {
            Ok(n @ 2..=10) => flows.push(n),
            _ => {
                eprintln!("flows: {argument:?} is outside 2..=10, where the bands hold");
                return ExitCode::from(2);
            }
        }
    }
    if flows.is_empty() {
        flows = vec![2, 4, 8, 10];
    }
    let mut failed = false;
    for check in flows.into_iter().flat_map(against_fluid_model) {
        println!("{check}");
        failed |= !check.holds();
    }
    ExitCode::from(u8::from(failed))
}
