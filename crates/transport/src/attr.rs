use std::fmt;

use bitflags::bitflags;
use ferroce_wire::{Psn, Qpn};
use thiserror::Error;

/// State of a queue pair; the values of `ibv_qp_state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u32)]
pub enum QpState {
    /// Newly created; takes nothing.
    Reset = 0,
    /// Takes receive work requests.
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
    /// The state with this number of `ibv_qp_state`.
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

    /// Payload bytes of a full packet.
    pub const fn bytes(self) -> u32 {
        128 << self as u8
    }

    /// The MTU of `bytes` payload bytes.
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
    }
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
        /// `min_rnr_timer`
        const MIN_RNR_TIMER = 1 << 15;
        /// `sq_psn`
        const SQ_PSN = 1 << 16;
        /// `max_dest_rd_atomic`
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// `dest_qp_num`
        const DEST_QPN = 1 << 20;
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
/// The address vector itself belongs to the device, which knows addresses; the transport only
/// insists that it comes when it must.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpAttr {
    /// What the peer may do.
    pub access: AccessFlags,
    /// Index into the port's partition key table.
    pub pkey_index: u16,
    /// Port, from 1.
    pub port: u8,
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
}

impl Default for QpAttr {
    fn default() -> Self {
        Self {
            access: AccessFlags::empty(),
            pkey_index: 0,
            port: 1,
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
    /// A move to `state` with the attributes of `mask` taken from `attr`.
    pub fn to(state: QpState, mask: Attr, attr: QpAttr) -> Self {
        Self {
            mask: mask | Attr::STATE,
            state,
            cur_state: state,
            attr,
        }
    }

    /// RESET to INIT.
    pub fn init(attr: QpAttr) -> Self {
        Self::to(QpState::Init, RESET_TO_INIT, attr)
    }

    /// INIT to RTR.
    pub fn rtr(attr: QpAttr) -> Self {
        Self::to(QpState::Rtr, INIT_TO_RTR, attr)
    }

    /// RTR to RTS.
    pub fn rts(attr: QpAttr) -> Self {
        Self::to(QpState::Rts, RTR_TO_RTS, attr)
    }
}

/// Why a modify was refused. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// No such transition for RC.
    #[error("an RC queue pair cannot go from {from:?} to {to:?}")]
    NoTransition {
        /// Present state.
        from: QpState,
        /// Requested state.
        to: QpState,
    },
    /// `cur_qp_state` does not match.
    #[error("IBV_QP_CUR_STATE says {claimed:?}, the QP is in {actual:?}")]
    NotInState {
        /// What the caller said.
        claimed: QpState,
        /// What is true.
        actual: QpState,
    },
    /// Attributes that this transition needs.
    #[error("{from:?} to {to:?} needs {missing} too")]
    Missing {
        /// Present state.
        from: QpState,
        /// Requested state.
        to: QpState,
        /// Attributes to add.
        missing: Attr,
    },
    /// Attributes that this transition does not take.
    #[error("{from:?} to {to:?} does not take {extra}")]
    NotAllowed {
        /// Present state.
        from: QpState,
        /// Requested state.
        to: QpState,
        /// Attributes to leave out.
        extra: Attr,
    },
    /// A value outside its range.
    #[error("{field} is {value}, allowed is {min} to {max}")]
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

const RESET_TO_INIT: Attr = Attr::PKEY_INDEX.union(Attr::PORT).union(Attr::ACCESS_FLAGS);
const INIT_TO_RTR: Attr = Attr::AV
    .union(Attr::PATH_MTU)
    .union(Attr::DEST_QPN)
    .union(Attr::RQ_PSN)
    .union(Attr::MAX_DEST_RD_ATOMIC)
    .union(Attr::MIN_RNR_TIMER);
const RTR_TO_RTS: Attr = Attr::TIMEOUT
    .union(Attr::RETRY_CNT)
    .union(Attr::RNR_RETRY)
    .union(Attr::SQ_PSN)
    .union(Attr::MAX_QP_RD_ATOMIC);
const WHILE_SENDING: Attr = Attr::CUR_STATE
    .union(Attr::ACCESS_FLAGS)
    .union(Attr::MIN_RNR_TIMER);
const WHILE_DRAINED: Attr = Attr::PORT
    .union(Attr::AV)
    .union(Attr::TIMEOUT)
    .union(Attr::RETRY_CNT)
    .union(Attr::RNR_RETRY)
    .union(Attr::MAX_QP_RD_ATOMIC)
    .union(Attr::MAX_DEST_RD_ATOMIC)
    .union(Attr::ACCESS_FLAGS)
    .union(Attr::PKEY_INDEX)
    .union(Attr::MIN_RNR_TIMER);

/// Required and optional attributes of a transition of an RC queue pair (IBA vol 1, 11.2.5.2,
/// table of Modify QP; the optional sets are those the Linux verbs accept).
fn transition(from: QpState, to: QpState) -> Option<(Attr, Attr)> {
    use QpState::*;
    let none = Attr::empty();
    Some(match (from, to) {
        (_, Reset | Err) => (none, none),
        (Reset, Init) => (RESET_TO_INIT, none),
        (Init, Init) => (none, RESET_TO_INIT),
        (Init, Rtr) => (INIT_TO_RTR, Attr::ACCESS_FLAGS | Attr::PKEY_INDEX),
        (Rtr, Rts) => (RTR_TO_RTS, WHILE_SENDING),
        (Rts, Rts) | (Sqd, Rts) => (none, WHILE_SENDING),
        (Rts, Sqd) => (none, Attr::EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd) => (none, WHILE_DRAINED),
        _ => return None,
    })
}

impl QpModify {
    /// The state the QP would be in, if the change is allowed from state `from`.
    pub(crate) fn check(&self, from: QpState) -> Result<QpState, ModifyError> {
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
        let (required, optional) =
            transition(from, to).ok_or(ModifyError::NoTransition { from, to })?;
        let given = self.mask - Attr::STATE;
        let missing = required - given;
        if !missing.is_empty() {
            return Err(ModifyError::Missing { from, to, missing });
        }
        // CUR_STATE was checked above and is harmless anywhere.
        let extra = given - required - optional - Attr::CUR_STATE;
        if !extra.is_empty() {
            return Err(ModifyError::NotAllowed { from, to, extra });
        }
        self.check_ranges()?;
        Ok(to)
    }

    fn check_ranges(&self) -> Result<(), ModifyError> {
        let attr = &self.attr;
        let fields = [
            (Attr::TIMEOUT, "timeout", attr.timeout, 0, 31),
            (Attr::RETRY_CNT, "retry_cnt", attr.retry_cnt, 0, 7),
            (Attr::RNR_RETRY, "rnr_retry", attr.rnr_retry, 0, 7),
            (
                Attr::MIN_RNR_TIMER,
                "min_rnr_timer",
                attr.min_rnr_timer,
                0,
                31,
            ),
            (Attr::PORT, "port_num", attr.port, 1, 1),
        ];
        for (bit, field, value, min, max) in fields {
            if self.mask.contains(bit) && !(min..=max).contains(&value) {
                let (value, min, max) = (value.into(), min.into(), max.into());
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
            PORT port, PATH_MTU path_mtu, TIMEOUT timeout, RETRY_CNT retry_cnt,
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

    const ALL: [QpState; 7] = [Reset, Init, Rtr, Rts, Sqd, Sqe, Err];

    #[test]
    fn only_the_documented_transitions_exist() {
        let legal = [
            (Reset, Init),
            (Init, Init),
            (Init, Rtr),
            (Rtr, Rts),
            (Rts, Rts),
            (Rts, Sqd),
            (Sqd, Sqd),
            (Sqd, Rts),
        ];
        for from in ALL {
            for to in ALL {
                let expected = matches!(to, Reset | Err) || legal.contains(&(from, to));
                assert_eq!(
                    transition(from, to).is_some(),
                    expected,
                    "{from:?} -> {to:?}"
                );
            }
        }
    }

    #[test]
    fn each_required_attribute_is_required_and_each_foreign_one_refused() {
        for (from, to) in [(Reset, Init), (Init, Rtr), (Rtr, Rts)] {
            let (required, optional) = transition(from, to).unwrap();
            for bit in Attr::all().iter() {
                let mut change = QpModify::to(to, required, QpAttr::default());
                if bit == Attr::STATE || bit == Attr::CUR_STATE {
                    continue;
                }
                if required.contains(bit) {
                    change.mask -= bit;
                    assert_eq!(
                        change.check(from),
                        Result::Err(ModifyError::Missing {
                            from,
                            to,
                            missing: bit
                        })
                    );
                } else {
                    change.mask |= bit;
                    let verdict = change.check(from);
                    if optional.contains(bit) {
                        assert_eq!(verdict, Ok(to));
                    } else {
                        assert_eq!(
                            verdict,
                            Result::Err(ModifyError::NotAllowed {
                                from,
                                to,
                                extra: bit
                            })
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn values_must_fit_their_fields() {
        let good = QpAttr {
            timeout: 31,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttr::default()
        };
        assert_eq!(QpModify::rts(good).check(Rtr), Ok(Rts));
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
            match QpModify::rts(bad).check(Rtr) {
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
            change.check(Sqd),
            Result::Err(ModifyError::NotInState {
                claimed: Rts,
                actual: Sqd
            })
        );
    }

    #[test]
    fn an_error_names_the_attributes() {
        let error = QpModify::to(Rts, RTR_TO_RTS - Attr::TIMEOUT, QpAttr::default()).check(Rtr);
        assert_eq!(
            error.unwrap_err().to_string(),
            "Rtr to Rts needs IBV_QP_TIMEOUT too"
        );
    }
}
