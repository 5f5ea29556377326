//! The estimate of the memory that a run takes.

use ferroce_fabric::Standing;
use ferroce_scenario::Scenario;
use ferroce_scenario::results::Summary;

/// The most memory that a scenario takes, from its file to its summary, and the estimate of it; bytes.
fn peak(text: &str) -> (u64, u64) {
    let mut estimate = 0;
    let info = allocation_counter::measure(|| {
        let scenario = Scenario::parse(text, &mut |_| Err("no files".into())).unwrap();
        estimate = scenario.estimate().memory;
        let mut simulation = scenario.simulation().unwrap();
        let standing = simulation.run(u64::MAX).unwrap();
        assert_eq!(standing, Standing::Over);
        drop(Summary::new(&scenario, &simulation, standing));
    });
    (info.bytes_max, estimate)
}

/// Runs whose memory is mostly that of queue pairs, of waits, of transfers, of what is left of closed
/// connections, of frames, of cables, and of samples.
#[test]
fn the_estimate_of_memory_holds_within_a_factor_of_two() {
    let poisson = "workload = 'poisson'\nsizes = 'FbHdp'\nfor = '20ms'\nload";
    let own = "qp_per_transfer = true";
    for (topology, job) in [
        (
            "kind = 'star'\nhosts = 64",
            "workload = 'all-to-all'\nbytes = '64KiB'".to_owned(),
        ),
        (
            "kind = 'fat-tree'\nk = 8",
            format!("workload = 'all-to-all'\nbytes = '512KiB'\n{own}"),
        ),
        (
            "kind = 'fat-tree'\nk = 8",
            format!("workload = 'all-to-all-in-shifts'\nbytes = '512KiB'\n{own}"),
        ),
        (
            "kind = 'leaf-spine'\nleaves = 2\nspines = 4\nhosts_per_leaf = 32\nhost_links = 'bond'",
            "workload = 'all-to-all'\nbytes = '64KiB'\nrounds = 2".to_owned(),
        ),
        (
            "kind = 'star'\nhosts = 16",
            "workload = 'all-to-all'\nbytes = '64KiB'\nrounds = 256".to_owned(),
        ),
        ("kind = 'star'\nhosts = 16", format!("{poisson} = '30%'")),
        (
            "kind = 'star'\nhosts = 16",
            format!("{poisson} = '30%'\n{own}"),
        ),
        (
            "kind = 'star'\nhosts = 16",
            format!("{poisson} = '95%'\n{own}"),
        ),
        (
            "kind = 'star'\nhosts = 32",
            format!("workload = 'ring-all-reduce'\nbytes = '1MiB'\nrounds = 16\n{own}"),
        ),
        (
            "kind = 'star'\nhosts = 512",
            "workload = 'incast'\nbytes = '64KiB'".to_owned(),
        ),
        (
            "kind = 'fat-tree'\nk = 16",
            "workload = 'permutation'\nbytes = '64KiB'".to_owned(),
        ),
    ] {
        let text = format!("[topology]\n{topology}\n[[job]]\n{job}\n");
        let (peak, estimate) = peak(&text);
        let share = estimate as f64 / peak as f64;
        println!("estimate {estimate}, {share:.2} of {peak} bytes: {topology:?} {job:?}");
        assert!(peak > 3_000_000, "{text} is too small");
        assert!((0.5..2.0).contains(&share), "{text}");
    }
}
