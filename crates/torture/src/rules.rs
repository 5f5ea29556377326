//! Which calls a queue pair takes, by its type and its state (IBTA vol 1, 10.7.2 and 11.2.5.2; docs/queue-pairs.md).

use ferroce_device::{
    PostError, QpCap, QpState, QpType, SendFlags, SendOp, SendTo, SendWr, VerbsError,
};

/// Largest message in bytes.
const MESSAGE_BYTES_MAX: u64 = 1 << 31;

/// Whether a queue pair can go from one state to another.
pub(crate) fn may_go(kind: QpType, from: QpState, to: QpState) -> bool {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
    let drains = !matches!(kind, QpType::Dci | QpType::Dct);
    match (from, to) {
        (Reset, Init) | (Init, Rtr) => true,
        _ if kind == QpType::Dct => false, // it stays ready until it is destroyed
        (Reset, Err) => false,
        (_, Reset | Err) | (Init, Init) | (Rtr | Rts, Rts) => true,
        (Rts | Sqd, Sqd) | (Sqd, Rts) => drains,
        (Sqe, Rts) => !is_reliable(kind),
        _ => false,
    }
}

/// Whether the peer acknowledges what arrives.
pub(crate) fn is_reliable(kind: QpType) -> bool {
    !matches!(kind, QpType::Uc | QpType::Ud)
}

/// Whether a queue pair of this type is connected to one other.
pub(crate) fn has_two_ends(kind: QpType) -> bool {
    matches!(
        kind,
        QpType::Rc | QpType::Uc | QpType::XrcSend | QpType::XrcRecv
    )
}

/// Why a call is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    State,
    Operation,
    Address,
    Elements,
    InlineLength,
    InlineFlag,
    Length,
    Full,
    /// Its type has no receive queue.
    NoQueue,
    SharedQueue,
    /// It names something that does not exist.
    NoSuch,
    /// It binds a window of another type.
    WindowType,
}

impl Reason {
    /// What an error says.
    pub(crate) fn of(error: &VerbsError) -> Option<Self> {
        Some(match error {
            VerbsError::NoSuch { .. } => Self::NoSuch,
            VerbsError::WrongMwType => Self::WindowType,
            VerbsError::Post(error) => match error {
                PostError::WrongState { .. } => Self::State,
                PostError::QueueFull { .. } => Self::Full,
                PostError::TooManySges { .. } => Self::Elements,
                PostError::InlineTooLong { .. } => Self::InlineLength,
                PostError::InlineMismatch => Self::InlineFlag,
                PostError::MessageTooLong { .. } => Self::Length,
                PostError::Unsupported { .. } => Self::Operation,
                PostError::WrongAddress { .. } => Self::Address,
                PostError::NoReceiveQueue { .. } => Self::NoQueue,
                PostError::UsesSrq => Self::SharedQueue,
                _ => return None,
            },
            _ => return None,
        })
    }
}

/// Everything that a queue pair has against a send request, except for a queue that is full.
pub(crate) fn against_send(wr: &SendWr, kind: QpType, state: QpState, cap: &QpCap) -> Vec<Reason> {
    use QpState::{Err, Rts, Sqd, Sqe};
    let is_inline = wr.flags.contains(SendFlags::INLINE);
    let fits_flag = match &wr.inline {
        Some(_) => is_inline && !answers_with_data(&wr.op),
        None => !is_inline,
    };
    let is_local = matches!(wr.op, SendOp::BindMw(_) | SendOp::LocalInvalidate { .. });
    let inline = wr.inline.as_ref().map_or(0, |bytes| bytes.len());
    let bytes: u64 = wr.sges.iter().map(|sge| u64::from(sge.length)).sum();
    let against = [
        (Reason::State, !matches!(state, Rts | Sqd | Sqe | Err)),
        (Reason::Operation, !has(kind, &wr.op)),
        (Reason::Address, !is_local && !reaches(kind, &wr.to)),
        (
            Reason::Elements,
            !is_local && wr.sges.len() > cap.max_send_sge as usize,
        ),
        (Reason::InlineFlag, !is_local && !fits_flag),
        (
            Reason::InlineLength,
            !is_local && inline > cap.max_inline_data as usize,
        ),
        (Reason::Length, !is_local && bytes > MESSAGE_BYTES_MAX),
    ];
    let against = against.into_iter().filter(|(_, is_so)| *is_so);
    against.map(|(reason, _)| reason).collect()
}

/// The same for a receive request of this many elements.
pub(crate) fn against_receive(
    elements: usize,
    kind: QpType,
    state: QpState,
    is_shared: bool,
    cap: &QpCap,
) -> Vec<Reason> {
    let has_none = matches!(kind, QpType::XrcSend | QpType::XrcRecv | QpType::Dci);
    let against = [
        (Reason::State, state == QpState::Reset),
        (Reason::NoQueue, has_none),
        (Reason::SharedQueue, is_shared),
        (Reason::Elements, elements > cap.max_recv_sge as usize),
    ];
    let against = against.into_iter().filter(|(_, is_so)| *is_so);
    against.map(|(reason, _)| reason).collect()
}

fn answers_with_data(op: &SendOp) -> bool {
    matches!(
        op,
        SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }
    )
}

/// Whether the send queue of a type has an operation.
fn has(kind: QpType, op: &SendOp) -> bool {
    let sends = !matches!(kind, QpType::XrcRecv | QpType::Dct);
    sends
        && match op {
            SendOp::Send { .. } => true,
            SendOp::Write { .. } | SendOp::BindMw(_) | SendOp::LocalInvalidate { .. } => {
                kind != QpType::Ud
            }
            SendOp::Connect { .. } => false,
            _ => is_reliable(kind),
        }
}

/// Whether requests of a type say so where they go.
fn reaches(kind: QpType, to: &SendTo) -> bool {
    match kind {
        QpType::Rc | QpType::Uc => matches!(to, SendTo::Peer),
        QpType::Ud => matches!(to, SendTo::Datagram(_)),
        QpType::XrcSend => matches!(to, SendTo::Srq(_)),
        QpType::Dci => matches!(to, SendTo::Dct(_)),
        _ => false,
    }
}
