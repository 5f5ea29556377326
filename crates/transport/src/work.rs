//! Work requests and completions.

use bitflags::bitflags;
use ferroce_base::time::Time;
use ferroce_wire::{DcConnect, Dceth, Qpn};
use smallvec::SmallVec;
use thiserror::Error;

use crate::attr::AccessFlags;
use crate::bytes::Bytes;
use crate::service::{QpType, SendTo};

/// Largest message of the RC service: 2^31 bytes (IBA vol 1, 9.7.2).
pub const MAX_MESSAGE_BYTES: u64 = 1 << 31;

/// A scatter/gather element: local memory and its lkey.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sge {
    /// Virtual address of the first byte.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Local key.
    pub lkey: u32,
}

/// A scatter/gather list; one element is the common case.
pub type Sges = SmallVec<[Sge; 1]>;

bitflags! {
    /// Flags of a send work request; the bits of `ibv_send_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct SendFlags: u32 {
        /// Do not start before earlier READs and atomics have completed.
        const FENCE = 1 << 0;
        /// Produce a completion.
        const SIGNALED = 1 << 1;
        /// Raise a solicited event at the receiver.
        const SOLICITED = 1 << 2;
        /// Copy the payload while posting; lkeys are ignored.
        const INLINE = 1 << 3;
    }
}

/// The operation of a send work request; UC has SEND and WRITE, UD only SEND.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// SEND, with immediate data if given.
    Send {
        /// Immediate data, as the 32-bit value on the wire.
        imm: Option<u32>,
    },
    /// SEND that invalidates one of the receiver's remote keys.
    SendInvalidate {
        /// The receiver's key.
        rkey: u32,
    },
    /// RDMA WRITE, with immediate data if given.
    Write {
        /// Remote address.
        va: u64,
        /// Remote key.
        rkey: u32,
        /// Immediate data; consumes a receive WQE of the peer.
        imm: Option<u32>,
    },
    /// RDMA READ.
    Read {
        /// Remote address.
        va: u64,
        /// Remote key.
        rkey: u32,
    },
    /// Compare and swap on 8 bytes.
    CompareSwap {
        /// Remote address, 8-byte aligned.
        va: u64,
        /// Remote key.
        rkey: u32,
        /// Expected value.
        compare: u64,
        /// Value to write.
        swap: u64,
    },
    /// Fetch and add on 8 bytes.
    FetchAdd {
        /// Remote address, 8-byte aligned.
        va: u64,
        /// Remote key.
        rkey: u32,
        /// Addend.
        add: u64,
    },
    /// Binds a memory window; nothing is sent (IBA vol 1, 10.6.6.2).
    BindMw(MwBind),
    /// Unbinds a type 2 memory window; nothing is sent.
    LocalInvalidate {
        /// The window's current key.
        rkey: u32,
    },
    /// Opens a connection to a target. A DCI makes it itself; no queue takes it from a program, and
    /// it has no completion.
    Connect {
        /// The connection.
        dceth: Dceth,
        /// The target's key.
        connect: DcConnect,
    },
}

impl QpType {
    /// Whether its send queue takes `op` (IBA vol 1, 10.7.2, table of transport services).
    pub(crate) fn supports(self, op: &SendOp) -> bool {
        match (self, op) {
            (Self::XrcRecv | Self::Dct | Self::DcResponder, _) | (_, SendOp::Connect { .. }) => {
                false
            }
            (_, SendOp::Send { .. }) => true,
            (_, SendOp::Write { .. } | SendOp::BindMw(_) | SendOp::LocalInvalidate { .. }) => {
                self != Self::Ud
            }
            _ => self.is_reliable(),
        }
    }
}

/// The binding of a memory window (`ibv_mw_bind_info`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MwBind {
    /// The window's new key. The upper 24 bits identify the window.
    pub rkey: u32,
    /// Key of the memory region; ignored if `length` is 0.
    pub lkey: u32,
    /// First byte, as an address in the region.
    pub va: u64,
    /// Length in bytes; 0 unbinds a type 1 window.
    pub length: u64,
    /// What the peer may do; only the remote flags count.
    pub access: AccessFlags,
    /// The peer's addresses count from the start of the window (`IBV_ACCESS_ZERO_BASED`), instead
    /// of being addresses of the region.
    pub zero_based: bool,
}

impl SendOp {
    /// Returns whether it is an operation of the device on its own keys, without packet and PSN.
    pub fn is_local(&self) -> bool {
        matches!(self, Self::BindMw(_) | Self::LocalInvalidate { .. })
    }

