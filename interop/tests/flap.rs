//! The dashboard while links flap: each of its queries, sent to a real Prometheus meanwhile.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ferroce_interop::chart::{self, Kind, Panel};
use ferroce_interop::lab::{Lab, Ready, Running, free_port, until};
use ferroce_interop::prometheus::{Prometheus, Series, dashboards};
use serde_json::Value;

/// Queries of the dashboard that have an answer only in case of a problem that does not occur here.
const ONLY_IN_TROUBLE: [&str; 1] = ["ferroce_silent_processes"];

/// Prometheus scrapes more often.
const GAP_S: f64 = 0.5;

/// Flaps under each policy.
const FLAPS: f64 = 3.0;

/// Links flap under the firmware's own timeouts, and then under a profile. With
/// `FERROCE_DRAW=FILE`, the picture of docs/outages.md is written.
#[test]
fn every_query_answers_while_links_flap() {
    let lab = Lab::new("flap");
    let metrics = free_port();
    let exporter = lab.ferroce(format!("serve --metrics 127.0.0.1:{metrics}"));
    let exporter = Ready::Tcp(metrics).wait(&lab, exporter);
    let prometheus = Prometheus::start(&lab, metrics);
    let traffic = traffic(&lab);
    let payload = "rate(node_infiniband_port_data_transmitted_bytes_total[2s]) > 0";
    until("traffic", || prometheus.value(payload));

    let began = now();
    let downed = || prometheus.value("node_infiniband_link_downed_total");
    thread::sleep(Duration::from_secs(2));
    flap(&lab);
    until("the flaps", || downed().filter(|it| *it == FLAPS));
    let still = "node_infiniband_state_id == 4";
    until("the port to be up", || prometheus.value(still));
    thread::sleep(Duration::from_secs(2));
    lab.ferroce("adp apply link-flap -d fr0").success();
    flap(&lab);
    until("the flaps again", || {
        downed().filter(|it| *it == 2.0 * FLAPS)
    });
    for policy in ["firmware", "profile"] {
        let query = format!("ferroce_timeouts_{policy}_total > 0");
        until(&query, || prometheus.value(&query));
    }
    until("the port to be up again", || prometheus.value(still));
    thread::sleep(Duration::from_secs(2));
    let over = now();

    lab.ferroce("impair set fr0 duplicate=1%").success();
    lab.ferroce("fault add reg_mr=EIO").success();
    for query in dashboard_queries() {
        let mut answer = prometheus
            .query(&query)
            .unwrap_or_else(|error| panic!("{query}: {error}"));
        if ONLY_IN_TROUBLE.iter().any(|it| query.contains(it)) {
            continue;
        }
        // A new label needs a second sample.
        until(&query, || {
            answer = prometheus.query(&query).ok()?;
            (!answer.is_empty()).then_some(())
        });
    }
    for (rule, query) in rule_queries(&prometheus) {
        let answer = prometheus.query(&query);
        let answer = answer.unwrap_or_else(|error| panic!("{rule}: {error}"));
        assert!(!answer.is_empty(), "{rule}: {query}");
    }
    let fires = "ALERTS{alertname=\"RdmaLinkFlaps\",alertstate=\"firing\"}";
    until(fires, || prometheus.value(fires));
    // A late sample is left out of an answer.
    let working = "sum(ferroce_queue_pairs{state=~\"RTR|RTS\"}) == 2";
    until(working, || prometheus.value(working));
    let applied = "ferroce_adp_profile_info{policy=\"profile\",profile=\"link-flap\"}";
    assert_eq!(prometheus.value(applied), Some(1.0));
    if let Some(file) = drawn() {
        draw(&prometheus, Path::new(&file), (began, over));
    }
    other_bins_are_seen(&lab, &prometheus);
    traffic.into_iter().for_each(Running::kill);
    prometheus.kill();
    exporter.kill();
}

/// Two programs that send to each other until they are ended.
fn traffic(lab: &Lab) -> [Running; 2] {
    let tcp = free_port();
    let port = tcp.to_string();
    let server = format!("ib_write_bw -s 65536 -t 4 -u 20 -D 3600 -F -p {port}");
    let client = format!("{server} 127.0.0.1");
    let server = Ready::Tcp(tcp).wait(lab, lab.run(&server));
    [server, lab.run(&client)]
}

/// Takes the port down [`FLAPS`] times; for longer, if a picture is drawn.
fn flap(lab: &Lab) {
    let lengths = if drawn().is_some() {
        "2s/7s"
    } else {
        "300ms/2s"
    };
    lab.ferroce(format!("link set fr0 flap {FLAPS}x {lengths}"))
        .success();
}

/// The file for the picture, if one is requested.
fn drawn() -> Option<OsString> {
    std::env::var_os("FERROCE_DRAW")
}

fn now() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("after 1970").as_secs_f64()
}

