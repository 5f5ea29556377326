//! A real Prometheus scrapes `ferroce serve` while packets are lost, and evaluates our rules.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use ferroce_interop::http;
use ferroce_interop::lab::{Lab, Ready, free_port, until};
use ferroce_interop::prometheus::{Prometheus, dashboards};
use ferroce_testing::has;
use serde_json::Value;

#[test]
fn prometheus_sees_what_the_device_has_counted() {
    let lab = Lab::new("prometheus");
    let metrics = free_port();
    let exporter = lab.ferroce(format!("serve --metrics 127.0.0.1:{metrics}"));
    let exporter = Ready::Tcp(metrics).wait(&lab, exporter);

    // One message at a time: no packet behind a lost one reveals the loss, so its timer expires.
    let tcp = free_port().to_string();
    let transfer = format!("ib_write_bw -s 64 -t 1 -n 200 -F -p {tcp}");
    let client = format!("{transfer} 127.0.0.1");
    lab.ferroce("impair set fr0 loss=10%").success();
    lab.pair(&transfer, Ready::Tcp(tcp.parse().unwrap()), &client);
    lab.ferroce("impair set fr0 none").success();

    let prometheus = Prometheus::start(&lab, metrics);
    let stat: Value = serde_json::from_str(&lab.ferroce("stat show -j").success()).unwrap();
    let counted = |name: &str| stat["devices"][0]["counters"][name].as_f64().unwrap();
    let retransmissions = counted("roce_adp_retrans");
    assert!(retransmissions > 0.0, "{stat}");
    let pairs = [
        (
            "node_infiniband_roce_adp_retransmits_total",
            retransmissions,
        ),
        ("ferroce_adp_retx_wait_seconds_count", retransmissions),
        (
            "ferroce_adp_retx_wait_seconds_sum * 1e9",
            counted("roce_adp_retrans_wait_ns"),
        ),
        (
            "ferroce_retransmitted_packets_total",
            counted("retransmitted_packets"),
        ),
        ("ferroce_impair_lost_total", counted("impair_lost")),
        ("ferroce_up", 1.0),
        ("sum(ferroce_cc_enabled)", 16.0),
        ("ferroce_cc_limited_queue_pairs", 0.0),
        ("count(node_infiniband_info{firmware_version!=\"\"})", 1.0),
    ];
    for (query, expected) in pairs {
        let value = until(query, || prometheus.value(query));
        assert!(
            (value - expected).abs() <= expected * 1e-9,
            "{query} is {value}, the device says {expected}"
        );
    }
    for (le, count) in bins(&stat) {
        let query = format!("ferroce_adp_retx_wait_seconds_bucket{{le=\"{le}\"}}");
        assert_eq!(until(&query, || prometheus.value(&query)), count, "{query}");
    }
    let rules = prometheus.get("/api/v1/rules");
    has(&rules, ["RdmaQueuePairsFail"]);
    assert!(!rules.contains("\"health\":\"err\""), "{rules}");

    let page = http::get_as(metrics, "/metrics", "text/plain");
    assert!(
        page.head.contains("text/plain; version=0.0.4"),
        "{}",
        page.head
    );
    let page = page.body;
    let page_file = lab.path().join("page");
    fs::write(&page_file, &page).unwrap();
    let lint = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(fs::File::open(page_file).unwrap())
        .output()
        .expect("promtool of the package prometheus");
    let complaints = String::from_utf8_lossy(&lint.stderr);
    assert!(
        lint.status.success() && complaints.is_empty(),
        "{complaints}"
    );
    prometheus.kill();
    exporter.kill();
}

/// Cumulative counts by upper bound in seconds, of the histogram in `ferroce stat`.
fn bins(stat: &Value) -> Vec<(String, f64)> {
    let bins = stat["devices"][0]["histogram"]["bins"].as_array().unwrap();
    let mut sum = 0.0;
    let bin = |bin: &Value| {
        sum += bin["count"].as_f64().unwrap();
        let bound = bin["high_ns"].as_f64().map(|ns| ns / 1e9);
        (
            bound.map_or_else(|| "+Inf".to_owned(), |s| s.to_string()),
            sum,
        )
    };
    bins.iter().map(bin).collect()
}

#[test]
fn the_rules_do_what_they_say() {
    for args in [
        ["check", "rules", "ferroce.rules.yml"],
        ["test", "rules", "ferroce.rules.test.yml"],
    ] {
        let output = Command::new("promtool")
            .args(args)
            .current_dir(dashboards())
            .output()
            .expect("promtool of the package prometheus");
        assert!(
            output.status.success(),
            "promtool {args:?}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// Counters of Ferroce that are not on the dashboard: its panels show the same from the counters
/// that cards also have.
const NOT_ON_THE_DASHBOARD: [&str; 7] = [
    "ferroce_rdma_rx_bytes_total",
    "ferroce_rdma_rx_packets_total",
    "ferroce_rdma_tx_bytes_total",
    "ferroce_rdma_tx_packets_total",
    "ferroce_roce_adp_retrans_wait_seconds_total",
    "ferroce_rx_multicast_packets_total",
    "ferroce_tx_multicast_packets_total",
];

/// The dashboard and the rules use only metrics that exist, and every metric is on the dashboard:
/// this finds renamed and new counters.
#[test]
fn dashboard_and_rules_use_only_existing_metrics() {
    let lab = Lab::new("dashboard");
    lab.ferroce("impair set fr0 loss=1%").success();
    lab.ferroce("fault add reg_mr=EIO").success();
    let metrics = free_port();
    let exporter = lab.ferroce(format!("serve --metrics 127.0.0.1:{metrics}"));
    let exporter = Ready::Tcp(metrics).wait(&lab, exporter);
    let page = http::get(metrics, "/metrics").body;
    exporter.kill();
    let offered: BTreeSet<&str> = page
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    for file in ["ferroce.json", "ferroce.rules.yml"] {
        let text = fs::read_to_string(dashboards().join(file)).unwrap();
        if file.ends_with("json") {
            serde_json::from_str::<Value>(&text).unwrap();
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let asked: BTreeSet<&str> = text
            .split(|c| !is_name(c))
            .filter(|word| word.starts_with("node_infiniband_") || word.starts_with("ferroce_"))
            // The comment in the rules names the prefix.
            .filter(|word| !word.ends_with('_'))
            .collect();
        assert!(asked.len() > 5, "{file} asks for {asked:?}");
        let unknown: Vec<_> = asked.difference(&offered).collect();
        assert!(unknown.is_empty(), "{file} asks for {unknown:?}");
        if file.ends_with("json") {
            let is_counter = |name: &&str| name.starts_with("ferroce_") && name.ends_with("_total");
            let missing = offered.difference(&asked).copied().filter(is_counter);
            assert!(missing.eq(NOT_ON_THE_DASHBOARD), "not on the dashboard");
        }
    }
}
