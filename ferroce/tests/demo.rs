//! `ferroce demo` on real sockets, each test on addresses of its own.

use std::net::UdpSocket;
use std::process::Command;

use ferroce_testing::{said, skip};
use serde_json::Value;

use crate::common::{self, Words, address, bad, has, scratch};

const FERROCE: &str = env!("CARGO_BIN_EXE_ferroce");

/// A profile whose total follows from the QP's timeout and retry count.
const QP_TOTAL: &str = "time_base = 4\nqp_total_timeout = true\ntimeout_init_low_bound = 8\n\
    [[timeout_range]]\nrange_low_bound = 8\nrange_size = 4\ntimeout_retry_num = 1\n\
    dec_mode = \"TO_LOW_BOUND\"\n";

fn addresses(test: u8) -> String {
    format!("{},{}", address(test, 1), address(test, 2))
}

/// Exit code, standard output and standard error of the program.
fn demo(args: impl Words) -> (i32, String, String) {
    let output = Command::new(FERROCE)
        .arg("demo")
        .args(args.words())
        .output()
        .unwrap();
    let (code, out, err) = said(output);
    (code.unwrap(), out, err)
}

#[track_caller]
fn demo_json(args: impl Words) -> Value {
    let (code, out, err) = demo(&args);
    let report: Value = serde_json::from_str(&out).unwrap();
    common::schema::check(&report).unwrap();
    // Other tests may keep the machine busy, and a debug build is slow.
    let expected = if report["too_busy"].is_null() { 0 } else { 3 };
    assert_eq!((code, err.as_str()), (expected, ""), "{args:?}");
    report
}

/// The keys in alphabetical order.
fn keys(value: &Value) -> Vec<&str> {
    let keys = value.as_object().unwrap().keys();
    let mut keys: Vec<_> = keys.map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

#[test]
fn a_short_demo_reports_every_policy() {
    let svg = scratch("short-demo", "");
    let report = demo_json(format!(
        "--addresses {} --bytes 2M --blackout 30ms@50% --seed 12345678901234567890 \
                            --svg {svg} -j",
        addresses(1)
    ));
    assert_eq!(
        keys(&report),
        ["configuration", "runs", "schema", "too_busy", "version"]
    );
    let configuration = &report["configuration"];
    assert_eq!(configuration["payload_bytes"], 2 << 20);
    assert_eq!(configuration["blackout"]["length_ns"], 30_000_000);
    assert_eq!(configuration["blackout"]["start_percent"], 50.0);
    assert_eq!(configuration["profile"], "profile link-flap");
    assert_eq!(configuration["timeout"], 14);
    assert_eq!(configuration["seed"], 12_345_678_901_234_567_890_u64);
    let runs = report["runs"].as_array().unwrap();
    let policies = runs.iter().map(|run| run["policy"].as_str().unwrap());
    assert!(policies.eq(["ib", "firmware", "profile"]));
    for run in runs {
        assert_eq!(
            keys(run),
            [
                "elapsed_s",
                "goodput_gbps",
                "histogram",
                "latency_max_us",
                "latency_p50_us",
                "latency_p99_us",
                "outcome",
                "payload_bytes",
                "policy",
                "retransmissions",
                "spurious",
                "stalled_s",
                "timeouts",
                "verified"
            ]
        );
        assert_eq!(run["outcome"], "ok");
        assert_eq!(run["verified"], true);
        assert_eq!(count(&run["payload_bytes"]), 2 << 20);
        let gbps = f64::from(16 << 20) / number(&run["elapsed_s"]) / 1e9;
        assert!((number(&run["goodput_gbps"]) / gbps - 1.0).abs() < 1e-6);
        let latency = |of: &str| number(&run[format!("latency_{of}_us")]);
        assert!(0.0 < latency("p50"));
        assert!(latency("p50") <= latency("p99") && latency("p99") <= latency("max"));
        // A blackout of 30 ms must be visible.
        assert!(latency("max") > 29_000.0);
        assert!(count(&run["retransmissions"]) > 0);
        check_histogram(run);
    }
    let picture = std::fs::read_to_string(&*svg).unwrap();
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
    for words in ["firmware", "Recovery", "spurious", "IBV", "NaN"] {
        let is_there = picture.contains(words);
        assert_eq!(
            is_there,
            ["firmware", "Recovery", "spurious"].contains(&words),
            "{words}"
        );
    }
}

/// Bins without gaps, the last one open, and one entry for each timeout.
fn check_histogram(run: &Value) {
    let bins = run["histogram"].as_array().unwrap();
    assert_eq!(bins[0]["low_ns"], 0);
    for pair in bins.windows(2) {
        assert_eq!(pair[0]["high_ns"], pair[1]["low_ns"]);
    }
    let (last, others) = bins.split_last().unwrap();
    assert!(last["high_ns"].is_null());
    assert!(others.iter().all(|bin| bin["high_ns"].is_u64()));
    assert!(
        bins.iter()
            .all(|bin| keys(bin) == ["count", "high_ns", "low_ns"])
    );
    let sum: u64 = bins.iter().map(|bin| count(&bin["count"])).sum();
    assert_eq!(sum, count(&run["timeouts"]));
    // The range of each policy's timers.
    let (least_ns, most_ns) = match run["policy"].as_str().unwrap() {
        "ib" => (256_000_000, 512_000_000),
        // The shortest wait, 4 ms, is as short as 0.75 of that on a card (F14), in the bin from 2 ms.
        "firmware" => (2_000_000, 1_024_000_000),
        _ => (1_000_000, 32_000_000),
    };
    for bin in bins.iter().filter(|bin| count(&bin["count"]) > 0) {
        let low = count(&bin["low_ns"]);
        assert!(low >= least_ns && low < most_ns, "{}: {bin}", run["policy"]);
    }
}

#[test]
fn the_report_for_people_has_a_row_and_a_column_for_each_policy() {
    let (code, out, err) = demo(format!(
        "--addresses {} --bytes 1M --blackout 20ms@50%",
        addresses(2)
    ));
    assert!([0, 3].contains(&code) && err.is_empty(), "{code} {err}");
    let row = |name: &str| out.lines().find(|line| line.starts_with(name));
    for name in ["ib ", "firmware ", "profile "] {
        assert!(row(name).is_some(), "{out}");
    }
    let header = row("timeouts after").unwrap();
    assert!(header.ends_with("profile"), "{out}");
    has(&out, ["seed 1\n"]);
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    // What the demo prints before that on a busy machine moves the end of the line.
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.ends_with("Every byte that arrived was right."),
        "{out}"
    );
}

