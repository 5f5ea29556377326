//! The workloads of clusters: NCCL's collectives, experts, pipelines, checkpoints, and traces.

use std::collections::BTreeMap;

use ferroce_base::time::{Span, Time};
use ferroce_base::toml_file::{Reader, Section};
use ferroce_fabric::workload::{
    Chakra, Checkpoint, Experts, Nccl, Pipeline, TraceFile, Workload, WorkloadError,
};

use super::super::keys::{AllReduceKind, WorkloadKind as Kind};
use super::super::topology::read_rate;
use super::KeysOf;
use crate::files::{Resolver, resolve_text};

/// Keys that these kinds need, and those that they may have.
pub(super) fn keys_of(kind: Kind) -> KeysOf {
    const BYTES: (&str, &str) = ("bytes", "\"1MiB\"");
    const GPUS: (&str, &str) = ("gpus_per_node", "8");
    const NCCL: &[&str] = &["hosts", "channels", "chunk", "nvlink", "rounds", "compute"];
    match kind {
        Kind::Experts => (&[BYTES], &["hosts", "layers", "compute", "think"]),
        Kind::Pipeline => (
            &[BYTES],
            &["hosts", "stages", "microbatches", "rounds", "compute"],
        ),
        Kind::Checkpoint => (
            &[BYTES, ("servers", "[0]"), ("interval", "\"10ms\"")],
            &["hosts", "rounds"],
        ),
        Kind::Chakra => (
            &[("file", "\"traces/train\"")],
            &["hosts", "groups", "algorithm", "tera_ops"],
        ),
        Kind::NcclAllReduce => (
            &[BYTES, GPUS],
            &[
                "hosts",
                "channels",
                "chunk",
                "nvlink",
                "rounds",
                "compute",
                "algorithm",
            ],
        ),
        _ => (&[BYTES, GPUS], NCCL),
    }
}

/// A count that is 1 unless the file says otherwise.
fn count<'t>(reader: &mut Reader<'t>, section: &Section<'t>, name: &str) -> u32 {
    count_or(reader, section, name, 1)
}

fn count_or<'t>(reader: &mut Reader<'t>, section: &Section<'t>, name: &str, otherwise: u32) -> u32 {
    let count = reader.count32(section, name, (1, u32::MAX));
    count.unwrap_or(otherwise)
}

fn span<'t>(reader: &mut Reader<'t>, section: &Section<'t>, name: &str) -> Span {
    reader.span(section, name, 0).unwrap_or(Span::ZERO)
}

fn uses_tree<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> bool {
    let algorithm = reader.word(section, "algorithm", AllReduceKind::ALL);
    algorithm == Some(AllReduceKind::Tree)
}

pub(super) fn nccl<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    kind: Kind,
    ranks: Vec<u32>,
    bytes: u64,
    at: Time,
) -> Result<Workload, WorkloadError> {
    let uses_tree = uses_tree(reader, section);
    let chunk = match kind {
        Kind::NcclBroadcast => Nccl::STEP_CHUNK,
        _ if uses_tree => Nccl::STEP_CHUNK,
        _ => Nccl::RING_CHUNK,
    };
    let gpus_per_node = count(reader, section, "gpus_per_node");
    let nccl = Nccl {
        gpus_per_node,
        channels: count_or(reader, section, "channels", gpus_per_node),
        chunk: reader
            .size(section, "chunk", (1, u64::MAX))
            .unwrap_or(chunk),
        nvlink: read_rate(reader, section, "nvlink").unwrap_or(Nccl::NVLINK),
        rounds: count(reader, section, "rounds"),
        compute: span(reader, section, "compute"),
        at,
        ..Nccl::new(ranks, bytes)
    };
    match kind {
        Kind::NcclAllGather => nccl.all_gather(),
        Kind::NcclReduceScatter => nccl.reduce_scatter(),
        Kind::NcclBroadcast => nccl.broadcast(),
        _ if uses_tree => nccl.tree_all_reduce(),
        _ => nccl.ring_all_reduce(),
    }
}

pub(super) fn experts<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    ranks: Vec<u32>,
    bytes: u64,
    at: Time,
) -> Result<Workload, WorkloadError> {
    let experts = Experts {
        ranks,
        bytes,
        layers: count(reader, section, "layers"),
        compute: span(reader, section, "compute"),
        think: span(reader, section, "think"),
        at,
    };
    experts.build()
}

pub(super) fn pipeline<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    ranks: Vec<u32>,
    bytes: u64,
    at: Time,
) -> Result<Workload, WorkloadError> {
    let pipeline = Pipeline {
        stages: count_or(reader, section, "stages", ranks.len() as u32),
        microbatches: count(reader, section, "microbatches"),
        compute: span(reader, section, "compute"),
        rounds: count(reader, section, "rounds"),
        ranks,
        bytes,
        at,
    };
    pipeline.build()
}

/// All hosts that are not servers write.
pub(super) fn checkpoint<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    mut writers: Vec<u32>,
    servers: Vec<u32>,
    bytes: u64,
    at: Time,
) -> Result<Workload, WorkloadError> {
    writers.retain(|host| !servers.contains(host));
    let checkpoint = Checkpoint {
        writers,
        servers,
        bytes,
        interval: span(reader, section, "interval"),
        rounds: count(reader, section, "rounds"),
        at,
    };
    checkpoint.build()
}

/// A rank for each host.
pub(super) fn chakra<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    hosts: Vec<u32>,
    at: Time,
    resolve: &mut Resolver<'_>,
) -> Option<Result<Workload, String>> {
    let name = reader.string(section, "file")?;
    let groups = match reader.string(section, "groups") {
        None => BTreeMap::new(),
        Some(file) => {
            let text = resolve_text(resolve, file);
            let text = text.map_err(|error| format!("cannot read {file}: {error}"));
            let groups = text.and_then(|text| {
                Chakra::read_groups(&text).map_err(|error| format!("{file}: {error}"))
            });
            match groups {
                Ok(groups) => groups,
                Err(error) => {
                    reader.bad(section, "groups", error);
                    return None;
                }
            }
        }
    };
    let ranks = hosts.len();
    let chakra = Chakra {
        hosts,
        groups,
        uses_tree: uses_tree(reader, section),
        tera_ops: reader.count32(section, "tera_ops", (1, u32::MAX)),
        at,
    };
    if trace(name, ranks, resolve).is_ok() {
        let text =
            format!("{name} has more ranks than the job has hosts, {ranks}; name more hosts");
        return Some(Err(text));
    }
    let mut read = |rank: u32| {
        trace(name, rank as usize, resolve).map_err(|error| {
            format!("{error}; a trace has a file for each of the {ranks} hosts: name as many hosts as it has ranks")
        })
    };
    let built = chakra.build(&mut read);
    Some(built.map_err(|error| format!("{name}: {error}")))
}

/// The trace of a rank, in either form.
fn trace(name: &str, rank: usize, resolve: &mut Resolver<'_>) -> Result<TraceFile, String> {
    let protobuf = format!("{name}.{rank}.et");
    match resolve(&protobuf) {
        Ok(bytes) => Ok(TraceFile::Protobuf(bytes)),
        Err(error) => match resolve(&format!("{name}.{rank}.json")) {
            Ok(bytes) => Ok(TraceFile::Json(bytes)),
            Err(_) => Err(format!("cannot read {protobuf}: {error}")),
        },
    }
}
