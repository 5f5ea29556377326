//! Which attributes each change of a queue pair's state requires and accepts (IBA vol 1, 11.2.5.2,
//! table of Modify QP; where that leaves a choice, as in the Linux verbs).

use super::{Attr, QpState};
use crate::service::QpType;

/// Attributes that a transition takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Needs {
    pub(crate) required: Attr,
    pub(crate) optional: Attr,
}

const NONE: Attr = Attr::empty();
const MIGRATION: Attr = Attr::ALT_PATH.union(Attr::PATH_MIG_STATE);

/// What the move `from` one state `to` another takes, if there is such a move.
pub(crate) fn transition(qp_type: QpType, from: QpState, to: QpState) -> Option<Needs> {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
    match qp_type {
        QpType::Dci => return initiator(from, to),
        QpType::Dct => return target(from, to),
        QpType::DcResponder => return responder(to),
        QpType::Rc | QpType::Uc | QpType::Ud | QpType::XrcSend | QpType::XrcRecv => {}
    }
    let (required, optional) = match (from, to) {
        (Reset, Err) => return None,
        (_, Reset | Err) => (NONE, NONE),
        (Reset, Init) => (initial(qp_type), NONE),
        (Init, Init) => (NONE, initial(qp_type)),
        (Init, Rtr) => ready_to_receive(qp_type),
        (Rtr, Rts) => (ready_to_send(qp_type), while_sending(qp_type)),
        (Rts | Sqd, Rts) => (NONE, while_sending(qp_type)),
        (Rts, Sqd) => (NONE, Attr::EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd) => (NONE, while_drained(qp_type)),
        (Sqe, Rts) if !qp_type.is_reliable() => (NONE, while_sending(qp_type) - MIGRATION),
        _ => return None,
    };
    Some(Needs { required, optional })
}

/// As mlx5 of Linux has it: a DCI is never drained, and has no access flags, as nothing reaches it.
fn initiator(from: QpState, to: QpState) -> Option<Needs> {
    use QpState::{Err, Init, Reset, Rtr, Rts};
    let port = Attr::PKEY_INDEX | Attr::PORT;
    let retries = Attr::RETRY_CNT | Attr::RNR_RETRY | Attr::MAX_QP_RD_ATOMIC;
    let (required, optional) = match (from, to) {
        (Reset, Err) => return None,
        (_, Reset | Err) => (NONE, NONE),
        (Reset, Init) => (port, NONE),
        (Init, Init) => (NONE, port),
        (Init, Rtr) => (Attr::PATH_MTU, Attr::PKEY_INDEX | Attr::AV),
        (Rtr, Rts) => (Attr::SQ_PSN | Attr::TIMEOUT | retries, Attr::MIN_RNR_TIMER),
        (Rts, Rts) => (NONE, Attr::MIN_RNR_TIMER),
        _ => return None,
    };
    Some(Needs { required, optional })
}

/// As mlx5 of Linux has it: a DCT becomes ready to receive, and stays that until it is destroyed.
fn target(from: QpState, to: QpState) -> Option<Needs> {
    let required = match (from, to) {
        (QpState::Reset, QpState::Init) => Attr::ACCESS_FLAGS | Attr::PKEY_INDEX | Attr::PORT,
        (QpState::Init, QpState::Rtr) => Attr::MIN_RNR_TIMER | Attr::AV | Attr::PATH_MTU,
        _ => return None,
    };
    Some(Needs {
        required,
        optional: NONE,
    })
}

/// The device makes it ready, and nothing but an error changes it.
fn responder(to: QpState) -> Option<Needs> {
    (to == QpState::Err).then_some(Needs {
        required: NONE,
        optional: NONE,
    })
}

// Types of DC have tables of their own, above.

fn initial(qp_type: QpType) -> Attr {
    let own = match qp_type {
        QpType::Ud => Attr::QKEY,
        _ => Attr::ACCESS_FLAGS,
    };
    Attr::PKEY_INDEX | Attr::PORT | own
}

