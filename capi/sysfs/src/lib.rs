//! Shows Ferroce's devices in `/sys` and `/dev` to a program that is started with it.
//!
//! `ferroce run` names this library in `LD_PRELOAD` and a directory in `FERROCE_SYSFS`. Calls of
//! the C library that take a path are caught; a path below `/sys/class/infiniband`,
//! `/sys/class/infiniband_verbs`, Ferroce's PCI root or `/dev/infiniband` is looked up in that
//! directory instead; so are `/sys/class/net/IF/ecn` of an interface that a device has, and
//! `/sys/kernel/debug/mlx5`; with `FERROCE_FWCTL` also `/sys/class/fwctl` and `/dev/fwctl`. Every
//! other path, and every path if the variable is not set, goes through as it is. Programs that make system calls of their own (Go, static binaries) need
//! `ferroce run --ns`.
//!
//! The functions that programs call pass on all their calls, some of which wait, and so are where
//! threads are cancelled: the C library unwinds the thread through them (`extern "C-unwind"`), and
//! they have nothing to drop. What this library does itself, with files and allocations, runs where
//! neither a cancellation nor a panic gets through ([`ferroce_crossing::cross`]); there is nothing that
//! a panic could leave half-done, since the library keeps no state but flags.
//!
//! | module | does |
//! |---|---|
//! | `redirect` | from the path a program means to the one that it gets, and back |
//! | `live` | counters as they are when they are read |
//! | `parameter` | files that are written, and act |
//! | `next` | the functions of the C library behind these |
//! | `interfaces` | the addresses of devices among those of interfaces |
//! | `calls` | the functions with paths that programs call |
//! | `netlink` | sockets of RDMA netlink, and the functions that send by them |

mod calls;
mod interfaces;
mod live;
mod netlink;
mod next;
mod parameter;
mod redirect;