    /// Returns whether it is a READ or atomic, for which the peer answers with data and keeps a
    /// responder resource.
    pub fn needs_response(&self) -> bool {
        matches!(self, Self::Read { .. }) || self.is_atomic()
    }

    /// Returns whether it is a compare-and-swap or fetch-and-add.
    pub fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Returns whether the message consumes a receive WQE of the peer, and therefore a credit.
    pub fn consumes_receive(&self) -> bool {
        matches!(
            self,
            Self::Send { .. } | Self::SendInvalidate { .. } | Self::Write { imm: Some(_), .. }
        )
    }

    /// Returns its name in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Send { .. } => "SEND",
            Self::SendInvalidate { .. } => "SEND with invalidate",
            Self::Write { .. } => "RDMA WRITE",
            Self::Read { .. } => "RDMA READ",
            Self::CompareSwap { .. } => "compare and swap",
            Self::FetchAdd { .. } => "fetch and add",
            Self::BindMw(_) => "bind of memory windows",
            Self::LocalInvalidate { .. } => "local invalidation",
            Self::Connect { .. } => "connect",
        }
    }

    /// Returns the opcode of its completion.
    pub fn wc_opcode(&self) -> WcOpcode {
        match self {
            Self::Send { .. } | Self::SendInvalidate { .. } | Self::Connect { .. } => {
                WcOpcode::Send
            }
            Self::Write { .. } => WcOpcode::RdmaWrite,
            Self::Read { .. } => WcOpcode::RdmaRead,
            Self::CompareSwap { .. } => WcOpcode::CompSwap,
            Self::FetchAdd { .. } => WcOpcode::FetchAdd,
            Self::BindMw(_) => WcOpcode::BindMw,
            Self::LocalInvalidate { .. } => WcOpcode::LocalInv,
        }
    }
}

/// A send work request.
#[derive(Clone, Debug)]
pub struct SendWr {
    /// Returned in the completion.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// Flags.
    pub flags: SendFlags,
    /// Local memory: source of SEND and WRITE, destination of READ and atomics. Ignored by
    /// operations on keys.
    pub sges: Sges,
    /// The bytes themselves, instead of `sges`, with [`SendFlags::INLINE`].
    pub inline: Option<Bytes>,
    /// The destination; the type of the queue pair determines which kind it must be.
    pub to: SendTo,
}

impl Default for SendWr {
    /// A SEND of nothing, which is not signalled.
    #[inline]
    fn default() -> Self {
        Self {
            wr_id: 0,
            op: SendOp::Send { imm: None },
            flags: SendFlags::empty(),
            sges: Sges::new(),
            inline: None,
            to: SendTo::Peer,
        }
    }
}

impl SendWr {
    /// Creates a signalled work request with one element of local memory, for the connected peer.
    pub fn new(wr_id: u64, op: SendOp, sge: Sge) -> Self {
        Self {
            wr_id,
            op,
            flags: SendFlags::SIGNALED,
            sges: SmallVec::from_buf([sge]),
            inline: None,
            to: SendTo::Peer,
        }
    }

    /// Returns the length of its message in bytes.
    #[inline]
    pub fn length(&self) -> u64 {
        match &self.inline {
            Some(bytes) => bytes.len() as u64,
            None => self.sges.iter().map(|sge| u64::from(sge.length)).sum(),
        }
    }
}

/// A receive work request.
#[derive(Clone, Debug)]
pub struct RecvWr {
    /// Returned in the completion.
    pub wr_id: u64,
    /// Destination of a SEND.
    pub sges: Sges,
}

/// A receive WQE on a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecvWqe {
    /// Returned in the completion.
    pub wr_id: u64,
    /// Destination of a SEND.
    pub sges: Sges,
}