fn ready_to_receive(qp_type: QpType) -> (Attr, Attr) {
    let path = Attr::AV | Attr::PATH_MTU | Attr::DEST_QPN | Attr::RQ_PSN;
    let responder = Attr::MAX_DEST_RD_ATOMIC | Attr::MIN_RNR_TIMER;
    let optional = Attr::ALT_PATH | Attr::ACCESS_FLAGS | Attr::PKEY_INDEX;
    match qp_type {
        QpType::Rc | QpType::XrcRecv => (path | responder, optional),
        QpType::Uc | QpType::XrcSend => (path, optional),
        QpType::Ud => (NONE, Attr::PKEY_INDEX | Attr::QKEY),
        QpType::Dci | QpType::Dct | QpType::DcResponder => (NONE, NONE),
    }
}

fn ready_to_send(qp_type: QpType) -> Attr {
    let retries = Attr::RETRY_CNT | Attr::RNR_RETRY | Attr::MAX_QP_RD_ATOMIC;
    match qp_type {
        QpType::Rc | QpType::XrcSend => Attr::SQ_PSN | Attr::TIMEOUT | retries,
        QpType::XrcRecv => Attr::SQ_PSN | Attr::TIMEOUT,
        QpType::Uc | QpType::Ud => Attr::SQ_PSN,
        QpType::Dci | QpType::Dct | QpType::DcResponder => NONE,
    }
}

fn while_sending(qp_type: QpType) -> Attr {
    let connected = Attr::CUR_STATE | Attr::ACCESS_FLAGS | MIGRATION;
    match qp_type {
        QpType::Rc | QpType::XrcRecv => connected | Attr::MIN_RNR_TIMER,
        QpType::Uc | QpType::XrcSend => connected,
        QpType::Ud => Attr::CUR_STATE | Attr::QKEY,
        QpType::Dci | QpType::Dct | QpType::DcResponder => NONE,
    }
}