#[test]
fn a_blackout_longer_than_the_total_fails_every_policy() {
    let report = demo_json([
        "--addresses",
        &addresses(3),
        "--bytes",
        "1M",
        // Sequence NAKs use up the retry count as well; only timers are wanted here.
        "--loss",
        "0",
        "--retry-cnt",
        "1",
        "--blackout",
        "1min@50%",
        "--profile",
        &scratch("total", QP_TOTAL),
        "-j",
    ]);
    for run in report["runs"].as_array().unwrap() {
        assert_eq!(run["outcome"], "IBV_WC_RETRY_EXC_ERR", "{run}");
        assert_eq!(run["verified"], true);
        assert!(
            (1..1 << 20).contains(&count(&run["payload_bytes"])),
            "{run}"
        );
        // 268 ms once under a profile, twice under the others; never the end of the blackout. Queue pairs
        // wait on while the machine does something else, which does not count as elapsed.
        let waited = number(&run["elapsed_s"]) + number(&run["stalled_s"]);
        assert!((0.25..30.0).contains(&waited), "{run}");
        assert!(count(&run["timeouts"]) > 0);
    }
}

#[test]
fn a_good_link_needs_no_timer() {
    let report = demo_json([
        "--addresses",
        &addresses(4),
        "--bytes",
        "300001",
        "--blackout",
        "0",
        "--loss",
        "0",
        // Longer than a busy machine delays the program.
        "--timeout",
        "20",
        "-j",
    ]);
    let ib = &report["runs"][0];
    assert_eq!(
        (count(&ib["timeouts"]), count(&ib["payload_bytes"])),
        (0, 300_001)
    );
}

#[test]
fn the_capture_is_whole() {
    let capture = scratch("capture", "");
    let report = demo_json(format!(
        "--addresses {} --bytes 100K --blackout 0 --pcap {capture} -j",
        addresses(5)
    ));
    let bytes = std::fs::read(&*capture).unwrap();
    let block = |at: usize| {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        (word(at), word(at + 4) as usize)
    };
    let (mut at, mut packets) = (0, 0);
    while at < bytes.len() {
        let (kind, length) = block(at);
        packets += u32::from(kind == 6);
        at += length;
    }
    assert_eq!(at, bytes.len());
    // Three times 100 KiB in packets of at most 4 KiB, and acknowledgements.
    assert!(packets > 3 * 25 * 11 / 10, "{packets}");
    assert_eq!(report["runs"].as_array().unwrap().len(), 3);
}

#[test]
fn an_address_in_use_says_what_to_do() {
    let addresses = addresses(6);
    let (taken, _) = addresses.split_once(',').unwrap();
    let _socket = UdpSocket::bind((taken, 4791)).unwrap();
    let (code, out, err) = demo(format!("--addresses {addresses} --bytes 1K"));
    assert_eq!((code, out.as_str()), (1, ""));
    let in_use = format!("{taken}:4791 is in use");
    has(&err, [&in_use, "ss -ulnp", "--addresses 127."]);
}

#[test]
fn bad_values_name_flag_value_range_and_what_to_write() {
    let bad_profile = scratch("bad", &QP_TOTAL.replace("time_base = 4", "time_base = 3"));
    let err = bad(format!("demo --profile {bad_profile}"));
    has(&err, [":1: error: time_base"]);
}

