//! Attributes of a queue pair, and which of them each change of state requires and accepts
//! (`ibv_modify_qp`).

mod transition;

use std::fmt;

use bitflags::bitflags;
use ferroce_wire::{Psn, Qpn};
use thiserror::Error;

use self::transition::{Needs, transition};
use crate::service::QpType;

/// State of a queue pair; the values of `ibv_qp_state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u32)]
pub enum QpState {
    /// Newly created; accepts no work requests.
    Reset = 0,
    /// Accepts receive work requests.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// Send queue drained: work that started is finished, nothing new starts.
    Sqd = 4,
    /// Send queue error. UC and UD only; an RC queue pair goes to `Err` instead (IBA vol 1, 10.3.1).
    Sqe = 5,
    /// Error: everything posted is flushed.
    Err = 6,
}

impl QpState {
    /// Returns the state with this number of `ibv_qp_state`.
    pub fn from_u32(value: u32) -> Option<Self> {
        use QpState::*;
        [Reset, Init, Rtr, Rts, Sqd, Sqe, Err]
            .into_iter()
            .find(|s| *s as u32 == value)
    }
}

/// Path MTU; the values of `ibv_mtu`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
#[allow(missing_docs, reason = "the name is the value")]
pub enum Mtu {
    Mtu256 = 1,
    Mtu512 = 2,
    Mtu1024 = 3,
    Mtu2048 = 4,
    Mtu4096 = 5,
}

impl Mtu {
    /// All values, ascending.
    pub const ALL: [Self; 5] = [
        Self::Mtu256,
        Self::Mtu512,
        Self::Mtu1024,
        Self::Mtu2048,
        Self::Mtu4096,
    ];

    /// Returns the payload bytes of a full packet.
    pub const fn bytes(self) -> u32 {
        128 << self as u8
    }

    /// Returns the MTU of `bytes` payload bytes.
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }
}

bitflags! {
    /// Access permissions of QPs and memory regions; the bits of `ibv_access_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct AccessFlags: u32 {
        /// The device may write for local work requests.
        const LOCAL_WRITE = 1 << 0;
        /// The peer may write.
        const REMOTE_WRITE = 1 << 1;
        /// The peer may read.
        const REMOTE_READ = 1 << 2;
        /// The peer may execute atomics.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to the region.
        const MW_BIND = 1 << 4;
    }
}

impl AccessFlags {
    /// Everything that a peer can be permitted.
    pub const REMOTE: Self = Self::REMOTE_WRITE
        .union(Self::REMOTE_READ)
        .union(Self::REMOTE_ATOMIC);
}

bitflags! {
    /// Attributes named in a modify; the bits of `ibv_qp_attr_mask`.
    #[derive(Clone, Copy, PartialEq, Eq, Default)]
    pub struct Attr: u32 {
        /// `qp_state`
        const STATE = 1 << 0;
        /// `cur_qp_state`
        const CUR_STATE = 1 << 1;
        /// `en_sqd_async_notify`
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// `qp_access_flags`
        const ACCESS_FLAGS = 1 << 3;
        /// `pkey_index`
        const PKEY_INDEX = 1 << 4;
        /// `port_num`
        const PORT = 1 << 5;
        /// `qkey`
        const QKEY = 1 << 6;
        /// `ah_attr`
        const AV = 1 << 7;
        /// `path_mtu`
        const PATH_MTU = 1 << 8;
        /// `timeout`
        const TIMEOUT = 1 << 9;
        /// `retry_cnt`
        const RETRY_CNT = 1 << 10;
        /// `rnr_retry`
        const RNR_RETRY = 1 << 11;
        /// `rq_psn`
        const RQ_PSN = 1 << 12;
        /// `max_rd_atomic`
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// `alt_ah_attr` and its companions; RoCE has no alternate paths
        const ALT_PATH = 1 << 14;
        /// `min_rnr_timer`
        const MIN_RNR_TIMER = 1 << 15;
        /// `sq_psn`
        const SQ_PSN = 1 << 16;
        /// `max_dest_rd_atomic`
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// `path_mig_state`
        const PATH_MIG_STATE = 1 << 18;
        /// `cap`; no queue can be resized
        const CAP = 1 << 19;
        /// `dest_qp_num`
        const DEST_QPN = 1 << 20;
        /// `rate_limit`; there is none
        const RATE_LIMIT = 1 << 25;
    }
}

impl fmt::Debug for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Attr {
    /// The names of `ibv_qp_attr_mask`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, _)) in self.iter_names().enumerate() {
            let separator = if index == 0 { "" } else { " | " };
            write!(f, "{separator}IBV_QP_{name}")?;
        }
        Ok(())
    }
}

