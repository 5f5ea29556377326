//! A process's objects on a device, as rows for display: what tables, documents and netlink messages
//! have of them. Their keys are those of iproute2's `rdma resource`, with additional ones for what only
//! this device has.

mod kind;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use ferroce_base::time::Span;
use ferroce_device::{Hca, LimitLook, Phase, QpState, Time, cm::CmState};
use ferroce_os::program_id;
use serde::{Deserialize, Serialize};

pub use self::kind::{Form, KINDS, Key, Kind};

/// A row of an answer.
pub trait ResourceRow: Serialize + Sized {
    /// The row in an answer, if it is one of this type.
    fn of(resource: &Resource) -> Option<&Self>;
}

/// What processes can be asked, and the rows that they answer with.
macro_rules! resources {
    ($($(#[$meta:meta])* $kind:ident($row:ident) = $code:literal,)+) => {
        /// Which resources to report.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Query {
            $($(#[$meta])* $kind = $code,)+
        }

        impl Query {
            pub(crate) fn from_code(code: u8) -> Option<Self> {
                [$(Self::$kind),+].into_iter().find(|query| *query as u8 == code)
            }
        }

        /// One row of an answer.
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Resource {
            $($(#[$meta])* $kind($row),)+
        }

        $(impl ResourceRow for $row {
            fn of(resource: &Resource) -> Option<&Self> {
                match resource {
                    Resource::$kind(row) => Some(row),
                    _ => None,
                }
            }
        })+
    };
}

resources! {
    /// Queue pairs.
    Qp(QpRow) = 1,
    /// Memory regions.
    Mr(MrRow) = 2,
    /// Completion queues.
    Cq(CqRow) = 3,
    /// Protection domains.
    Pd(PdRow) = 4,
    /// Shared receive queues.
    Srq(SrqRow) = 5,
    /// Connections, and services that are listened on.
    CmId(CmIdRow) = 6,
    /// How many there are of each kind.
    Count(Counts) = 7,
    /// Queue pairs whose peers have sent CNPs.
    Flow(FlowRow) = 8,
    /// Peers, and what carries packets to them.
    Peer(PeerRow) = 9,
}

/// Rows, each with the name of its JSON Schema. All of them have the process at the end.
macro_rules! rows {
    ($($(#[$meta:meta])* $name:ident = $schema:literal {
        $($(#[$field_meta:meta])* $field:ident: $type:ty,)+
    })+) => {$(
        $(#[$meta])*
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = $schema))]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)+
            /// The process.
            pub pid: u32,
            /// Its name.
            pub comm: String,
        }
    )+};
}

rows! {
    /// A queue pair.
    QpRow = "QueuePair" {
        /// Its number.
        lqpn: u32,
        /// The peer's number, once a connected one knows it.
        rqpn: Option<u32>,
        /// RC, UC, UD, XRC_SEND or XRC_RECV.
        #[serde(rename = "type")]
        qp_type: String,
        /// RESET, INIT, RTR, RTS, SQD, SQE or ERR.
        state: String,
        /// The PSN that it expects next.
        rq_psn: u32,
        /// The PSN that it sends next.
        sq_psn: u32,
        /// State of path migration.
        path_mig_state: String,
        /// Its protection domain. An XRC target has none.
        pdn: Option<u32>,
        /// Where its send requests complete.
        send_cqn: Option<u32>,
        /// Where its receive requests complete.
        recv_cqn: Option<u32>,
        /// The shared receive queue that it takes from.
        srqn: Option<u32>,
        /// The peer's address, from RTR on.
        peer: Option<IpAddr>,
        /// Number of its port, from 1.
        port: u8,
        /// ACK timeout as last set, 0 to 31.
        timeout: u8,
        /// Retry count as last set, 0 to 7.
        retry_cnt: u8,
        /// RNR retry count as last set, 0 to 7.
        rnr_retry: u8,
        /// How long the acknowledgement timer would run if it were armed now; null without end.
        wait_ns: Option<u64>,
        /// How long a silent peer is tolerated; null without end.
        total_ns: Option<u64>,
        /// The timeout in use, in doublings of what the policy in force starts from.
        exponent: u16,
        /// The range of the profile in use; null with the initial timeout or without a profile.
        range: Option<u8>,
        /// How much of the retry count is left.
        retries_left: u8,
        /// Packets that were sent and not acknowledged.
        in_flight: u32,
        /// What may be on the wire to its peer, of all queue pairs of the process together; null for a
        /// service that is not acknowledged.
        #[serde(rename = "path_window_bytes")]
        path_window: Option<u64>,
        /// What is.
        #[serde(rename = "path_used_bytes")]
        path_used: Option<u64>,
        /// The last round trip to the peer, once one was measured.
        path_rtt_ns: Option<u64>,
        /// Send requests that are not complete.
        send_queue: u64,
        /// Receive requests that wait on its own queue.
        recv_queue: u64,
    }

    /// A memory region.
    MrRow = "MemoryRegion" {
        /// Its number: the key without its lowest byte.
        mrn: u32,
        /// Key for peers.
        rkey: u32,
        /// Key for work requests.
        lkey: u32,
        /// First virtual address, as users of the keys name it.
        iova: u64,
        /// Its length.
        #[serde(rename = "length_bytes")]
        mrlen: u64,
        /// Its protection domain.
        pdn: u32,
    }

    /// A completion queue.
    CqRow = "CompletionQueue" {
        /// Its number.
        cqn: u32,
        /// Entries that it has room for.
        cqe: u32,
        /// Completions that wait to be polled.
        waiting: u64,
        /// Queue pairs that complete here.
        users: u32,
    }

    /// A protection domain.
    PdRow = "ProtectionDomain" {
        /// Its number.
        pdn: u32,
        /// Objects in it.
        users: u32,
    }

    /// A shared receive queue.
    SrqRow = "SharedReceiveQueue" {
        /// Its number.
        srqn: u32,
        /// BASIC or XRC.
        #[serde(rename = "type")]
        srq_type: String,
        /// Its protection domain.
        pdn: u32,
        /// Requests that it has room for.
        max_wr: u32,
        /// Requests that wait.
        waiting: u64,
        /// Queue pairs that take from it.
        users: u32,
    }

    /// A connection of the connection manager, or a service that is listened on.
    CmIdRow = "CmId" {
        /// Its name on this side; a service has none.
        cm_idn: Option<u32>,
        /// Queue pair on this side, once known.
        lqpn: Option<u32>,
        /// The peer's queue pair, once known.
        rqpn: Option<u32>,
        /// LISTEN, CONNECT, DISCONNECT or IDLE, as the kernel has it.
        state: String,
        /// How far a connection has come, in the connection manager's own words.
        cm_state: Option<String>,
        /// Port space: TCP, UDP, IB or IPOIB.
        ps: Option<String>,
        /// The device's address.
        src_addr: IpAddr,
        /// Number of the port that it is on, from 1; of a service that is listened on, 1.
        port: u8,
        /// The port that a service listens on; null for a connection.
        src_port: Option<u16>,
        /// The peer's address.
        dst_addr: Option<IpAddr>,
        /// The service that a connection is to, a port in its port space; null for a service itself.
        service_port: Option<u16>,
        /// The whole service.
        service_id: u64,
    }

    /// A queue pair whose peer has sent congestion notifications.
    FlowRow = "Flow" {
        /// Its number.
        lqpn: u32,
        /// The peer's number.
        rqpn: u32,
        /// The peer's address.
        peer: IpAddr,
        /// The priority of its packets, 0 to 7.
        prio: u8,
        /// Congestion notifications that it has handled, modulo 2^32.
        cnps: u32,
        /// What these have made of it; null if it is at full rate again.
        limit: Option<LimitRow>,
    }

    /// What carries a process's packets to the processes of a device.
    PeerRow = "Peer" {
        /// Their device's address.
        peer: IpAddr,
        /// shm, udp or none, in which case packets are dropped; null before the first one.
        #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
        link: Option<PeerLink>,
        /// Queue pairs that are connected to theirs.
        #[serde(rename = "queue_pairs")]
        qps: u64,
    }
}

/// How a queue pair is held back.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Limit")
)]
pub struct LimitRow {
    /// The rate in force.
    pub rate_bps: u64,
    /// The rate to which it recovers.
    pub target_bps: u64,
    /// The estimate of congestion, 0 to 1.
    pub alpha: f64,
    /// What its next increase is: recovery, additive or hyper.
    pub stage: String,
    /// Events of the timer since the last cut.
    pub time_stage: u16,
    /// Events of the byte counter since the last cut.
    pub byte_stage: u16,
}

/// What carries packets to a peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerLink {
    /// A ring in shared memory.
    Shm,
    /// UDP.
    Udp,
    /// They are dropped: it would be UDP, which the device's `link` does not allow.
    None,
}

