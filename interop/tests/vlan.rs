//! tshark reads the VLAN tags of a device and of the simulated fabric.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use ferroce_fabric::Standing;
use ferroce_interop::lab::{Lab, Ready, free_port};
use ferroce_interop::tshark::fields;
use ferroce_scenario::Scenario;
use tempfile::TempDir;

const REMARKS: &str = "_ws.malformed || _ws.expert.severity >= note";

/// The VLANs and priorities of the packets that pass a filter; without a tag both are empty.
fn tags(capture: &Path, filter: &str) -> BTreeSet<Vec<String>> {
    let rows = fields(capture, filter, ["vlan.id", "vlan.priority"]);
    rows.into_iter().collect()
}

fn tag(vlan: &str, priority: &str) -> BTreeSet<Vec<String>> {
    BTreeSet::from([vec![vlan.to_owned(), priority.to_owned()]])
}

#[test]
fn data_and_cnps_of_the_fabric_have_their_own_priorities() {
    let scenario = r#"
        [topology]
        kind = "star"
        hosts = 3
        [device]
        trust = "pcp"
        vlan = 100
        [device.dcqcn]
        cnp_802p_prio = 5
        [switch]
        ecn = { kmin = "5KB", kmax = "50KB", pmax = "50%" }
        [switch.pfc]
        priorities = [3]
        [[job]]
        workload = "incast"
        bytes = "256KiB"
        sl = 3
    "#;
    let scenario = Scenario::parse(scenario, &mut |_| Err("no files".into())).unwrap();
    let mut simulation = scenario.simulation().unwrap();
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("port.pcapng");
    let (cable, end) = scenario.port("h1-switch0").unwrap();
    let file = Box::new(File::create(&path).unwrap());
    simulation.fabric.capture(cable, end, file).unwrap();
    while simulation.run(100_000).unwrap() == Standing::Running {}
    simulation.fabric.finish_captures().unwrap();

    assert!(fields(&path, REMARKS, ["frame.number"]).is_empty());
    assert_eq!(tags(&path, "infiniband.bth.opcode < 0x81"), tag("100", "3"));
    assert_eq!(
        tags(&path, "infiniband.bth.opcode == 0x81"),
        tag("100", "5")
    );
}

/// A device in a VLAN records its packets with the tag that a card would send. What arrives through
/// a socket has none, and through shared memory that of its sender.
#[test]
fn programs_service_level_is_the_priority_of_their_packets() {
    for (link, received) in [("udp", tag("", "")), ("shm", tag("100", "3"))] {
        let lab = Lab::new("vlan");
        lab.ferroce(format!("dev set fr0 link {link} vlan 100 trust pcp"))
            .success();
        let port = free_port().to_string();
        let options = format!("ib_write_bw -n 100 -S 3 -p {port}");
        let server = lab.run_with("--pcap server.pcapng", &options);
        let server = Ready::Tcp(port.parse().unwrap()).wait(&lab, server);
        lab.run(format!("{options} 127.0.0.1")).success();
        server.success();
        let path = lab.path().join("state/server.pcapng");
        assert!(
            fields(&path, REMARKS, ["frame.number"]).is_empty(),
            "{link}"
        );
        // 1 is incoming, 2 outgoing.
        let sent = tags(&path, "frame.packet_flags_direction == 2");
        assert_eq!(sent, tag("100", "3"), "{link}");
        let arrived = tags(&path, "frame.packet_flags_direction == 1");
        assert_eq!(arrived, received, "{link}");
    }
}
