//! Topologies and flow lists that other simulators wrote.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use ferroce_fabric::topology::{CableSpec, HpccTopology};
use ferroce_fabric::workload::{Chakra, TraceFile, WorkloadError};
use ferroce_fabric::{Rate, ReadError, Routes, Span, Time, Topology, Workload};
use ferroce_scenario::survey::{Survey, SurveyFile, SurveyOptions, Tool};

/// Hosts of the topologies that are looked at closely.
const HOSTS: u32 = 64;

/// Any text is a topology or is refused, on a line that it has; in one that passes its check all hosts
/// reach each other.
pub fn hpcc_topology(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let it = match HpccTopology::read(&text) {
        Ok(it) => it,
        Err(error) => return located(&text, &error),
    };
    let topology = it.topology;
    assert_eq!(it.nodes.len(), topology.names.len());
    let hosts = (0..topology.nodes()).filter_map(|node| it.nodes.get(node as usize));
    let hosts = hosts.filter(|node| topology.is_host(**node)).count();
    assert_eq!(hosts, topology.hosts as usize);
    match topology.check() {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(()) => all_reach_each_other(&topology),
    }
}

/// Any text is what a tool has written about a fabric, or is refused, on a line that it has; in what is read all
/// hosts reach each other. The first byte chooses the tool.
pub fn survey(data: &[u8]) {
    let Some((first, text)) = data.split_first() else {
        return;
    };
    let tools = [Tool::IbNetDiscover, Tool::Containerlab, Tool::Lldp];
    let tool = tools[usize::from(*first) % tools.len()];
    let text = String::from_utf8_lossy(text);
    let cable = CableSpec::new(Rate::from_mbps(100_000), Span::ZERO);
    let options = SurveyOptions {
        hosts: vec!["h*".into()],
        switches: vec!["s*".into()],
        left_out: vec!["*:eth0".into()],
        pairing: None,
        host_cable: cable,
        fabric_cable: cable,
    };
    let files = [SurveyFile {
        name: "file.json",
        text: &text,
    }];
    match Survey::read(tool, &files, &options) {
        Ok(survey) => {
            assert_eq!(survey.topology.check(), Ok(()));
            all_reach_each_other(&survey.topology);
        }
        Err(error) => {
            assert!(!error.text.is_empty());
            // A text may end in a line that has nothing.
            let lines = text.lines().count() + 1;
            assert!(error.line.is_none_or(|line| (1..=lines).contains(&line)));
        }
    }
}

fn all_reach_each_other(topology: &Topology) {
    if topology.hosts > HOSTS || topology.switches() == 0 {
        return;
    }
    let routes = Routes::new(topology, |_| true);
    for src in 0..topology.hosts {
        let hops = |dst| routes.hops(src, dst);
        assert!((0..topology.hosts).all(|dst| hops(dst).is_some()));
    }
}

/// Any text is a flow list or is refused, on a line that it has; what is read can be run.
pub fn hpcc_flows(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match Workload::from_hpcc(&text, |node| (node < HOSTS).then_some(node)) {
        Ok(workload) => assert_eq!(workload.check(star()), Ok(())),
        Err(error) => located(&text, &error),
    }
}

/// Any text is a connection matrix or is refused, on a line that it has; what is read can be run, or
/// goes in circles.
pub fn htsim_matrix(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match Workload::from_htsim(&text) {
        Ok(workload) => {
            if let Err(error) = workload.check(star()) {
                let names_hosts = matches!(error, WorkloadError::NoHost { .. });
                assert!(names_hosts || matches!(error, WorkloadError::Cycle { .. }));
            }
        }
        Err(error) => located(&text, &error),
    }
}

/// Any two files are the traces of two ranks or are refused with a reason; what is read can be run. The first two
/// bytes are the length of the first file, and the highest bit of these says that both are JSON.
pub fn chakra(data: &[u8]) {
    let Some((head, data)) = data.split_first_chunk::<2>() else {
        return;
    };
    let head = u16::from_le_bytes(*head);
    let length = usize::from(head & 0x7fff).min(data.len());
    let files = data.split_at(length);
    let mut read = |rank: u32| {
        let bytes = if rank == 0 { files.0 } else { files.1 };
        Ok(match head >> 15 {
            0 => TraceFile::Protobuf(bytes.to_vec()),
            _ => TraceFile::Json(bytes.to_vec()),
        })
    };
    let chakra = Chakra {
        hosts: vec![3, 5],
        groups: BTreeMap::from([("0".to_owned(), vec![1, 0])]),
        uses_tree: false,
        tera_ops: Some(100),
        at: Time::ZERO,
    };
    match chakra.build(&mut read) {
        Ok(workload) => assert_eq!(workload.check(star()), Ok(())),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn located(text: &str, error: &ReadError) {
    assert!(!error.message.is_empty());
    assert!((1..=text.lines().count().max(1)).contains(&error.line));
}

fn star() -> &'static Topology {
    static STAR: OnceLock<Topology> = OnceLock::new();
    STAR.get_or_init(|| {
        let cable = CableSpec::new(Rate::from_mbps(100_000), Span::ZERO);
        Topology::star(HOSTS, cable).expect("a star")
    })
}
