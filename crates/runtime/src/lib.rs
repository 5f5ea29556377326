//! A device on the sockets and rings of this host, and the threads that drive it.
//!
//! A [`Device`] is an [`ferroce_device::Hca`] with an address. There is no daemon: any thread that
//! polls drives the device, and one helper thread serves the passive side and the timers at other
//! times. [`ferroce_driver`] decides when each of them does what.
//!
//! | module | purpose |
//! |---|---|
//! | [`device`](Device) | the device behind a lock, the helper thread, waiting |
//! | `link` | sockets and rings of a port as the driver's link |
//! | `links` | the same of all ports of a device; the engine: a device, its driver, these links |
//! | `berth` | a process's place at a port |
//! | `intake` | incoming datagrams: their kind and destination |
//! | `neighbours` | hands packets on to the process they belong to |
//! | `steering` | lets the kernel bring packets to the process they belong to |
//! | `kept` | sockets of processes that have left, which keep their positions among those of the port |
//! | `port` | when a process shares the device's port |
//! | `attach`, `attachment` | a process joins a device |
//! | [`connect`](Endpoint) | a queue pair and its peer, without a connection manager |
//! | `sys` | memory that may not be mapped |
//!
//! `unsafe` is denied everywhere except in `sys`.
#![deny(unsafe_code)]

mod attach;
mod attachment;
mod berth;
mod connect;
mod device;
mod intake;
mod kept;
mod link;
mod links;
mod neighbours;
mod open_error;
mod port;
mod steering;
#[allow(unsafe_code, reason = "system calls")]
mod sys;

pub use attach::AttachOptions;
pub use connect::Endpoint;
pub use device::{Departure, Device, DeviceConfig, EventSink, Spent, Tandem};
pub use open_error::OpenError;
pub use sys::{own_memory, recover_faults};
