//! Sweep files.

use ferroce_sweep::{Design, Plan, Sweep};

/// What a sweep varies here. It has as much of everything as a file may name.
const SCENARIO: &str = r#"
duration = "1s"
[topology]
kind = "star"
hosts = 4
[device]
dcqcn = { preset = "firmware" }
[[job]]
name = "in"
workload = "incast"
bytes = "64KiB"
timeout = 14
[[fault]]
kind = "loss"
link = "h1"
probability = "1%"
for = "1ms"
"#;

/// Combinations that are worth a plan.
const SMALL: u32 = 20;

/// Any sweep file is a sweep or is refused with reasons, and so is its plan; each point of a plan is a
/// scenario again.
pub fn sweep(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let sweep = match Sweep::parse(text) {
        Ok(sweep) => sweep,
        Err(problems) => {
            assert!(!problems.problems.is_empty(), "a reason");
            assert!(problems.problems.iter().all(|it| !it.text.is_empty()));
            return;
        }
    };
    // What is large takes its time and its memory as it must.
    let is_small = match sweep.design {
        Design::Random(samples) | Design::LatinHypercube(samples) => samples <= SMALL,
        Design::Grid | Design::List => !has_number_above_99(text),
    };
    if !is_small || sweep.seeds > SMALL {
        return;
    }
    match Plan::new(
        &sweep,
        SCENARIO,
        &mut |name| Err(format!("no file {name}")),
        "fuzz",
    ) {
        Ok(plan) => {
            let point = plan.points.last().expect("a sweep has a point");
            plan.scenario(point).expect("what was planned can be run");
        }
        Err(error) => assert!(!error.to_string().is_empty(), "a reason"),
    }
}

/// Whether a number has more than two digits, or an exponent.
fn has_number_above_99(text: &str) -> bool {
    let mut digits = 0;
    text.chars().any(|c| {
        digits = match c {
            '0'..='9' => digits + 1,
            '_' | '.' => digits,
            'a'..='f' | 'A'..='F' | 'x' if digits > 0 => digits + 2,
            _ => 0,
        };
        digits > 2
    })
}
