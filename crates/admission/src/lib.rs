//! Admission for devices on sockets: which queue pairs may send how much when many send into one
//! buffer.
//!
//! A peer's socket drops packets that do not fit into its receive buffer. The amount that all queue
//! pairs of a device have in flight to one address therefore stays below a bound, regardless of their
//! number, their start and the number of processes. Queue pairs take room burst by burst. If there is
//! none, they wait in a queue, and while any of them waits, all others that want more wait behind it.
//! The same applies to the responses to the device's READs, which arrive at its own socket.
//!
//! [`Shares`] is the [`ferroce_device::Admission`] of one device; [`LeaseTable`] is what several processes
//! with the same device share.
//!
//! | module | content |
//! |---|---|
//! | `shares` | the admission: grants, books, turns |
//! | `peers` | the devices at the other ends |
//! | `room` | what is taken of one buffer, and which queue pairs wait for it |
//! | `path` | how much the path to a peer can take at a time |
//! | `lease` | the shares of several processes |
//! | `audit` | consistency checks |

mod audit;
mod lease;
mod path;
mod peers;
mod room;
mod shares;

use ferroce_transport::Span;

pub use self::lease::{LeaseTable, Leases};
pub use self::path::Window;
pub use self::shares::{Bounds, Shares};

/// Minimum bytes at a peer, as its buffer counts them, for a turn: no share is smaller, and a queue
/// pair that waits for room waits for this much. A GSO burst.
const TURN_BYTES: u64 = 64 << 10;
/// A queue pair that waits for room at a peer checks at this interval whether what is in flight is
/// lost.
const WRITE_OFF_AFTER: Span = Span::from_secs(1);
