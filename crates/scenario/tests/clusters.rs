//! Scenarios with the jobs of clusters: what they need, what they are compared with, and what is refused.

use ferroce_fabric::Standing;
use ferroce_scenario::Scenario;
use ferroce_scenario::results::{Fate, Results};

const POD: &str = "[topology]\nkind = 'rail-pod'\nservers = 4\nnics = 2\nspines = 2\nrate = '100Gbit'\n\
                   [switch]\necn = { preset = 'hpcc' }\npfc = { priorities = [3] }\n[[job]]\n";

fn parse(job: &str, files: &[(&str, &[u8])]) -> Result<Scenario, String> {
    let read = &mut |name: &str| {
        let found = files.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, bytes)| bytes.to_vec())
            .ok_or_else(|| "No such file".to_owned())
    };
    Scenario::parse(&format!("{POD}{job}"), read).map_err(|error| {
        let texts: Vec<_> = error.problems.into_iter().map(|it| it.text).collect();
        texts.join("; ")
    })
}

fn run(scenario: &Scenario) -> Results {
    let mut simulation = scenario.simulation().unwrap();
    loop {
        match simulation.run(100_000).unwrap() {
            Standing::Running => {}
            standing => return Results::new(scenario, &simulation, standing),
        }
    }
}

/// The trace of a rank as JSON: it computes, and takes part in an all-reduce.
fn trace(micros: u64, bytes: u64) -> Vec<u8> {
    let text = format!(
        r#"{{"workload_graph": [{{"Id": 0, "NodeType": 4, "runtime": {micros}}},
            {{"Id": 1, "NodeType": 7, "comm_type": 0, "comm_size": {bytes}, "data_deps": [0]}}]}}"#
    );
    text.into_bytes()
}

#[test]
fn ideal_times_are_a_little_below_those_of_runs() {
    let jobs = [
        (
            "workload = 'nccl-all-reduce'\ngpus_per_node = 2\nbytes = '2MiB'",
            1.1,
        ),
        (
            "workload = 'nccl-all-reduce'\nalgorithm = 'tree'\ngpus_per_node = 2\nbytes = '2MiB'",
            2.0,
        ),
        (
            "workload = 'nccl-all-gather'\ngpus_per_node = 2\nbytes = '2MiB'\nrounds = 2\ncompute = '50us'",
            1.5,
        ),
        (
            "workload = 'nccl-reduce-scatter'\ngpus_per_node = 2\nbytes = '2MiB'\nqps_per_connection = 4",
            1.1,
        ),
        (
            "workload = 'nccl-broadcast'\ngpus_per_node = 2\nbytes = '2MiB'\nchannels = 4",
            1.5,
        ),
        (
            "workload = 'expert-all-to-all'\nbytes = '800KB'\nlayers = 3\ncompute = '20us'\nthink = '9us'",
            2.0,
        ),
        (
            "workload = 'pipeline'\nbytes = '100KB'\nstages = 4\nmicrobatches = 8\ncompute = '20us'",
            1.1,
        ),
        (
            "workload = 'checkpoint'\nservers = [0, 1]\nbytes = '1MB'\ninterval = '2ms'\nrounds = 3",
            1.2,
        ),
    ];
    for (job, most) in jobs {
        for qps in ["", "\nqps_per_connection = 2\nsplit_data = true"] {
            let job = match job.contains("qps") {
                true => job.to_owned(),
                false => format!("{job}{qps}"),
            };
            let scenario = parse(&job, &[]).unwrap();
            let findings = scenario.check();
            assert!(findings.is_empty(), "{job}: {findings:?}");
            let results = run(&scenario);
            let it = &results.summary.jobs[0];
            assert_eq!(it.fate, Fate::Finished, "{job}");
            let slowdown = it.time_ns.unwrap() as f64 / it.ideal_ns as f64;
            assert!((1.0..most).contains(&slowdown), "{job}: {slowdown}");
            // No rows for work, and all bytes of messages arrive.
            assert_eq!(results.flows.len(), it.transfers as usize, "{job}");
            assert!(
                results
                    .flows
                    .iter()
                    .all(|flow| flow.src != flow.dst && flow.bytes > 0)
            );
            let acknowledged: u64 = results.qps.iter().map(|it| it.bytes).sum();
            assert_eq!(acknowledged, it.payload_bytes, "{job}");
        }
    }
}

