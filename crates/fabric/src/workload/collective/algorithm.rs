//! Who sends how much to whom in which step.

use super::super::WorkloadError;
use super::share;

/// How a collective operation is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Algorithm {
    /// Reduce-scatter and all-gather, one after the other.
    RingAllReduce,
    /// One of the two.
    RingHalf,
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
    /// Whether so many ranks, of which there are two at least, can do it.
    pub(super) fn check(self, _ranks: u32) -> Result<(), WorkloadError> {
        Ok(())
    }

    pub(super) fn steps(self, ranks: u32) -> u32 {
        match self {
            Self::RingAllReduce => 2 * (ranks - 1),
            Self::RingHalf => ranks - 1,
        }
    }

    pub(super) fn shape(self, ranks: u32) -> Shape {
        let (n, steps) = (u128::from(ranks), u128::from(self.steps(ranks)));
        match self {
            Self::RingAllReduce | Self::RingHalf => Shape {
                sends: n * steps,
                waits: n * (steps - 1),
                carried: n,
            },
        }
    }

    /// The largest message for a chunk of so many bytes.
    pub(super) fn message_max(self, ranks: u32, bytes: u64) -> u64 {
        match self {
            Self::RingAllReduce | Self::RingHalf => share(bytes, ranks, 0),
        }
    }

    /// What is sent in a step, of a chunk of so many bytes.
    pub(super) fn sends(self, step: u32, ranks: u32, bytes: u64) -> Vec<Step> {
        match self {
            Self::RingAllReduce | Self::RingHalf => (0..ranks)
                .map(|src| Step {
                    src,
                    dst: (src + 1) % ranks,
                    // Rank r begins with piece r, and passes on what it got.
                    bytes: share(bytes, ranks, (src + ranks - step % ranks) % ranks),
                })
                .collect(),
        }
    }
}
