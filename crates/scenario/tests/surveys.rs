//! Topologies from what other tools write about a fabric.

use ferroce_fabric::topology::CableSpec;
use ferroce_fabric::{Rate, Span, Topology};
use ferroce_scenario::Scenario;
use ferroce_scenario::survey::{Survey, SurveyFile, SurveyOptions, Tool};
use proptest::prelude::*;

const INFINIBAND: &str = include_str!("../../../docs/examples/fabrics/ibnetdiscover.txt");
const LAB: &str = include_str!("../../../docs/examples/fabrics/lab.clab.yml");
const LLDP: &[(&str, &str)] = &[
    (
        "lldp/leaf1.json",
        include_str!("../../../docs/examples/fabrics/lldp/leaf1.json"),
    ),
    (
        "lldp/leaf2.json",
        include_str!("../../../docs/examples/fabrics/lldp/leaf2.json"),
    ),
    (
        "lldp/spine1.json",
        include_str!("../../../docs/examples/fabrics/lldp/spine1.json"),
    ),
    (
        "lldp/gpu1.json",
        include_str!("../../../docs/examples/fabrics/lldp/gpu1.json"),
    ),
];

fn options() -> SurveyOptions {
    let cable = |mbps| CableSpec::new(Rate::from_mbps(mbps), Span::from_micros(1));
    SurveyOptions {
        hosts: Vec::new(),
        switches: Vec::new(),
        left_out: Vec::new(),
        pairing: None,
        host_cable: cable(25_000),
        fabric_cable: cable(100_000),
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|it| String::from(*it)).collect()
}

fn read(tool: Tool, text: &str) -> Result<Survey, String> {
    read_with(tool, text, &options())
}

fn read_with(tool: Tool, text: &str, options: &SurveyOptions) -> Result<Survey, String> {
    let files = [SurveyFile { name: "file", text }];
    Survey::read(tool, &files, options).map_err(|error| error.to_string())
}

/// The example with one change.
fn changed(tool: Tool, text: &str, from: &str, to: &str) -> Result<Survey, String> {
    assert!(text.contains(from), "{from}");
    read(tool, &text.replacen(from, to, 1))
}

fn lldp(files: &[(&str, &str)]) -> Result<Survey, String> {
    let files: Vec<_> = files
        .iter()
        .map(|(name, text)| SurveyFile { name, text })
        .collect();
    let options = SurveyOptions {
        left_out: words(&["mgmt1"]),
        ..options()
    };
    Survey::read(Tool::Lldp, &files, &options).map_err(|error| error.to_string())
}

/// Each cable as `node:port-node:port Mb/s`, in order.
fn cables(topology: &Topology) -> Vec<String> {
    let all = topology.cables.iter().enumerate();
    let mut cables: Vec<_> = all
        .map(|(at, cable)| {
            let mut ends = [0, 1].map(|end| topology.port_name(at, end));
            ends.sort();
            format!("{} {}", ends.join("-"), cable.rate.bps() / 1_000_000)
        })
        .collect();
    cables.sort();
    cables
}

fn notices(survey: &Survey) -> Vec<String> {
    survey.notices.iter().map(ToString::to_string).collect()
}

#[test]
fn an_infiniband_fabric_has_its_names_ports_and_rates() {
    let survey = read(Tool::IbNetDiscover, INFINIBAND).unwrap();
    let topology = &survey.topology;
    assert_eq!(topology.hosts, 8);
    assert_eq!(topology.names[..2], ["node1", "node2"]);
    assert_eq!(topology.names[8..], ["leaf1", "leaf2", "spine1", "spine2"]);
    let cables = cables(topology);
    assert_eq!(cables.len(), 16);
    assert!(cables.contains(&"leaf1:1-node1:1 200000".into()));
    assert!(cables.contains(&"leaf2:36-spine2:4 100000".into()));
    assert_eq!(
        notices(&survey),
        ["file:60: 2 aggregation nodes are left out"]
    );
}

