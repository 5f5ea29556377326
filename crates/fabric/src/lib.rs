//! A fabric in virtual time: the same devices that run on sockets, on links and switches of a
//! simulated network, with workloads and faults.
//!
//! [`Fabric`] is a network with a device at each end, and [`Simulation`] runs a workload with faults on
//! it. Below them, a [`Network`] takes anything that can send and receive ([`Stations`]).
//!
//! ```
//! use ferroce_fabric::topology::CableSpec;
//! use ferroce_fabric::{
//!     Fabric, FabricConfig, Fate, Rate, Span, SwitchConfig, Time, Topology, address,
//! };
//! use ferroce_device::{Counter, Hca, Path, QpAttr, WcStatus};
//!
//! // Two cards on a cable of 100 Gb/s, a queue pair on each.
//! let cable = CableSpec::new(Rate::from_mbps(100_000), Span::from_micros(1));
//! let config = FabricConfig {
//!     topology: Topology::pair(cable)?,
//!     switch: SwitchConfig::default(),
//!     seed: 1,
//! };
//! let devices = [1, 2].map(|seed| Hca::new(ferroce_fabric::card(seed)));
//! let mut fabric = Fabric::new(config, devices)?;
//! let qps = [fabric.host_mut(0).create_qp(1)?, fabric.host_mut(1).create_qp(1)?];
//! let attr = QpAttr { timeout: 14, retry_cnt: 7, ..QpAttr::default() };
//! fabric.host_mut(0).connect(qps[0], qps[1], Path::to(address(1)), attr)?;
//! fabric.host_mut(1).connect(qps[1], qps[0], Path::to(address(0)), attr)?;
//!
//! // A WRITE of ten packets, of which one gets lost.
//! fabric.rules(0).strike(1, Fate::Lost, |packet| packet.headers.psn.value() == 3);
//! let memory = *fabric.host(1).memory();
//! let write = fabric.host(0).write(&memory, 10 * attr.path_mtu.bytes(), 7);
//! fabric.host_mut(1).hca.post_recv(qps[1], ferroce_fabric::Host::receive(0))?;
//! fabric.host_mut(0).hca.post_send(qps[0], write)?;
//! fabric.kick(0);
//!
//! let mut completions = Vec::new();
//! while !completions.iter().any(|(host, _)| *host == 0) {
//!     fabric.run(Time::NEVER, &mut 1);
//!     completions.extend(fabric.take_completions());
//! }
//! assert!(completions.iter().all(|(_, it)| it.status == WcStatus::Success));
//! let repeated = fabric.host(0).hca.counter(Counter::RetransmittedPackets);
//! assert!(repeated > 0, "the responder missed one, and said so");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
pub mod route;
mod rules;
mod simulation;
pub mod sizes;
mod switch;
pub mod text;
pub mod topology;
pub mod validation;
pub mod workload;

pub use fabric::Fabric;
pub use ferroce_base::time::{Span, Time};
pub use ferroce_dcqcn::Rate;
pub use frame::{Ecn, Frame, Parcel};
pub use host::{Host, address, card};
pub use line::{LineCounters, Loss};
pub use network::{FabricConfig, Network, Stations};
pub use play::{ConnectionLook, JobConfig, JobOutcome, OnError, Outcome, Player, QPS_MAX, Timeout};
pub use route::Routes;
pub use rules::{Fate, Rules};
pub use simulation::{Fault, LeftOut, Recording, Sample, Samples, Simulation, Standing};
pub use switch::watchdog::{StormAction, Storms, WatchdogConfig};
pub use switch::{PRIORITIES, Routing, Schedule, SwitchConfig, SwitchCounters};
pub use text::ReadError;
pub use topology::{Cable, NodeId, Topology};
pub use workload::{Transfer, TransferId, Workload};