fn while_drained(qp_type: QpType) -> Attr {
    let connected = Attr::AV | Attr::ACCESS_FLAGS | Attr::PKEY_INDEX | MIGRATION;
    let requester = Attr::RETRY_CNT | Attr::RNR_RETRY | Attr::MAX_QP_RD_ATOMIC;
    let responder = Attr::MAX_DEST_RD_ATOMIC | Attr::MIN_RNR_TIMER;
    match qp_type {
        QpType::Rc => connected | Attr::PORT | Attr::TIMEOUT | requester | responder,
        QpType::XrcSend => connected | Attr::PORT | Attr::TIMEOUT | requester,
        QpType::XrcRecv => connected | Attr::PORT | Attr::TIMEOUT | responder,
        QpType::Uc => connected,
        QpType::Ud => Attr::PKEY_INDEX | Attr::QKEY,
        QpType::Dci | QpType::Dct | QpType::DcResponder => NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ModifyError, QpAttr, QpModify};
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};

    const STATES: [QpState; 7] = [Reset, Init, Rtr, Rts, Sqd, Sqe, Err];
    const TYPES: [QpType; 5] = [
        QpType::Rc,
        QpType::Uc,
        QpType::Ud,
        QpType::XrcSend,
        QpType::XrcRecv,
    ];

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
        for qp_type in TYPES {
            for (from, to) in STATES.iter().flat_map(|from| STATES.map(|to| (*from, to))) {
                let expected = match (from, to) {
                    (Reset, Err) => false,
                    (_, Reset | Err) => true,
                    (Sqe, Rts) => matches!(qp_type, QpType::Uc | QpType::Ud),
                    _ => legal.contains(&(from, to)),
                };
                let exists = transition(qp_type, from, to).is_some();
                assert_eq!(exists, expected, "{qp_type} {from:?} -> {to:?}");
            }
        }
    }

    #[test]
    fn the_types_of_dc_have_fewer_transitions() {
        let own = [
            (
                QpType::Dci,
                vec![
                    (Reset, Init),
                    (Init, Init),
                    (Init, Rtr),
                    (Rtr, Rts),
                    (Rts, Rts),
                ],
            ),
            (QpType::Dct, vec![(Reset, Init), (Init, Rtr)]),
            (QpType::DcResponder, vec![]),
        ];
        for (qp_type, legal) in own {
            for (from, to) in STATES.iter().flat_map(|from| STATES.map(|to| (*from, to))) {
                let stops = match qp_type {
                    QpType::Dci => to == Reset || to == Err && from != Reset,
                    QpType::Dct => false,
                    _ => to == Err,
                };
                let exists = transition(qp_type, from, to).is_some();
                let expected = stops || legal.contains(&(from, to));
                assert_eq!(exists, expected, "{qp_type} {from:?} -> {to:?}");
            }
        }
    }

    /// The sets themselves, written out for each type and transition.
    #[test]
    fn attributes_are_those_of_the_table() {
        use QpType::{Rc, Uc, Ud, XrcRecv, XrcSend};
        let port = "PKEY_INDEX PORT ";
        let path = "AV PATH_MTU DEST_QPN RQ_PSN";
        let running = "CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE";
        let table = [
            (
                Rc,
                Reset,
                Init,
                format!("{port} ACCESS_FLAGS"),
                String::new(),
            ),
            (
                Uc,
                Reset,
                Init,
                format!("{port} ACCESS_FLAGS"),
                String::new(),
            ),
            (Ud, Reset, Init, format!("{port} QKEY"), String::new()),
            (
                Rc,
                Init,
                Init,
                String::new(),
                format!("{port} ACCESS_FLAGS"),
            ),
            (Ud, Init, Init, String::new(), format!("{port} QKEY")),
            (
                Rc,
                Init,
                Rtr,
                format!("{path} MAX_DEST_RD_ATOMIC MIN_RNR_TIMER"),
                "ALT_PATH ACCESS_FLAGS PKEY_INDEX".into(),
            ),
            (
                Uc,
                Init,
                Rtr,
                path.into(),
                "ALT_PATH ACCESS_FLAGS PKEY_INDEX".into(),
            ),
            (Ud, Init, Rtr, String::new(), "PKEY_INDEX QKEY".into()),
            (
                Rc,
                Rtr,
                Rts,
                "TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC".into(),
                format!("{running} MIN_RNR_TIMER"),
            ),
            (Uc, Rtr, Rts, "SQ_PSN".into(), running.into()),
            (Ud, Rtr, Rts, "SQ_PSN".into(), "CUR_STATE QKEY".into()),
            (
                Rc,
                Rts,
                Rts,
                String::new(),
                format!("{running} MIN_RNR_TIMER"),
            ),
            (Uc, Sqd, Rts, String::new(), running.into()),
            (Ud, Sqd, Rts, String::new(), "CUR_STATE QKEY".into()),
            (Uc, Sqe, Rts, String::new(), "CUR_STATE ACCESS_FLAGS".into()),
            (Ud, Sqe, Rts, String::new(), "CUR_STATE QKEY".into()),
            (Ud, Rts, Sqd, String::new(), "EN_SQD_ASYNC_NOTIFY".into()),
            (
                Rc,
                Sqd,
                Sqd,
                String::new(),
                "PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC \
                 ALT_PATH ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE"
                    .into(),
            ),
            (
                Uc,
                Sqd,
                Sqd,
                String::new(),
                "AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE".into(),
            ),
            (Ud, Sqd, Sqd, String::new(), "PKEY_INDEX QKEY".into()),
            (Rc, Rts, Err, String::new(), String::new()),
            (
                XrcSend,
                Reset,
                Init,
                format!("{port} ACCESS_FLAGS"),
                String::new(),
            ),
            (
                XrcRecv,
                Init,
                Init,
                String::new(),
                format!("{port} ACCESS_FLAGS"),
            ),
            (
                XrcSend,
                Init,
                Rtr,
                path.into(),
                "ALT_PATH ACCESS_FLAGS PKEY_INDEX".into(),
            ),
            (
                XrcRecv,
                Init,
                Rtr,
                format!("{path} MAX_DEST_RD_ATOMIC MIN_RNR_TIMER"),
                "ALT_PATH ACCESS_FLAGS PKEY_INDEX".into(),
            ),
            (
                XrcSend,
                Rtr,
                Rts,
                "TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC".into(),
                running.into(),
            ),
            (
                XrcRecv,
                Rtr,
                Rts,
                "TIMEOUT SQ_PSN".into(),
                format!("{running} MIN_RNR_TIMER"),
            ),
            (
                XrcSend,
                Sqd,
                Sqd,
                String::new(),
                "PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC ALT_PATH ACCESS_FLAGS \
                 PKEY_INDEX PATH_MIG_STATE"
                    .into(),
            ),
            (
                XrcRecv,
                Sqd,
                Sqd,
                String::new(),
                "PORT AV TIMEOUT MAX_DEST_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX \
                 MIN_RNR_TIMER PATH_MIG_STATE"
                    .into(),
            ),
            (QpType::Dci, Reset, Init, port.into(), String::new()),
            (QpType::Dci, Init, Init, String::new(), port.into()),
            (
                QpType::Dci,
                Init,
                Rtr,
                "PATH_MTU".into(),
                "AV PKEY_INDEX".into(),
            ),
            (
                QpType::Dci,
                Rtr,
                Rts,
                "TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC".into(),
                "MIN_RNR_TIMER".into(),
            ),
            (QpType::Dci, Rts, Rts, String::new(), "MIN_RNR_TIMER".into()),
            (
                QpType::Dct,
                Reset,
                Init,
                format!("{port} ACCESS_FLAGS"),
                String::new(),
            ),
            (
                QpType::Dct,
                Init,
                Rtr,
                "AV PATH_MTU MIN_RNR_TIMER".into(),
                String::new(),
            ),
        ];
        let set = |names: &str| -> Attr {
            let bit = |name| Attr::from_name(name).unwrap();
            names.split_whitespace().map(bit).collect()
        };
        for (qp_type, from, to, required, optional) in table {
            let needs = Needs {
                required: set(&required),
                optional: set(&optional),
            };
            assert_eq!(
                transition(qp_type, from, to),
                Some(needs),
                "{qp_type} {from:?} -> {to:?}"
            );
        }
    }

    #[test]
    fn missing_and_unexpected_attributes_are_refused() {
        for (qp_type, (from, to)) in TYPES
            .iter()
            .flat_map(|qp_type| [(Reset, Init), (Init, Rtr), (Rtr, Rts)].map(|m| (*qp_type, m)))
        {
            let Needs { required, optional } = transition(qp_type, from, to).unwrap();
            for bit in Attr::all().iter().filter(|bit| *bit != Attr::STATE) {
                let mut change = QpModify::step(qp_type, from, to, QpAttr::default());
                change.mask.toggle(bit);
                change.cur_state = from;
                let expected = if required.contains(bit) {
                    Result::Err(ModifyError::Missing {
                        qp_type,
                        from,
                        to,
                        missing: bit,
                    })
                } else if !optional.contains(bit) {
                    Result::Err(ModifyError::NotAllowed {
                        qp_type,
                        from,
                        to,
                        extra: bit,
                    })
                } else if bit == Attr::ALT_PATH {
                    Result::Err(ModifyError::NoAlternatePath)
                } else {
                    Ok(to)
                };
                assert_eq!(change.check(qp_type, from), expected, "{qp_type} {bit}");
            }
        }
    }
}
