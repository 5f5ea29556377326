//! `ferroce sim`: its output, its files and its refusals.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use ferroce_testing::{said, skip};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;

use crate::common::{self, bad, good, good_json, has, run};

const SMALL: &str = "
title = 'Small'
[topology]
kind = 'star'
hosts = 4
[switch]
ecn = { kmin = '5KB', kmax = '50KB', pmax = '50%' }
[device]
profile = 'link-flap'
[[job]]
name = 'in<cast'
workload = 'incast'
bytes = '256KiB'
[[fault]]
kind = 'link-down'
link = 'h0'
at = '10us'
for = '20ms'
[record]
every = '10us'
rates = true
";

/// A directory with a file of this text, and the path of that file.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("it.toml");
    fs::write(&path, text).unwrap();
    (directory, path.to_str().unwrap().to_owned())
}

#[test]
fn a_run_reports_the_results_of_its_jobs() {
    let (_directory, path) = file(SMALL);
    let text = good(format!("sim run {path}"));
    has(
        &text,
        [
            "Small\n",
            "profile link-flap",
            "in<cast",
            "finished",
            "slowdown",
            "lost on links",
        ],
    );
    let json = good_json(format!("sim run {path} --json"));
    assert_eq!(json["jobs"][0]["fate"], "finished");
    assert_eq!(json["seed"], 1);
    assert!(json["totals"]["timeouts"].as_u64().unwrap() > 0);
    assert_eq!(
        json,
        good_json(format!("sim run {path} -j")),
        "the same again"
    );
    let other = good_json(format!("sim run {path} -j --seed 2"));
    assert_eq!(
        (&other["seed"], &other["scenario_hash"]),
        (&2.into(), &json["scenario_hash"])
    );
    let shorter = good_json(format!("sim run {path} -j --set fault.for=1ms"));
    assert_ne!(shorter["scenario_hash"], json["scenario_hash"]);
    assert!(shorter["jobs"][0]["time_ns"].as_u64() < json["jobs"][0]["time_ns"].as_u64());
}

/// The files of a directory, by their names.
fn all_files(directory: &str) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap();
    let paths = entries.map(|it| it.unwrap().path());
    let named = paths.map(|it| {
        let name = it.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read(it).unwrap())
    });
    named.collect()
}

/// Four leaves, each a part for a thread, with losses, marks and a spine that reboots.
const PARTS: &str = "
[topology]
kind = 'leaf-spine'
leaves = 4
spines = 2
hosts_per_leaf = 16
[switch]
ecn = { kmin = '5KB', kmax = '50KB', pmax = '50%' }
pfc = { priorities = [3] }
[[job]]
workload = 'all-to-all'
bytes = '1MiB'
[[fault]]
kind = 'loss'
link = 'fabric'
probability = '0.1%'
[[fault]]
kind = 'switch-reboot'
switch = 'spine1'
at = '100us'
for = '50us'
reroute_after = '10us'
[record]
every = '200us'
rates = true
";

/// Messages that go on evenly, in several parts.
const EVEN: &str = "
fast_forward = '1%'
[topology]
kind = 'leaf-spine'
leaves = 3
spines = 4
hosts_per_leaf = 16
[switch]
buffer = '1GiB'
pfc = { priorities = [3] }
[device]
dcqcn = { enabled = false }
[[job]]
workload = 'incast'
hosts = ['h0', 'h20', 'h40']
receiver = 'h0'
bytes = '128MiB'
[[fault]]
kind = 'rate'
link = 'h0'
at = '2ms'
for = '1ms'
rate = '50Gbit'
[record]
every = '200us'
goodput = true
";

#[test]
fn time_is_left_out_the_same_with_any_number_of_threads() {
    let (directory, path) = file(EVEN);
    let run = |threads: u32| {
        let out = directory.path().join(threads.to_string());
        let out = out.to_str().unwrap();
        let report = good(format!("sim run {path} -o {out} --threads {threads}"));
        has(&report, ["ms of them left out: times may be off by"]);
        all_files(out)
    };
    assert!(run(1) == run(3));
}

