//! Which host sends how much to which other host in each step.

use super::super::WorkloadError;
use super::super::plan::share;

/// How a collective operation is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::workload) enum Algorithm {
    /// Reduce-scatter and all-gather on a ring, one after the other.
    RingAllReduce,
    /// One of the two.
    RingHalf,
    /// Recursive halving, then recursive doubling.
    HalvingDoubling,
    /// Up a binary tree, then down.
    Tree,
    /// All messages in one step.
    AllToAll,
    /// In step s to the rank that is s + 1 further.
    Shifts,
    /// To servers, which are the first ranks, and back.
    ParameterServer {
        /// How many ranks are servers.
        servers: u32,
    },
}

/// What one rank sends to another, in ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Step {
    pub(super) src: u32,
    pub(super) dst: u32,
    pub(super) bytes: u64,
}

/// At most how much there is of it, for a chunk and a round.
pub(super) struct Shape {
    /// Messages.
    pub(super) sends: u128,
    /// Dependencies within a round.
    pub(super) waits: u128,
    /// Dependencies between a chunk of a round and one of the next.
    pub(super) carried: u128,
}

impl Algorithm {
    /// Whether this many ranks, of which there are two at least, can do it.
    pub(super) fn check(self, ranks: u32) -> Result<(), WorkloadError> {
        if self != Self::HalvingDoubling || ranks.is_power_of_two() {
            return Ok(());
        }
        Err(WorkloadError::Field {
            field: "number of ranks",
            value: ranks.to_string(),
            allowed: format!(
                "a power of two for halving-doubling, for example {}",
                ranks.next_power_of_two()
            ),
        })
    }

    pub(in crate::workload) fn steps(self, ranks: u32) -> u32 {
        match self {
            Self::RingAllReduce => 2 * (ranks - 1),
            Self::RingHalf | Self::Shifts => ranks - 1,
            Self::HalvingDoubling | Self::Tree => 2 * ranks.ilog2(),
            Self::AllToAll => 1,
            Self::ParameterServer { .. } => 2,
        }
    }

    pub(super) fn shape(self, ranks: u32) -> Shape {
        let (n, steps) = (u128::from(ranks), u128::from(self.steps(ranks)));
        let (sends, waits, carried) = match self {
            // In every step each sends once, and waits for one.
            Self::RingAllReduce | Self::RingHalf | Self::HalvingDoubling | Self::Shifts => {
                (n * steps, n * (steps - 1), n)
            }
            Self::Tree => (2 * (n - 1), 4 * (n - 1), n),
            Self::AllToAll => (n * (n - 1), 0, n * (n - 1) * (n - 1)),
            Self::ParameterServer { servers } => {
                let servers = u128::from(servers);
                let workers = n - servers;
                let pairs = servers * workers;
                (2 * pairs, pairs * workers, pairs * servers)
            }
        };
        Shape {
            sends,
            waits,
            carried,
        }
    }

    /// The largest message for a chunk of this many bytes.
    pub(super) fn message_max(self, ranks: u32, bytes: u64) -> u64 {
        match self {
            Self::RingAllReduce | Self::RingHalf | Self::AllToAll | Self::Shifts => {
                share(bytes, ranks, 0)
            }
            Self::HalvingDoubling => bytes.div_ceil(2),
            Self::Tree => bytes,
            Self::ParameterServer { servers } => share(bytes, servers, 0),
        }
    }

    /// What is sent in a step, of a chunk of this many bytes.
    pub(super) fn sends(self, step: u32, ranks: u32, bytes: u64) -> Vec<Step> {
        let all = 0..ranks;
        match self {
            Self::RingAllReduce | Self::RingHalf => {
                // Rank r begins with piece r, and passes on what it got.
                let piece = |src| (src + ranks - step % ranks) % ranks;
                let bytes = |src| share(bytes, ranks, piece(src));
                all.map(|src| Step {
                    src,
                    dst: (src + 1) % ranks,
                    bytes: bytes(src),
                })
                .collect()
            }
            Self::HalvingDoubling => all.map(|src| exchange(step, src, ranks, bytes)).collect(),
            Self::Tree => climb(step, ranks, bytes),
            Self::AllToAll => all
                .flat_map(|src| (1..ranks).map(move |shift| shifted(src, shift, ranks, bytes)))
                .collect(),
            Self::Shifts => all
                .map(|src| shifted(src, step + 1, ranks, bytes))
                .collect(),
            Self::ParameterServer { servers } => {
                let pairs = (servers..ranks).flat_map(|it| (0..servers).map(move |to| (it, to)));
                let step = |(worker, server)| {
                    let (src, dst) = if step == 0 {
                        (worker, server)
                    } else {
                        (server, worker)
                    };
                    let bytes = share(bytes, servers, server);
                    Step { src, dst, bytes }
                };
                pairs.map(step).collect()
            }
        }
    }
}

/// The piece for the rank that is `shift` further, sent there.
fn shifted(src: u32, shift: u32, ranks: u32, bytes: u64) -> Step {
    let dst = (src + shift) % ranks;
    let bytes = share(bytes, ranks, dst);
    Step { src, dst, bytes }
}

/// Halving-doubling: ranks exchange halves with one that is far off, then quarters with one that is
/// half as far, and so on; and then all of it back.
fn exchange(step: u32, src: u32, ranks: u32, bytes: u64) -> Step {
    let levels = ranks.ilog2();
    let (distance, bytes) = if step < levels {
        let distance = ranks >> (step + 1);
        // What the other one goes on with.
        (distance, kept(src ^ distance, step + 1, ranks, bytes))
    } else {
        let distance = 1 << (step - levels);
        (distance, kept(src, 2 * levels - step, ranks, bytes))
    };
    Step {
        src,
        dst: src ^ distance,
        bytes,
    }
}

/// How much of this many bytes a rank is left with after they were halved so often: the lower half, or
/// the upper one, as the bits of its number say.
fn kept(rank: u32, halvings: u32, ranks: u32, bytes: u64) -> u64 {
    let levels = ranks.ilog2();
    (1..=halvings).fold(bytes, |left, level| match rank >> (levels - level) & 1 {
        0 => left / 2,
        _ => left.div_ceil(2),
    })
}

/// The tree of a heap: the children of rank r are 2r + 1 and 2r + 2. One level after the other sends up,
/// then one after the other down.
fn climb(step: u32, ranks: u32, bytes: u64) -> Vec<Step> {
    let depth = ranks.ilog2();
    // The level whose ranks are the children in this step.
    let is_up = step < depth;
    let level = if is_up {
        depth - step
    } else {
        step - depth + 1
    };
    let children = (1 << level) - 1..((2 << level) - 1).min(ranks);
    let step = |child: u32| {
        let parent = (child - 1) / 2;
        let (src, dst) = if is_up {
            (child, parent)
        } else {
            (parent, child)
        };
        Step { src, dst, bytes }
    };
    children.map(step).collect()
}
