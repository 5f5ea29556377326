//! Traces as JSON, as Chakra's feeder reads them.

use serde::Deserialize;

use super::node::RawNode;

#[derive(Deserialize)]
struct Document {
    workload_graph: Vec<JsonNode>,
}

/// A node; keys that say nothing about messages or time are left out.
#[derive(Deserialize)]
struct JsonNode {
    #[serde(rename = "Id", alias = "id")]
    id: u64,
    #[serde(rename = "Name", alias = "name", default)]
    name: String,
    #[serde(rename = "NodeType", alias = "type")]
    kind: u64,
    #[serde(default)]
    data_deps: Vec<u64>,
    #[serde(alias = "ctrlDeps", default)]
    ctrl_deps: Vec<u64>,
    #[serde(alias = "duration_micros", default)]
    runtime: u64,
    comm_type: Option<u64>,
    comm_size: Option<u64>,
    comm_src: Option<u64>,
    comm_dst: Option<u64>,
    comm_tag: Option<u64>,
    num_ops: Option<u64>,
    pg_name: Option<String>,
}

/// The nodes of a trace, of which there are `nodes_max` at most.
pub(super) fn read(file: &[u8], nodes_max: usize) -> Result<Vec<RawNode>, String> {
    let document: Document = serde_json::from_slice(file)
        .map_err(|error| format!("{error}; must be an object with a workload_graph"))?;
    let nodes = document.workload_graph;
    if nodes.len() > nodes_max {
        return Err("too many nodes for a simulation; use fewer ranks".into());
    }
    let raw = |it: JsonNode| RawNode {
        id: it.id,
        name: it.name,
        kind: it.kind,
        deps: [it.ctrl_deps, it.data_deps].concat(),
        duration_micros: it.runtime,
        comm_type: it.comm_type,
        comm_size: it.comm_size,
        comm_src: it.comm_src,
        comm_dst: it.comm_dst,
        comm_tag: it.comm_tag,
        num_ops: it.num_ops,
        group: it.pg_name,
        ..RawNode::default()
    };
    Ok(nodes.into_iter().map(raw).collect())
}
