//! The interface between a queue pair and its device: memory, completion queues, counters, events.

use ferroce_adp::Policy;
use ferroce_wire::Srqn;
use thiserror::Error;

use crate::{Completion, Counter, MwBind, Outgoing, RecvWqe, Span, Time, WorkQueue};

/// The services that a queue pair needs from its device.
///
/// The device implements it over its tables, borrowed for one call; tests implement it over a few
/// vectors.
pub trait Host {
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

    /// A retransmission timer ran out; for the histogram and for whoever watches.
    fn timer_expired(&mut self, expiry: TimerExpiry);

    /// An answer has come so long after the request that asked for it, which was sent once; an answer
    /// that takes longer than `wait` comes too late. For whoever decides about windows.
    fn round_trip(&mut self, _rtt: Span, _wait: Option<Span>) {}

    /// An answer has come, whatever it says. Likewise.
    fn heard(&mut self) {}

    /// A timeout has made this side repeat a packet whose first copy had arrived. Likewise.
    fn repeated_for_nothing(&mut self) {}

    /// Something has to be sent again: the peer misses it, or has not answered for so long. Likewise.
    fn lost(&mut self, _waited: Option<Span>) {}

    /// Puts a completion on the completion queue of `queue`.
    fn complete(&mut self, queue: WorkQueue, completion: Completion);

    /// The same for one that says of an error. For whoever keeps a record of those.
    fn fail(&mut self, queue: WorkQueue, completion: Completion) {
        self.complete(queue, completion);
    }

    /// The next receive WQE of the shared receive queue this QP is attached to.
    fn take_shared_recv(&mut self) -> Option<RecvWqe>;

    /// The rest of this call is about a request of XRC for this shared receive queue: it is the one
    /// that receive WQEs are taken from, and its completion queue and protection domain serve.
    /// False if there is none with this number in the QP's XRC domain.
    fn enter_srq(&mut self, srqn: Srqn) -> bool;

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

/// A key to registered memory, and the role in which it is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// An lkey of a send request, in the QP's protection domain.
    Local(u32),
    /// An lkey of a receive request, in the protection domain of the queue that it was posted to: a
    /// shared receive queue may have a different one than the QP.
    Receive(u32),
    /// An rkey, presented by the peer.
    Remote(u32),
}

impl Key {
    /// Returns the key.
    pub fn number(self) -> u32 {
        let (Self::Local(number) | Self::Receive(number) | Self::Remote(number)) = self;
        number
    }
}

/// A piece of registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The key that gives access to it.
    pub key: Key,
    /// Virtual address of the first byte.
    pub va: u64,
    /// Length in bytes.
    pub len: u32,
}

/// A position in registered memory that a key gave access to. It is valid until the next input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, packed(4))] // beside it in a packet is more
pub struct MemoryRef {
    /// Offset of the first byte in the region.
    pub offset: u64,
    /// The region's own key.
    pub region: u32,
}

/// The reason why an access to registered memory is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum AccessError {
    /// No memory region or window has this key, or the window is not bound.
    #[error("no memory region and no bound memory window has this key")]
    UnknownKey,
    /// The region belongs to another protection domain.
    #[error("the memory region belongs to another protection domain")]
    WrongDomain,
    /// The type 2 window was bound by another QP.
    #[error("the memory window was bound by another QP")]
    WrongQp,
    /// The range extends beyond the region.
    #[error("the range reaches outside the memory region")]
    OutOfBounds,
    /// The region does not permit this kind of access.
    #[error("the memory region does not permit this access")]
    NotPermitted,
    /// The type 2 window is already bound; it must be invalidated first.
    #[error("the memory window is bound; invalidate it first")]
    Bound,
    /// The memory is not mapped, or not for this kind of access.
    #[error("no memory of the program is mapped at this address for this access")]
    Unmapped,
}

/// Payload of an arriving packet.
///
/// A simulator that carries no bytes passes only the length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Data<'a> {
    /// The bytes.
    Bytes(&'a [u8]),
    /// Only the number of bytes.
    Length(u32),
}

impl<'a> Data<'a> {
    /// Number of bytes.
    #[allow(
        clippy::len_without_is_empty,
        reason = "an empty payload is not a special case here"
    )]
    pub fn len(&self) -> u32 {
        match self {
            // A packet's payload is at most one MTU.
            Self::Bytes(bytes) => bytes.len() as u32,
            Self::Length(len) => *len,
        }
    }

    /// Returns the `len` bytes from `offset` on; both must be inside the payload.
    #[must_use]
    pub fn slice(&self, offset: u32, len: u32) -> Self {
        match self {
            Self::Bytes(bytes) => Data::Bytes(&bytes[offset as usize..(offset + len) as usize]),
            Self::Length(_) => Data::Length(len),
        }
    }
}

/// An atomic operation on 8 bytes of remote memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
    /// Writes `swap` if the value is `compare`.
    CompareSwap {
        /// Expected value.
        compare: u64,
        /// Value to write.
        swap: u64,
    },
    /// Adds, wrapping.
    FetchAdd {
        /// Addend.
        add: u64,
    },
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
