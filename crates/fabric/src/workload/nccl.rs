//! Collective operations as NCCL does them: channels, rings and trees over nodes of several GPUs.
//!
//! GPUs of a node are an NVLink domain, whose hops take time and are not seen by the fabric. Each GPU has a card,
//! which is a host. A channel enters and leaves every node by the card with the channel's number, so that its
//! messages stay on one rail.
//!
//! From NCCL 2.30, for its protocol "Simple": sizes of chunks and slices (`collectives.h`, `device.h`, with a
//! buffer of 4 MiB in 8 steps), the order of rings, and the double binary tree (Sanders, Speck and Träff, "Two-tree
//! algorithms for full bandwidth broadcast, reduction and scan", 2009).

mod channel;
mod tree;

use ferroce_base::time::{Span, Time};
use ferroce_dcqcn::Rate;

use self::channel::Channel;
use super::plan::{MESSAGE_BYTES_MAX, Message, Plan, distinct, within};
use super::{Workload, WorkloadError};

/// The most GPUs of a node in [`Nccl`]: the largest NVLink domain.
pub const GPUS_MAX: u64 = 72;
/// The most channels of [`Nccl`], as in NCCL.
pub const CHANNELS_MAX: u64 = 64;
/// The least and the most bytes of a chunk.
const CHUNKS: (u64, u64) = (128, 1 << 30);

/// A collective operation of some GPUs, once or repeatedly.
///
/// A node passes on what it has received, reduced with its own share. It begins a loop over another part of the
/// buffer when it has done with the one before; chunks within a loop follow each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nccl {
    /// The cards in the order of ranks: those of the first node, those of the second, and so on.
    pub ranks: Vec<u32>,
    /// GPUs with a card each of a node, 1 to 72.
    pub gpus_per_node: u32,
    /// The size of the buffer that every rank begins or ends with, at least a byte for each rank and channel.
    pub bytes: u64,
    /// In how many equal parts it is worked on at the same time, 1 to 64.
    pub channels: u32,
    /// The most bytes of a step, 128 bytes to 1 GiB. On rings, a step is two messages unless these would be
    /// short.
    pub chunk: u64,
    /// What a GPU sends to others of its node, shared by all channels.
    pub nvlink: Rate,
    /// When the first round begins.
    pub at: Time,
    /// How often it is done; 1 or more.
    pub rounds: u32,
    /// How long a node computes between the end of a round and its part in the next.
    pub compute: Span,
}

/// What is done with the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    /// On a ring, as many times around as there are halves: one for reduce-scatter, one for all-gather.
    Ring { halves: u32 },
    /// From the first rank along the ring.
    Broadcast,
    /// Up and down two trees of nodes.
    Tree,
}

impl Nccl {
    /// The chunk of NCCL on rings with reduction or gathering: 4 of 8 steps of a buffer of 4 MiB.
    pub const RING_CHUNK: u64 = 2 << 20;
    /// The chunk of NCCL for trees and broadcast: one step.
    pub const STEP_CHUNK: u64 = 512 << 10;
    /// What a GPU with NVLink 4 sends: 18 links of 200 Gb/s.
    pub const NVLINK: Rate = Rate::from_mbps(3_600_000);

    /// One round in one channel at time zero, with a GPU for each node.
    #[must_use]
    pub const fn new(ranks: Vec<u32>, bytes: u64) -> Self {
        Self {
            ranks,
            gpus_per_node: 1,
            bytes,
            channels: 1,
            chunk: Self::RING_CHUNK,
            nvlink: Self::NVLINK,
            at: Time::ZERO,
            rounds: 1,
            compute: Span::ZERO,
        }
    }

    /// All-reduce on rings: 2(N-1) steps of N ranks.
    pub fn ring_all_reduce(&self) -> Result<Workload, WorkloadError> {
        self.build("NCCL ring all-reduce", Operation::Ring { halves: 2 })
    }

    /// All-reduce on a double binary tree of nodes, with a chain of GPUs in each. Channels with odd numbers use
    /// the second tree, in which the inner nodes of the first are leaves.
    pub fn tree_all_reduce(&self) -> Result<Workload, WorkloadError> {
        self.build("NCCL tree all-reduce", Operation::Tree)
    }

    /// All-gather on rings: N-1 steps of N ranks. `bytes` is the size of what is gathered.
    pub fn all_gather(&self) -> Result<Workload, WorkloadError> {
        self.build("NCCL all-gather", Operation::Ring { halves: 1 })
    }

