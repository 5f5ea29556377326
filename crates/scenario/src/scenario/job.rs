//! `[[job]]`.

mod cluster;

use ferroce_adp::QpTimeouts;
use ferroce_base::random::mix;
use ferroce_base::time::{Span, Time};
use ferroce_base::toml_file::{Reader, Section};
use ferroce_device::QpAttr;
use ferroce_fabric::workload::{
    Cdf, Collective, Poisson, TransferGraph, Workload, incast, permutation,
};
use ferroce_fabric::{Cable, JobConfig, OnError, QPS_MAX};
use toml::de::DeValue;

use super::device::Device;
use super::keys::{self, WorkloadKind as Kind};
use super::names::{read_host, read_hosts};
use super::topology::Found;
use crate::files::{Resolver, resolve_text};

const BYTES_MAX: u64 = 1 << 50;

/// All jobs as one workload, and how each uses its connections.
pub(super) fn read<'t>(
    reader: &mut Reader<'t>,
    root: &Section<'t>,
    found: &Found,
    device: &Device,
    seed: u64,
    resolve: &mut Resolver<'_>,
) -> Option<(TransferGraph, Vec<JobConfig>)> {
    let sections = reader.sections(root, "job", keys::JOB);
    if sections.is_empty() {
        let text = "missing [[job]]; add one with workload = \"ring-all-reduce\" and bytes = \"1MiB\", \
                    for example";
        reader.problem(None, text);
        return None;
    }
    let mut workloads = Vec::with_capacity(sections.len());
    let mut configs = Vec::with_capacity(sections.len());
    for (section, number) in sections.iter().zip(0..) {
        let seed = mix(mix(seed, 3), number);
        let config = config(reader, section, device);
        if let Some(mut workload) = workload(reader, section, found, seed, resolve) {
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
    if let Err(error) = all.check(&found.topology) {
        reader.bad(root, "job", error);
        return None;
    }
    Some((all.into(), configs))
}

/// Keys that a kind needs, each with an example, and those that it may have beside `at`.
type KeysOf = (
    &'static [(&'static str, &'static str)],
    &'static [&'static str],
);

fn keys_of(kind: Kind) -> KeysOf {
    const BYTES: (&str, &str) = ("bytes", "\"1MiB\"");
    const FILE: (&str, &str) = ("file", "\"flows.txt\"");
    const COLLECTIVE: &[&str] = &["hosts", "chunks", "rounds", "compute", "think"];
    match kind {
        Kind::Incast => (&[BYTES], &["hosts", "receiver"]),
        Kind::Permutation => (&[BYTES], &["hosts"]),
        Kind::ParameterServer => (&[BYTES, ("servers", "[0]")], COLLECTIVE),
        Kind::Poisson => (
            &[
                ("sizes", "\"WebSearch\""),
                ("load", "\"30%\""),
                ("for", "\"10ms\""),
            ],
            &["hosts"],
        ),
        Kind::HpccFlows | Kind::HtsimFlows => (&[FILE], &[]),
        Kind::NcclAllReduce
        | Kind::NcclAllGather
        | Kind::NcclReduceScatter
        | Kind::NcclBroadcast
        | Kind::Experts
        | Kind::Pipeline
        | Kind::Checkpoint
        | Kind::Chakra => cluster::keys_of(kind),
        _ => (&[BYTES], COLLECTIVE),
    }
}

/// Keys that say what is sent; the others say how.
const WHAT: &[&str] = &[
    "hosts",
    "receiver",
    "servers",
    "sizes",
    "load",
    "for",
    "file",
    "bytes",
    "chunks",
    "rounds",
    "compute",
    "think",
    "gpus_per_node",
    "channels",
    "algorithm",
    "chunk",
    "nvlink",
    "layers",
    "stages",
    "microbatches",
    "interval",
    "groups",
    "tera_ops",
];

fn workload<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    found: &Found,
    seed: u64,
    resolve: &mut Resolver<'_>,
) -> Option<Workload> {
    reader.require(section, "workload", "\"ring-all-reduce\"");
    let kind = reader.word(section, "workload", Kind::ALL)?;
    let (needed, may) = keys_of(kind);
    for (name, example) in needed {
        reader.require(section, name, example);
    }
    let is_idle =
        |name: &&&str| !may.contains(*name) && !needed.iter().any(|(needed, _)| needed == *name);
    let idle: Vec<_> = WHAT.iter().filter(is_idle).copied().collect();
    reader.idle(section, &idle, "has no meaning for this workload");
    match made(reader, section, kind, found, seed, resolve)? {
        Ok(workload) => Some(workload),
        Err(error) => {
            reader.bad(section, "workload", error);
            None
        }
    }
}