#[test]
fn each_link_speed_has_its_data_rate() {
    let rate = |speed: &str| {
        let text = INFINIBAND.replace("lid 11 4xHDR", &format!("lid 11 {speed}"));
        let text = text.replace("lid 2 4xHDR", &format!("lid 2 {speed}"));
        let survey = read(Tool::IbNetDiscover, &text).unwrap();
        survey.topology.cables[0].rate.bps() / 1_000_000
    };
    let rates = [
        ("1xSDR", 2_000),
        ("4xDDR", 16_000),
        ("4xQDR", 32_000),
        ("4xFDR10", 40_000),
        ("4xFDR", 54_544),
        ("4xEDR", 100_000),
        ("4xNDR", 400_000),
        ("4xXDR", 800_000),
        ("8xXDR", 1_600_000),
        ("12xHDR", 600_000),
        ("4xHDR s=4 w=2 v=4", 200_000),
    ];
    for (speed, mbps) in rates {
        assert_eq!(rate(speed), mbps, "{speed}");
    }
    // What is not known has the rate of the options.
    assert_eq!(rate("4xZDR"), 25_000);
}

#[test]
fn unknown_lines_and_fields_are_told_once_with_a_count() {
    let text = INFINIBAND
        .replace("devid=", "devicetype=7\ndevid=")
        .replacen("Switch\t41", "ibwarn: something\nSwitch\t41", 1)
        .replacen("lid 11 4xHDR", "lid 11 4xHDR fec=1", 1);
    let survey = read(Tool::IbNetDiscover, &text).unwrap();
    assert_eq!(
        notices(&survey),
        [
            "file:7: unknown field \"devicetype\", which is ignored, 14 times",
            "file:11: unknown line \"ibwarn:\", which is ignored",
            "file:13: unknown link width or speed \"fec=1\", which is ignored",
            "file:66: 2 aggregation nodes are left out"
        ]
    );
}

#[test]
fn contradicting_infiniband_files_are_refused_on_their_line() {
    let error =
        |from: &str, to: &str| changed(Tool::IbNetDiscover, INFINIBAND, from, to).unwrap_err();
    let leaf = "\"S-b83fd20300c00040\"";
    assert_eq!(
        error(
            "[34]\t\"S-b83fd20300c000c0\"[2]",
            "[99]\t\"S-b83fd20300c000c0\"[2]"
        ),
        "file:16: invalid port \"99\": must be an integer from 1 to 41"
    );
    assert_eq!(
        error(
            "[34]\t\"S-b83fd20300c000c0\"[2]",
            "[34]\t\"S-b83fd20300c000c0\"[77]"
        ),
        "file:16: port 34 leads to port 77 of S-b83fd20300c000c0, which has ports 1 to 41; run ibnetdiscover again"
    );
    assert_eq!(
        error(
            "[34]\t\"S-b83fd20300c000c0\"[2]",
            "[34]\t\"S-0000000000000001\"[2]"
        ),
        "file:16: port 34 leads to S-0000000000000001, which the file does not have: must be a node with a section \
         of its own; run ibnetdiscover again"
    );
    assert_eq!(
        error(
            "[34]\t\"S-b83fd20300c000c0\"[2]",
            "[34]\t\"S-b83fd20300c00040\"[35]"
        ),
        "file:16: S-b83fd20300c00040:34 leads to S-b83fd20300c00040:35, which is the same node; connect it to \
         another one or leave it out"
    );
    assert_eq!(
        error(
            "[34]\t\"S-b83fd20300c000c0\"[2]",
            "[34]\t\"S-b83fd20300c000c0\"[1]"
        ),
        "file:16: S-b83fd20300c00040:34 leads to S-b83fd20300c000c0:1, but S-b83fd20300c000c0:1 leads to \
         S-b83fd20300c00040:33 on line 15; a port has one link: correct one of them"
    );
    let missing = format!("[2]\t{leaf}[34]\t\t# \"MF0;leaf1:MQM8700/U1\" lid 2 4xHDR\n");
    assert_eq!(
        error(&missing, ""),
        "file:16: S-b83fd20300c00040:34 leads to S-b83fd20300c000c0:2, but the section of S-b83fd20300c000c0 has no \
         such port; run ibnetdiscover again"
    );
    assert_eq!(
        error(
            "Switch\t41 \"S-b83fd20300c00080\"",
            "Switch\t41 \"S-b83fd20300c00040\""
        ),
        "file:24: S-b83fd20300c00040 is there twice, first on line 10; remove one"
    );
    assert_eq!(
        error(
            "[1]\t\"H-b83fd20300a00010\"[1]",
            "[1]\t\"H-b83fd20300a00010\""
        ),
        "file:11: invalid line of a port \"[1]\t\"H-b83fd20300a00010\"(b83fd20300a0001...\": must be [PORT], the node at \
         the other end in quotes, and its [PORT]"
    );
    assert!(
        read(Tool::IbNetDiscover, "SW 4 1 0x01 4x EDR\n")
            .unwrap_err()
            .starts_with("file: has no line that begins with Switch or Ca; write it with `ibnetdiscover > FILE`")
    );
}