/// The reason why a work request was not accepted. Nothing was queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PostError {
    /// The queue pair's state does not accept such work requests.
    #[error("the QP is in state {state:?}; {queue} work requests need {needs}")]
    WrongState {
        /// The present state.
        state: crate::QpState,
        /// `send` or `receive`.
        queue: &'static str,
        /// States that accept it.
        needs: &'static str,
    },
    /// The queue holds its maximum of outstanding requests.
    #[error(
        "the queue is full: {max} outstanding work requests; poll the CQ, or create the QP with a larger max_send_wr/max_recv_wr"
    )]
    QueueFull {
        /// Capacity.
        max: u32,
    },
    /// There are more elements than the queue was created for.
    #[error("{got} scatter/gather elements, the queue was created for at most {max}")]
    TooManySges {
        /// Elements given.
        got: usize,
        /// Largest number allowed.
        max: u32,
    },
    /// There is more inline data than the QP was created for.
    #[error("{got} bytes inline, the QP was created for at most {max}")]
    InlineTooLong {
        /// Bytes given.
        got: usize,
        /// Largest number allowed.
        max: u32,
    },
    /// READ and atomics write to local memory and cannot be inline; other operations need their
    /// bytes if the flag is set.
    #[error("IBV_SEND_INLINE needs SEND or RDMA WRITE together with the bytes themselves")]
    InlineMismatch,
    /// The message is larger than 2^31 bytes.
    #[error("the message has {got} bytes: must be at most 2147483648")]
    MessageTooLong {
        /// Bytes in the list.
        got: u64,
    },
    /// The QP's service does not have this operation.
    #[error("a queue pair of type {qp_type} has no {operation}; create one of another type")]
    Unsupported {
        /// The QP's type.
        qp_type: QpType,
        /// The operation, see [`SendOp::name`].
        operation: &'static str,
    },
    /// Datagrams need an address, requests of XRC a shared receive queue, and those of DC a target;
    /// all other requests go to the QP's peer.
    #[error(
        "a UD work request needs an address handle, remote QPN and Q_Key, one of XRC the number of \
         an SRQ, one of a DCI an address handle, DCT number and DC key, and no other takes them; \
         this QP is of type {qp_type}"
    )]
    WrongAddress {
        /// The QP's type.
        qp_type: QpType,
    },
    /// Receives of XRC come from the shared receive queue that the peer names.
    #[error("a queue pair of type {qp_type} has no receive queue; post to an SRQ of XRC")]
    NoReceiveQueue {
        /// The QP's type.
        qp_type: QpType,
    },
    /// Receive requests of this QP come from its shared receive queue.
    #[error("the QP takes its receives from an SRQ; post to that one")]
    UsesSrq,
}

/// The work queue that a completion belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkQueue {
    /// Send queue.
    Send,
    /// Receive queue.
    Recv,
}

/// Completion status with the values and names of `ibv_wc_status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[non_exhaustive]
#[allow(missing_docs, reason = "names and values are those of ibv_wc_status")]
pub enum WcStatus {
    Success = 0,
    LocLenErr = 1,
    LocQpOpErr = 2,
    LocProtErr = 4,
    WrFlushErr = 5,
    MwBindErr = 6,
    BadRespErr = 7,
    LocAccessErr = 8,
    RemInvReqErr = 9,
    RemAccessErr = 10,
    RemOpErr = 11,
    RetryExcErr = 12,
    RnrRetryExcErr = 13,
}

impl WcStatus {
    /// All statuses, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Success,
        Self::LocLenErr,
        Self::LocQpOpErr,
        Self::LocProtErr,
        Self::WrFlushErr,
        Self::MwBindErr,
        Self::BadRespErr,
        Self::LocAccessErr,
        Self::RemInvReqErr,
        Self::RemAccessErr,
        Self::RemOpErr,
        Self::RetryExcErr,
        Self::RnrRetryExcErr,
    ];

    /// Returns the status with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|it| *it as u32 == number)
    }

    /// Returns the name as verbs programs print it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "IBV_WC_SUCCESS",
            Self::LocLenErr => "IBV_WC_LOC_LEN_ERR",
            Self::LocQpOpErr => "IBV_WC_LOC_QP_OP_ERR",
            Self::LocProtErr => "IBV_WC_LOC_PROT_ERR",
            Self::WrFlushErr => "IBV_WC_WR_FLUSH_ERR",
            Self::MwBindErr => "IBV_WC_MW_BIND_ERR",
            Self::BadRespErr => "IBV_WC_BAD_RESP_ERR",
            Self::LocAccessErr => "IBV_WC_LOC_ACCESS_ERR",
            Self::RemInvReqErr => "IBV_WC_REM_INV_REQ_ERR",
            Self::RemAccessErr => "IBV_WC_REM_ACCESS_ERR",
            Self::RemOpErr => "IBV_WC_REM_OP_ERR",
            Self::RetryExcErr => "IBV_WC_RETRY_EXC_ERR",
            Self::RnrRetryExcErr => "IBV_WC_RNR_RETRY_EXC_ERR",
        }
    }

    /// Returns the vendor syndrome that ConnectX reports with this status, if it is always the same
    /// one; 0 if it is not known.
    //= F1, F6: 0x89 and 0x61.
    pub fn vendor_err(self) -> u32 {
        match self {
            Self::LocQpOpErr => 0x61,
            Self::RetryExcErr => 0x81,
            Self::RnrRetryExcErr => 0x87,
            Self::RemAccessErr => 0x88,
            Self::RemOpErr => 0x89,
            Self::RemInvReqErr => 0x8a,
            Self::WrFlushErr => 0xf9,
            _ => 0,
        }
    }
}