/// Attributes of a queue pair, as `ibv_query_qp` returns them.
///
/// The address vector belongs to the device, which knows addresses; the transport only requires
/// that it is given when needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpAttr {
    /// What the peer may do.
    pub access: AccessFlags,
    /// Index into the port's partition key table.
    pub pkey_index: u16,
    /// Port, from 1.
    pub port: u8,
    /// Q_Key of a UD QP.
    pub qkey: u32,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// The peer's QP.
    pub dest_qpn: Qpn,
    /// First PSN expected.
    pub rq_psn: Psn,
    /// First PSN sent.
    pub sq_psn: Psn,
    /// READs and atomics this QP may have outstanding.
    pub max_rd_atomic: u8,
    /// READs and atomics the peer may have outstanding here.
    pub max_dest_rd_atomic: u8,
    /// Code 0..31 of the RNR timer this side asks for.
    pub min_rnr_timer: u8,
    /// ACK timeout exponent, 0..31; 0 is infinite.
    pub timeout: u8,
    /// Retries, 0..7.
    pub retry_cnt: u8,
    /// RNR retries, 0..7; 7 is infinite.
    pub rnr_retry: u8,
    /// Report [`crate::QpEvent::SendQueueDrained`].
    pub sqd_async_notify: bool,
    /// Path migration state; RoCE only has 0, migrated.
    pub path_mig_state: u8,
}

impl Default for QpAttr {
    fn default() -> Self {
        Self {
            access: AccessFlags::empty(),
            pkey_index: 0,
            port: 1,
            qkey: 0,
            path_mtu: Mtu::Mtu1024,
            dest_qpn: Qpn::new(0),
            rq_psn: Psn::ZERO,
            sq_psn: Psn::ZERO,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            sqd_async_notify: false,
            path_mig_state: 0,
        }
    }
}

/// A change of attributes, as `ibv_modify_qp` takes it: those named by `mask`, with the values
/// of `attr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpModify {
    /// Which attributes are given.
    pub mask: Attr,
    /// Target state, with [`Attr::STATE`].
    pub state: QpState,
    /// State the caller believes the QP is in, with [`Attr::CUR_STATE`].
    pub cur_state: QpState,
    /// Values of the others.
    pub attr: QpAttr,
}

impl QpModify {
    /// Creates a move to `state` with the attributes of `mask`, taken from `attr`.
    pub fn to(state: QpState, mask: Attr, attr: QpAttr) -> Self {
        Self {
            mask: mask | Attr::STATE,
            state,
            cur_state: state,
            attr,
        }
    }

    /// RESET to INIT of an RC queue pair.
    pub fn init(attr: QpAttr) -> Self {
        Self::step(QpType::Rc, QpState::Reset, QpState::Init, attr)
    }

    /// INIT to RTR of an RC queue pair.
    pub fn rtr(attr: QpAttr) -> Self {
        Self::step(QpType::Rc, QpState::Init, QpState::Rtr, attr)
    }

    /// RTR to RTS of an RC queue pair.
    pub fn rts(attr: QpAttr) -> Self {
        Self::step(QpType::Rc, QpState::Rtr, QpState::Rts, attr)
    }

    /// Creates the move from one state to another with all attributes that it requires, and no
    /// others.
    pub fn step(qp_type: QpType, from: QpState, to: QpState, attr: QpAttr) -> Self {
        let needs = transition(qp_type, from, to);
        Self::to(
            to,
            needs.map_or(Attr::empty(), |needs| needs.required),
            attr,
        )
    }
}

/// The reason why a modify was refused. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// No such transition for this type.
    #[error("a queue pair of type {qp_type} cannot go from {from:?} to {to:?}")]
    NoTransition {
        /// Type of the QP.
        qp_type: QpType,
        /// Present state.
        from: QpState,
        /// Requested state.
        to: QpState,
    },
    /// `cur_qp_state` does not match.
    #[error("IBV_QP_CUR_STATE says {claimed:?}, the QP is in {actual:?}")]
    NotInState {
        /// The caller's assumption.
        claimed: QpState,
        /// The actual state.
        actual: QpState,
    },
    /// Attributes that this transition requires are missing.
    #[error("{from:?} to {to:?} of type {qp_type} needs {missing} too")]
    Missing {
        /// Type of the QP.
        qp_type: QpType,
        /// Present state.
        from: QpState,
        /// Requested state.
        to: QpState,
        /// Attributes to add.
        missing: Attr,
    },
    /// This transition does not accept these attributes.
    #[error("{from:?} to {to:?} of type {qp_type} does not take {extra}")]
    NotAllowed {
        /// Type of the QP.
        qp_type: QpType,
        /// Present state.
        from: QpState,
        /// Requested state.
        to: QpState,
        /// Attributes to leave out.
        extra: Attr,
    },
    /// Alternate paths belong to InfiniBand; no RoCE device has them.
    #[error("RoCE has no alternate paths; leave IBV_QP_ALT_PATH out")]
    NoAlternatePath,
    /// A value is outside its range.
    #[error("{field} is {value}; allowed: {min} to {max}")]
    OutOfRange {
        /// Name of the `ibv_qp_attr` field.
        field: &'static str,
        /// Value given.
        value: u64,
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
    },
}

