//! A fabric on virtual time: the same devices that run on sockets, on links and switches of a
//! simulated network, with workloads and faults.
#![forbid(unsafe_code)]

mod events;
mod fabric;
mod frame;
mod host;
pub mod ideal;
mod line;
mod network;
mod packets;
mod play;
pub mod results;
pub mod route;
mod rules;
pub mod scenario;
mod seed;
mod simulation;
mod switch;
mod text;
pub mod topology;
pub mod validation;
pub mod workload;

pub use fabric::Fabric;
pub use ferroce_dcqcn::Rate;
pub use ferroce_time::{Span, Time};
pub use frame::{Ecn, Frame, Parcel};
pub use host::{Host, address, card};
pub use line::{LineCounters, Loss};
pub use network::{FabricConfig, Network, Stations};
pub use play::{ConnectionLook, JobConfig, JobOutcome, OnError, Outcome, Player, Timeout};
pub use route::Routes;
pub use rules::{Fate, Rules};
pub use simulation::{Fault, Recording, Sample, Samples, Simulation, Standing};
pub use switch::{PRIORITIES, Schedule, SwitchConfig, SwitchCounters};
pub use text::ReadError;
pub use topology::{Cable, NodeId, Topology};
pub use workload::{Transfer, TransferId, Workload};
