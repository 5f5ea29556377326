//! Errors of the verbs and of access registers.

use std::net::{IpAddr, Ipv6Addr};
use std::{fmt, io};

use ferroce_adp::InvalidProfile;
use ferroce_prm::Status;
use ferroce_transport::{ModifyError, PostError, QpState, QpType};
use ferroce_wire::Qpn;
use thiserror::Error;

use crate::card::Missing;
use crate::histogram::HistogramError;

/// A kind of verbs object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the name is the meaning")]
pub enum Object {
    Pd,
    Mr,
    Mw,
    Cq,
    Xrcd,
    Srq,
    Qp,
    Group,
    Ah,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pd => "protection domain",
            Self::Mr => "memory region",
            Self::Mw => "memory window",
            Self::Cq => "completion queue",
            Self::Xrcd => "XRC domain",
            Self::Srq => "shared receive queue",
            Self::Qp => "queue pair",
            Self::Group => "multicast group",
            Self::Ah => "address handle",
        })
    }
}

/// The reason why a verb was refused. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// The handle is invalid (`EINVAL`).
    #[error("no {object} has the handle {handle:#x}; it was never created, or destroyed")]
    NoSuch {
        /// What was looked for.
        object: Object,
        /// The number given.
        handle: u32,
    },
    /// Other objects still use it (`EBUSY`).
    #[error("the {object} is still used by {users} other objects; destroy them first")]
    Busy {
        /// What was to be destroyed.
        object: Object,
        /// How many use it.
        users: u32,
    },
    /// The device has the maximum number of these objects (`ENOMEM`).
    #[error("the device holds at most {max} objects of the kind {object}")]
    TooMany {
        /// What was to be created.
        object: Object,
        /// The limit.
        max: u32,
    },
    /// A value is outside the device's capabilities (`EINVAL`).
    #[error("{field} is {value}; allowed: {min} to {max}")]
    OutOfRange {
        /// Name of the attribute.
        field: &'static str,
        /// Value given.
        value: u64,
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
    },
    /// REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE (`EINVAL`).
    #[error("IBV_ACCESS_REMOTE_WRITE and IBV_ACCESS_REMOTE_ATOMIC need IBV_ACCESS_LOCAL_WRITE too")]
    NeedsLocalWrite,
    /// The access flags are unknown (`EINVAL`).
    #[error("access flags {bits:#x} are unknown; clear them")]
    UnknownAccess {
        /// The unknown ones.
        bits: u32,
    },
    /// The device does not support this feature (`EOPNOTSUPP`).
    #[error("the device does not support {what}")]
    NotSupported {
        /// The flag or operation, as verbs programs know it.
        what: &'static str,
    },
    /// The whole address space was given, but not from 0 or without `IBV_ACCESS_ON_DEMAND`
    /// (`EINVAL`).
    #[error("a region of the whole address space starts at 0 and needs IBV_ACCESS_ON_DEMAND")]
    NeedsOnDemand,
    /// `ibv_bind_mw` is for windows of type 1, BIND_MW work requests for those of type 2
    /// (`EINVAL`).
    #[error(
        "the memory window has another type: ibv_bind_mw binds type 1, a BIND_MW work request type 2"
    )]
    WrongMwType,
    /// The verb is for queue pairs of another type (`EINVAL`).
    #[error("the queue pair is of type {actual}, this needs {needed}")]
    WrongType {
        /// Type of the queue pair.
        actual: QpType,
        /// Type it would have to be.
        needed: QpType,
    },
    /// An XRC_RECV queue pair has an XRC domain, and neither a PD nor CQs (`EINVAL`).
    #[error("an XRC_RECV queue pair needs an XRC domain and no PD; set IBV_QP_INIT_ATTR_XRCD")]
    NeedsXrcDomain,
    /// A DCT has an access key (`EINVAL`).
    #[error("a DCT needs an access key; create it with mlx5dv_create_qp")]
    NeedsDcKey,
    /// A DCT receives from a shared receive queue (`EINVAL`).
    #[error("a DCT needs a shared receive queue; set srq, made with ibv_create_srq")]
    NeedsSrq,
    /// A shared receive queue of XRC serves no other queue pairs (`EINVAL`).
    #[error(
        "the shared receive queue is of type XRC; make one of type IBV_SRQT_BASIC for this queue pair"
    )]
    XrcSrq,
    /// The address is not a multicast address (`EINVAL`).
    #[error("{gid} is not a multicast GID; those begin with ff, or are ::ffff: and an IPv4 group")]
    NotMulticast {
        /// The GID, in the notation of an IPv6 address.
        gid: Ipv6Addr,
    },
    /// The multicast group has the maximum number of queue pairs (`ENOMEM`).
    #[error("the multicast group {group} has {max} queue pairs, the most there can be")]
    GroupFull {
        /// The group.
        group: IpAddr,
        /// The limit.
        max: u32,
    },
    /// The queue pair is not attached to the group (`EINVAL`).
    #[error("the queue pair {qpn} is not attached to the multicast group {group}")]
    NotAttached {
        /// The queue pair.
        qpn: Qpn,
        /// The group.
        group: IpAddr,
    },
    /// `IBV_QP_AV` was named without an address, or an address given without it (`EINVAL`).
    #[error("IBV_QP_AV and the address of the peer must come together")]
    AddressMismatch,
    /// The peer of a connected queue pair is not one host (`EINVAL`).
    #[error(
        "a connected queue pair cannot have {dest} as its peer: that is not the address of one host"
    )]
    NotUnicast {
        /// The address given.
        dest: IpAddr,
    },
    /// The options of a connection are set before its queue pair can send (`EINVAL`).
    #[error("the queue pair {qpn} is in state {state:?}: set its ECE options before RTS")]
    EceTooLate {
        /// The queue pair.
        qpn: Qpn,
        /// Its state.
        state: QpState,
    },
    /// See [`ModifyError`].
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// See [`PostError`].
    #[error(transparent)]
    Post(#[from] PostError),
}

