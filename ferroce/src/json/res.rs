//! Documents of `ferroce res`: the keys are those of iproute2's `rdma`, in snake case.

use std::net::IpAddr;

use serde::Serialize;

/// Objects of one kind.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Objects<T> {
    /// Each object.
    pub(crate) objects: Vec<T>,
    /// Processes that did not answer, whose objects are missing. If there are any, the command fails.
    pub(crate) silent: Vec<Silent>,
}

/// A process that did not answer.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Silent {
    /// The device.
    pub(crate) device: String,
    /// The process.
    pub(crate) pid: u32,
}

/// How many objects there are on a device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Counts {
    /// The device.
    pub(crate) device: String,
    /// Its place among all devices.
    pub(crate) index: usize,
    /// Protection domains.
    pub(crate) pd: u64,
    /// Completion queues.
    pub(crate) cq: u64,
    /// Queue pairs.
    pub(crate) qp: u64,
    /// Connections, and services that are listened on.
    pub(crate) cm_id: u64,
    /// Memory regions.
    pub(crate) mr: u64,
    /// Shared receive queues.
    pub(crate) srq: u64,
    /// Openings of the device.
    pub(crate) ctx: u64,
}

/// A queue pair.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct QueuePair {
    /// The device.
    pub(crate) device: String,
    /// Its number.
    pub(crate) lqpn: u32,
    /// The peer's number, once a connected one knows it.
    pub(crate) rqpn: Option<u32>,
    /// RC, UC, UD, XRC_SEND or XRC_RECV.
    pub(crate) r#type: String,
    /// RESET, INIT, RTR, RTS, SQD, SQE or ERR.
    pub(crate) state: String,
    /// The PSN that it expects next.
    pub(crate) rq_psn: u32,
    /// The PSN that it sends next.
    pub(crate) sq_psn: u32,
    /// State of path migration.
    pub(crate) path_mig_state: String,
    /// Its protection domain. An XRC target has none.
    pub(crate) pdn: Option<u32>,
    /// Where its send requests complete.
    pub(crate) send_cqn: Option<u32>,
    /// Where its receive requests complete.
    pub(crate) recv_cqn: Option<u32>,
    /// The shared receive queue that it takes from.
    pub(crate) srqn: Option<u32>,
    /// The peer's address, from RTR on.
    pub(crate) peer: Option<IpAddr>,
    /// ACK timeout as last set, 0 to 31.
    pub(crate) timeout: u8,
    /// Retry count as last set, 0 to 7.
    pub(crate) retry_cnt: u8,
    /// RNR retry count as last set, 0 to 7.
    pub(crate) rnr_retry: u8,
    /// How long the acknowledgement timer would run if it were armed now; null without end.
    pub(crate) wait_ns: Option<u64>,
    /// How long a silent peer is tolerated; null without end.
    pub(crate) total_ns: Option<u64>,
    /// The timeout in use, in doublings of what the policy in force starts from.
    pub(crate) exponent: u16,
    /// The range of the profile in use; null with the initial timeout or without a profile.
    pub(crate) range: Option<u8>,
    /// How much of the retry count is left.
    pub(crate) retries_left: u8,
    /// Packets that were sent and not acknowledged.
    pub(crate) in_flight: u32,
    /// What may be on the wire to its peer, of all queue pairs of the process together; null for a
    /// service that is not acknowledged.
    pub(crate) path_window_bytes: Option<u64>,
    /// What is.
    pub(crate) path_used_bytes: Option<u64>,
    /// The last round trip to the peer, once one was measured.
    pub(crate) path_rtt_ns: Option<u64>,
    /// Send requests that are not complete.
    pub(crate) send_queue: u64,
    /// Receive requests that wait on its own queue.
    pub(crate) recv_queue: u64,
    /// The process.
    pub(crate) pid: u32,
    /// Its name.
    pub(crate) comm: String,
}

/// A memory region.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct MemoryRegion {
    /// The device.
    pub(crate) device: String,
    /// Its number: the key without its lowest byte.
    pub(crate) mrn: u32,
    /// Key for peers.
    pub(crate) rkey: u32,
    /// Key for work requests.
    pub(crate) lkey: u32,
    /// First virtual address, as users of the keys name it.
    pub(crate) iova: u64,
    /// Its length.
    pub(crate) length_bytes: u64,
    /// Its protection domain.
    pub(crate) pdn: u32,
    /// The process.
    pub(crate) pid: u32,
    /// Its name.
    pub(crate) comm: String,
}

/// A completion queue.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CompletionQueue {
    /// The device.
    pub(crate) device: String,
    /// Its number.
    pub(crate) cqn: u32,
    /// Entries that it has room for.
    pub(crate) cqe: u32,
    /// Completions that wait to be polled.
    pub(crate) waiting: u64,
    /// Queue pairs that complete here.
    pub(crate) users: u32,
    /// The process.
    pub(crate) pid: u32,
    /// Its name.
    pub(crate) comm: String,
}

/// A protection domain.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ProtectionDomain {
    /// The device.
    pub(crate) device: String,
    /// Its number.
    pub(crate) pdn: u32,
    /// Objects in it.
    pub(crate) users: u32,
    /// The process.
    pub(crate) pid: u32,
    /// Its name.
    pub(crate) comm: String,
}

/// A shared receive queue.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SharedReceiveQueue {
    /// The device.
    pub(crate) device: String,
    /// Its number.
    pub(crate) srqn: u32,
    /// BASIC or XRC.
    pub(crate) r#type: String,
    /// Its protection domain.
    pub(crate) pdn: u32,
    /// Requests that it has room for.
    pub(crate) max_wr: u32,
    /// Requests that wait.
    pub(crate) waiting: u64,
    /// Queue pairs that take from it.
    pub(crate) users: u32,
    /// The process.
    pub(crate) pid: u32,
    /// Its name.
    pub(crate) comm: String,
}

/// A connection of the connection manager, or a service that is listened on.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CmId {
    /// The device.
    pub(crate) device: String,
    /// Its name on this side; a service has none.
    pub(crate) cm_idn: Option<u32>,
    /// Queue pair on this side, once known.
    pub(crate) lqpn: Option<u32>,
    /// The peer's queue pair, once known.
    pub(crate) rqpn: Option<u32>,
    /// LISTEN, CONNECT, DISCONNECT or IDLE, as the kernel has it.
    pub(crate) state: String,
    /// How far a connection has come, in the connection manager's own words.
    pub(crate) cm_state: Option<String>,
    /// Port space: TCP, UDP, IB or IPOIB.
    pub(crate) ps: Option<String>,
    /// The device's address.
    pub(crate) src_addr: IpAddr,
    /// The port that a service listens on; null for a connection.
    pub(crate) src_port: Option<u16>,
    /// The peer's address.
    pub(crate) dst_addr: Option<IpAddr>,
    /// The service that a connection is to, a port in its port space; null for a service itself.
    pub(crate) service_port: Option<u16>,
    /// The whole service.
    pub(crate) service_id: u64,
    /// The process.
    pub(crate) pid: u32,
    /// Its name.
    pub(crate) comm: String,
}

/// An opening of a device by a process.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Context {
    /// The device.
    pub(crate) device: String,
    /// Its number: the process's slot on the device.
    pub(crate) ctxn: u8,
    /// The process.
    pub(crate) pid: u32,
    /// Its name.
    pub(crate) comm: String,
}