impl PeerLink {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Udp => "udp",
            Self::None => "none",
        }
    }
}

/// What carries the packets of a process, by the peer's device and the slot of its process there.
#[derive(Debug)]
pub struct PeerLinks {
    /// Links of known peers.
    pub known: HashMap<(IpAddr, u8), PeerLink>,
    /// Where nothing is known.
    pub others: Option<PeerLink>,
}

impl PeerLinks {
    /// Those of a process that uses UDP alone.
    pub fn udp() -> Self {
        Self {
            known: HashMap::new(),
            others: Some(PeerLink::Udp),
        }
    }

    fn to(&self, peer: (IpAddr, u8)) -> Option<PeerLink> {
        self.known.get(&peer).copied().or(self.others)
    }
}

/// How many resources of each kind a process has.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Counts {
    /// Protection domains.
    pub pd: u64,
    /// Completion queues.
    pub cq: u64,
    /// Queue pairs.
    pub qp: u64,
    /// The same by state.
    #[serde(default)]
    pub qp_states: QpStates,
    /// Connections and services.
    pub cm_id: u64,
    /// Memory regions.
    pub mr: u64,
    /// Openings of the device: 1.
    pub ctx: u64,
    /// Shared receive queues.
    pub srq: u64,
    /// The process.
    pub pid: u32,
    /// Its name.
    pub comm: String,
}

