//! Shows Ferroce's devices in `/sys` and `/dev` to a program that preloads it.
//!
//! `ferroce run` names this library in `LD_PRELOAD` and a directory in `FERROCE_SYSFS`. The library
//! intercepts C library calls that take a path. A path below `/sys/class/infiniband`,
//! `/sys/class/infiniband_verbs`, Ferroce's PCI root or `/dev/infiniband` is looked up in that
//! directory instead. The same applies to `/sys/class/net/IF/ecn` of an interface that a device
//! has, to `/sys/kernel/debug/mlx5` and, with `FERROCE_FWCTL`, to `/sys/class/fwctl` and
//! `/dev/fwctl`. All other paths, and all paths if the variable is not set, are passed through
//! unchanged. Programs that make their own system calls (Go, static binaries) need `ferroce run
//! --ns`.
//!
//! The functions that programs call pass on all their calls. Some of these wait, and threads can be
//! cancelled in them: the C library unwinds the thread through them (`extern "C-unwind"`), and they
//! have nothing to drop. The library's own work, with files and allocations, runs where neither a
//! cancellation nor a panic passes ([`ferroce_abi::border::cross`]). A panic cannot leave anything
//! half-done, because the library has no state except flags.
//!
//! | module | purpose |
//! |---|---|
//! | `redirect` | translates the program's paths, and back |
//! | `live` | current values of counters |
//! | `parameter` | files that take effect when written |
//! | `next` | the C library's functions behind these |
//! | `interfaces` | adds the addresses of devices to those of interfaces |
//! | `calls` | the functions with paths that programs call |
//! | `netlink` | RDMA netlink sockets, and the functions that send through them |

mod calls;
mod interfaces;
mod live;
mod netlink;
mod next;
mod parameter;
mod redirect;
