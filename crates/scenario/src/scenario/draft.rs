//! Scenarios of a cluster's size: from a few numbers to a file that is ready to run.

use std::fmt::Write as _;

use ferroce_base::units::{RATE, SIZE};
use ferroce_dcqcn::Rate;
use ferroce_fabric::topology::HOSTS_MAX;
use ferroce_fabric::workload::{CHANNELS_MAX, GPUS_MAX};

use super::check::headroom_needed;
use ferroce_base::time::Span;

/// What a new scenario is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draft {
    /// Servers.
    pub nodes: u32,
    /// GPUs of a server, with a card each, 1 to 72.
    pub gpus: u32,
    /// Of every cable.
    pub rate: Rate,
    /// How the cards are connected.
    pub topology: DraftTopology,
    /// What they do.
    pub job: DraftJob,
    /// Of the job's buffer or messages.
    pub bytes: u64,
}

/// How the cards of a cluster are connected, without oversubscription.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DraftTopology {
    /// Cards with the same number share a leaf.
    Rail,
    /// Cards of the same servers share a leaf.
    LeafSpine,
    /// Three tiers of equal switches.
    FatTree,
}

/// What a cluster does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DraftJob {
    /// All-reduce of all GPUs as NCCL does it.
    AllReduce,
    /// The same with all-gather.
    AllGather,
    /// The same with reduce-scatter.
    ReduceScatter,
    /// The same with broadcast.
    Broadcast,
    /// A layer of experts on all GPUs.
    Experts,
    /// A pipeline for each card of a server, with a stage on each server.
    Pipeline,
    /// All others write to the cards of the first server.
    Checkpoint,
    /// Every card sends to all others.
    AllToAll,
}

impl DraftTopology {
    /// Their names.
    pub const NAMES: &[(&str, Self)] = &[
        ("rail", Self::Rail),
        ("leaf-spine", Self::LeafSpine),
        ("fat-tree", Self::FatTree),
    ];
}

impl DraftJob {
    /// Their names.
    pub const NAMES: &[(&str, Self)] = &[
        ("all-reduce", Self::AllReduce),
        ("all-gather", Self::AllGather),
        ("reduce-scatter", Self::ReduceScatter),
        ("broadcast", Self::Broadcast),
        ("experts", Self::Experts),
        ("pipeline", Self::Pipeline),
        ("checkpoint", Self::Checkpoint),
        ("all-to-all", Self::AllToAll),
    ];

    fn name(self) -> &'static str {
        let named = Self::NAMES.iter().find(|(_, job)| *job == self);
        named.map_or("", |(name, _)| name)
    }
}

/// Ports of a switch: half of them for hosts.
const PORTS: u32 = 128;
/// One way on every cable.
const DELAY: Span = Span::from_micros(1);
/// The longest frame, with the largest MTU.
const FRAME: u64 = 4_200;

/// The size of a tree of switches.
struct Size {
    /// The keys of `[topology]`.
    keys: String,
    /// Hosts, of which the job may need fewer.
    hosts: u64,
    /// Ports of the switch with the most.
    ports: u64,
}