    /// Reduce-scatter on rings: N-1 steps of N ranks.
    pub fn reduce_scatter(&self) -> Result<Workload, WorkloadError> {
        self.build("NCCL reduce-scatter", Operation::Ring { halves: 1 })
    }

    /// Broadcast from the first rank along rings.
    pub fn broadcast(&self) -> Result<Workload, WorkloadError> {
        self.build("NCCL broadcast", Operation::Broadcast)
    }

    /// How many nodes there are.
    fn nodes(&self) -> u32 {
        self.ranks.len() as u32 / self.gpus_per_node
    }

    fn check(&self) -> Result<(), WorkloadError> {
        distinct("ranks", &self.ranks, 2)?;
        let ranks = self.ranks.len() as u64;
        within("gpus_per_node", self.gpus_per_node.into(), 1, GPUS_MAX)?;
        let gpus = u64::from(self.gpus_per_node);
        if !ranks.is_multiple_of(gpus) || ranks == gpus {
            return Err(WorkloadError::Field {
                field: "number of ranks",
                value: ranks.to_string(),
                allowed: format!(
                    "a multiple of gpus_per_node, for 2 nodes or more: {}",
                    2 * gpus
                ),
            });
        }
        within("channels", self.channels.into(), 1, CHANNELS_MAX)?;
        within("chunk", self.chunk, CHUNKS.0, CHUNKS.1)?;
        within("rounds", self.rounds.into(), 1, u32::MAX.into())?;
        let bytes_min = ranks * u64::from(self.channels);
        within("bytes", self.bytes, bytes_min, MESSAGE_BYTES_MAX)
    }

    /// The fewest messages that it can take.
    fn messages_min(&self, operation: Operation) -> u128 {
        let (ranks, nodes) = (self.ranks.len() as u64, u64::from(self.nodes()));
        let of_channel = self.bytes / u64::from(self.channels);
        let each = match operation {
            Operation::Ring { halves } => {
                let loops = of_channel.div_ceil(ranks * self.chunk);
                u128::from(loops) * u128::from(u64::from(halves) * (ranks - 1) * nodes)
            }
            Operation::Broadcast => u128::from(of_channel.div_ceil(self.chunk) * (nodes - 1)),
            Operation::Tree => u128::from(of_channel.div_ceil(self.chunk) * 2 * (nodes - 1)),
        };
        each * u128::from(self.channels) * u128::from(self.rounds)
    }

