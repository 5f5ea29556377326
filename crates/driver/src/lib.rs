//! How a device is driven: when to receive, to answer and to send, when to spin, sleep and wake,
//! and which of several threads does so.
//!
//! A [`Driver`] moves packets between an [`Hca`](ferroce_device::Hca) and a [`Link`]. It has no clock,
//! socket or thread of its own: it is given a link and a clock, so its decisions are the same, and can be tested,
//! on sockets, on memory, and on a simulated wire. A [`Helper`] makes the decisions of the thread
//! that drives a device while its program does not, and [`drive_both`] those of a thread that
//! drives two devices connected to each other. A [`Handshake`] is what the helper and the threads of
//! the program know of each other without a lock. [`patience`] has the constants for these decisions,
//! with the reason for each.
#![forbid(unsafe_code)]

mod doorbell;
mod driver;
mod handshake;
mod helper;
mod link;
pub mod patience;
mod sync;
mod tandem;

pub use doorbell::{Ring, Waiting, Watch, Watched};
pub use driver::{Driver, Sent};
pub use handshake::Handshake;
pub use helper::{Helper, Look, Next, Round, Waited};
pub use link::{Aside, Clock, Full, Link, Taken};
pub use tandem::{Both, drive_both};