/// Queue pair states, each with its counter and its name.
macro_rules! qp_states {
    ($($state:ident $field:ident $name:literal,)+) => {
        /// How many queue pairs are in each state.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
        #[serde(rename_all = "UPPERCASE")]
        #[allow(missing_docs, reason = "the names are those of the states")]
        pub struct QpStates {
            $(pub $field: u64,)+
        }

        impl QpStates {
            /// Each state by its name, as in [`QpRow::state`], and how many are in it.
            pub fn named(&self) -> [(&'static str, u64); 7] {
                [$(($name, self.$field),)+]
            }

            /// Counts those of another process, too.
            pub fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)+
            }

            fn count(&mut self, state: QpState) {
                *match state {
                    $(QpState::$state => &mut self.$field,)+
                } += 1;
            }
        }
    };
}

qp_states! {
    Reset reset "RESET",
    Init init "INIT",
    Rtr rtr "RTR",
    Rts rts "RTS",
    Sqd sqd "SQD",
    Sqe sqe "SQE",
    Err err "ERR",
}

impl QpStates {
    /// All of them.
    pub fn sum(&self) -> u64 {
        self.named().iter().map(|(_, count)| count).sum()
    }
}

/// The answer to a query about this process's objects on the device with this address. `links` is
/// asked only if that is part of it.
pub fn rows(
    hca: &Hca,
    addresses: [IpAddr; 2],
    now: Time,
    query: Query,
    links: impl FnOnce() -> PeerLinks,
) -> Vec<Resource> {
    let view = View {
        hca,
        addresses,
        now,
        pid: program_id(),
        comm: own_name(),
    };
    match query {
        Query::Qp => view.qps().map(Resource::Qp).collect(),
        Query::Mr => view.mrs().map(Resource::Mr).collect(),
        Query::Cq => view.cqs().map(Resource::Cq).collect(),
        Query::Pd => view.pds().map(Resource::Pd).collect(),
        Query::Srq => view.srqs().map(Resource::Srq).collect(),
        Query::CmId => view.cm_ids().map(Resource::CmId).collect(),
        Query::Count => vec![Resource::Count(view.counts())],
        Query::Flow => view.flows().map(Resource::Flow).collect(),
        Query::Peer => view.peers(&links()).map(Resource::Peer).collect(),
    }
}

