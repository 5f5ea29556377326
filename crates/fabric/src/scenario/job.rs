//! `[[job]]`.

use ferroce_adp::QpTimeouts;
use ferroce_hca::QpAttr;
use ferroce_time::{Span, Time};
use toml::de::DeValue;

use super::device::Device;
use super::keys;
use super::read::{Reader, Section};
use crate::seed::sub_seed;
use crate::topology::Topology;
use crate::workload::{Collective, Workload, WorkloadError, incast, permutation};
use crate::{JobConfig, OnError};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Incast,
    Permutation,
    RingAllReduce,
    RingAllGather,
    RingReduceScatter,
}

const KINDS: &[(&str, Kind)] = &[
    ("incast", Kind::Incast),
    ("permutation", Kind::Permutation),
    ("ring-all-reduce", Kind::RingAllReduce),
    ("ring-all-gather", Kind::RingAllGather),
    ("ring-reduce-scatter", Kind::RingReduceScatter),
];

const BYTES_MAX: u64 = 1 << 50;

/// All jobs as one workload, and how each uses its connections.
pub(super) fn read<'t>(
    reader: &mut Reader<'t>,
    root: &Section<'t>,
    topology: &Topology,
    device: &Device,
    seed: u64,
) -> Option<(Workload, Vec<JobConfig>)> {
    let sections = reader.sections(root, "job", keys::JOB);
    if sections.is_empty() {
        let text = "missing [[job]]; add one with workload = \"ring-all-reduce\" and bytes = \"1MiB\", for example";
        reader.problem(None, text);
        return None;
    }
    let mut workloads = Vec::with_capacity(sections.len());
    let mut configs = Vec::with_capacity(sections.len());
    for (section, number) in sections.iter().zip(0..) {
        let seed = sub_seed(sub_seed(seed, 3), number);
        let config = config(reader, section, device);
        if let Some(mut workload) = workload(reader, section, topology, seed) {
            if let Some(name) = reader.string(section, "name") {
                workload.jobs.fill(name.to_owned());
            }
            workloads.push(workload);
            configs.push(config);
        }
    }
    let all = match Workload::merge(workloads) {
        Ok(all) => all,
        Err(error) => {
            reader.bad(root, "job", error);
            return None;
        }
    };
    if let Err(error) = all.check(topology) {
        reader.bad(root, "job", error);
    }
    Some((all, configs))
}

fn workload<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    topology: &Topology,
    seed: u64,
) -> Option<Workload> {
    for (name, example) in [("workload", "\"ring-all-reduce\""), ("bytes", "\"1MiB\"")] {
        if !section.has(name) {
            reader.missing(section, name, example);
        }
    }
    let kind = reader.word(section, "workload", KINDS);
    let bytes = reader.size(section, "bytes", (1, BYTES_MAX));
    let at = reader.span(section, "at", 0).unwrap_or(Span::ZERO);
    let at = Time::ZERO.after(at);
    let hosts = match section.has("hosts") {
        true => reader.hosts(section, "hosts", topology),
        false => Some((0..topology.hosts).collect()),
    };
    let receiver = reader.host(section, "receiver", topology);
    let (kind, bytes, hosts) = (kind?, bytes?, hosts?);
    if kind != Kind::Incast {
        reader.idle(
            section,
            &["receiver"],
            "goes with workload = \"incast\" only",
        );
    }
    let collective = ["chunks", "rounds", "compute", "think"];
    let made = match kind {
        Kind::Incast | Kind::Permutation => {
            reader.idle(section, &collective, "goes with collectives only");
            match kind {
                Kind::Incast => {
                    // Unless told, the first of the hosts receives.
                    let receiver = receiver.or(hosts.first().copied()).unwrap_or(0);
                    let senders: Vec<u32> =
                        hosts.into_iter().filter(|it| *it != receiver).collect();
                    incast(&senders, receiver, bytes, at)
                }
                _ => permutation(&hosts, bytes, at, seed),
            }
        }
        _ => {
            let mut count = |name| reader.count32(section, name, (1, u32::MAX)).unwrap_or(1);
            let (chunks, rounds) = (count("chunks"), count("rounds"));
            let mut span = |name| reader.span(section, name, 0).unwrap_or(Span::ZERO);
            let (compute, think) = (span("compute"), span("think"));
            let collective = Collective {
                at,
                chunks,
                rounds,
                compute,
                think,
                ..Collective::new(hosts, bytes)
            };
            all_of(kind, &collective)
        }
    };
    match made {
        Ok(workload) => Some(workload),
        Err(error) => {
            reader.bad(section, "workload", error);
            None
        }
    }
}

fn all_of(kind: Kind, it: &Collective) -> Result<Workload, WorkloadError> {
    match kind {
        Kind::RingAllGather => it.ring_all_gather(),
        Kind::RingReduceScatter => it.ring_reduce_scatter(),
        _ => it.ring_all_reduce(),
    }
}

/// What applies unless the file says otherwise: what collective libraries ask for.
pub(super) const QP: QpTimeouts = QpTimeouts {
    timeout: 14,
    retry_cnt: 7,
};

fn config<'t>(reader: &mut Reader<'t>, section: &Section<'t>, device: &Device) -> JobConfig {
    let mut code = |name, max, otherwise| {
        let code = reader.count8(section, name, (0, max));
        code.unwrap_or(otherwise)
    };
    let attr = QpAttr {
        path_mtu: device.mtu,
        timeout: code("timeout", 31, QP.timeout),
        retry_cnt: code("retry_cnt", 7, QP.retry_cnt),
        rnr_retry: code("rnr_retry", 7, 7),
        min_rnr_timer: code("min_rnr_timer", 31, 12),
        ..QpAttr::default()
    };
    let dscp = code("dscp", 63, 26);
    let depth = reader.count32(section, "depth", (1, 1 << 15));
    JobConfig {
        attr,
        traffic_class: dscp << 2,
        depth: depth.unwrap_or(128),
        qp_per_transfer: reader.flag(section, "qp_per_transfer") == Some(true),
        on_error: on_error(reader, section),
    }
}

fn on_error<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> OnError {
    let Some(value) = reader.value(section, "on_error") else {
        return OnError::Abort;
    };
    if let DeValue::String(word) = value.get_ref() {
        if word != "abort" {
            let must = "must be \"abort\" or { reconnect = \"1s\" }";
            reader.invalid(section, "on_error", format_args!("{word:?}"), must);
        }
        return OnError::Abort;
    }
    let table = reader.section(section, "on_error", keys::ON_ERROR);
    if table.is_there() && !table.has("reconnect") {
        reader.missing(&table, "reconnect", "\"1s\"");
    }
    match reader.span(&table, "reconnect", 0) {
        Some(after) => OnError::Reconnect(after),
        None => OnError::Abort,
    }
}