impl QpModify {
    /// The state the QP would be in, if the change is allowed from state `from`.
    pub(crate) fn check(&self, qp_type: QpType, from: QpState) -> Result<QpState, ModifyError> {
        if self.mask.contains(Attr::CUR_STATE) && self.cur_state != from {
            return Err(ModifyError::NotInState {
                claimed: self.cur_state,
                actual: from,
            });
        }
        let to = if self.mask.contains(Attr::STATE) {
            self.state
        } else {
            from
        };
        let Some(Needs { required, optional }) = transition(qp_type, from, to) else {
            return Err(ModifyError::NoTransition { qp_type, from, to });
        };
        let given = self.mask - Attr::STATE;
        let missing = required - given;
        if !missing.is_empty() {
            return Err(ModifyError::Missing {
                qp_type,
                from,
                to,
                missing,
            });
        }
        let extra = given - required - optional;
        if !extra.is_empty() {
            return Err(ModifyError::NotAllowed {
                qp_type,
                from,
                to,
                extra,
            });
        }
        if given.contains(Attr::ALT_PATH) {
            return Err(ModifyError::NoAlternatePath);
        }
        self.check_ranges()?;
        Ok(to)
    }

    fn check_ranges(&self) -> Result<(), ModifyError> {
        let attr = &self.attr;
        // The device knows its ports; each has one partition key, and no path can migrate.
        let fields: [(Attr, &str, u64, u64, u64); 7] = [
            (Attr::PKEY_INDEX, "pkey_index", attr.pkey_index.into(), 0, 0),
            (Attr::PORT, "port_num", attr.port.into(), 1, 255),
            (
                Attr::PATH_MIG_STATE,
                "path_mig_state",
                attr.path_mig_state.into(),
                0,
                0,
            ),
            (Attr::TIMEOUT, "timeout", attr.timeout.into(), 0, 31),
            (Attr::RETRY_CNT, "retry_cnt", attr.retry_cnt.into(), 0, 7),
            (Attr::RNR_RETRY, "rnr_retry", attr.rnr_retry.into(), 0, 7),
            (
                Attr::MIN_RNR_TIMER,
                "min_rnr_timer",
                attr.min_rnr_timer.into(),
                0,
                31,
            ),
        ];
        for (bit, field, value, min, max) in fields {
            if self.mask.contains(bit) && !(min..=max).contains(&value) {
                return Err(ModifyError::OutOfRange {
                    field,
                    value,
                    min,
                    max,
                });
            }
        }
        Ok(())
    }

    /// Takes over the attributes named by the mask.
    pub(crate) fn apply(&self, to: &mut QpAttr) {
        macro_rules! take {
            ($($bit:ident $field:ident),*) => {
                $(if self.mask.contains(Attr::$bit) { to.$field = self.attr.$field; })*
            };
        }
        take!(
            EN_SQD_ASYNC_NOTIFY sqd_async_notify, ACCESS_FLAGS access, PKEY_INDEX pkey_index,
            PORT port, QKEY qkey, PATH_MIG_STATE path_mig_state, PATH_MTU path_mtu, TIMEOUT timeout, RETRY_CNT retry_cnt,
            RNR_RETRY rnr_retry, RQ_PSN rq_psn, MAX_QP_RD_ATOMIC max_rd_atomic,
            MIN_RNR_TIMER min_rnr_timer, SQ_PSN sq_psn, MAX_DEST_RD_ATOMIC max_dest_rd_atomic,
            DEST_QPN dest_qpn
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use QpState::*;

    #[test]
    fn values_must_fit_their_fields() {
        let good = QpAttr {
            timeout: 31,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttr::default()
        };
        assert_eq!(QpModify::rts(good).check(QpType::Rc, Rtr), Ok(Rts));
        for (bad, field) in [
            (
                QpAttr {
                    timeout: 32,
                    ..good
                },
                "timeout",
            ),
            (
                QpAttr {
                    retry_cnt: 8,
                    ..good
                },
                "retry_cnt",
            ),
            (
                QpAttr {
                    rnr_retry: 8,
                    ..good
                },
                "rnr_retry",
            ),
        ] {
            match QpModify::rts(bad).check(QpType::Rc, Rtr) {
                Result::Err(ModifyError::OutOfRange { field: named, .. }) => {
                    assert_eq!(named, field)
                }
                other => panic!("{field}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_wrong_belief_about_the_state_is_refused() {
        let mut change = QpModify::to(Rts, Attr::CUR_STATE, QpAttr::default());
        change.cur_state = Rts;
        assert_eq!(
            change.check(QpType::Rc, Sqd),
            Result::Err(ModifyError::NotInState {
                claimed: Rts,
                actual: Sqd
            })
        );
    }

    #[test]
    fn an_error_names_the_attributes() {
        let mut change = QpModify::rts(QpAttr::default());
        change.mask -= Attr::TIMEOUT;
        assert_eq!(
            change.check(QpType::Rc, Rtr).unwrap_err().to_string(),
            "Rtr to Rts of type RC needs IBV_QP_TIMEOUT too"
        );
    }
}