/// The name of this process, as in /proc/self/comm.
pub(crate) fn own_name() -> String {
    let comm = std::fs::read("/proc/self/comm").unwrap_or_default();
    String::from_utf8_lossy(comm.trim_ascii_end()).into_owned()
}

fn limit(look: &LimitLook) -> LimitRow {
    let stage = match look.phase {
        Phase::FastRecovery => "recovery",
        Phase::Additive => "additive",
        Phase::Hyper => "hyper",
    };
    LimitRow {
        rate_bps: look.rate.bps(),
        target_bps: look.target.bps(),
        // In millionths, of which a text has all digits.
        alpha: f64::from((look.alpha * 1e6) as u32) / 1e6,
        stage: stage.to_owned(),
        time_stage: look.stages.0,
        byte_stage: look.stages.1,
    }
}

/// A device and who looks at it.
struct View<'a> {
    hca: &'a Hca,
    /// Of its ports; twice the same if there is one.
    addresses: [IpAddr; 2],
    now: Time,
    pid: u32,
    comm: String,
}

impl View<'_> {
    fn qps(&self) -> impl Iterator<Item = QpRow> {
        let policy = self.hca.policy();
        self.hca.look_at_qps().map(move |look| {
            let (qp, attr) = (look.qp, look.qp.attr());
            let retry = qp.retry();
            QpRow {
                lqpn: qp.qpn().value(),
                rqpn: look.path.map(|_| attr.dest_qpn.value()),
                qp_type: qp.config().qp_type.to_string(),
                state: format!("{:?}", qp.state()).to_uppercase(),
                rq_psn: qp.expected_psn().value(),
                sq_psn: qp.next_psn().value(),
                path_mig_state: "MIGRATED".to_owned(),
                pdn: look.pd.map(|pd| pd.0),
                send_cqn: look.send_cq.map(|cq| cq.0),
                recv_cqn: look.recv_cq.map(|cq| cq.0),
                srqn: look.srqn.map(|srqn| srqn.value()),
                peer: look.path.map(|path| path.dest),
                port: attr.port,
                timeout: attr.timeout,
                retry_cnt: attr.retry_cnt,
                rnr_retry: attr.rnr_retry,
                wait_ns: retry.wait(policy, self.now).map(Span::as_nanos),
                total_ns: retry.total(policy).map(Span::as_nanos),
                exponent: retry.exponent(),
                range: retry.range(),
                retries_left: retry.retries_left(),
                in_flight: qp.in_flight(),
                path_window: look.window.map(|path| path.window_bytes),
                path_used: look.window.map(|path| path.used_bytes),
                path_rtt_ns: look.window.and_then(|path| path.rtt_ns),
                send_queue: qp.send_queue_len() as u64,
                recv_queue: qp.recv_queue_len() as u64,
                pid: self.pid,
                comm: self.comm.clone(),
            }
        })
    }

    fn mrs(&self) -> impl Iterator<Item = MrRow> {
        self.hca.mrs().map(|mr| MrRow {
            mrn: mr.key.0 >> 8,
            rkey: mr.key.rkey(),
            lkey: mr.key.lkey(),
            iova: mr.va,
            mrlen: mr.len,
            pdn: mr.pd.0,
            pid: self.pid,
            comm: self.comm.clone(),
        })
    }

    fn cqs(&self) -> impl Iterator<Item = CqRow> {
        self.hca.look_at_cqs().map(|cq| CqRow {
            cqn: cq.id.0,
            cqe: cq.capacity,
            waiting: cq.waiting as u64,
            users: cq.users,
            pid: self.pid,
            comm: self.comm.clone(),
        })
    }

    fn pds(&self) -> impl Iterator<Item = PdRow> {
        self.hca.look_at_pds().map(|(pd, users)| PdRow {
            pdn: pd.0,
            users,
            pid: self.pid,
            comm: self.comm.clone(),
        })
    }

    fn srqs(&self) -> impl Iterator<Item = SrqRow> {
        self.hca.look_at_srqs().map(|srq| SrqRow {
            srqn: srq.srqn.value(),
            srq_type: if srq.xrc { "XRC" } else { "BASIC" }.to_owned(),
            pdn: srq.pd.0,
            max_wr: srq.max_wr,
            waiting: srq.waiting as u64,
            users: srq.users,
            pid: self.pid,
            comm: self.comm.clone(),
        })
    }

    fn cm_ids(&self) -> impl Iterator<Item = CmIdRow> {
        let cm = self.hca.cm();
        let row = |service: ferroce_wire::cm::ServiceId| CmIdRow {
            cm_idn: None,
            lqpn: None,
            rqpn: None,
            state: "LISTEN".to_owned(),
            cm_state: None,
            ps: service
                .space()
                .map(|space| format!("{space:?}").to_uppercase()),
            src_port: Some(service.port()),
            service_port: None,
            service_id: service.0,
            src_addr: self.addresses[0],
            port: 1,
            dst_addr: None,
            pid: self.pid,
            comm: self.comm.clone(),
        };
        let known = |qpn: ferroce_wire::Qpn| Some(qpn.value()).filter(|qpn| *qpn != 0);
        let connections = cm.connections().map(move |info| CmIdRow {
            cm_idn: Some(info.comm.0),
            lqpn: known(info.local_qpn),
            rqpn: known(info.remote_qpn),
            state: kernels_word(info.state).to_owned(),
            cm_state: Some(info.state.to_string()),
            // A listener has a port of its own; a connection does not say whose port it uses.
            src_port: None,
            service_port: Some(info.service_id.port()),
            dst_addr: Some(info.peer),
            port: info.port,
            src_addr: self.addresses[usize::from(info.port == 2)],
            ..row(info.service_id)
        });
        cm.services().map(row).chain(connections)
    }

    fn flows(&self) -> impl Iterator<Item = FlowRow> {
        self.hca.look_at_flows(self.now).map(|look| FlowRow {
            lqpn: look.qpn.value(),
            rqpn: look.dest_qpn.value(),
            peer: look.peer,
            prio: look.priority,
            cnps: look.cnps,
            limit: look.limit.as_ref().map(limit),
            pid: self.pid,
            comm: self.comm.clone(),
        })
    }

    /// Those that queue pairs are connected to, and those that only datagrams went to.
    fn peers(&self, links: &PeerLinks) -> impl Iterator<Item = PeerRow> {
        let mut qps = BTreeMap::new();
        for (&(peer, _), &link) in &links.known {
            qps.insert((peer, Some(link)), 0);
        }
        for look in self.hca.look_at_qps() {
            let Some(path) = look.path else { continue };
            let slot = (look.qp.attr().dest_qpn.value() >> 16) as u8;
            *qps.entry((path.dest, links.to((path.dest, slot))))
                .or_default() += 1;
        }
        qps.into_iter().map(|((peer, link), qps)| PeerRow {
            peer,
            link,
            qps,
            pid: self.pid,
            comm: self.comm.clone(),
        })
    }

    fn counts(&self) -> Counts {
        let mut qp_states = QpStates::default();
        let qps = self.hca.look_at_qps();
        qps.for_each(|look| qp_states.count(look.qp.state()));
        Counts {
            pd: self.hca.look_at_pds().count() as u64,
            cq: self.hca.look_at_cqs().count() as u64,
            qp: qp_states.sum(),
            qp_states,
            cm_id: (self.hca.cm().connections().count() + self.hca.cm().services().count()) as u64,
            mr: self.hca.mrs().count() as u64,
            ctx: 1,
            srq: self.hca.look_at_srqs().count() as u64,
            pid: self.pid,
            comm: self.comm.clone(),
        }
    }
}

/// The state as the kernel names it for an rdma_cm identifier.
fn kernels_word(state: CmState) -> &'static str {
    match state {
        CmState::Idle => "IDLE",
        CmState::DreqSent | CmState::DreqReceived | CmState::TimeWait => "DISCONNECT",
        CmState::ReqSent
        | CmState::RepReceived
        | CmState::ReqReceived
        | CmState::RepSent
        | CmState::Established
        | CmState::SidrReqSent
        | CmState::SidrReqReceived
        | CmState::SidrAnswered => "CONNECT",
    }
}