#[test]
fn time_cannot_be_left_out_of_a_capture() {
    let (directory, path) = file(EVEN);
    let out = directory.path().join("it");
    let refused = bad(format!("sim run {path} --pcap h0={}", out.display()));
    has(&refused, ["fast_forward leaves out packets"]);
    assert!(!out.exists());
    for tolerance in ["0%", "11%", "2", "much"] {
        let refused = bad(format!("sim run {path} --set fast_forward={tolerance}"));
        has(&refused, ["invalid fast_forward", tolerance]);
    }
}

#[test]
fn results_are_the_same_for_any_number_of_threads() {
    let (directory, path) = file(PARTS);
    let run = |threads: u32| {
        let out = directory.path().join(threads.to_string());
        let (out, capture) = (out.to_str().unwrap(), format!("{}.pcapng", out.display()));
        good(format!(
            "sim run {path} -o {out} --threads {threads} --pcap leaf0-spine1={capture}"
        ));
        (all_files(out), fs::read(capture).unwrap())
    };
    let one = run(1);
    assert!(one.1.len() > 1_000_000, "{} bytes of packets", one.1.len());
    for threads in 2..=4 {
        assert!(one == run(threads), "{threads} threads");
    }
    let (_, _, err) = common::run(format!("sim run {path} --threads 64"));
    has(
        &err,
        ["--threads 64, but no more than 4 can work on this fabric"],
    );
}

#[test]
fn results_are_written_whole_and_the_same() {
    let (directory, path) = file(SMALL);
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let read_all = |name: &str| all_files(&at(name));
    good(format!("sim run {path} -o {}", at("one")));
    good(format!("sim run {path} -o {}", at("other")));
    let one = read_all("one");
    let names: Vec<_> = one.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "fct.txt",
            "flows.csv",
            "flows.parquet",
            "goodput.csv",
            "goodput.parquet",
            "histogram.csv",
            "histogram.parquet",
            "link_totals.csv",
            "link_totals.parquet",
            "links.csv",
            "links.parquet",
            "qps.csv",
            "qps.parquet",
            "queues.csv",
            "queues.parquet",
            "rates.csv",
            "rates.parquet",
            "report.html",
            "scenario.toml",
            "summary.json",
            "timeouts.csv",
            "timeouts.parquet"
        ]
    );
    assert_eq!(one, read_all("other"), "the same bytes");
    let text = |name: &str| String::from_utf8(one[name].clone()).unwrap();
    assert_eq!(text("flows.csv").lines().count(), 4);
    let fct = text("fct.txt");
    assert_eq!(fct.lines().count(), 3);
    assert!(
        fct.lines().all(|line| line.split(' ').count() == 8),
        "{fct}"
    );
    assert!(text("timeouts.csv").lines().count() > 1);
    assert!(text("links.csv").lines().count() > 1);
    assert_eq!(text("qps.csv").lines().count(), 4);
    // Tables can be joined: a host has the same name in all of them.
    let hosts = ["h0", "h1", "h2", "h3"];
    for (name, columns) in [
        ("timeouts.csv", "host"),
        ("qps.csv", "host peer"),
        ("rates.csv", "host"),
        ("flows.csv", "src dst"),
    ] {
        let table = text(name);
        let mut lines = table.lines();
        let header: Vec<_> = lines.next().unwrap().split(',').collect();
        for column in columns.split(' ') {
            let at = header.iter().position(|it| *it == column);
            let at = at.unwrap_or_else(|| panic!("{column} in {header:?} of {name}"));
            for line in lines.clone() {
                let host = line.split(',').nth(at).unwrap();
                assert!(hosts.contains(&host), "{name}: {line}");
            }
        }
        assert_eq!(header.contains(&"qpn"), name != "flows.csv", "{name}");
    }
    for name in names.iter().filter_map(|it| it.strip_suffix(".csv")) {
        let parquet = parquet_as_csv(&Path::new(&at("one")).join(format!("{name}.parquet")));
        assert_eq!(parquet, text(&format!("{name}.csv")), "{name}");
    }

    let refused = bad(format!("sim run {path} -o {}", at("one")));
    assert!(
        refused.ends_with("exists; name a directory that does not, or add --force\n"),
        "{refused}"
    );
    good(format!("sim run {path} -o {} --force", at("one")));
    assert_eq!(read_all("one"), one);
    fs::create_dir(at("own")).unwrap();
    fs::write(at("own/precious"), "").unwrap();
    let refused = bad(format!("sim run {path} -o {} --force", at("own")));
    has(&refused, ["is not a directory of results"]);
    let (code, _, err) = run(format!("sim run {path} -o /proc/nowhere/it"));
    assert_eq!(code, 1);
    has(&err, ["cannot write /proc/nowhere/it"]);
    let mut left: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["it.toml", "one", "other", "own"], "no drafts");
}