    fn build(&self, job: &str, operation: Operation) -> Result<Workload, WorkloadError> {
        self.check()?;
        let mut plan = Plan::at_least(job, self.messages_min(operation))?;
        // What each node waits for before it begins.
        let mut gates: Vec<Option<Message>> = vec![None; self.nodes() as usize];
        for round in 1..=self.rounds {
            let mut ends = vec![Vec::new(); gates.len()];
            for number in 0..self.channels {
                let mut channel = Channel::new(self, number, gates.clone());
                match operation {
                    Operation::Ring { halves } => channel.ring(&mut plan, halves)?,
                    Operation::Broadcast => channel.broadcast(&mut plan)?,
                    Operation::Tree => channel.tree(&mut plan)?,
                }
                for (all, of_channel) in ends.iter_mut().zip(channel.into_ends()) {
                    all.extend(of_channel);
                }
            }
            if round == self.rounds {
                break;
            }
            let first_cards = self.ranks.iter().step_by(self.gpus_per_node as usize);
            for ((gate, ends), card) in gates.iter_mut().zip(ends).zip(first_cards) {
                *gate = Some(plan.work(*card, self.at, self.compute, &ends)?);
            }
        }
        Ok(plan.finish())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::workload::Transfer;

    /// Messages, without work.
    fn messages(workload: &Workload) -> impl Iterator<Item = &Transfer> {
        workload.transfers.iter().filter(|it| !it.is_work())
    }

    /// How many bytes go from one host to another.
    fn sent(workload: &Workload) -> BTreeMap<(u32, u32), u64> {
        let mut sent = BTreeMap::new();
        for it in messages(workload) {
            *sent.entry((it.src, it.dst)).or_default() += u64::from(it.bytes);
        }
        sent
    }

    fn nodes_of(gpus_per_node: u32, nodes: u32, bytes: u64) -> Nccl {
        Nccl {
            gpus_per_node,
            channels: gpus_per_node,
            ..Nccl::new((0..gpus_per_node * nodes).collect(), bytes)
        }
    }

    #[test]
    fn rings_stay_on_their_rails() {
        // Of 12 ranks, each passes on 2 * 11 twelfths; a channel has a quarter of the buffer.
        let it = nodes_of(4, 3, 12 << 20);
        let sent = sent(&it.ring_all_reduce().unwrap());
        let ring = |node: u32, gpu: u32| (node * 4 + gpu, (node + 1) % 3 * 4 + gpu);
        let all = (0..3).flat_map(|node| (0..4).map(move |gpu| ring(node, gpu)));
        let expected = all.map(|ends| (ends, 22 * (3 << 20) / 12));
        assert_eq!(sent, expected.collect());
    }

    #[test]
    fn halves_send_half_and_broadcast_all() {
        let it = nodes_of(2, 4, 800_000);
        let of = |workload: Result<Workload, _>| sent(&workload.unwrap());
        let (gather, scatter) = (of(it.all_gather()), of(it.reduce_scatter()));
        assert_eq!(gather, scatter);
        assert!(gather.values().all(|bytes| *bytes == 7 * 400_000 / 8));
        assert_eq!(gather.len(), 8);
        // Three of four nodes pass on what each channel has.
        let broadcast = of(it.broadcast());
        assert_eq!(broadcast.len(), 6);
        assert!(broadcast.values().all(|bytes| *bytes == 400_000));
    }

    #[test]
    fn a_tree_sends_up_and_down_once() {
        let it = nodes_of(2, 5, 1_000_000);
        let workload = it.tree_all_reduce().unwrap();
        let sent = sent(&workload);
        // In each of two trees, every node but the root sends to its parent, and the parent back.
        assert_eq!(sent.len(), 2 * 2 * 4);
        for ((src, dst), bytes) in &sent {
            assert_eq!((src % 2, *bytes), (dst % 2, 500_000));
            assert_eq!(sent.get(&(*dst, *src)), Some(bytes));
        }
    }

    #[test]
    fn chunks_are_two_messages_on_rings() {
        // 2 channels, 4 ranks, chunks of 64 KiB: 256 KiB of a channel are a loop.
        let it = Nccl {
            chunk: 64 << 10,
            ..nodes_of(2, 2, 1 << 20)
        };
        let ring = it.ring_all_reduce().unwrap();
        assert!(messages(&ring).all(|it| it.bytes == 32 << 10));
        let steps = 4 * 6 / 2;
        assert_eq!(messages(&ring).count(), 2 * 2 * 2 * steps);
        let tree = it.tree_all_reduce().unwrap();
        assert!(messages(&tree).all(|it| it.bytes == 64 << 10));
    }

    #[test]
    fn every_round_waits_for_the_one_before() {
        let it = Nccl {
            rounds: 3,
            compute: Span::from_micros(7),
            ..nodes_of(2, 2, 4_000)
        };
        for workload in [it.ring_all_reduce(), it.tree_all_reduce(), it.broadcast()] {
            let workload = workload.unwrap();
            let computing = workload.transfers.iter();
            let computing = computing.filter(|it| it.is_work() && it.think == Span::from_micros(7));
            assert_eq!(computing.count(), 2 * 2);
            let waits = workload.waits();
            let once = Nccl {
                rounds: 1,
                ..it.clone()
            };
            let firsts = |it: &[u32]| it.iter().filter(|waits| **waits == 0).count();
            let alone = match workload.jobs[0].as_str() {
                "NCCL ring all-reduce" => once.ring_all_reduce(),
                "NCCL broadcast" => once.broadcast(),
                _ => once.tree_all_reduce(),
            };
            assert_eq!(firsts(&waits), firsts(&alone.unwrap().waits()));
        }
    }

    #[test]
    fn bad_parameters_are_named() {
        let error = |it: Nccl| it.ring_all_reduce().unwrap_err().to_string();
        let good = nodes_of(4, 2, 1 << 20);
        assert_eq!(
            error(Nccl {
                gpus_per_node: 8,
                ..good.clone()
            }),
            "invalid number of ranks 8: must be a multiple of gpus_per_node, for 2 nodes or more: 16"
        );
        assert_eq!(
            error(Nccl {
                channels: 0,
                ..good.clone()
            }),
            "invalid channels 0: must be 1 to 64"
        );
        assert_eq!(
            error(Nccl {
                bytes: 31,
                ..good.clone()
            }),
            "invalid bytes 31: must be 32 to 68719476736"
        );
        let endless = Nccl {
            rounds: u32::MAX,
            ..good
        };
        assert!(error(endless).contains("transfers: must be at most 134217728"));
    }
}
