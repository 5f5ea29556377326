//! The constants of the driver, with the reason for each.
//!
//! They were measured on loopback, where a packet takes about a microsecond, a system call without
//! data half a microsecond, and a wake-up ten to fifty.

use ferroce_device::Span;

/// If a receive call returns more packets than this, the peer is streaming and its window needs
/// acknowledgements immediately, unless the program posts after each such batch. With fewer, it sends a
/// request and waits for the answer.
pub const STREAM_PACKETS: usize = 4;

/// Packets of a stream that are received in one round before they are acknowledged: a quarter of a
/// window. One acknowledgement covers all of them, because sending costs more than receiving.
pub const ROUND_PACKETS: usize = 32;

/// How long a poll takes at most that receives the rest of a message, for a program that has one request under way
/// and waits for its peer: a message of 1 MiB takes so long.
pub const REST: Span = Span::from_micros(250);

/// How soon the next packets of that message must come: a peer on the same host needs this long to make a batch.
pub const REST_PAUSE: Span = Span::from_micros(50);

/// A program that posts so soon after the helper has put something into its memory has watched that.
pub const REACTION: Span = Span::from_micros(20);

/// After this number of reactions in a row, a poll waits for the reply to a request.
pub const REACTIONS: u32 = 8;

/// How long it waits. If nothing comes, the program has to react as often again.
pub const REPLY: Span = Span::from_micros(50);

/// Receive calls before a timer expires: more than the packets that fit into a receive buffer of 4 MiB.
pub const RECEIVE_CALLS_MAX: usize = 1 << 13;

/// Bytes passed to the link in one call, after which other threads can use the device. This is more than
/// the windows of all queue pairs; only answers to many large READs reach it.
pub const TRANSMIT_BYTES_MAX: usize = 4 << 20;

/// How long received packets may wait while each poll finds a completion. Requests of unreliable services
/// complete without an answer from the peer, so packets, among them CNPs, could otherwise wait forever.
pub const UNREAD: Span = Span::from_micros(100);

/// If nothing was received or sent for this long, a polling thread gives its core away, where more processes share
/// the device than there are cores: its peer may need it to answer.
pub const LEND: Span = Span::from_micros(20);

/// How often the helper counts those processes.
pub const COUNT: Span = Span::from_millis(50);

/// How long a program in such company has no core at times. It takes what has arrived when it has one again, and the
/// helper leaves that to it.
pub const TURN: Span = Span::from_millis(5);

/// If nothing was received or sent for this long, an empty poll does not make a system call each time.
pub const IDLE_AFTER: Span = Span::from_micros(100);

/// How often a polling thread then checks the socket; packets are received later by at most this.
pub const IDLE_WINDOW: Span = Span::from_micros(1);

/// How long a program that waits for a completion spins before it sleeps: waking up costs tens of
/// microseconds.
pub const WAIT_SPIN: Span = Span::from_micros(100);

/// A program that has polled within this time is polling: a loop polls far more often.
pub const POLLING: Span = Span::from_micros(20);

/// A program that runs for so long without a poll does something else: a loop polls far more often.
pub const PAUSE: Span = Span::from_micros(5);

/// A pause in which requests would wait too long that wait for the program. Interrupts can take half as long.
pub const LONG_PAUSE: Span = Span::from_micros(50);

/// How long a pause counts. A program that pauses again within this time does so on purpose, for example to watch
/// memory that its peers write.
pub const PAUSES: Span = Span::from_micros(500);

/// How long the helper stands back from a program that pauses, because it polls at this moment.
pub const LOOK_SOON: Span = Span::from_micros(50);

/// How long after the program's last poll the helper, once it stands back, leaves the device alone.
pub const STAND_BACK: Span = Span::from_micros(200);

/// A program that has polled within this time will probably poll again soon, perhaps when it sees data
/// arrive in its memory, and should keep its core.
pub const AROUND: Span = Span::from_millis(10);

/// How often the helper checks meanwhile. Each check takes the core from a spinning program; if a program
/// stops polling without notice, its peers wait for the next check.
pub const LOOK_AGAIN: Span = Span::from_millis(2);

/// After this number of consecutive unnecessary wake-ups, because the program polls, the helper stands back.
pub const SPARED_MAX: u32 = 4;

/// How long the helper leaves an acknowledgement to a program that will poll soon. If the program has
/// waited for the packet, the acknowledgement is sent together with its next request.
pub const LEAVE: Span = Span::from_micros(20);

/// How long the helper spins after a packet before it sleeps, because waking up takes longer.
pub const SPIN: Span = Span::from_micros(50);

/// The most requests, and bytes of messages, that are sent together: what one system call takes.
pub const BATCH_REQUESTS: u32 = 64;
/// See [`BATCH_REQUESTS`].
pub const BATCH_BYTES: u32 = 64 << 10;

/// After this number of requests in quick succession, the helper starts to keep watch and later requests wait
/// for each other. Waking it costs as much as sending a few requests.
pub const CALL_REQUESTS: u32 = 16;

/// Requests are in quick succession if less than this passes between two that are sent: a batch and its
/// answer take half of it.
pub const SUCCESSION: Span = Span::from_micros(100);

/// An unacknowledged request waits for others only if some were sent within this time.
pub const CLOSE: Span = Span::from_micros(10);

/// After this number of batches that waited, without a pause of the program, later ones need no watch: a few milliseconds
/// of a stream. Each [long pause](LONG_PAUSE) after that doubles the number, up to [`TRUST_MAX`].
pub const TRUST_MIN: u32 = 256;
/// Requests that wait when a trusted program pauses leave when the helper [looks again](LOOK_AGAIN), which takes a
/// fiftieth of the time of as many batches.
pub const TRUST_MAX: u32 = 1 << 12;

/// How long requests wait until the watch sends them. An active program fills a batch, or finds nothing in
/// a poll, sooner.
pub const WATCH_WAITS: Span = Span::from_micros(8);

/// If requests waited longer than this, the watch had no core; for a while, others are sent immediately.
pub const LATE: Span = Span::from_micros(100);

/// How long the helper keeps watch if nothing waits, or if the program is working on what waits.
pub const WATCH: Span = Span::from_micros(200);
