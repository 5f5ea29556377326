//! Exporters read the activity of programs from files.

use std::fs;

use ferroce_interop::http;
use ferroce_interop::lab::{Lab, Ready, free_port, until};

/// Exporters know the counters of this vendor's devices by their names.
const DEVICE: &str = "mlx5_0";

#[test]
fn node_exporter_reports_real_traffic() {
    let mut lab = Lab::new("exporter");
    let device = format!("{DEVICE}@{}", lab.address());
    lab.set("FERROCE_DEVICES", &device);
    let tree = lab.path().join("state/sys");
    let tree_text = tree.to_str().unwrap();
    let watch = lab.ferroce(format!("sysfs {tree_text} --watch"));
    let port = tree.join(format!("class/infiniband/{DEVICE}/ports/1"));
    until("the tree", || port.join("state").exists().then_some(()));

    let web = free_port();
    let exporter = lab.run(format!(
        "prometheus-node-exporter --path.sysfs={tree_text} \
                            --web.listen-address=127.0.0.1:{web} --collector.disable-defaults \
                            --collector.infiniband"
    ));
    let exporter = Ready::Tcp(web).wait(&lab, exporter);
    let packets = || {
        let name = "node_infiniband_port_packets_transmitted_total";
        metric(
            &http::get(web, "/metrics").body,
            &format!("{name}{{device=\"{DEVICE}\",port=\"1\"}}"),
        )
    };
    assert_eq!(packets(), Some(0.0));

    let tcp = free_port().to_string();
    let server = format!("ibv_rc_pingpong -g 1 -n 100 -p {tcp}");
    let client = format!("{server} 127.0.0.1");
    lab.pair(&server, Ready::Tcp(tcp.parse().unwrap()), &client);

    let counters = lab.ferroce("stat -j").success();
    let counters: serde_json::Value = serde_json::from_str(&counters).unwrap();
    let sent = &counters["devices"][0]["counters"]["rdma_tx_packets"];
    // Four KiB in each direction, so at least one packet each.
    assert!(sent.as_u64() >= Some(200), "{counters}");
    until("the exporter to follow", || {
        (packets() == sent.as_f64()).then_some(())
    });
    // The tree is written file by file.
    until("the other file", || {
        let file = fs::read_to_string(port.join("hw_counters/rdma_tx_packets")).unwrap();
        (file.trim().parse().ok() == sent.as_u64()).then_some(())
    });
    offered_by_ours_too(&lab, || http::get(web, "/metrics").body);
    exporter.kill();
    watch.kill();
}

/// Everything that node_exporter reports is in Ferroce's own metrics, under the same name and, once
/// all files are written, with the same number.
fn offered_by_ours_too(lab: &Lab, told: impl Fn() -> String) {
    let web = free_port();
    let ours = lab.ferroce(format!("serve --metrics 127.0.0.1:{web}"));
    let ours = Ready::Tcp(web).wait(lab, ours);
    let of_ports = |line: &&str| line.starts_with("node_infiniband_") && line.contains("port=");
    let is_other = |page: &str, line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        metric(page, name) != value.parse().ok()
    };
    until("the same in our answer", || {
        let (told, page) = (told(), http::get(web, "/metrics").body);
        let lines: Vec<_> = told.lines().filter(of_ports).collect();
        assert!(lines.len() > 20, "{told}");
        let other = lines.into_iter().find(|line| is_other(&page, line));
        other
            .inspect(|line| eprintln!("not yet {line}"))
            .is_none()
            .then_some(())
    });
    ours.kill();
}

/// The value of a metric with its labels.
fn metric(page: &str, name: &str) -> Option<f64> {
    let line = page.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}
