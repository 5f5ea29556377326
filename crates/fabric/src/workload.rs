//! Workloads: what hosts send to each other, and when.
//!
//! A [`Workload`] is plain data: transfers, and their dependencies. It comes from a function over
//! typed parameters ([`incast`], [`permutation`], [`Collective`], [`Nccl`], [`Experts`], [`Pipeline`],
//! [`Checkpoint`], [`Poisson`], [`Requests`]), from a file ([`Workload::from_hpcc`],
//! [`Workload::from_htsim`], [`Chakra`]), or is constructed directly;
//! [`Workload::check`] checks whether a topology can run it. [`Workload::merge`] combines several. It runs as a
//! [`TransferGraph`].
//!
//! ```
//! use ferroce_fabric::workload::{Collective, Workload, incast};
//! use ferroce_fabric::Time;
//!
//! let training = Collective::new((0..8).collect(), 64 << 20).ring_all_reduce().unwrap();
//! let storage = incast(&[1, 2, 3], 0, 500_000, Time::ZERO).unwrap();
//! let both = Workload::merge([training, storage]).unwrap();
//! assert_eq!(both.transfers.len(), 2 * 7 * 8 + 3);
//! assert_eq!(both.jobs, ["ring all-reduce", "incast"]);
//! ```

mod cdf;
mod chakra;
mod check;
mod collective;
mod error;
mod graph;
mod hpcc;
mod htsim;
mod merge;
mod nccl;
mod pattern;
mod plan;
mod poisson;
mod random;
mod traffic;
mod training;

use ferroce_base::time::{Span, Time};

pub use self::cdf::Cdf;
pub use self::chakra::{Chakra, ChakraError, TraceFile};
pub use self::collective::Collective;
pub use self::error::WorkloadError;
pub use self::graph::{Dependents, TransferGraph};
pub use self::nccl::{CHANNELS_MAX, GPUS_MAX, Nccl};
pub use self::pattern::{incast, permutation};
pub use self::poisson::{Poisson, Requests};
pub use self::traffic::Traffic;
pub use self::training::{Checkpoint, Experts, Pipeline};

/// The most bytes of one transfer: the largest message that RDMA cards send. What is larger becomes
/// several transfers.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 30;
/// The most transfers of a workload; they take 4 GiB, and a run of them 10. It is enough for a ring all-reduce of 8,192
/// hosts.
pub const TRANSFERS_MAX: u32 = 1 << 27;
/// The most edges of a workload; they take 2 GiB.
pub const EDGES_MAX: u32 = 1 << 28;
/// The most jobs of a workload: their numbers are 16 bits wide.
pub const JOBS_MAX: u32 = 1 << 16;

/// The place of a transfer in its workload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TransferId(pub u32);

/// Bytes that go from one host to another as one message; or work of a host, such as computing, which others
/// wait for like for a message.
#[derive(Clone, PartialEq, Debug)]
pub struct Transfer {
    /// The sending host, or the one that works.
    pub src: u32,
    /// The receiving host, another one; the same for work.
    pub dst: u32,
    /// From 1 to 1 GiB; 0 for work.
    pub bytes: u32,
    /// It does not begin earlier.
    pub at: Time,
    /// It does not begin before so long after the last of those that it waits for was delivered. For work,
    /// how long that takes.
    pub think: Span,
    /// Which job it is part of.
    pub job: u16,
}

impl Transfer {
    /// Whether it is work of a host, and no message.
    #[must_use]
    pub const fn is_work(&self) -> bool {
        self.src == self.dst && self.bytes == 0
    }

    /// When it begins, or when work is over: by when the last of those that it waits for was delivered, if it
    /// waits for any.
    #[must_use]
    pub fn due(&self, released: Option<Time>) -> Time {
        match released {
            None => self.at.after(self.think),
            Some(released) if self.is_work() => self.at.max(released).after(self.think),
            Some(released) => self.at.max(released.after(self.think)),
        }
    }
}

/// Transfers, and which of them wait for others.
///
/// A transfer begins when all it waits for have been delivered to their receivers.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Workload {
    /// All of them.
    pub transfers: Vec<Transfer>,
    /// Pairs of transfers of which the second waits for the first. No cycles.
    pub edges: Vec<(TransferId, TransferId)>,
    /// The names of the jobs.
    pub jobs: Vec<String>,
}

impl Workload {
    /// How many bytes all transfers have together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.transfers.iter().map(|it| u64::from(it.bytes)).sum()
    }
}