/// A table in Parquet, in the form of CSV.
fn parquet_as_csv(path: &Path) -> String {
    let reader = SerializedFileReader::try_from(path).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let names: Vec<_> = schema.columns().iter().map(|it| it.name()).collect();
    let mut text = names.join(",") + "\n";
    for row in reader.get_row_iter(None).unwrap() {
        let row = row.unwrap();
        let value = |(_, field): (&String, &Field)| match field {
            Field::Null => String::new(),
            Field::Str(name) => name.clone(),
            Field::Double(share) => share.to_string(),
            other => other.to_string(),
        };
        let values: Vec<_> = row.get_column_iter().map(value).collect();
        text += &(values.join(",") + "\n");
    }
    text
}

#[test]
fn results_say_what_was_run() {
    let (directory, path) = file(SMALL);
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let set = "--set job.timeout=9 --set topology.rate=25Gbit";
    let run = |path: &str, out: &str| good(format!("sim run {path} --tables csv -o {out}"));
    run(&format!("{path} {set}"), &at("one"));
    run(&at("one/scenario.toml"), &at("other"));
    let written = fs::read_to_string(at("one/scenario.toml")).unwrap();
    assert!(written.starts_with("# --set job.timeout=9\n"), "{written}");
    for name in ["summary.json", "flows.csv"] {
        let read = |of: &str| fs::read_to_string(at(of)).unwrap();
        let (one, other) = (format!("one/{name}"), format!("other/{name}"));
        assert_eq!(read(&one), read(&other), "{name}");
    }
    assert!(!Path::new(&at("one/flows.parquet")).exists());
    let spaced = at("as it is");
    good(["sim", "run", &path, "--tables", "csv", "-o", &spaced]);
    assert_eq!(
        fs::read_to_string(at("as it is/scenario.toml")).unwrap(),
        SMALL
    );
}

#[test]
fn port_traffic_is_captured() {
    let (directory, path) = file(SMALL);
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (host, switch) = (at("host.pcapng"), at("switch.pcapng"));
    let run = |seed: &str| {
        let (host, switch) = (format!("h0={host}"), format!("switch0-h0={switch}"));
        good(format!(
            "sim run {path} --seed {seed} --pcap {host} --pcap {switch}"
        ));
        [&at("host.pcapng"), &at("switch.pcapng")].map(|it| fs::read(it).unwrap())
    };
    let first = run("1");
    assert_ne!(first[0], first[1], "they see a packet at different times");
    for capture in &first {
        assert!(
            capture.starts_with(&0x0a0d_0d0a_u32.to_le_bytes()),
            "pcapng"
        );
        assert!(capture.len() > 3 * (256 << 10), "{}", capture.len());
    }
    assert_eq!(run("1"), first, "the same bytes, in place of the old ones");

    let refused = bad(format!("sim run {path} --pcap h9={host}"));
    has(&refused, ["no such port; write the names of a link"]);
    let (code, _, err) = common::run(format!("sim run {path} --pcap h0=/proc/nowhere/it"));
    assert_eq!(code, 1);
    has(&err, ["cannot write /proc/nowhere/it"]);
    let (code, _, err) = common::run(format!("sim run {path} --pcap h0=/dev/full"));
    assert_eq!(code, 1);
    has(&err, ["cannot write /dev/full: No space left on device"]);
    assert_eq!(
        fs::read_dir(directory.path()).unwrap().count(),
        3,
        "no drafts"
    );
}

