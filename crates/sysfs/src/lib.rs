//! Devices in the form of the files that Linux has for RDMA devices.
//!
//! Programs that bypass libibverbs read `/sys/class/infiniband` and `/dev/infiniband`: UCX, NCCL,
//! Open MPI, exporters, scripts. This crate creates that tree from the same descriptions and the
//! same counter table as everything else, and [`View`] keeps it in a directory.
//!
//! | module | purpose |
//! |---|---|
//! | `card` | the files of one device |
//! | `tree` | the files of all devices |
//! | `congestion` | the parameters of congestion control |
//! | `fwctl` | nodes of `/dev/fwctl` |
//! | `port` | the files of a port, including the counters |
//! | `write` | a tree in a directory, kept up to date |
//! | `netdev` | the network interface of an address |
//! | [`View`] | the devices of a registry, shown in a directory |
//!
//! Layout and formats are those of the kernel's `Documentation/ABI/stable/sysfs-class-infiniband`.
#![forbid(unsafe_code)]

mod card;
mod congestion;
mod fwctl;
mod netdev;
mod port;
mod tree;
mod view;
mod write;

pub use card::guid;
pub use congestion::{SetError, is_parameter, may_be_parameter, set_parameter};
pub use fwctl::{FWCTL_NODE_MAX, fwctl_node_device};
pub use netdev::of as netdev_of;
pub use tree::PCI_ROOT;
pub use view::{View, ViewError};
pub use write::WriteError;