#[test]
fn the_congestion_demo_shows_how_queue_pairs_share() {
    let svg = scratch("congestion", "");
    let addresses = addresses(7);
    let args = format!(
        "--congestion --addresses {addresses} --flows 3 --bottleneck 200Mbit --time \
                900ms --svg {svg}"
    );
    let report = demo_json(format!("{args} --json"));
    assert_eq!(report["verified"], true);
    assert_eq!(
        count(&report["configuration"]["bottleneck_bps"]),
        200_000_000
    );
    assert_eq!(report["configuration"]["flows"], 3);
    assert_eq!(report["configuration"]["preset"], "paper");
    assert!(count(&report["marked"]) > 0 && count(&report["cnps"]) > 0);
    let phases = report["phases"].as_array().unwrap();
    let qps: Vec<_> = phases
        .iter()
        .map(|phase| count(&phase["queue_pairs"]))
        .collect();
    assert_eq!(qps, [1, 2, 3, 2]);
    for phase in phases {
        // Null if the machine could not carry the traffic.
        assert_eq!(phase["busy"].is_null(), phase["jain"].is_null());
        let [busy, jain] = ["busy", "jain"].map(|key| phase[key].as_f64().unwrap_or(0.0));
        assert!(busy >= 0.0 && (0.0..=1.0 + 1e-9).contains(&jain), "{phase}");
    }
    let samples = report["samples"].as_array().unwrap();
    assert!(
        samples
            .iter()
            .any(|sample| count(&sample["queue_bytes"]) > 0)
    );
    // A busy machine may count the traffic of one phase in another, but not more in all.
    let bytes = samples
        .iter()
        .flat_map(|it| it["carried_bytes"].as_array().unwrap());
    let bits = 8.0 * bytes.map(number).sum::<f64>();
    let end_s = number(&samples.last().unwrap()["at_s"]);
    assert!((1.0..=200e6 * end_s).contains(&bits), "{bits} in {end_s} s");
    let is_limited = |sample: &Value| sample["limit_bps"][0].is_u64();
    assert!(samples.iter().any(is_limited));
    let picture = std::fs::read_to_string(&*svg).unwrap();
    for part in [
        "QP 3",
        "Carried, Gb/s",
        "Limit of each QP",
        "Queue of the bottleneck",
        "Alpha",
    ] {
        assert!(picture.contains(part), "{part}");
    }

    let (code, out, _) = demo(format!("{args} --width 60"));
    assert!([0, 3].contains(&code), "{out}");
    let picture = out.lines().filter(|line| line.contains(['│', '┤', '└']));
    let widths: Vec<_> = picture.map(|line| line.chars().count()).collect();
    assert!(
        widths.len() == 20 && widths.iter().max() == Some(&60),
        "{out}"
    );
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "3 QPs WRITE",
        "queue, KB",
        "alpha",
        "Jain",
        "Every byte that arrived was right.",
    ] {
        assert!(words.contains(part), "{part}: {out}");
    }
}

#[test]
fn of_two_congestion_demos_on_the_same_addresses_one_runs() {
    let addresses = addresses(8);
    let args = format!("--congestion --time 300ms --addresses {addresses}");
    let run = || demo(&args).0;
    for _ in 0..3 {
        let codes = std::thread::scope(|scope| {
            [(); 2]
                .map(|()| scope.spawn(run))
                .map(|it| it.join().unwrap())
        });
        assert!(codes.contains(&0) || codes.contains(&3), "{codes:?}");
    }
}

#[test]
fn an_interface_that_is_down_is_an_error() {
    // In a new network namespace, the loopback interface is down.
    let output = Command::new("unshare")
        .args(["-rn", FERROCE, "demo"])
        .output();
    let (code, _, err) = said(output.expect("unshare, of util-linux"));
    if err.contains("unshare:") {
        return skip("an_interface_that_is_down_is_an_error", err.trim());
    }
    assert_eq!(code, Some(1), "{err}");
    let down = "error: lo, which has 127.0.0.1, is down";
    let up = "`ip link set dev lo up`";
    let nowhere = "belongs to no interface";
    assert!(
        (err.starts_with(down) && err.contains(up)) || err.contains(nowhere),
        "{err}"
    );
}

/// On a busy machine, the verdict is the same or missing.
#[test]
#[ignore = "ten whole demos beside busy loops; ./test soak"]
fn a_busy_machine_changes_no_verdict() {
    let over = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(order) {
                    std::hint::spin_loop();
                }
            });
        }
        let reports: Vec<Value> = (0..10)
            .map(|_| demo_json(format!("--addresses {} -j", addresses(9))))
            .collect();
        over.store(true, order);
        for report in reports {
            let runs = report["runs"].as_array().unwrap();
            for run in runs {
                assert_eq!(run["verified"], true);
                // A few may be spurious: a packet may be in the kernel when both ends have taken
                // all others.
                let spurious = count(&run["spurious"]);
                assert!(spurious <= count(&run["timeouts"]) / 4, "{run}");
            }
            let seconds: Vec<f64> = runs.iter().map(|run| number(&run["elapsed_s"])).collect();
            let is_usual = seconds[2] < seconds[1] && seconds[1] < seconds[0];
            assert!(is_usual || report["too_busy"].is_string(), "{report}");
        }
    });
}