/// Linux error numbers, the same on every architecture Ferroce runs on.
mod errno {
    pub(super) const ENOMEM: i32 = 12;
    pub(super) const EBUSY: i32 = 16;
    pub(super) const EINVAL: i32 = 22;
    pub(super) const EOPNOTSUPP: i32 = 95;
}

impl VerbsError {
    /// Returns the error number that a verbs program sees.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Busy { .. } => errno::EBUSY,
            Self::TooMany { .. }
            | Self::GroupFull { .. }
            | Self::Post(PostError::QueueFull { .. }) => errno::ENOMEM,
            Self::NotSupported { .. } => errno::EOPNOTSUPP,
            _ => errno::EINVAL,
        }
    }
}

/// The shared state could not be changed because the host could not lock it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("cannot lock the device's shared state: {}", io::Error::from_raw_os_error(*errno))]
pub struct WriteLockError {
    /// What the operating system said.
    pub errno: i32,
}

/// Why a register access was refused. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The device has no such register.
    #[error("register {id:#06x} is not supported")]
    NotSupported {
        /// The number given.
        id: u16,
    },
    /// The card's firmware has no such register.
    #[error("{register} is not supported: {missing}")]
    NotOnCard {
        /// Name of the register.
        register: &'static str,
        /// What the card does not have.
        missing: Missing,
    },
    /// The card's firmware has no such feature in the register (`BAD_PARAM`).
    #[error("{field} = 1: {missing}; write 0")]
    NoFeature {
        /// Name of the select bit.
        field: &'static str,
        /// What the card does not have.
        missing: Missing,
    },
    /// The register can be read only.
    #[error("{register} can be read and not be written; {instead}")]
    ReadOnly {
        /// Name of the register.
        register: &'static str,
        /// What to do instead.
        instead: &'static str,
    },
    /// A VF wants to change what holds for the card (`BAD_OP`).
    #[error("{what}, and this is a VF: write it through its PF {pf}")]
    OfTheCard {
        /// What is the card's.
        what: &'static str,
        /// Name of the PF.
        pf: String,
    },
    /// The data is shorter than what is written or read, or not a multiple of 4, or too long.
    #[error("{register}: {len} bytes of data; {needs}")]
    BadLength {
        /// Name of the register.
        register: &'static str,
        /// Bytes given.
        len: usize,
        /// What is needed.
        needs: String,
    },
    /// A field has a value the device does not accept (`BAD_PARAM`).
    #[error("{field} = {value}: {reason}")]
    BadParam {
        /// Name of the field.
        field: &'static str,
        /// Value given.
        value: u32,
        /// What would be right.
        reason: &'static str,
    },
    /// The profile is not one the device can run (`BAD_PARAM`).
    #[error(transparent)]
    BadProfile(#[from] InvalidProfile),
    /// The histogram is not one the device can have (`BAD_PARAM`).
    #[error(transparent)]
    BadHistogram(#[from] HistogramError),
    /// No profile has this index (`BAD_INDEX`).
    #[error("adp_retx_profile_id = {index}: this device has profile 1 only")]
    BadIndex {
        /// The index given.
        index: u32,
    },
    /// See [`WriteLockError`].
    #[error(transparent)]
    Lock(#[from] WriteLockError),
}

impl RegisterError {
    /// What a command that fails so is answered with.
    pub const fn status(&self) -> Status {
        match self {
            Self::NotSupported { .. } | Self::NotOnCard { .. } => Status::NOT_SUPPORTED,
            Self::ReadOnly { .. } | Self::OfTheCard { .. } => Status::BAD_OPERATION,
            Self::BadLength { .. } => Status::BAD_INPUT_LENGTH,
            Self::NoFeature { .. }
            | Self::BadParam { .. }
            | Self::BadProfile(_)
            | Self::BadHistogram(_) => Status::BAD_PARAMETER,
            Self::BadIndex { .. } => Status::BAD_INDEX,
            Self::Lock(_) => Status::INTERNAL_ERROR,
        }
    }
}
