//! Process groups: which ranks take part in a collective operation.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::ChakraError;
use super::node::RawNode;
use crate::workload::plan::distinct;

/// The groups of a job by name; that without a name has all ranks.
pub(super) struct Groups {
    ranks: u32,
    all: Vec<u32>,
    named: BTreeMap<String, Vec<u32>>,
}

/// A group as PyTorch describes it in a node of metadata.
#[derive(Deserialize)]
struct Described {
    pg_name: String,
    ranks: Vec<u32>,
}

/// The name of that node.
const DESCRIPTION: &str = "## process_group:init ##";
const METADATA_NODE: u64 = 1;

impl Groups {
    pub(super) fn new(named: &BTreeMap<String, Vec<u32>>, ranks: u32) -> Result<Self, ChakraError> {
        let mut groups = Self {
            ranks,
            all: (0..ranks).collect(),
            named: BTreeMap::new(),
        };
        for (name, members) in named {
            let added = groups.add(name, members);
            added.map_err(ChakraError::Groups)?;
        }
        Ok(groups)
    }

    /// Adds the groups that a node describes. Groups that are known already stay.
    pub(super) fn learn(&mut self, node: &RawNode) -> Result<(), String> {
        if node.kind != METADATA_NODE || !node.name.starts_with(DESCRIPTION) {
            return Ok(());
        }
        // A list of one string of Python, which is a list in JSON.
        let inner = node.inputs.find("[{").zip(node.inputs.rfind("}]"));
        let Some(list) = inner.and_then(|(from, to)| node.inputs.get(from..to + 2)) else {
            return Ok(());
        };
        let described: Vec<Described> = serde_json::from_str(list)
            .map_err(|error| format!("{node}: its process groups cannot be read: {error}"))?;
        for it in described {
            if !self.named.contains_key(&it.pg_name) {
                // PyTorch leaves out the ranks of the group of all.
                let members = if it.ranks.is_empty() {
                    &self.all.clone()
                } else {
                    &it.ranks
                };
                let added = self.add(&it.pg_name, members);
                added.map_err(|error| format!("{node}: {error}"))?;
            }
        }
        Ok(())
    }

    fn add(&mut self, name: &str, members: &[u32]) -> Result<(), String> {
        if let Some(unknown) = members.iter().find(|rank| **rank >= self.ranks) {
            let last = self.ranks - 1;
            return Err(format!(
                "process group {name:?}: unknown rank {unknown}: there are ranks 0 to {last}; name more hosts"
            ));
        }
        distinct("ranks", members, 1)
            .map_err(|error| format!("process group {name:?}: {error}"))?;
        self.named.insert(name.to_owned(), members.to_vec());
        Ok(())
    }

    /// The ranks of a group, in order.
    pub(super) fn members(&self, name: Option<&str>) -> Result<&[u32], String> {
        let Some(name) = name else {
            return Ok(&self.all);
        };
        self.named.get(name).map(Vec::as_slice).ok_or_else(|| {
            format!("unknown process group {name:?}; add it to a file, and name that with groups")
        })
    }
}
