//! The constants by which a device is driven, with the reason for each.
//!
//! They were measured on loopback, where a packet takes about a microsecond, a system call without
//! data half a microsecond, and a wake-up ten to fifty.

use ferroce_hca::Span;

/// With this many packets in one receive call or fewer, the peer asks and answers; with more it is
/// streaming, and its window wants its acknowledgements now.
pub const STREAM_PACKETS: usize = 4;

/// Packets of a stream that are taken in one round before what they ask for is answered: a quarter of
/// a window. One acknowledgement for all of them, since to send costs more than to receive.
pub const ROUND_PACKETS: usize = 32;

/// Receive calls before a timer runs out: more than a receive buffer of 4 MiB holds packets.
pub const RECEIVE_CALLS_MAX: usize = 1 << 13;

/// Bytes handed to the link in one go, after which others get their turn at the device. More than the
/// windows of all queue pairs, so only the answers to a greedy peer's READs come to it.
pub const TRANSMIT_BYTES_MAX: usize = 4 << 20;

/// How long what arrives may lie while each poll finds a completion. Those of unreliable services come
/// without an answer from the peer, so it might else lie for ever, and CNPs with it.
pub const UNREAD: Span = Span::from_micros(100);

/// If nothing has come or left for this long, a poll that finds nothing is not worth a system call each
/// time.
pub const LULL: Span = Span::from_micros(100);

/// So often a thread looks then while the program polls: what comes is taken so much later at most.
pub const LULL_LOOK: Span = Span::from_micros(1);

/// How long a program that waits for a completion spins before it sleeps: waking up costs tens of
/// microseconds.
pub const WAIT_SPIN: Span = Span::from_micros(100);

/// A program that has polled within this time is at it: whoever spins polls far more often.
pub const POLLING: Span = Span::from_micros(20);

/// How long after the program's last poll the helper, once it stands back, stays out of its way.
pub const STAND_BACK: Span = Span::from_micros(200);

/// A program that has polled within this time goes on soon, perhaps when it sees what arrives in its
/// memory: its core is better left to it.
pub const AROUND: Span = Span::from_millis(10);

/// How often the helper looks meanwhile: each look takes a core from a program that spins on it, and
/// a program that stops polling without a word leaves its peers waiting for the next look.
pub const LOOK_AGAIN: Span = Span::from_millis(2);

/// So often in a row the helper must be woken for nothing, since the program polls, until it stands
/// back.
pub const SPARED_MAX: u32 = 4;

/// How long the helper leaves an acknowledgement to a program that is around: if the packet is what
/// the program waits for, both leave with its next request, as when the program had polled.
pub const LEAVE: Span = Span::from_micros(20);

/// How long the helper spins after a packet before it sleeps: waking up costs more.
pub const SPIN: Span = Span::from_micros(50);

/// Requests that leave together at the most, as do these bytes of messages: what one system call takes.
pub const BATCH_REQUESTS: u32 = 64;
/// See [`BATCH_REQUESTS`].
pub const BATCH_BYTES: u32 = 64 << 10;

/// So many requests must have come in quick succession until the helper is called to keep watch and
/// those that follow wait for each other: to wake it costs as much as to send a few.
pub const CALL_REQUESTS: u32 = 16;

/// Requests come in quick succession if less than this passes between two that leave: a batch and its
/// answer take half of it.
pub const SUCCESSION: Span = Span::from_micros(100);

/// A request that is not answered waits for others only if some have left within this time.
pub const CLOSE: Span = Span::from_micros(10);

/// How long requests wait until the watch sends them: a program that is at it fills a batch, or polls and
/// finds nothing, more often.
pub const WATCH_WAITS: Span = Span::from_micros(8);

/// Requests that waited longer than this waited in vain for a core for the watch: for a while others
/// leave at once.
pub const LATE: Span = Span::from_micros(100);

/// How long the helper keeps watch while nothing waits, or something does that the program must be at.
pub const WATCH: Span = Span::from_micros(200);
