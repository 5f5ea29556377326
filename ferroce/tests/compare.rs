//! `ferroce sim compare`, and what shows why a run went as it did.

use std::fs;
use std::path::Path;

use crate::common::{bad, good, good_json, has, run};

/// Rings over all uplinks of four leaves: every hop leads from one leaf to the next.
const RING: &str = "
title = 'A ring & its <collisions>'
[topology]
kind = 'leaf-spine'
leaves = 4
spines = 4
hosts_per_leaf = 4
[[job]]
name = 'ring'
workload = 'ring-all-reduce'
bytes = '1MiB'
hosts = ['h0', 'h4', 'h8', 'h12', 'h1', 'h5', 'h9', 'h13', 'h2', 'h6', 'h10', 'h14', 'h3', 'h7', 'h11', 'h15']
[device]
dcqcn = { enabled = false }
[record]
every = '2us'
goodput = true
";

fn at(directory: &tempfile::TempDir, name: &str) -> String {
    directory.path().join(name).to_str().unwrap().to_owned()
}

/// A directory with results of the ring by hash, `a`, and by adaptive routing, `b`.
fn two_runs() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let file = at(&directory, "ring.toml");
    fs::write(&file, RING).unwrap();
    good(format!("sim run {file} -o {}", at(&directory, "a")));
    let adaptive = "--set switch.routing=adaptive --set device.adaptive_routing=true";
    good(format!(
        "sim run {file} {adaptive} -o {}",
        at(&directory, "b")
    ));
    directory
}

#[test]
fn collisions_are_reported_where_they_cost_time() {
    let directory = two_runs();
    let file = at(&directory, "ring.toml");
    let text = good(format!("sim run {file}"));
    has(
        &text,
        [
            "collisions      ring: ",
            " of its 16 connections share ",
            "busiest links   ",
        ],
    );
    let page = fs::read_to_string(at(&directory, "a/report.html")).unwrap();
    has(
        &page,
        [
            "<td>Collisions</td>",
            "The busiest links",
            "Goodput of the slowest connections",
        ],
    );
    let adaptive = "--set switch.routing=adaptive --set device.adaptive_routing=true";
    let adaptive = good(format!("sim run {file} {adaptive}"));
    assert!(!adaptive.contains("\ncollisions"), "{adaptive}");
    let qps = fs::read_to_string(at(&directory, "a/qps.csv")).unwrap();
    has(
        &qps,
        [
            ",path,path_changed\n",
            "h0-leaf0 leaf0-spine",
            "-leaf1 leaf1-h4,false\n",
        ],
    );
    let links = fs::read_to_string(at(&directory, "a/link_totals.csv")).unwrap();
    has(
        &links,
        ["link,bytes,utilisation,peak,", "\nleaf0-spine", ": 1966080"],
    );
    let goodput = fs::read_to_string(at(&directory, "a/goodput.csv")).unwrap();
    let delivered = goodput
        .lines()
        .skip(1)
        .map(|line| line.rsplit(',').next().unwrap());
    let delivered: u64 = delivered.map(|it| it.parse::<u64>().unwrap()).sum();
    assert_eq!(
        delivered,
        16 * 1_966_080,
        "30 sixteenths of 1 MiB from each host"
    );
}

#[test]
fn differences_between_two_runs_are_shown() {
    let directory = two_runs();
    let [a, b] = ["a", "b"].map(|name| at(&directory, name));
    let text = good(format!("sim compare {a} {b}"));
    has(
        &text,
        [
            "A: ",
            "A ring & its <collisions>; scenario ",
            "switch.routing",
            "adaptive",
            "ring: time, ms",
            "ring: colliding connections",
            "slowdown p99",
            "used, %",
            " figures are equal\n",
        ],
    );
    assert!(!text.contains("failed QPs"), "it is equal: {text}");
    let json = good_json(format!("sim compare {a} {b} -j"));
    let figure = |name: &str| {
        let all = json["figures"].as_array().unwrap();
        all.iter().find(|it| it["name"] == name).unwrap().clone()
    };
    for (side, name) in [("a", &a), ("b", &b)] {
        assert_eq!(json[side]["path"], **name);
        assert_eq!(json[side]["outcomes"]["ring"], "finished");
        let summary: serde_json::Value =
            serde_json::from_slice(&fs::read(Path::new(name).join("summary.json")).unwrap())
                .unwrap();
        let time = summary["jobs"][0]["time_ns"].as_f64().unwrap() / 1e6;
        assert_eq!(figure("ring: time_ms")[side].as_f64(), Some(time));
    }
    assert_eq!(figure("ring: failures")["a"], 0.0);
    assert!(figure("ring: colliding")["b"].is_null(), "any path");
    assert_eq!(json["keys"][0]["name"], "device.adaptive_routing");
    assert_eq!(json["keys"][1]["b"], "adaptive");
    let same = good(format!("sim compare {a} {a}/summary.json"));
    assert!(!same.contains("ring:"), "{same}");
}

