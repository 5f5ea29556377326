//! The device on real UDP sockets.
//!
//! A [`Device`] is an [`ferroce_hca::Hca`] with an address. There is no daemon: any thread that
//! polls drives the device, and one helper thread serves the passive side and the timers at other
//! times. [`ferroce_driver`] decides when each of them does what.
//!
//! | module | purpose |
//! |---|---|
//! | [`socket`] | one UDP socket with segmentation, coalescing, traffic class; the only system calls on the packet path |
//! | [`wait`] | sleeping, waking, the clock |
//! | `stage` | turns packets into bytes with ICRC and collects them into batches of one system call |
//! | `flow` | the ICRC state of each peer address |
//! | `foreign` | packets that other users of this host have forged |
//! | `fault` | errors on the sending path, each reported once |
//! | `link` | the sockets as the driver's link |
//! | `intake` | incoming datagrams: their kind and destination |
//! | `engine` | a device with its driver and its sockets |
//! | [`device`](Device) | the engine behind a lock, the helper thread, waiting |
//! | [`tap`](Tap) | packet captures |
//! | [`wall_clock`](WallClock) | the time of day of completions and of captured packets |
//! | `spec`, `registry` | the devices of a user, each a TOML file |
//! | [`impairment`] | link impairments as text |
//! | `shared` | the file that the processes of a device map: state, slots |
//! | `steering` | lets the kernel bring packets to the process they belong to |
//! | `kept` | sockets of processes that have left, which keep their positions among those of the port |
//! | `groups` | the multicast groups that the host has joined for the device |
//! | `netlink`, [`gids`](GidTable) | the host's interfaces and addresses: ports that go down, GIDs |
//! | [`ring`] | packets in memory that two processes share |
//! | `near` | peers on this host, reached through such rings |
//! | `neighbours` | hands packets on to the process they belong to |
//! | `resource` | the rows of `ferroce res` |
//! | `question` | queries a process for them, and answers |
//! | [`Inquiry`] | queries many processes at a time |
//! | `port` | when a process shares the device's port |
//! | `attach`, `attachment` | a process joins a device |
//! | [`Observer`] | a view of a device from outside |
//! | `sys` | other system calls: files, descriptors passed between processes, memory that may not be mapped |
//!
//! `unsafe` is denied everywhere except in `socket` and `sys`, which make system calls.
#![deny(unsafe_code)]

mod attach;
mod attachment;
mod connect;
mod device;
mod engine;
mod fault;
mod flow;
mod foreign;
mod gids;
mod groups;
pub mod impairment;
mod inquiry;
mod intake;
mod kept;
mod link;
mod near;
mod neighbours;
mod netlink;
mod observer;
mod open_error;
mod overflow;
mod port;
mod question;
mod registry;
mod resource;
pub mod ring;
mod shape;
mod shared;
#[allow(unsafe_code, reason = "system calls")]
pub mod socket;
mod spec;
mod stage;
mod steering;
#[allow(unsafe_code, reason = "system calls")]
mod sys;
mod tap;
pub mod wait;
mod wall_clock;

pub use attach::AttachOptions;
pub use connect::Endpoint;
pub use device::{Departure, Device, DeviceConfig, EventSink, Spent, Tandem};
pub use ferroce_prm::PciAddress;
pub use gids::GidTable;
pub use inquiry::{Answer, Inquiry};
pub use observer::{Observer, PortLook};
pub use open_error::OpenError;
pub use question::QueryError;
pub use registry::{Registry, RegistryError};
pub use resource::{
    CmIdRow, Counts, CqRow, FlowRow, LimitRow, MrRow, PdRow, PeerLink, PeerRow, QpRow, QpStates,
    Query, Resource, SrqRow,
};
pub use shared::{
    Process, ServiceClaim, ServiceError, ServiceScope, settings_from_bytes, settings_to_bytes,
};
pub use spec::{
    DeviceSpec, Guise, LaneSpeed, LinkSetting, PortSpeed, SpecError, Vf, WindowSetting,
};
pub use sys::{Interface, after_fork_in_child, out_of_the_way, own_memory, recover_faults};
pub use tap::{Tap, TapDirection};
pub use wall_clock::WallClock;