/// On a full disk there are either all of the results or none.
#[test]
fn a_full_disk_leaves_nothing_behind() {
    let (directory, path) = file(SMALL);
    let disk = directory.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mut refused = 0;
    for size in ["4k", "16k", "40k", "64k", "4m"] {
        let script = format!(
            "mount -t tmpfs -o size={size} none {disk} || exit 9; {program} sim run {path} -o {disk}/out; \
             echo $?; ls -A {disk}; ls {disk}/out/summary.json",
            disk = disk.display(),
            program = env!("CARGO_BIN_EXE_ferroce"),
        );
        let unshare = Command::new("unshare")
            .args(["-Urm", "sh", "-c", &script])
            .output();
        let output = match unshare {
            Ok(output) if output.status.code() != Some(9) && !output.stdout.is_empty() => output,
            _ => {
                return skip(
                    "a_full_disk_leaves_nothing_behind",
                    "no user namespaces here",
                );
            }
        };
        let (_, out, err) = said(output);
        if out.contains("\n1\n") || out.starts_with("1\n") {
            refused += 1;
            assert!(out.ends_with("1\n"), "something was left behind: {out}");
            has(&err, ["No space left on device", "cannot write"]);
        } else {
            assert!(
                out.contains("0\nout\n") && out.ends_with("summary.json\n"),
                "{size}: {out}{err}"
            );
        }
    }
    assert!((3..5).contains(&refused), "{refused} of 5");
}

#[test]
fn the_report_opens() {
    let (directory, path) = file(SMALL);
    let out = directory.path().join("out");
    good(format!("sim run {path} -o {}", out.to_str().unwrap()));
    let page = out.join("report.html");
    let html = fs::read_to_string(&page).unwrap();
    for absent in ["http:", "https:", "<script", "url("] {
        let html = html.replace("http://www.w3.org/2000/svg", "");
        assert!(
            !html.contains(absent),
            "{absent}: the page needs nothing else"
        );
    }
    assert!(html.contains("in&lt;cast") && !html.contains("in<cast"));
    assert!(
        !html.contains("NaN") && !html.contains("inf"),
        "all numbers are some"
    );
    let plots = html.matches("<svg ").count();
    assert_eq!(
        plots, 6,
        "timeline, throughput, queues, rates, sizes, waits"
    );
    assert_balanced(&html);
    let Some(shown) = in_browser(&page) else {
        return skip("the_report_opens", "in a browser: no Chromium here");
    };
    assert_eq!(shown.matches("<svg ").count(), plots);
    assert!(shown.contains("The whole fabric"));
}