#[test]
fn a_comparison_is_a_page() {
    let directory = two_runs();
    let [a, b, page] = ["a", "b", "it.html"].map(|name| at(&directory, name));
    good(format!("sim compare {a} {b} -o {page}"));
    let html = fs::read_to_string(page).unwrap();
    has(
        &html,
        [
            "A ring &amp; its &lt;collisions&gt;",
            "<td>switch.routing</td>",
            "<td>ring: time, ms</td>",
            "Completion times",
            "Throughput",
            "Longest queue",
        ],
    );
    assert_eq!(html.matches("<polyline").count(), 6, "two in each plot");
    // Without tables there are no plots.
    let [one, other] = ["one", "other"].map(|name| at(&directory, name));
    for (from, to) in [(&a, &one), (&b, &other)] {
        fs::create_dir(to).unwrap();
        fs::copy(format!("{from}/summary.json"), format!("{to}/summary.json")).unwrap();
    }
    let page = at(&directory, "plain.html");
    good(format!("sim compare {one} {other}/summary.json -o {page}"));
    let html = fs::read_to_string(page).unwrap();
    assert!(
        html.contains("ring: time, ms") && !html.contains("<svg"),
        "{html}"
    );
}

#[test]
fn other_files_are_refused() {
    let directory = two_runs();
    let [a, ring] = ["a", "ring.toml"].map(|name| at(&directory, name));
    let refused = bad(format!("sim compare {a} {ring}"));
    has(&refused, ["is not a summary of a run", "ferroce sim run"]);
    let refused = bad(format!("sim compare {a} nowhere"));
    has(&refused, ["cannot read nowhere"]);
    let other = at(&directory, "other.json");
    fs::write(&other, good(format!("sim compare {a} {a} -j"))).unwrap();
    has(
        &bad(format!("sim compare {a} {other}")),
        ["is not a summary"],
    );
    fs::write(&other, "{\"schema\":\"ferroce.sim.run\",\"version\":1}").unwrap();
    has(
        &bad(format!("sim compare {a} {other}")),
        ["missing field", "run the scenario again"],
    );
    let (code, _, err) = run(format!("sim compare {a} {a} -o /proc/nowhere/it.html"));
    assert_eq!(code, 1);
    has(&err, ["cannot write /proc/nowhere/it.html"]);
}

const SWEEP: &str = "
title = 'Routing & timeouts'
scenario = 'ring.toml'
seeds = 2
[[axis]]
field = 'switch.routing'
values = ['hash', 'random']
[[axis]]
field = 'job.ring.timeout'
values = [14, 16]
";

#[test]
fn sweeps_draw_any_metric_and_keep_their_runs() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(at(&directory, "ring.toml"), RING).unwrap();
    let sweep = at(&directory, "sweep.toml");
    fs::write(&sweep, SWEEP).unwrap();
    let [out, kept, svg, points] =
        ["out", "kept", "it.svg", "points.csv"].map(|name| at(&directory, name));
    let (code, _, err) = run(format!("sweep run {sweep} -o {out} --keep {kept}"));
    assert_eq!(code, 0, "{err}");
    let collect = format!("sweep collect {out} --points {points}");
    let (code, _, err) = run(format!("{collect} --plot {svg} --of goodput_gbps"));
    assert_eq!(code, 0, "{err}");
    let picture = fs::read_to_string(&svg).unwrap();
    has(
        &picture,
        [
            "Routing &amp; timeouts",
            "(goodput_gbps)",
            "switch.routing",
            "random",
            "2 runs",
        ],
    );
    assert!(!picture.contains("Jobs that survive") && !picture.contains("Assumption"));
    let along = format!("{collect} --plot {svg} --of survival --along job.ring.timeout");
    let (code, _, err) = run(along);
    assert_eq!(code, 0, "{err}");
    has(
        &fs::read_to_string(&svg).unwrap(),
        ["(survival)", "job.ring.timeout"],
    );
    has(
        &bad(format!("sweep collect {out} --of ended_ms")),
        ["--survival <FILE>|--plot <FILE>"],
    );

    // Each point has a directory of results, whose figures are those of the table.
    let table = fs::read_to_string(points).unwrap();
    let column = |line: &str, name: &str| {
        let at = table
            .lines()
            .next()
            .unwrap()
            .split(',')
            .position(|it| it == name);
        line.split(',').nth(at.unwrap()).unwrap().to_owned()
    };
    let mut ids = Vec::new();
    for line in table.lines().skip(1) {
        let id = column(line, "id");
        let results = format!("{kept}/{id}");
        let json: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(format!("{results}/summary.json")).unwrap())
                .unwrap();
        let timeouts = json["totals"]["timeouts"].as_u64().unwrap().to_string();
        assert_eq!(timeouts, column(line, "timeouts"));
        assert_eq!(json["seed"].to_string(), column(line, "seed"));
        let (_, again, _) = run(format!("sim run {results}/scenario.toml -j"));
        let again: serde_json::Value = serde_json::from_str(&again).unwrap();
        assert_eq!(again["scenario_hash"], json["scenario_hash"]);
        assert_eq!(again["events"], json["events"]);
        ids.push(results);
    }
    assert_eq!(ids.len(), 8);
    has(
        &good(format!("sim compare {} {}", ids[0], ids[7])),
        ["job[0].timeout", "switch.routing"],
    );
    // What is there and no run of theirs stays.
    fs::remove_file(format!("{}/summary.json", ids[0])).unwrap();
    let (code, _, err) = run(format!("sweep run {out} --keep {kept} --again"));
    assert_eq!(code, 2);
    has(&err, ["is not a directory of results"]);
}