/// A card with two ports, a server with two cards, switches without names, and a chassis.
const CARDS: &str = r#"
sysimgguid=0x1
Switch 36 "S-0000000000000001" # "SwitchIB Mellanox Technologies" base port 0 lid 1 lmc 0
[1] "H-00000000000000a0"[1](a0) # "dual HCA-1" lid 1 4xEDR
[2] "H-00000000000000b0"[1](b0) # "server mlx5_0" lid 1 4xEDR
[3][ext 7] "S-0000000000000003"[1] # "MF0;core:MCS7520/L13/U1" lid 1 4xEDR
sysimgguid=0x2
Switch 36 "S-0000000000000002" # "SwitchIB Mellanox Technologies" base port 0 lid 2 lmc 0
[1] "H-00000000000000a0"[2](a1) # "dual HCA-1" lid 1 4xEDR
[2] "H-00000000000000b1"[1](b1) # "server mlx5_1" lid 1 4xEDR
[3] "S-0000000000000004"[1] # "MF0;core:MCS7520/S01/U1" lid 1 4xEDR
Chassis 1 (guid 0x3)
sysimgguid=0x3		# Chassis 1
Switch 36 "S-0000000000000003" # "MF0;core:MCS7520/L13/U1" base port 0 lid 3 lmc 0
[1] "S-0000000000000001"[3][ext 7] # "SwitchIB Mellanox Technologies" lid 1 4xEDR
[2] "S-0000000000000004"[2] # "MF0;core:MCS7520/S01/U1" lid 1 4xEDR
sysimgguid=0x3
Switch 36 "S-0000000000000004" # "MF0;core:MCS7520/S01/U1" base port 0 lid 4 lmc 0
[1] "S-0000000000000002"[3] # "SwitchIB Mellanox Technologies" lid 2 4xEDR
[2] "S-0000000000000003"[2] # "MF0;core:MCS7520/L13/U1" lid 2 4xEDR
Non-Chassis Nodes
sysimgguid=0xa0
Ca 2 "H-00000000000000a0" # "dual HCA-1"
[1](a0) "S-0000000000000001"[1] # lid 1 lmc 0 "SwitchIB Mellanox Technologies" lid 1 4xEDR
[2](a1) "S-0000000000000002"[1] # lid 1 lmc 0 "SwitchIB Mellanox Technologies" lid 2 4xEDR
sysimgguid=0xb0
Ca 1 "H-00000000000000b0" # "server mlx5_0"
[1](b0) "S-0000000000000001"[2] # lid 1 lmc 0 "SwitchIB Mellanox Technologies" lid 1 4xEDR
sysimgguid=0xb0
Ca 1 "H-00000000000000b1" # "server mlx5_1"
[1](b1) "S-0000000000000002"[2] # lid 1 lmc 0 "SwitchIB Mellanox Technologies" lid 2 4xEDR
Rt 1 "R-00000000000000c0" # "router"
"#;

