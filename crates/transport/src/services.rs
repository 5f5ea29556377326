//! What a queue pair needs from its device: memory, completion queues, counters, events.

use ferroce_adp::Policy;
use ferroce_base::time::{Span, Time};
use ferroce_wire::Srqn;

use crate::counter::Counter;
use crate::memory::{AccessError, AtomicOp, Data, Key, MemoryRef, Segment};
use crate::packet::Outgoing;
use crate::work::{Completion, MwBind, RecvWqe, WorkQueue};

/// The services that a queue pair needs from its device.
///
/// The device implements it over its tables, borrowed for one call; tests implement it over a few
/// vectors.
pub trait Services {
    /// The retransmission policy in force; read at each timer.
    fn policy(&self) -> &Policy;

    /// Adds `n` to a counter of the device.
    fn count(&mut self, counter: Counter, n: u64);

    /// When a packet has left that is made `now`: its timer starts then, and its round trip. At once,
    /// unless the device has a port that takes its time for each.
    fn departure(&self, now: Time, _packet: &Outgoing) -> Time {
        now
    }

    /// Whether packets wait in the device for that port, for however long. An ACK timer then runs from
    /// the departure of a packet that asks for an answer: neither from that of the first packet of a
    /// long message, nor from when it turned out that something must be sent again.
    fn delays_departure(&self) -> bool {
        false
    }

    /// A retransmission timer ran out; for the histogram and for observers.
    fn timer_expired(&mut self, expiry: TimerExpiry);

    /// An answer has come this long after the request that asked for it, which was sent once; an answer
    /// that takes longer than `wait` comes too late. Windows follow from it.
    fn round_trip(&mut self, _rtt: Span, _wait: Option<Span>) {}

    /// An answer has come, whatever it says. Windows follow from it.
    fn heard(&mut self) {}

    /// A timeout has made this side repeat a packet whose first copy had arrived. Windows follow
    /// from it.
    fn repeated_for_nothing(&mut self) {}

    /// Something has to be sent again: the peer misses it, or has not answered for this long.
    /// Windows and slow restart follow from it.
    fn lost(&mut self, _waited: Option<Span>) {}

    /// Puts a completion on the completion queue of `queue`.
    fn complete(&mut self, queue: WorkQueue, completion: Completion);

    /// The same for a completion with an error, of which a device may keep a record.
    fn fail(&mut self, queue: WorkQueue, completion: Completion) {
        self.complete(queue, completion);
    }

    /// The next receive WQE of the shared receive queue this QP is attached to.
    fn take_shared_recv(&mut self) -> Option<RecvWqe>;

    /// The rest of this call is about a request of XRC for this shared receive queue: it is the one
    /// that receive WQEs are taken from, and its completion queue and protection domain serve.
    /// False if there is none with this number in the QP's XRC domain.
    fn enter_srq(&mut self, srqn: Srqn) -> bool;

    /// Whether this is the access key of the DC target that the queue pair answers for.
    fn opens_target(&self, _key: u64) -> bool {
        false
    }

    /// Whether the queue pair may keep this much more of what has come before its turn; it has some
    /// already.
    fn may_keep(&mut self, _has: u32, _bytes: u32) -> bool {
        true
    }

    /// It does not keep this much any more.
    fn keeps_no_more(&mut self, _bytes: u32) {}

    /// An asynchronous event of this QP.
    fn event(&mut self, event: QpEvent);

    /// Where `segment` lies, in memory that its key opens for reading.
    fn open_read(&self, segment: &Segment) -> Result<MemoryRef, AccessError>;

    /// Writes `data` to memory; checks key, range and permission first. Nothing is written on
    /// error.
    fn write(&mut self, key: Key, va: u64, data: Data<'_>) -> Result<(), AccessError>;

    /// Executes an atomic on the 8 bytes at `va` and returns the value found there, as the
    /// host-order integer the application sees. `va` is 8-byte aligned.
    fn atomic(&mut self, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, AccessError>;

    /// The peer takes the memory from one of this side's memory windows (SEND with invalidate).
    fn invalidate(&mut self, rkey: u32) -> Result<(), AccessError>;

    /// This side does.
    fn invalidate_local(&mut self, rkey: u32) -> Result<(), AccessError>;

    /// Binds a memory window of this QP's protection domain.
    fn bind_mw(&mut self, bind: &MwBind) -> Result<(), AccessError>;
}

/// An expiry of a requester's retransmission timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimerExpiry {
    /// The wait that expired, at its effective (capped) length (D25).
    pub wait: Span,
    /// Whether the wait belongs to adaptive retransmission; only those are added to the histogram.
    pub adaptive: bool,
    /// Whether it was the last one: the QP failed instead of retransmitting.
    pub fatal: bool,
}

/// Asynchronous events of a QP, as `ibv_get_async_event` reports them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum QpEvent {
    /// First packet arrived while the QP was in RTR (`IBV_EVENT_COMM_EST`).
    CommunicationEstablished,
    /// The send queue is drained after a move to SQD (`IBV_EVENT_SQ_DRAINED`).
    SendQueueDrained,
    /// The peer violated the protocol (`IBV_EVENT_QP_REQ_ERR`).
    RequestError,
    /// The peer used a key or range that it may not use (`IBV_EVENT_QP_ACCESS_ERR`).
    AccessError,
    /// The last receive WQE from a shared queue is done (`IBV_EVENT_QP_LAST_WQE_REACHED`).
    LastWqeReached,
}
