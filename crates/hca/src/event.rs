use ferroce_transport::{QpEvent, Time, TimerExpiry};
use ferroce_wire::Qpn;

use crate::cq::CqId;
use crate::srq::SrqId;

/// What the device tells its host besides completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// An armed completion queue has a completion.
    Completion(CqId),
    /// A completion queue had no room (`IBV_EVENT_CQ_ERR`); the QP failed.
    CqOverrun(CqId),
    /// An asynchronous event of a QP.
    Qp(Qpn, QpEvent),
    /// A shared receive queue fell below its limit (`IBV_EVENT_SRQ_LIMIT_REACHED`).
    SrqLimit(SrqId),
    /// A retransmission timer ran out. Only with [`crate::HcaConfig::trace_timers`].
    TimerExpired {
        /// The queue pair.
        qpn: Qpn,
        /// When.
        at: Time,
        /// What ran out.
        expiry: TimerExpiry,
    },
}