#[test]
fn ports_and_cards_are_hosts_of_their_own_or_share_one() {
    let alone = read(Tool::IbNetDiscover, CARDS).unwrap();
    assert_eq!(
        alone.topology.names,
        [
            "dual-1",
            "dual-2",
            "server_mlx5_0",
            "server_mlx5_1",
            "SwitchIB-0000000000000001",
            "SwitchIB-0000000000000002",
            "core-L13-U1",
            "core-S01-U1"
        ]
    );
    assert_eq!(notices(&alone), ["file:32: 1 router is left out"]);
    let options = SurveyOptions {
        pairing: Some(ferroce_device::Pairing::Bond),
        ..options()
    };
    let paired = read_with(Tool::IbNetDiscover, CARDS, &options).unwrap();
    assert_eq!(paired.topology.names[..2], ["dual", "server"]);
    assert_eq!(
        (paired.topology.hosts, paired.topology.cables.len()),
        (2, 7)
    );
    assert_eq!(paired.topology.check(), Ok(()));
}

#[test]
fn a_lab_has_hosts_switches_and_labels() {
    let survey = read(Tool::Containerlab, LAB).unwrap();
    assert_eq!(survey.topology.hosts, 4);
    assert_eq!(
        survey.topology.names,
        ["h1", "h2", "h3", "h4", "leaf1", "leaf2", "spine1"]
    );
    assert_eq!(
        cables(&survey.topology),
        [
            "h1:eth1-leaf1:e1-1 25000",
            "h2:eth1-leaf1:e1-2 25000",
            "h3:eth1-leaf2:e1-1 25000",
            "h4:eth1-leaf2:e1-2 25000",
            "leaf1:e1-49-spine1:e1-1 100000",
            "leaf2:e1-49-spine1:e1-2 40000"
        ]
    );
    assert_eq!(survey.topology.cables[4].delay, Span::from_nanos(500));
    assert_eq!(
        notices(&survey),
        [
            "file:23: prometheus has no link and is left out",
            "file:25: unknown field \"position\" of a node, which is ignored",
            "file:39: a link of type host leads out of the lab and is left out"
        ]
    );
}

/// Routers of kind linux: what has more links than hosts may have forwards.
#[test]
fn linux_nodes_with_several_links_forward_unless_hosts_have_two() {
    let lab = "topology:\n  groups: {r: {kind: linux}}\n  nodes:\n    r1: {group: r}\n    r2: {group: r}\n    \
               pc1: {kind: linux}\n    pc2: {kind: linux}\n  links:\n  - endpoints: [pc1:eth1, r1:eth1]\n  \
               - endpoints: [pc2:eth1, r2:eth1]\n  - endpoints: [pc1:eth2, r2:eth2]\n  - endpoints: [r1:eth3, r2:eth3]\n  \
               - endpoints: [pc2:eth2, r1:eth2]\n";
    let alone = read(Tool::Containerlab, lab).unwrap_err();
    assert_eq!(
        alone,
        "file: invalid hosts 0: must be 1 to 65536; name the hosts in host_names"
    );
    let with = |change: &dyn Fn(&mut SurveyOptions)| {
        let mut options = options();
        change(&mut options);
        read_with(Tool::Containerlab, lab, &options)
    };
    let bond = with(&|it| it.pairing = Some(ferroce_device::Pairing::Bond)).unwrap();
    assert_eq!(bond.topology.names, ["pc1", "pc2", "r1", "r2"]);
    assert_eq!(bond.topology.hosts, 2);
    let named = with(&|it| it.hosts = words(&["pc*"])).unwrap();
    assert_eq!(
        named.topology.names[..4],
        ["pc1-eth1", "pc1-eth2", "pc2-eth1", "pc2-eth2"]
    );
    let without = with(&|it| it.left_out = words(&["pc1:eth2", "*:eth2"])).unwrap();
    assert_eq!(
        (without.topology.hosts, without.topology.cables.len()),
        (2, 3)
    );
}

