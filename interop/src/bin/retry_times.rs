//! Prints how long queue pairs wait for a silent peer, predicted and observed, as the table in
//! docs/retry-times.md.
//!
//!     cargo build --release && cargo run --release -p ferroce-interop --bin retry_times

use std::process::ExitCode;

use ferroce_adp::QpTimeouts;
use ferroce_interop::lab::Lab;
use ferroce_interop::retry::{Observed, Way, observe};

fn main() -> ExitCode {
    let settings: Vec<QpTimeouts> = (8..=18)
        .flat_map(|timeout| (0..=7).map(move |retry_cnt| QpTimeouts { timeout, retry_cnt }))
        .collect();
    let lab = Lab::new("retry-times");
    let columns = Way::ALL.map(|way| {
        let mut observed = observe(&lab, way, &settings);
        observed.sort_by_key(|one| (one.qp.timeout, one.qp.retry_cnt));
        observed
    });
    print!("| timeout | retry_cnt |");
    Way::ALL
        .iter()
        .for_each(|way| print!(" {0} predicted, ms | {0} observed, ms |", way.name()));
    println!("\n|---:|---:|{}", "---:|---:|".repeat(Way::ALL.len()));
    for (row, qp) in settings.iter().enumerate() {
        print!("| {} | {} |", qp.timeout, qp.retry_cnt);
        for column in &columns {
            let Observed {
                predicted_ns,
                waited_ns,
                ..
            } = column[row];
            print!(
                " {:.3} | {:.3} |",
                predicted_ns as f64 / 1e6,
                waited_ns as f64 / 1e6
            );
        }
        println!();
    }
    let strays: Vec<&Observed> = columns
        .iter()
        .flatten()
        .filter(|one| !one.agrees())
        .collect();
    if strays.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("not as predicted: {strays:#?}");
    ExitCode::FAILURE
}
