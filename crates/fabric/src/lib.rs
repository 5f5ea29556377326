//! A fabric on virtual time: the same devices that run on sockets, on links and switches of a
//! simulated network, with workloads and faults.
#![forbid(unsafe_code)]

pub mod topology;
pub mod workload;

pub use ferroce_dcqcn::Rate;
pub use ferroce_time::{Span, Time};
pub use topology::{Cable, NodeId, Topology};
pub use workload::{Transfer, TransferId, Workload};