#[test]
fn mistakes_in_labs_are_refused_on_their_line() {
    let error = |from: &str, to: &str| changed(Tool::Containerlab, LAB, from, to).unwrap_err();
    assert_eq!(
        error("\"leaf1:e1-1\"]", "\"leaf3:e1-1\"]"),
        "file:28: a link to the unknown node \"leaf3\"; did you mean leaf1?"
    );
    assert_eq!(
        error("\"leaf1:e1-1\"]", "\"leaf1\"]"),
        "file:28: invalid endpoint \"leaf1\": must be a node and its interface, for example \"leaf1:e1-1\""
    );
    assert_eq!(
        error("\"leaf1:e1-1\"]", "\"leaf1:e1-2\"]"),
        "file:29: h2:eth1 leads to leaf1:e1-2, but leaf1:e1-2 leads to h1:eth1 on line 28; a port has one link: \
         correct one of them"
    );
    assert_eq!(
        error("\"leaf1:e1-1\"]", "\"leaf1:e1-1\", \"h2:eth9\"]"),
        "file:28: a link with 3 endpoints: must have 2, for example endpoints: [\"leaf1:e1-1\", \"h1:eth1\"]"
    );
    assert_eq!(
        error("rate: 40Gbit", "rate: 40"),
        "file:38: invalid rate \"40\" of a link: must be a rate in bit, kbit, Mbit or Gbit a second, from 1Mbit to \
         4294967295Mbit, for example 2.5Gbit"
    );
    assert_eq!(
        error(
            "[\"leaf1:e1-49\", \"spine1:e1-1\"]",
            "[\"leaf1:e1-49\", \"leaf1:e1-48\"]"
        ),
        "file:32: leaf1:e1-49 leads to leaf1:e1-48, which is the same node; connect it to another one or leave it out"
    );
    assert_eq!(
        error(
            "    - endpoints: [\"leaf1:e1-49\", \"spine1:e1-1\"]\n      labels: {rate: 100Gbit, delay: 500ns}\n",
            ""
        ),
        "file: no path from h1 to h3: add a cable that connects them; a node that was taken for a host and forwards \
         belongs in switch_names, one that does not belong to the fabric in leave_out"
    );
    assert_eq!(
        read(Tool::Containerlab, "nodes: {}\n").unwrap_err(),
        "file: has no topology; a containerlab file has topology.nodes and topology.links"
    );
    let options = SurveyOptions {
        hosts: words(&["prom*"]),
        ..options()
    };
    assert_eq!(
        read_with(Tool::Containerlab, LAB, &options).unwrap_err(),
        "file:23: host prometheus has no link; connect it to a switch or add it to leave_out"
    );
}

#[test]
fn neighbours_that_see_each_other_are_one_link() {
    let survey = lldp(LLDP).unwrap();
    assert_eq!(
        survey.topology.names,
        ["gpu1", "gpu2", "gpu3", "gpu4", "leaf1", "leaf2", "spine1"]
    );
    assert_eq!(survey.topology.hosts, 4);
    assert_eq!(
        cables(&survey.topology),
        [
            "gpu1:ens1f0np0-leaf1:Ethernet0 100000",
            "gpu2:ens1f0np0-leaf1:Ethernet4 100000",
            "gpu3:ens1f0np0-leaf2:Ethernet0 100000",
            "gpu4:ens1f0np0-leaf2:Ethernet4 100000",
            "leaf1:Ethernet48-spine1:Ethernet0 100000",
            "leaf2:Ethernet48-spine1:Ethernet4 100000"
        ]
    );
    assert_eq!(notices(&survey), [] as [&str; 0]);
}