#[test]
fn split_data_uses_all_queue_pairs_of_two_hosts() {
    let job =
        "workload = 'nccl-all-reduce'\ngpus_per_node = 2\nbytes = '2MiB'\nqps_per_connection = 4\n";
    let of = |split: bool| {
        let results = run(&parse(&format!("{job}split_data = {split}"), &[]).unwrap());
        // Four nodes in two rings.
        assert_eq!(results.qps.len(), 8 * 4);
        let bytes = |it: &ferroce_scenario::results::QpRow| it.bytes;
        let (least, most) = (
            results.qps.iter().map(bytes).min(),
            results.qps.iter().map(bytes).max(),
        );
        (least.unwrap(), most.unwrap())
    };
    let (least, most) = of(true);
    assert!(least * 100 > most * 98, "{least} and {most}");
    let (least, most) = of(false);
    assert!(least > 0 && most > 0, "{least} and {most}");
}

#[test]
fn traces_are_found_by_rank() {
    let job = "workload = 'chakra'\nfile = 'dir/train'\nhosts = '0-2'\n";
    let traces = [
        trace(30, 3_000),
        trace(40, 3_000),
        trace(50, 3_000),
        trace(1, 3_000),
    ];
    let names = [
        "dir/train.0.json",
        "dir/train.1.json",
        "dir/train.2.json",
        "dir/train.3.json",
    ];
    let files: Vec<_> = names
        .into_iter()
        .zip(traces.iter().map(Vec::as_slice))
        .collect();
    let results = run(&parse(job, &files[..3]).unwrap());
    let it = &results.summary.jobs[0];
    assert_eq!((it.fate, it.transfers), (Fate::Finished, 12));
    // It begins with the shortest computation, and ends after the longest one.
    assert!((50_000..75_000).contains(&it.time_ns.unwrap()), "{it:?}");

    assert_eq!(
        parse(job, &files).unwrap_err(),
        "job[0].workload: dir/train has more ranks than the job has hosts, 3; name more hosts"
    );
    assert_eq!(
        parse(job, &files[..2]).unwrap_err(),
        "job[0].workload: dir/train: rank 2: cannot read dir/train.2.et: No such file; a trace has a file for each \
         of the 3 hosts: name as many hosts as it has ranks"
    );
    let different = trace(1, 4_000);
    let disagree = [files[0], files[1], (names[2], different.as_slice())];
    assert_eq!(
        parse(job, &disagree).unwrap_err(),
        "job[0].workload: dir/train: rank 2: node 1 (): AllReduce of 4000 bytes, but rank 0 does AllReduce of 3000 \
         bytes there (node 1 ()); collectives of a group must be the same on all its ranks"
    );
    let grouped = format!("{job}groups = 'groups.json'");
    assert_eq!(
        parse(&grouped, &files[..3]).unwrap_err(),
        "job[0].groups: cannot read groups.json: No such file"
    );
    // Another trace is another scenario.
    let changed = [files[0], files[1], (names[2], traces[0].as_slice())];
    assert_ne!(
        parse(job, &changed).unwrap().hash,
        parse(job, &files[..3]).unwrap().hash
    );
}

#[test]
fn keys_that_do_not_fit_are_named() {
    let error = |job: &str| parse(job, &[]).unwrap_err();
    assert_eq!(
        error("workload = 'nccl-all-reduce'\nbytes = '1MiB'"),
        "missing job[0].gpus_per_node; add gpus_per_node = 8; job[0].workload: invalid number of ranks 8"
            .split_once("; job").unwrap().0
    );
    assert_eq!(
        error("workload = 'nccl-all-reduce'\nbytes = '1MiB'\ngpus_per_node = 3"),
        "job[0].workload: invalid number of ranks 8: must be a multiple of gpus_per_node, for 2 nodes or more: 6"
    );
    assert_eq!(
        error("workload = 'nccl-broadcast'\nbytes = '1MiB'\ngpus_per_node = 2\nalgorithm = 'tree'"),
        "job[0].algorithm: has no meaning for this workload; leave it out"
    );
    assert_eq!(
        error("workload = 'pipeline'\nbytes = '1MiB'\nstages = 3"),
        "job[0].workload: invalid number of ranks 8: must be a multiple of the 3 stages"
    );
    assert_eq!(
        error("workload = 'incast'\nbytes = '1MiB'\nqps_per_connection = 129"),
        "invalid job[0].qps_per_connection 129: must be 1 to 128"
    );
    assert_eq!(
        error(
            "workload = 'incast'\nbytes = '1MiB'\nqps_per_connection = 2\nqp_per_transfer = true"
        ),
        "job[0].qps_per_connection: has no meaning with qp_per_transfer; leave it out"
    );
}
