//! Execution traces of MLCommons Chakra, as ASTRA-sim replays them: one file for each rank.
//!
//! Schema 0.0.4, `et_def.proto` of mlcommons/chakra. Times of computations are those of the trace. Collectives
//! become messages; the first one of a process group at a rank is the first one at the others. Differences from
//! ASTRA-sim: computations of a rank overlap unless one depends on the other, reads and writes of memory take the
//! time that the trace gives, and a broadcast or a reduction is a binary tree of messages.

mod graph;
mod groups;
mod json;
mod node;
mod proto;

use std::collections::BTreeMap;

use ferroce_base::time::Time;

use self::graph::Graph;
use self::groups::Groups;
use self::node::Node;
use super::plan::{Plan, distinct};
use super::{Workload, WorkloadError};

/// The most nodes of all ranks; they take about 4 GiB.
const NODES_MAX: usize = 1 << 24;

/// How the traces of a job's ranks are replayed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chakra {
    /// The host of each rank.
    pub hosts: Vec<u32>,
    /// The ranks of process groups, by `pg_name`; those that traces describe themselves are added.
    pub groups: BTreeMap<String, Vec<u32>>,
    /// All-reduce on a binary tree instead of a ring.
    pub uses_tree: bool,
    /// 10^12 operations a second of a GPU, for nodes with a number of operations and no duration.
    pub tera_ops: Option<u32>,
    /// When it begins.
    pub at: Time,
}

/// The trace of a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TraceFile {
    /// Messages of Protocol Buffers, each after its length: `NAME.0.et`.
    Protobuf(Vec<u8>),
    /// One JSON document with a `workload_graph`: `NAME.0.json`.
    Json(Vec<u8>),
}

/// Why traces are not a workload.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChakraError {
    /// The trace of a rank is wrong, or does not fit the others.
    #[error("rank {rank}: {text}")]
    Trace {
        /// The rank.
        rank: u32,
        /// What is wrong where, and what is expected.
        text: String,
    },
    /// The process groups are wrong.
    #[error("{0}")]
    Groups(String),
    /// The workload is too large.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
}

impl ChakraError {
    fn at(rank: u32, text: impl Into<String>) -> Self {
        let text = text.into();
        Self::Trace { rank, text }
    }
}

impl Chakra {
    /// All ranks in one job. `read` returns the trace of a rank, or why there is none.
    ///
    /// # Errors
    /// Returns an error for traces that cannot be read, that have cycles or depend on what is not there, and for
    /// sends, receives and collectives that do not fit each other; it names rank and node.
    pub fn build(
        &self,
        read: &mut dyn FnMut(u32) -> Result<TraceFile, String>,
    ) -> Result<Workload, ChakraError> {
        distinct("hosts", &self.hosts, 1)?;
        let mut groups = Groups::new(&self.groups, self.hosts.len() as u32)?;
        let mut nodes: Vec<Vec<Node>> = Vec::with_capacity(self.hosts.len());
        let mut left = NODES_MAX;
        for rank in 0..self.hosts.len() as u32 {
            let refused = |text: String| ChakraError::at(rank, text);
            let raw = match read(rank).map_err(refused)? {
                TraceFile::Protobuf(bytes) => proto::read(&bytes, left),
                TraceFile::Json(bytes) => json::read(&bytes, left),
            };
            let raw = raw.map_err(refused)?;
            left -= raw.len();
            for node in &raw {
                groups.learn(node).map_err(refused)?;
            }
            nodes.push(node::all(raw, self.tera_ops).map_err(refused)?);
        }
        let mut plan = Plan::begin("chakra");
        Graph::new(self, &nodes, &groups)?.expand(&mut plan)?;
        Ok(plan.finish())
    }

    /// Reads a file of process groups as ASTRA-sim has it: a JSON object with a list of ranks for each name.
    ///
    /// # Errors
    /// Returns an error if it is something else.
    pub fn read_groups(text: &str) -> Result<BTreeMap<String, Vec<u32>>, String> {
        serde_json::from_str(text).map_err(|error| {
            format!("{error}; must be an object of lists of ranks, for example {{\"0\": [0, 1]}}")
        })
    }
}

#[cfg(test)]
mod tests;