/// The other form of lldpcli's JSON, and several systems in one file.
#[test]
fn json0_and_bundles_say_the_same() {
    let interface = |name: &str, peer: &str, port: &str| {
        format!(
            r#"{{"name": "{name}", "via": "LLDP", "chassis": [{{"id": [{{"type": "mac", "value": "02:00:00:00:00:01"}}],
            "name": [{{"value": "{peer}"}}], "capability": [{{"type": "Station", "enabled": true}}]}}],
            "port": [{{"id": [{{"type": "ifname", "value": "{port}"}}], "shine": [{{"value": "x"}}]}}]}}"#
        )
    };
    let bundle = format!(
        r#"{{"tor": {{"lldp": [{{"interface": [{}, {}, {{"name": "swp9", "via": "CDPv2"}}]}}]}}}}"#,
        interface("swp1", "h1", "eth0"),
        interface("swp2", "h2.example.com", "eth1")
    );
    let survey = lldp(&[("all.json", &bundle)]).unwrap();
    assert_eq!(
        cables(&survey.topology),
        ["h1:eth0-tor:swp1 25000", "h2:eth1-tor:swp2 25000"]
    );
    assert_eq!(
        notices(&survey),
        [
            "all.json:3: unknown field \"shine\" of a port, which is ignored, 2 times",
            "all.json:5: neighbour found by CDPv2, which is ignored"
        ]
    );
}

#[test]
fn neighbours_that_contradict_each_other_are_refused() {
    let with = |name: &str, from: &str, to: &str| {
        let mut files: Vec<(&str, String)> = LLDP
            .iter()
            .map(|(name, text)| (*name, (*text).to_owned()))
            .collect();
        for (file, text) in &mut files {
            if *file == name {
                assert!(text.contains(from), "{from}");
                *text = text.replacen(from, to, 1);
            }
        }
        let files: Vec<_> = files
            .iter()
            .map(|(name, text)| (*name, text.as_str()))
            .collect();
        lldp(&files).unwrap_err()
    };
    assert_eq!(
        with("lldp/gpu1.json", "\"Ethernet0\"", "\"Ethernet4\""),
        "lldp/leaf1.json:50: leaf1:Ethernet0 leads to gpu1:ens1f0np0, but that leads to leaf1:Ethernet4 on \
         lldp/gpu1.json:4; correct one of the files, or run lldpcli on both again"
    );
    assert_eq!(
        with("lldp/spine1.json", "\"leaf1\": {", "\"leaf9\": {"),
        "lldp/leaf1.json:150: leaf1:Ethernet48 leads to spine1:Ethernet0, but that leads to leaf9:etp13 on \
         lldp/spine1.json:50; correct one of the files, or run lldpcli on both again"
    );
    let other = LLDP[3]
        .1
        .replace("ens1f0np0", "ens9")
        .replace("\"Ethernet0\"", "\"swp1\"");
    assert_eq!(
        lldp(&[LLDP[0], LLDP[1], LLDP[2], ("lldp/gpu1.json", &other)]).unwrap_err(),
        "lldp/leaf1.json:50: leaf1:Ethernet0 leads to ens1f0np0 of gpu1, whose file has no such interface: it has \
         ens9; run lldpcli on both again, or add one of them to leave_out"
    );
    assert_eq!(
        with("lldp/leaf2.json", "\"Ethernet4\": {", "\"Ethernet0\": {"),
        "lldp/leaf2.json:100: leaf2:Ethernet0 has two neighbours, gpu3.example.com and gpu4.example.com; add the one \
         that is not on the link to leave_out"
    );
    assert_eq!(
        lldp(&[("x.json", "{\"local-chassis\": {}}")]).unwrap_err(),
        "x.json: has no \"lldp\"; write it with `lldpcli show neighbors -f json > HOSTNAME.json`"
    );
    assert!(
        lldp(&[("x.json", "{\"lldp\": {\n")])
            .unwrap_err()
            .starts_with("x.json:"),
    );
}