/// Completion opcode with the values of `ibv_wc_opcode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[non_exhaustive]
#[allow(missing_docs, reason = "names and values are those of ibv_wc_opcode")]
pub enum WcOpcode {
    Send = 0,
    RdmaWrite = 1,
    RdmaRead = 2,
    CompSwap = 3,
    FetchAdd = 4,
    BindMw = 5,
    LocalInv = 6,
    Recv = 128,
    RecvRdmaWithImm = 129,
}

impl WcOpcode {
    const ALL: [Self; 9] = [
        Self::Send,
        Self::RdmaWrite,
        Self::RdmaRead,
        Self::CompSwap,
        Self::FetchAdd,
        Self::BindMw,
        Self::LocalInv,
        Self::Recv,
        Self::RecvRdmaWithImm,
    ];

    /// Returns the opcode with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|it| *it as u32 == number)
    }

    /// Returns its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "SEND",
            Self::RdmaWrite => "RDMA WRITE",
            Self::RdmaRead => "RDMA READ",
            Self::CompSwap => "compare and swap",
            Self::FetchAdd => "fetch and add",
            Self::BindMw => "bind of a memory window",
            Self::LocalInv => "local invalidation",
            Self::Recv => "receive",
            Self::RecvRdmaWithImm => "receive of immediate data",
        }
    }

    /// Returns the work queue whose requests complete with it.
    pub fn work_queue(self) -> WorkQueue {
        match self {
            Self::Recv | Self::RecvRdmaWithImm => WorkQueue::Recv,
            _ => WorkQueue::Send,
        }
    }
}

bitflags! {
    /// Flags of a completion; the bits of `ibv_wc_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct WcFlags: u32 {
        /// The first 40 bytes received are the IP header of the datagram.
        const GRH = 1 << 0;
        /// `imm` holds immediate data.
        const WITH_IMM = 1 << 1;
        /// `imm` holds the invalidated rkey.
        const WITH_INV = 1 << 3;
    }
}

/// A completion queue entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// From the work request.
    pub wr_id: u64,
    /// Status.
    pub status: WcStatus,
    /// What completed.
    pub opcode: WcOpcode,
    /// Vendor syndrome, 0 on success.
    pub vendor_err: u32,
    /// Bytes received (with the GRH) or read; 0 for SEND and WRITE, as the field is undefined there.
    pub byte_len: u32,
    /// Immediate data or invalidated rkey, by `flags`.
    pub imm: u32,
    /// The local QP.
    pub qpn: Qpn,
    /// The QP that sent the datagram, for receives of UD; 0 otherwise.
    pub src_qp: Qpn,
    /// Flags.
    pub flags: WcFlags,
    /// The peer asked for a solicited event, or the completion is an error; for `ibv_req_notify_cq`
    /// with `solicited_only`.
    pub solicited: bool,
    /// When the device added it to its queue, by the device's clock; zero before that.
    pub timestamp: Time,
}

impl Completion {
    /// Creates an error completion; its data fields are zero.
    pub fn error(wr_id: u64, status: WcStatus, opcode: WcOpcode, qpn: Qpn) -> Self {
        Self {
            wr_id,
            status,
            opcode,
            vendor_err: status.vendor_err(),
            byte_len: 0,
            imm: 0,
            qpn,
            src_qp: Qpn::new(0),
            flags: WcFlags::empty(),
            solicited: true,
            timestamp: Time::ZERO,
        }
    }

    /// Creates a successful completion without data.
    pub fn success(wr_id: u64, opcode: WcOpcode, qpn: Qpn) -> Self {
        Self {
            wr_id,
            status: WcStatus::Success,
            opcode,
            vendor_err: 0,
            byte_len: 0,
            imm: 0,
            qpn,
            src_qp: Qpn::new(0),
            flags: WcFlags::empty(),
            solicited: false,
            timestamp: Time::ZERO,
        }
    }
}
