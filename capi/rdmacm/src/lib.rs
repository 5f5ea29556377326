//! librdmacm in Rust: implements each call of `rdma/rdma_cma.h` with the device's connection
//! manager.
//!
//! The functions have the names and signatures of the C library but no C symbols; `capi/libibverbs`
//! exports them to `capi/librdmacm`, which has the symbols. The device implements messages, their
//! repetition and the states of a connection ([`ferroce_device::cm`]). This crate implements what a
//! program sees: identifiers, event channels, addresses and ports, and the state changes of a queue
//! pair.
//!
//! | module | purpose |
//! |---|---|
//! | [`abi`], `address`, `text`, `terms`, `verbs` | structures of the headers, socket addresses, what two sides agree on |
//! | `process` | per-process state, which a forked child does not inherit |
//! | `device`, `id`, `info` | the open devices; identifiers and the events that wait for them; names |
//! | `attr`, `ece`, `group`, `qp`, `srq`, `connection` | queue pairs of identifiers, and connections in the device |
//! | `channel`, `life` | event channels; identifiers created, destroyed and moved to another channel |
//! | `event`, `wait` | the device's events in the form of the header; waiting for them |
//! | `port`, `resolve`, `params`, `connect`, `listen`, `multicast`, ... | the calls |
//! | `rsocket` | sockets over connections |
//!
//! Modules use those of rows above their own.
//!
//! # Locks
//!
//! The device's lock comes first, because events arrive while it is held. No code in this crate may
//! call a device while it holds the lock of the routes or of an identifier's queue.
//!
//! # Safety
//!
//! Every function is called from C with the arguments that the header requires. Pointers to objects
//! of the library are checked; pointers to the program's own structures cannot be.
#![allow(
    clippy::missing_safety_doc,
    reason = "one contract for all calls, stated above: what rdma_cma.h asks for"
)]

// Where `#[border]` leads.
use ferroce_abi::border;

pub mod abi;
mod address;
mod addrinfo;
mod attr;
mod channel;
mod connect;
mod connection;
mod device;
mod ece;
mod endpoint;
mod event;
mod group;
mod id;
mod info;
mod life;
mod listen;
mod multicast;
mod option;
mod params;
mod port;
mod process;
mod qp;
mod resolve;
mod rsocket;
mod srq;
mod terms;
mod text;
mod verbs;
mod wait;

pub use addrinfo::{rdma_query_addrinfo, rdma_resolve_addrinfo, rdma_write_cm_event};
pub use channel::{rdma_ack_cm_event, rdma_create_event_channel, rdma_destroy_event_channel};
pub use connect::{
    rdma_accept, rdma_connect, rdma_disconnect, rdma_establish, rdma_notify, rdma_reject,
    rdma_reject_ece,
};
pub use device::{rdma_free_devices, rdma_get_devices};
pub use ece::{rdma_get_remote_ece, rdma_set_local_ece};
pub use endpoint::{rdma_create_ep, rdma_destroy_ep, rdma_get_request};
pub use info::{rdma_freeaddrinfo, rdma_getaddrinfo};
pub use life::{rdma_create_id, rdma_destroy_id, rdma_migrate_id};
pub use listen::rdma_listen;
pub use multicast::{rdma_join_multicast, rdma_join_multicast_ex, rdma_leave_multicast};
pub use option::rdma_set_option;
pub use qp::{rdma_create_qp, rdma_create_qp_ex, rdma_destroy_qp, rdma_init_qp_attr};
pub use resolve::{
    rdma_bind_addr, rdma_get_dst_port, rdma_get_src_port, rdma_resolve_addr, rdma_resolve_route,
};
pub use rsocket::{
    raccept, rbind, rclose, rconnect, repoll_create, repoll_ctl, repoll_wait, rfcntl, rgetpeername,
    rgetsockname, rgetsockopt, riomap, riounmap, riowrite, rlisten, rpoll, rread, rreadv, rrecv,
    rrecvfrom, rrecvmsg, rselect, rsend, rsendmsg, rsendto, rsetsockopt, rshutdown, rsocket,
    rwrite, rwritev,
};
pub use srq::{rdma_create_srq, rdma_create_srq_ex, rdma_destroy_srq};
pub use text::rdma_event_str;
pub use wait::rdma_get_cm_event;