#[test]
fn scenarios_name_links_by_their_ports() {
    let text = include_str!("../../../docs/examples/fabrics/infiniband.toml");
    let mut resolve = |_: &str| Ok(INFINIBAND.into());
    let scenario = Scenario::parse(text, &mut resolve).unwrap();
    assert_eq!(scenario.faults[0].what, "leaf1:33-spine1:1 down");
    let port = |name| {
        scenario.port(name).map(|(cable, end)| {
            ferroce_scenario::results::line_name(&scenario.topology, cable, end)
        })
    };
    assert_eq!(port("spine1:2").as_deref(), Ok("spine1:2-leaf1"));
    assert_eq!(port("leaf1:34-spine1").as_deref(), Ok("leaf1:34-spine1"));
    assert_eq!(port("node3").as_deref(), Ok("node3:1-leaf1"));
    assert_eq!(
        port("leaf1-spine1").unwrap_err(),
        "parallel links are numbered leaf1-spine1#0 to leaf1-spine1#1"
    );
    assert!(port("leaf1:99").unwrap_err().starts_with("no such port"));
    let found = scenario.check();
    let notice = found
        .iter()
        .find(|it| it.text.starts_with("ibnetdiscover.txt:"));
    assert_eq!(notice.and_then(|it| it.line), Some(5));
}

/// A directory is listed, and its files are read.
#[test]
fn a_directory_has_a_file_for_each_system() {
    let text = include_str!("../../../docs/examples/fabrics/lldp.toml");
    let read = |name: &str| match name {
        "lldp/" => Ok(LLDP
            .iter()
            .map(|(name, _)| format!("{}\n", name.trim_start_matches("lldp/")))
            .collect()),
        _ => {
            let file = LLDP.iter().find(|(known, _)| *known == name);
            file.map(|(_, text)| (*text).to_owned())
                .ok_or_else(|| "No such file".to_owned())
        }
    };
    let mut resolve = |name: &str| read(name).map(String::into_bytes);
    let scenario = Scenario::parse(text, &mut resolve).unwrap();
    assert_eq!(scenario.topology.hosts, 4);
    let mut empty = |_: &str| Ok(Vec::new());
    let error = Scenario::parse(text, &mut empty).unwrap_err();
    assert_eq!(
        error.problems[0].text,
        "topology.file: lldp/ has no files; write one for each system"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever happens to a file, it is a topology that can be simulated, or is refused on a line that it has.
    #[test]
    fn damaged_files_are_read_or_refused(
        which in 0..3_usize,
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0..40_usize, "[\\PC\n\t\"\\[\\]{}:#-]{0,6}"), 1..6),
    ) {
        let (tool, text) = [
            (Tool::IbNetDiscover, INFINIBAND),
            (Tool::Containerlab, LAB),
            (Tool::Lldp, LLDP[0].1),
        ][which];
        let mut text: Vec<char> = text.chars().collect();
        for (at, length, new) in cuts {
            let from = at.index(text.len() + 1);
            let to = (from + length).min(text.len());
            text.splice(from..to, new.chars());
        }
        let text: String = text.into_iter().collect();
        let files = [SurveyFile { name: "a.json", text: &text }];
        match Survey::read(tool, &files, &options()) {
            Ok(survey) => prop_assert_eq!(survey.topology.check(), Ok(())),
            Err(error) => {
                prop_assert!(!error.text.is_empty());
                let lines = text.lines().count().max(1) + 1;
                prop_assert!(error.line.is_none_or(|line| (1..=lines).contains(&line)), "{}", error);
            }
        }
    }
}
