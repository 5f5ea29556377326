//! Captures and logs that others have made: what went wrong in them, and which retransmission policy
//! explains the waits.
//!
//! - [`read_frames`] reads pcap and pcapng; [`datagram`] takes off what is around a RoCEv2 packet.
//! - [`analyse`] does both and sorts the packets by queue pair and direction ([`Way`]): PSNs,
//!   opcodes, acknowledgements, and the waits before packets that were sent again ([`Ladder`]).
//! - [`identify`] says which policies explain such waits, and how sure that is.
//! - [`Log`] finds the times at which programs failed in what they wrote; [`explain_failures`] says
//!   which policies make them fail so far apart.
//!
//! Memory does not grow with the capture: every table has a bound, and what does not fit is counted.

#![forbid(unsafe_code)]

mod analysis;
mod conversations;
mod datagram;
mod failures;
mod identify;
mod ladder;
mod log;
mod reader;
mod requests;

pub use analysis::{Analysis, Totals, analyse};
pub use conversations::{Conversations, Responses, WAYS_MAX, Way, WayKey};
pub use datagram::{Datagram, Other, datagram};
pub use failures::{Failures, Tolerant, Tolerates, explain_failures};
pub use identify::{Answer, Policy, Reading, Step, Sure, identify};
pub use ladder::{End, Ladder, Start};
pub use log::Log;
pub use reader::{End as FileEnd, Frame, ReadError, read_frames};
pub use requests::Requests;