/// A query as Grafana sends it, with all instances and devices selected.
fn asked(expr: &str) -> String {
    expr.replace("$instance", ".*")
        .replace("$device", ".*")
        .replace("$__rate_interval", "1s")
        .replace("$__interval", "1s")
}

/// The queries of all panels of all dashboards.
fn dashboard_queries() -> BTreeSet<String> {
    let mut queries = BTreeSet::new();
    for entry in fs::read_dir(dashboards()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let dashboard: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        for panel in dashboard["panels"].as_array().unwrap() {
            let targets = panel["targets"].as_array().unwrap();
            queries.extend(targets.iter().map(|it| asked(it["expr"].as_str().unwrap())));
        }
    }
    assert!(queries.len() > 50, "{queries:?}");
    queries
}

/// Names and queries of all rules that Prometheus has loaded; of alerts, the side compared with a
/// bound.
fn rule_queries(prometheus: &Prometheus) -> Vec<(String, String)> {
    let answer: Value = serde_json::from_str(&prometheus.get("/api/v1/rules")).unwrap();
    let groups = answer["data"]["groups"].as_array().unwrap();
    let rules = groups.iter().flat_map(|it| it["rules"].as_array().unwrap());
    let text = |rule: &Value, key: &str| rule[key].as_str().unwrap().to_owned();
    let rules: Vec<_> = rules
        .inspect(|rule| assert_eq!(rule["health"], "ok", "{rule}"))
        .map(|rule| {
            let query = text(rule, "query");
            let query = match rule["type"] == "alerting" {
                true => left_side(&query).to_owned(),
                false => query,
            };
            (text(rule, "name"), query)
        })
        .collect();
    assert!(rules.len() > 10, "{rules:?}");
    rules
}

/// The side of an alert that is compared with a bound; it has an answer even if the alert does not
/// fire.
fn left_side(query: &str) -> &str {
    let mut depth = 0;
    for (at, c) in query.char_indices() {
        match c {
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' => depth -= 1,
            '<' | '>' | '=' if depth == 0 => return query[..at].trim(),
            _ => {}
        }
    }
    query
}

/// After a change of bins, no quantile mixes old and new ones, and the change is visible.
fn other_bins_are_seen(lab: &Lab, prometheus: &Prometheus) {
    let quantile = "device:ferroce_adp_retx_wait_seconds:p99";
    until(quantile, || prometheus.value(quantile));
    let set = "stat hist set fr0 -u msec -n 4 -b0 5 -t 0";
    lab.ferroce(set).success();
    until("a quantile to go", || {
        prometheus.value(quantile).is_none().then_some(())
    });
    let changes = "changes(ferroce_adp_retx_wait_layout_changes_total[5m])";
    assert_eq!(until(changes, || prometheus.value(changes)), 1.0);
}

/// Draws panels of the dashboard from Prometheus's answers.
fn draw(prometheus: &Prometheus, file: &Path, (from, to): (f64, f64)) {
    let path = dashboards().join("ferroce.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let panel = |title: &str, shown: &str, scale: f64, kind: Kind| {
        let panel = panels.iter().find(|it| it["title"] == title).unwrap();
        let mut lines = Vec::new();
        for target in panel["targets"].as_array().unwrap() {
            let query = asked(target["expr"].as_str().unwrap());
            for series in prometheus.range(&query, (from, to), 0.2).unwrap() {
                let points = series.points.iter().filter(|point| point.1.is_finite());
                let points: Vec<_> = points
                    .map(|(at, value)| (at - from, value * scale))
                    .collect();
                if kind != Kind::Lines || points.iter().any(|point| point.1 > 0.0) {
                    lines.push((
                        legend(target["legendFormat"].as_str().unwrap(), &series),
                        points,
                    ));
                }
            }
        }
        Panel {
            title: shown.to_owned(),
            lines,
            kind,
        }
    };
    let drawn = [
        panel("Port", "Port: green is up, red is down", 1.0, Kind::Port),
        panel("In force", "In force", 1.0, Kind::Present),
        panel("Payload", "Payload, Gb/s", 1e-9, Kind::Lines),
        panel(
            "Timeouts by policy",
            "Timeouts by policy, per second",
            1.0,
            Kind::Lines,
        ),
        panel(
            "How long they wait",
            "How long they wait, ms",
            1e3,
            Kind::Lines,
        ),
        panel("Link flaps", "Link flaps within 1 s", 1.0, Kind::Lines),
    ];
    fs::write(file, chart::svg(&drawn, to - from, GAP_S).unwrap()).unwrap();
}

fn legend(format: &str, series: &Series) -> String {
    let mut text = format.to_owned();
    for name in series.labels.keys() {
        text = text.replace(&format!("{{{{{name}}}}}"), series.label(name));
    }
    // Labels that the series does not have.
    while let (Some(start), Some(end)) = (text.find("{{"), text.find("}}")) {
        text.replace_range(start..end + 2, "");
    }
    text.trim_end().to_owned()
}
