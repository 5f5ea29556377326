//! Analysis of captures and logs: what went wrong in them, and which retransmission policy explains
//! the waits.
//!
//! - [`read_frames`] reads pcap and pcapng; [`datagram`] extracts RoCEv2 packets from frames.
//! - [`analyse`] does both and sorts the packets by queue pair and direction ([`Way`]): PSNs,
//!   opcodes, acknowledgements, and the waits before retransmissions ([`Ladder`]).
//! - [`identify`] finds the policies that explain such waits, and how certain the answer is;
//!   [`identify_together`] does so for several queue pairs of a device.
//! - [`Log`] finds the times at which programs failed in their logs; [`explain_failures`] finds the
//!   policies that explain the time between failures.
//!
//! Memory does not grow with the capture: every table has a bound, and entries beyond it are
//! counted.

#![forbid(unsafe_code)]

mod analysis;
mod conversations;
mod datagram;
mod failures;
mod identify;
mod ladder;
mod log;
mod offload;
mod reader;
mod requests;

pub use analysis::{Analysis, Totals, analyse};
pub use conversations::{Conversations, Responses, WAYS_MAX, Way, WayKey};
pub use datagram::{Datagram, Other, datagram};
pub use failures::{Failures, Tolerant, Tolerates, explain_failures};
pub use identify::{Answer, Policy, Reading, Step, Sure, identify, identify_together};
pub use ladder::{End, Ladder, Start};
pub use log::Log;
pub use reader::{End as FileEnd, Frame, ReadError, read_frames};
pub use requests::Requests;
