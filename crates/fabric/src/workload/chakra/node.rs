//! The nodes of a trace.

use std::fmt;

use ferroce_base::time::Span;

/// A node as it is in a file.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct RawNode {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) kind: u64,
    /// Nodes that it waits for, by their identifiers.
    pub(super) deps: Vec<u64>,
    pub(super) duration_micros: u64,
    pub(super) comm_type: Option<u64>,
    pub(super) comm_size: Option<u64>,
    pub(super) comm_src: Option<u64>,
    pub(super) comm_dst: Option<u64>,
    pub(super) comm_tag: Option<u64>,
    pub(super) num_ops: Option<u64>,
    /// The name of its process group.
    pub(super) group: Option<String>,
    /// Whether it takes part in all dimensions of the network.
    pub(super) is_everywhere: Option<bool>,
    /// Its inputs; those of a node of metadata may describe process groups.
    pub(super) inputs: String,
}

/// A node whose values are valid.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Node {
    pub(super) id: u64,
    pub(super) name: Box<str>,
    pub(super) task: Task,
    /// The places of the nodes that it waits for.
    pub(super) deps: Vec<u32>,
}

/// What a node does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Task {
    /// Takes time.
    Work(Span),
    /// Sends to another rank.
    Send { to: u64, tag: u64, bytes: u64 },
    /// Receives from another rank.
    Receive { from: u64, tag: u64, bytes: u64 },
    /// Takes part in a collective operation.
    Collective {
        operation: Operation,
        bytes: u64,
        group: Option<Box<str>>,
    },
}

/// A collective operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    AllReduce,
    Reduce,
    AllGather,
    Broadcast,
    AllToAll,
    ReduceScatter,
    Barrier,
}

/// The longest duration, 11 days: longer ones are a mistake, such as nanoseconds.
const MICROS_MAX: u64 = 1_000_000_000_000;
/// The most bytes of a message or collective operation.
const BYTES_MAX: u64 = super::super::plan::MESSAGE_BYTES_MAX;

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        label(f, self.id, &self.name)
    }
}

impl fmt::Display for RawNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        label(f, self.id, &self.name)
    }
}

fn label(f: &mut fmt::Formatter<'_>, id: u64, name: &str) -> fmt::Result {
    /// Names of kernels with their templates have hundreds of letters.
    const SHOWN: usize = 40;
    let shown: String = name.chars().take(SHOWN).collect();
    let dots = if shown.len() < name.len() { "..." } else { "" };
    write!(f, "node {id} ({shown}{dots})")
}

/// The nodes of a rank by their identifiers, with the places of those that each waits for.
pub(super) fn all(mut raw: Vec<RawNode>, tera_ops: Option<u32>) -> Result<Vec<Node>, String> {
    raw.sort_by_key(|it| it.id);
    if let Some(twice) = raw.windows(2).find(|it| it[0].id == it[1].id) {
        let [one, other] = twice else {
            unreachable!("windows of two")
        };
        return Err(format!(
            "{one} and {other} have the same id; number the nodes of a rank"
        ));
    }
    let ids: Vec<u64> = raw.iter().map(|it| it.id).collect();
    let node = |it: RawNode| {
        let mut deps = Vec::with_capacity(it.deps.len());
        for id in &it.deps {
            let place = ids.binary_search(id);
            let place = place.map_err(|_| {
                format!("{it} depends on node {id}, which is not in the trace; add it, or remove the dependency")
            })?;
            deps.push(place as u32);
        }
        deps.sort_unstable();
        deps.dedup();
        let task = it
            .task(tera_ops)
            .map_err(|error| format!("{it}: {error}"))?;
        Ok(Node {
            id: it.id,
            name: it.name.into(),
            task,
            deps,
        })
    };
    raw.into_iter().map(node).collect()
}

impl RawNode {
    /// What it does; numbers of types are those of the schema.
    fn task(&self, tera_ops: Option<u32>) -> Result<Task, String> {
        match self.kind {
            4 if self.duration_micros == 0 && self.num_ops.is_some_and(|ops| ops > 0) => {
                let ops = self.num_ops.unwrap_or_default();
                let tera_ops = tera_ops.filter(|it| *it > 0).ok_or(
                    "it has num_ops and no duration_micros; set tera_ops, for example tera_ops = 400",
                )?;
                // An operation of 10^12 a second takes a picosecond.
                let picos = ops / u64::from(tera_ops);
                Ok(Task::Work(Span::from_picos(
                    picos.min(MICROS_MAX * 1_000_000),
                )))
            }
            0..=4 => {
                self.within("duration_micros", self.duration_micros, (0, MICROS_MAX))?;
                Ok(Task::Work(Span::from_micros(self.duration_micros)))
            }
            5 => Ok(Task::Send {
                to: self.needed("comm_dst", self.comm_dst)?,
                tag: self.comm_tag.unwrap_or(0),
                bytes: self.bytes()?,
            }),
            6 => Ok(Task::Receive {
                from: self.needed("comm_src", self.comm_src)?,
                tag: self.comm_tag.unwrap_or(0),
                bytes: self.bytes()?,
            }),
            7 => self.collective(),
            kind => Err(format!(
                "unknown type {kind}: must be 0 to 7, as in schema 0.0.4"
            )),
        }
    }

    fn collective(&self) -> Result<Task, String> {
        let operation = match self.needed("comm_type", self.comm_type)? {
            0 => Operation::AllReduce,
            1 => Operation::Reduce,
            2 => Operation::AllGather,
            5 => Operation::Broadcast,
            6 => Operation::AllToAll,
            7 | 8 => Operation::ReduceScatter,
            9 => Operation::Barrier,
            other => {
                return Err(format!(
                    "unsupported comm_type {other}: must be 0 (all-reduce), 1 (reduce), 2 (all-gather), \
                     5 (broadcast), 6 (all-to-all), 7 or 8 (reduce-scatter) or 9 (barrier)"
                ));
            }
        };
        let group = self.group.as_deref().filter(|group| !group.is_empty());
        if group.is_none() && self.is_everywhere == Some(false) {
            return Err("involved_dim leaves out a dimension; name the ranks by pg_name".into());
        }
        let bytes = match operation {
            Operation::Barrier => 1,
            _ => self.bytes()?,
        };
        Ok(Task::Collective {
            operation,
            bytes,
            group: group.map(Into::into),
        })
    }

    fn bytes(&self) -> Result<u64, String> {
        let bytes = self.needed("comm_size", self.comm_size)?;
        self.within("comm_size", bytes, (1, BYTES_MAX))?;
        Ok(bytes)
    }

    fn needed(&self, name: &str, value: Option<u64>) -> Result<u64, String> {
        value.ok_or_else(|| format!("missing {name}; add the attribute"))
    }

    fn within(&self, name: &str, value: u64, (min, max): (u64, u64)) -> Result<(), String> {
        match (min..=max).contains(&value) {
            true => Ok(()),
            false => Err(format!("invalid {name} {value}: must be {min} to {max}")),
        }
    }
}