/// Every element is closed in order, except for those without an end tag.
fn assert_balanced(html: &str) {
    let mut open = Vec::new();
    for tag in html.split('<').skip(1) {
        let name: String = tag.chars().take_while(|c| !" >\n".contains(*c)).collect();
        let is_closed = tag.split('>').next().unwrap().ends_with('/');
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop().as_deref(), Some(name)),
            None if name == "!DOCTYPE" || name == "meta" || is_closed => {}
            None => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

/// The page as rendered by a browser, if there is one.
fn in_browser(page: &Path) -> Option<String> {
    let profile = tempfile::tempdir().unwrap();
    for browser in ["chromium", "chromium-browser", "google-chrome"] {
        let output = Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(page)
            .output();
        if let Ok(output) = output
            && output.status.success()
        {
            return Some(String::from_utf8(output.stdout).unwrap());
        }
    }
    None
}

#[test]
fn the_list_and_the_schema_are_what_they_say() {
    let list = good_json("sim list -j");
    let list = list["scenarios"].as_array().unwrap();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .join("scenarios");
    let mut files: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|it| {
            it.unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    files.sort();
    let mut names: Vec<_> = list
        .iter()
        .map(|it| it["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, files, "every file is built in");
    let schema = good("sim schema");
    serde_json::from_str::<Value>(&schema).unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(page.join("docs/scenario.schema.json")).unwrap();
    assert!(
        page == schema,
        "run ferroce sim schema > docs/scenario.schema.json"
    );
}

#[test]
fn an_interrupted_run_keeps_its_results() {
    let long = SMALL
        .replace("256KiB", "60GiB")
        .replace("ecn = { kmin = '5KB', kmax = '50KB', pmax = '50%' }", "");
    let (directory, path) = file(&long);
    let out = directory.path().join("out");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ferroce"))
        .args(["sim", "run", &path, "-o"])
        .arg(&out)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It handles signals before it prints its warning.
    let mut warning = String::new();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    err.read_line(&mut warning).unwrap();
    has(&warning, ["no switch marks"]);
    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let text = String::from_utf8(output.stdout).unwrap();
    has(&text, ["interrupted after"]);
    let summary = fs::read_to_string(out.join("summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["ended"], "interrupted");
}

/// The summary of a built-in scenario.
fn summary(name: &str) -> Value {
    let (code, out, err) = run(format!("sim run {name} -j"));
    assert_eq!(code, 0, "{name}: {err}");
    assert!(!err.contains("simulated"), "progress in a log: {err}");
    serde_json::from_str(&out).unwrap()
}

fn fate(summary: &Value) -> &str {
    summary["jobs"][0]["fate"].as_str().unwrap()
}

/// The time of the first job, milliseconds.
fn took_ms(summary: &Value) -> f64 {
    summary["jobs"][0]["time_ns"].as_f64().unwrap() / 1e6
}

fn total(summary: &Value, of: &str) -> u64 {
    summary["totals"][of].as_u64().unwrap()
}

/// Within a tenth: the answers are rounded, and engines change.
#[track_caller]
fn about(value: f64, stated: f64) {
    assert!(
        (value / stated - 1.0).abs() < 0.1,
        "{value}, and the file says {stated}"
    );
}

#[test]
fn answers_about_outages_are_what_the_files_say() {
    let flap = summary("flap-all-reduce");
    assert_eq!(fate(&flap), "finished");
    about(took_ms(&flap), 310.0);
    let plain = summary("flap-plain-timeouts");
    assert_eq!(fate(&plain), "finished");
    about(took_ms(&plain), 537.0);
    let outage = summary("outage-too-long");
    assert_eq!(outage["jobs"][0]["cause"], "IBV_WC_RETRY_EXC_ERR");
    about(took_ms(&outage), 2_148.0);
    let reboot = summary("switch-reboot");
    assert_eq!(fate(&reboot), "finished");
    about(took_ms(&reboot), 65.0);
    let bond = summary("bond-leaf-reboot");
    assert_eq!(fate(&bond), "finished");
    about(took_ms(&bond), 264.0);
    let degraded = summary("degraded-link");
    let slower = took_ms(&degraded) / (degraded["jobs"][0]["ideal_ns"].as_f64().unwrap() / 1e6);
    assert!((8.0..11.0).contains(&slower), "{slower} times");
    let ring = summary("ring-collisions");
    about(took_ms(&ring), 8.1);
    about(ring["jobs"][0]["ideal_ns"].as_f64().unwrap() / 1e6, 3.3);
    assert_eq!(ring["jobs"][0]["spread"]["sharing"], 3);
}

#[test]
fn answers_about_hosts_are_what_the_files_say() {
    let storage = summary("storage-failover");
    assert_eq!(fate(&storage), "finished");
    about(took_ms(&storage), 6_240.0);
    assert_eq!(
        storage["jobs"][0]["failures"], 9,
        "three clients, three times each"
    );
    assert_eq!(storage["jobs"][1]["timeouts"], 0);
    let reset = summary("nic-reset");
    assert_eq!(reset["jobs"][0]["cause"], "IBV_WC_WR_FLUSH_ERR");
    about(took_ms(&reset), 0.2);
    let silent = summary("silent-host");
    assert_eq!(silent["jobs"][0]["cause"], "IBV_WC_RETRY_EXC_ERR");
    about(took_ms(&silent), 8_590.0);
}

#[test]
fn answers_about_timeouts_are_what_the_files_say() {
    let (short, long) = (summary("loss-timeout-8"), summary("loss-timeout-19"));
    for it in [&short, &long] {
        assert_eq!(fate(it), "finished");
        assert_eq!(total(it, "timeouts"), 18);
    }
    about(took_ms(&short), 39.6);
    about(took_ms(&long), 36_500.0);
    let spurious = summary("spurious-profile");
    assert_eq!(fate(&spurious), "finished");
    let lost = [
        "dropped_full",
        "dropped_lossless",
        "lost",
        "lost_down",
        "corrupted",
    ];
    assert_eq!(lost.map(|of| total(&spurious, of)), [0; 5]);
    assert!(total(&spurious, "timeouts") > 1_000);
    let share = total(&spurious, "retransmitted") as f64 / total(&spurious, "packets") as f64;
    assert!((0.05..0.12).contains(&share), "{share} is sent again");
    assert_eq!(
        total(&spurious, "spurious"),
        total(&spurious, "retransmitted")
    );
    let counted = total(&spurious, "spurious_counted") as f64;
    about(counted / total(&spurious, "spurious") as f64, 0.21);
}

#[test]
fn answers_about_congestion_are_what_the_files_say() {
    let lossless = summary("incast-pfc");
    assert_eq!(
        total(&lossless, "dropped_full") + total(&lossless, "dropped_lossless"),
        0
    );
    assert!(total(&lossless, "pauses") > 0);
    about(
        took_ms(&lossless),
        lossless["jobs"][0]["ideal_ns"].as_f64().unwrap() / 1e6,
    );
    let lossy = summary("incast-lossy");
    assert!(total(&lossy, "dropped_full") > 1_000);
    about(took_ms(&lossy), 67.0);
    let selective = summary("incast-selective");
    about(took_ms(&selective), 11.4);
    assert_eq!(
        total(&selective, "dropped_full"),
        total(&selective, "retransmitted")
    );
    let name = "slow-and-flapping";
    let hashed = summary(name);
    about(took_ms(&hashed), 48.0);
    assert_eq!(total(&hashed, "timeouts"), 37);
    let routed = "--set switch.routing=adaptive --set device.adaptive_routing=true";
    let routed = summary(&format!("{name} {routed}"));
    about(took_ms(&routed), 22.4);
    assert_eq!(total(&routed, "timeouts"), 0);
    let rails = summary("nccl-rails");
    about(took_ms(&rails), 0.337);
    about(rails["jobs"][0]["ideal_ns"].as_f64().unwrap() / 1e6, 0.332);
    assert_eq!(
        (total(&rails, "lost_down"), total(&rails, "timeouts")),
        (0, 0)
    );
    let (defaults, tuned) = (summary("dcqcn-defaults"), summary("dcqcn-barre"));
    about(took_ms(&defaults), 11.2);
    about(took_ms(&tuned), 12.2);
    let per_flow = "dcqcn-defaults --set device.dcqcn.ROCE_CC_CNP_MODERATION=2";
    let per_flow = summary(per_flow);
    about(took_ms(&per_flow), 12.1);
    assert_eq!(total(&per_flow, "pauses"), 0);
    let assumptions = |it: &Value| it["assumptions"].as_array().unwrap().len();
    assert_eq!([&defaults, &per_flow].map(assumptions), [1, 0]);
    let queue = |it: &Value| it["worst_queue"]["bytes"].as_u64().unwrap();
    assert!(queue(&tuned) * 3 < queue(&defaults));
    assert!(total(&defaults, "pauses") > 0);
    assert_eq!(total(&tuned, "pauses"), 0);
}