/// The workload; none if a value is wrong, which has been said.
fn made<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    kind: Kind,
    found: &Found,
    seed: u64,
    resolve: &mut Resolver<'_>,
) -> Option<Result<Workload, String>> {
    let topology = &found.topology;
    let at = reader.span(section, "at", 0).unwrap_or(Span::ZERO);
    let at = Time::ZERO.after(at);
    if matches!(kind, Kind::HpccFlows | Kind::HtsimFlows) {
        let name = reader.string(section, "file")?;
        return Some(flows(name, kind, found, resolve));
    }
    let hosts = match section.has("hosts") {
        true => read_hosts(reader, section, "hosts", topology)?,
        false => (0..topology.hosts).collect(),
    };
    if kind == Kind::Poisson {
        let of_hosts = |it: &&Cable| it.ends.iter().any(|node| topology.is_host(*node));
        let of_hosts = topology.cables.iter().filter(of_hosts);
        let rates = of_hosts.map(|cable| cable.rate);
        let poisson = Poisson {
            sizes: sizes(reader, section, resolve)?,
            rate: rates.min().unwrap_or_default(),
            load: reader.probability(section, "load")?,
            at,
            duration: reader.span(section, "for", 1)?,
            seed,
            hosts,
        };
        return Some(poisson.build().map_err(|error| error.to_string()));
    }
    if kind == Kind::Chakra {
        return cluster::chakra(reader, section, hosts, at, resolve);
    }
    let bytes = reader.size(section, "bytes", (1, BYTES_MAX))?;
    let made = match kind {
        Kind::Incast => {
            let receiver = read_host(reader, section, "receiver", topology);
            if receiver.is_none() && section.has("receiver") {
                return None;
            }
            // Unless told, the first of the hosts receives.
            let receiver = receiver.or_else(|| hosts.first().copied()).unwrap_or(0);
            let senders: Vec<u32> = hosts.into_iter().filter(|it| *it != receiver).collect();
            incast(&senders, receiver, bytes, at)
        }
        Kind::Permutation => permutation(&hosts, bytes, at, seed),
        Kind::NcclAllReduce
        | Kind::NcclAllGather
        | Kind::NcclReduceScatter
        | Kind::NcclBroadcast => cluster::nccl(reader, section, kind, hosts, bytes, at),
        Kind::Experts => cluster::experts(reader, section, hosts, bytes, at),
        Kind::Pipeline => cluster::pipeline(reader, section, hosts, bytes, at),
        Kind::Checkpoint => {
            let servers = read_hosts(reader, section, "servers", topology)?;
            cluster::checkpoint(reader, section, hosts, servers, bytes, at)
        }
        _ => {
            let mut collective = Collective {
                at,
                ..Collective::new(hosts, bytes)
            };
            let mut count = |name| reader.count32(section, name, (1, u32::MAX)).unwrap_or(1);
            (collective.chunks, collective.rounds) = (count("chunks"), count("rounds"));
            let mut span = |name| reader.span(section, name, 0).unwrap_or(Span::ZERO);
            (collective.compute, collective.think) = (span("compute"), span("think"));
            match kind {
                Kind::RingAllGather => collective.ring_all_gather(),
                Kind::RingReduceScatter => collective.ring_reduce_scatter(),
                Kind::HalvingDoubling => collective.halving_doubling_all_reduce(),
                Kind::Tree => collective.tree_all_reduce(),
                Kind::AllToAll => collective.all_to_all(),
                Kind::AllToAllInShifts => collective.all_to_all_in_shifts(),
                Kind::ParameterServer => {
                    let servers = read_hosts(reader, section, "servers", topology)?;
                    collective.ranks.retain(|host| !servers.contains(host));
                    collective.parameter_server(&servers)
                }
                _ => collective.ring_all_reduce(),
            }
        }
    };
    Some(made.map_err(|error| error.to_string()))
}

/// A list of flows that another simulator reads.
fn flows(
    name: &str,
    kind: Kind,
    found: &Found,
    resolve: &mut Resolver<'_>,
) -> Result<Workload, String> {
    let text =
        resolve_text(resolve, name).map_err(|error| format!("cannot read {name}: {error}"))?;
    let read = match kind {
        Kind::HpccFlows => Workload::from_hpcc(&text, |node| found.host(node)),
        _ => Workload::from_htsim(&text),
    };
    read.map_err(|error| format!("{name}: {error}"))
}

fn sizes<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    resolve: &mut Resolver<'_>,
) -> Option<Cdf> {
    let name = reader.string(section, "sizes")?;
    if let Some(sizes) = Cdf::published(name) {
        return Some(sizes);
    }
    let all = Cdf::names().collect::<Vec<_>>().join(", ");
    let text = match resolve_text(resolve, name) {
        Ok(text) => text,
        Err(error) => {
            let must = format!("cannot be read: {error}; name a file, or one of {all}");
            reader.invalid(section, "sizes", format_args!("{name:?}"), must);
            return None;
        }
    };
    match Cdf::read(&text) {
        Ok(sizes) => Some(sizes),
        Err(error) => {
            reader.bad(section, "sizes", format_args!("{name}: {error}"));
            None
        }
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
    let (dscp, sl) = (code("dscp", 63, 26), code("sl", 7, 0));
    let depth = reader.count32(section, "depth", (1, 1 << 15));
    let qps = reader.count32(section, "qps_per_connection", (1, QPS_MAX.into()));
    let own = reader.flag(section, "qp_per_transfer") == Some(true);
    if own {
        let idle = ["qps_per_connection", "split_data"];
        reader.idle(section, &idle, "has no meaning with qp_per_transfer");
    }
    JobConfig {
        attr,
        traffic_class: dscp << 2,
        sl,
        depth: depth.unwrap_or(128),
        qp_per_transfer: own,
        qps_per_connection: qps.map_or(1, |qps| qps as u8),
        split_data: reader.flag(section, "split_data") == Some(true),
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
    if table.is_there() {
        reader.require(&table, "reconnect", "\"1s\"");
    }
    match reader.span(&table, "reconnect", 0) {
        Some(after) => OnError::Reconnect(after),
        None => OnError::Abort,
    }
}