impl Draft {
    /// The text of the scenario, with comments.
    ///
    /// # Errors
    /// Returns an error for a cluster that is too large or too small, or a job that does not fit it.
    pub fn text(&self) -> Result<String, String> {
        let (nodes, gpus, bytes) = (self.nodes, self.gpus, self.bytes);
        let hosts = u64::from(nodes) * u64::from(gpus);
        if nodes < 2 {
            return Err(format!("invalid nodes {nodes}: must be 2 or more"));
        }
        if !(1..=GPUS_MAX).contains(&u64::from(gpus)) {
            return Err(format!("invalid gpus {gpus}: must be 1 to {GPUS_MAX}"));
        }
        let size = self.size()?;
        if size.hosts > u64::from(HOSTS_MAX) {
            return Err(format!(
                "{nodes} nodes of {gpus} need {} hosts: must be at most {HOSTS_MAX}; use fewer",
                size.hosts
            ));
        }
        if bytes < hosts * u64::from(gpus) {
            let least = hosts * u64::from(gpus);
            return Err(format!(
                "invalid bytes {bytes}: must be {least} or more for these GPUs"
            ));
        }
        let (rate, amount) = (RATE.write(self.rate.bps()), SIZE.write(bytes));
        let job = self.job.name();
        let headroom = headroom_needed(self.rate, DELAY.times(2), FRAME).div_ceil(16 << 10) * 16;
        let buffer = (2 * size.ports * headroom)
            .max(16 << 10)
            .next_power_of_two()
            >> 10;
        let mut text = String::new();
        let _ = write!(
            text,
            "title = \"{job} of {amount} on {nodes} nodes of {gpus}, {rate}\"
seed = 1
duration = \"60s\" # the run ends then at the latest

[topology]
{keys}rate = \"{rate}\"
delay = \"1us\" # of every cable, one way

[switch]
buffer = \"{buffer}MiB\" # of each switch, shared by its ports
ecn = {{ preset = \"hpcc\" }} # marks from 4 KB of queue for each Gb/s
# Headroom is what a cable of this rate and delay needs:
pfc = {{ priorities = [3], headroom = \"{headroom}KiB\" }}

[device] # the NIC of every host; its timeouts are those of the firmware
dcqcn = {{ preset = \"firmware\" }} # congestion control with the parameters of cards

[[job]]
name = \"{job}\"
",
            keys = size.keys,
        );
        text += &self.job_keys(size.hosts > hosts);
        text += "dscp = 26 # priority 3, which is never dropped
timeout = 14 # queue pairs as NCCL has them: 67 ms and more
retry_cnt = 7

# A link that flaps, to begin with:
# [[fault]]
# kind = \"link-down\"
# link = \"h0\"
# at = \"100us\"
# for = \"10ms\"
";
        Ok(aligned(&text))
    }

    fn job_keys(&self, has_spare_hosts: bool) -> String {
        let (gpus, amount) = (self.gpus, SIZE.write(self.bytes));
        let used = self.nodes * gpus;
        let hosts = match has_spare_hosts {
            true => format!("hosts = \"0-{}\" # the others are spare\n", used - 1),
            false => String::new(),
        };
        let channels = u64::from(gpus).min(CHANNELS_MAX);
        let nccl = |kind: &str| {
            format!(
                "workload = \"nccl-{kind}\"
bytes = \"{amount}\"
gpus_per_node = {gpus} # neighbouring hosts are the cards of a node
channels = {channels} # rings at the same time, one on each rail
nvlink = \"3600Gbit\" # what a GPU sends to others of its node
qps_per_connection = 1 # NCCL_IB_QPS_PER_CONNECTION
split_data = false # NCCL_IB_SPLIT_DATA_ON_QPS
"
            )
        };
        let keys = match self.job {
            DraftJob::AllReduce => nccl("all-reduce"),
            DraftJob::AllGather => nccl("all-gather"),
            DraftJob::ReduceScatter => nccl("reduce-scatter"),
            DraftJob::Broadcast => nccl("broadcast"),
            DraftJob::Experts => format!(
                "workload = \"expert-all-to-all\"
bytes = \"{amount}\" # what a rank dispatches in a layer
layers = 2
compute = \"100us\" # of the experts of a rank
think = \"100us\" # between two layers
"
            ),
            DraftJob::Pipeline => format!(
                "workload = \"pipeline\"
bytes = \"{amount}\" # activations of a microbatch
stages = {} # a node each; a pipeline for each card
microbatches = {}
compute = \"1ms\" # of a stage forward; backward takes twice as long
",
                self.nodes,
                u64::from(self.nodes) * 2
            ),
            DraftJob::Checkpoint => format!(
                "workload = \"checkpoint\"
bytes = \"{amount}\" # of each host
servers = \"0-{}\" # the cards of the first node store
interval = \"1s\"
rounds = 2
",
                gpus - 1
            ),
            DraftJob::AllToAll => format!(
                "workload = \"all-to-all-in-shifts\"
bytes = \"{amount}\" # of each rank, an equal part to each
"
            ),
        };
        keys + &hosts
    }

    fn size(&self) -> Result<Size, String> {
        let (nodes, gpus) = (self.nodes, self.gpus);
        let hosts = u64::from(nodes) * u64::from(gpus);
        match self.topology {
            DraftTopology::Rail => {
                let of_unit = nodes.min(PORTS / 2);
                let leaves = nodes.div_ceil(of_unit) * gpus;
                let (spines, cables) = spines(leaves, of_unit);
                let keys = format!(
                    "kind = \"rail-pod\" # card i of every server is on rail i
servers = {nodes}
nics = {gpus}
servers_per_unit = {of_unit} # these share their rails
spines = {spines}
cables_per_spine = {cables} # as many cables up as down
"
                );
                let ports = u64::from(2 * of_unit).max(u64::from(leaves * cables));
                Ok(Size { keys, hosts, ports })
            }
            DraftTopology::LeafSpine => {
                let most = (PORTS / 2 / gpus).max(1);
                let nodes_per_leaf = largest_divisor(nodes, most);
                let (leaves, down) = (nodes / nodes_per_leaf, nodes_per_leaf * gpus);
                let (spines, cables) = spines(leaves, down);
                let keys = format!(
                    "kind = \"leaf-spine\"
leaves = {leaves}
hosts_per_leaf = {down}
spines = {spines}
cables_per_spine = {cables} # as many cables up as down
"
                );
                let ports = u64::from(2 * down).max(u64::from(leaves * cables));
                Ok(Size { keys, hosts, ports })
            }
            DraftTopology::FatTree => {
                let of_k = |k: &u64| k * k * k / 4;
                let fits = |k: &u64| of_k(k) >= hosts;
                let k = (1..=64).map(|half| 2 * half).find(fits);
                let k = k.ok_or_else(|| {
                    let most = of_k(&128);
                    format!("{hosts} hosts: a fat-tree has at most {most}; use fewer nodes")
                })?;
                let keys = format!(
                    "kind = \"fat-tree\"
k = {k} # ports of every switch; k * k * k / 4 hosts
"
                );
                Ok(Size {
                    keys,
                    hosts: of_k(&k),
                    ports: k,
                })
            }
        }
    }
}

/// The same with comments in one column, behind the values of most lines.
fn aligned(text: &str) -> String {
    const COLUMN: usize = 32;
    let line = |line: &str| match line.split_once(" # ") {
        Some((value, comment)) => format!("{:<COLUMN$} # {comment}\n", value.trim_end()),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// Spines for leaves with `down` hosts each, and the cables from each leaf to each spine: as many up as down.
fn spines(leaves: u32, down: u32) -> (u32, u32) {
    let fits = |spines: &u32| down.is_multiple_of(*spines) && leaves * (down / spines) <= PORTS;
    let spines = (1..=down).find(fits).unwrap_or(down);
    (spines, down / spines)
}

fn largest_divisor(of: u32, most: u32) -> u32 {
    let divides = |it: &u32| of.is_multiple_of(*it);
    (1..=most.min(of)).rev().find(divides).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    const DRAFT: Draft = Draft {
        nodes: 4,
        gpus: 2,
        rate: Rate::from_mbps(400_000),
        topology: DraftTopology::Rail,
        job: DraftJob::AllReduce,
        bytes: 1 << 20,
    };

    fn parsed(draft: Draft) -> Scenario {
        let text = draft.text().unwrap();
        Scenario::parse(&text, &mut |_| Err("no files".into())).unwrap_or_else(|error| {
            let texts: Vec<_> = error.problems.iter().map(|it| &it.text).collect();
            panic!("{draft:?}: {texts:?}\n{text}")
        })
    }

    #[test]
    fn every_draft_is_a_scenario_without_warnings() {
        for (_, topology) in DraftTopology::NAMES {
            for (_, job) in DraftJob::NAMES {
                for (nodes, gpus) in [(2, 1), (3, 1), (4, 2), (6, 8), (2, 72)] {
                    for gbps in [25, 100, 400, 800] {
                        let draft = Draft {
                            nodes,
                            gpus,
                            rate: Rate::from_mbps(gbps * 1_000),
                            topology: *topology,
                            job: *job,
                            ..DRAFT
                        };
                        let scenario = parsed(draft);
                        assert!(scenario.topology.hosts >= nodes * gpus);
                        let findings = scenario.check();
                        assert!(findings.is_empty(), "{draft:?}: {findings:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn large_clusters_have_as_many_cables_up_as_down() {
        let draft = Draft {
            nodes: 128,
            gpus: 8,
            bytes: 1 << 30,
            ..DRAFT
        };
        for topology in [DraftTopology::Rail, DraftTopology::LeafSpine] {
            let text = Draft { topology, ..draft }.text().unwrap();
            let value = |key: &str| -> u32 {
                let line = text
                    .lines()
                    .find_map(|line| line.strip_prefix(&format!("{key} = ")));
                let number = line.unwrap().split(' ').next().unwrap();
                number.parse().unwrap()
            };
            assert_eq!(value("spines") * value("cables_per_spine"), 64, "{text}");
            assert_eq!(value("spines"), 8);
        }
        let text = Draft {
            topology: DraftTopology::FatTree,
            ..draft
        }
        .text()
        .unwrap();
        assert!(text.contains("k = 16 "), "{text}");
        assert!(!text.contains("spare"));
    }

    #[test]
    fn drafts_that_do_not_fit_are_refused() {
        let error = |draft: Draft| draft.text().unwrap_err();
        assert_eq!(
            error(Draft { nodes: 1, ..DRAFT }),
            "invalid nodes 1: must be 2 or more"
        );
        assert_eq!(
            error(Draft { gpus: 73, ..DRAFT }),
            "invalid gpus 73: must be 1 to 72"
        );
        assert_eq!(
            error(Draft { bytes: 15, ..DRAFT }),
            "invalid bytes 15: must be 16 or more for these GPUs"
        );
        assert_eq!(
            error(Draft {
                nodes: 40_000,
                ..DRAFT
            }),
            "40000 nodes of 2 need 80000 hosts: must be at most 65536; use fewer"
        );
    }
}
