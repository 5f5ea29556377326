//! Limits on the state that the connection manager keeps for peers, and on how long it keeps it.
//!
//! State that a program owns is bounded by the program. The rest comes from peers: requests that
//! the program has not answered, and remnants of connections that the program has released, which stay
//! until their packets cannot arrive any more. The amount for each source is limited, and if there
//! is no room, the oldest remnant is dropped. It exists to answer repeated messages, which also get
//! an answer if no remnant of their connection is left.

use ferroce_transport::Span;

/// Connections at a time.
pub(super) const CONNECTIONS_MAX: usize = 1 << 16;
/// Waiting requests and leftovers of one source at a time.
pub(super) const OF_SOURCE_MAX: u32 = 1 << 12;
/// Messages that wait for the link. More are lost, as on the link itself.
pub(super) const OUTBOX_MAX: usize = 1 << 12;
/// Events of one connection that the program has not taken: there is one for each state.
pub(super) const EVENTS_MAX: usize = 8;

/// The longest wait before a message is sent again, whatever a peer asks for.
pub(super) const WAIT_MAX: Span = Span::from_secs(60);
/// The longest time that a REP or a DREQ goes without an answer, with all its repetitions and
/// whatever the peer asks for. Linux's numbers make 103 s.
pub(super) const HALF_OPEN_MAX: Span = Span::from_secs(120);
/// The longest time that a connection which is over is remembered.
pub(super) const TIME_WAIT_MAX: Span = Span::from_secs(60);
/// The longest time that a peer's program may think on top: what Linux asks for, 4.096 µs · 2^24.
pub(super) const PATIENCE_MAX: Span = Span::from_nanos(4_096 << 24);
