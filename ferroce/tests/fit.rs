//! `ferroce adp fit`.

use crate::common::{bad, good, good_json, has, scratch};

/// A short search.
const SMALL: &str = "adp fit --outages lognormal:median=100ms,p99=2s --timeout 20 --count 10 \
                     --rounds 2 --steps 6 --evidence 20";

fn small(more: &str) -> String {
    format!("{SMALL} {more}")
}

#[test]
fn a_fitted_profile_comes_with_its_evidence_and_the_command() {
    let file = scratch("fitted", "");
    let text = good(small(&format!("-o {file} -d mlx5_0")));
    assert!(
        text.lines().take(30).all(|line| line.chars().count() <= 80),
        "{text}"
    );
    has(
        &text,
        [
            "fitted to 10 outages, lognormal: median 100 ms",
            "[[timeout_range]]",
            "On 20 other outages (seed 2):",
            "policy",
            "spurious",
            "nvidia-ranges",
            "The fitted profile costs",
            "mlxreg -d mlx5_0 --yes --reg_name ROCE_ACCL",
        ],
    );
    // The file holds the profile that was printed, and `adp check` has no findings.
    let written = std::fs::read_to_string(&*file).unwrap();
    has(&text, [written.trim_end()]);
    let checked = good_json(format!("adp check {file} --timeout 20 --json"));
    assert_eq!(
        checked["warnings"].as_array().unwrap().len(),
        0,
        "{checked}"
    );
    assert_eq!(good(small("-d mlx5_0")), text);

    let json = good_json(small("-j"));
    assert_eq!(json["configuration"]["seed"], 1);
    assert_eq!(json["configuration"]["evidence_seed"], 2);
    assert_eq!(json["policies"][0]["policy"], "fitted");
    assert!(
        json["profile"]["toml"]
            .as_str()
            .unwrap()
            .contains("time_base")
    );
    let cost = |at: usize| json["policies"][at]["cost_ns"].as_u64().unwrap();
    assert!(cost(0) < cost(1), "less than plain InfiniBand: {json}");
}

#[test]
fn a_search_goes_on_from_its_state() {
    let state = scratch("state", "");
    std::fs::remove_file(&*state).unwrap();
    let whole = good(small(""));
    let first = small(&format!("--state {state}"));
    good(first.replace("--rounds 2", "--rounds 1"));
    let resumed = good(small(&format!("--state {state}")));
    assert_eq!(resumed, whole);
    // The third time there is nothing left to search.
    assert_eq!(good(small(&format!("--state {state}"))), whole);

    let errors = bad(small(&format!("--state {state} --seed 2")));
    has(&errors, ["seed is 1 there and 2 here"]);
    let broken = scratch("broken", "{\"question\": 1}");
    let errors = bad(small(&format!("--state {broken}")));
    has(&errors, ["not the state of a search", "line 1"]);
    let errors = bad(small("--state /nowhere/state.json"));
    has(&errors, ["cannot write /nowhere/state.json"]);
}
