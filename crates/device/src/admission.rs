//! Admission: how much all queue pairs of a device may have in flight together.
//!
//! A host whose packets are lost when a buffer is full gives its device an [`Admission`]. Without
//! one, each queue pair is limited by its own window alone.

use std::fmt;
use std::net::IpAddr;

use ferroce_transport::{Qp, Span, Time};

/// Decides how much queue pairs may have in flight, before each of their turns to send.
///
/// The device calls it with a queue pair at hand, and only for those whose requests are answered.
/// A call may return queue pairs that waited and are to look again whether there is room.
pub trait Admission: fmt::Debug + Send {
    /// The requests of a queue pair go to `address` from now on; `None`: nowhere, as it is gone or
    /// has no path. Returns what it had taken.
    fn connect(&mut self, now: Time, applicant: Applicant<'_>, address: Option<IpAddr>) -> Called;

    /// A queue pair with something to send begins its turn, or gets its first request in it: sets
    /// its share of the window and its allowance.
    fn grant(&mut self, applicant: Applicant<'_>);

    /// Books what a queue pair has in flight. Called after everything that may change it, except
    /// for the packets of its turn: those are booked when it ends, and no other turn begins before.
    fn book(&mut self, applicant: Applicant<'_>) -> Called;

    /// A queue pair has learned something about the path to its peer.
    fn signal(&mut self, now: Time, applicant: Applicant<'_>, signal: Signal) -> Called;

    /// The turn of a queue pair is over, for which [`Self::grant`] was called.
    fn end_turn(&mut self, now: Time, applicant: Applicant<'_>) -> Called;

    /// The share of a queue pair in the window of its peer, in bytes of payload.
    fn share(&self, applicant: Applicant<'_>) -> u32;

    /// When [`Self::handle_timeout`] is to be called.
    fn poll_timeout(&self) -> Option<Time>;

    /// Checks whether what is in flight is lost; returns the queue pairs to call.
    fn handle_timeout(&mut self, now: Time) -> Vec<u32>;

    /// The path to the peer of a queue pair, for display.
    fn path(&self, seat: &Seat) -> Option<PathLook>;

    /// Compares the books with all queue pairs of the device.
    ///
    /// # Panics
    /// Panics if they do not agree.
    fn audit(&self, queue_pairs: &[Audited<'_>]);
}

/// What an [`Admission`] remembers about a queue pair. The device stores it with the queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seat {
    /// The peer, as the admission numbers them; `None` if the queue pair is not limited.
    pub peer: Option<u32>,
    /// Bytes taken of the room at the peer.
    pub packets: u64,
    /// Bytes taken of the room for responses.
    pub responses: u64,
    /// It waits for room at the peer.
    pub waits_for_packets: bool,
    /// It waits for room for responses.
    pub waits_for_responses: bool,
}

impl Seat {
    /// Whether it waits for more.
    #[inline]
    pub const fn waits(&self) -> bool {
        self.waits_for_packets || self.waits_for_responses
    }

    /// Whether it has taken anything.
    #[inline]
    pub const fn has_taken(&self) -> bool {
        self.packets > 0 || self.responses > 0
    }
}

/// A queue pair for which an [`Admission`] is called.
#[derive(Debug)]
pub struct Applicant<'a> {
    /// Its index in the device.
    pub index: u32,
    /// The queue pair itself.
    pub qp: &'a mut Qp,
    /// What the admission remembers about it.
    pub seat: &'a mut Seat,
    /// Congestion control makes it wait.
    pub sleeps: bool,
}

/// A queue pair, for [`Admission::audit`].
#[derive(Debug)]
pub struct Audited<'a> {
    /// Its index in the device.
    pub index: u32,
    /// The queue pair itself.
    pub qp: &'a Qp,
    /// What the admission remembers about it.
    pub seat: &'a Seat,
    /// It waits for its turn.
    pub is_ready: bool,
    /// Its turn has begun and is not over.
    pub is_in_turn: bool,
}

/// Queue pairs that may have room now, by index.
pub type Called = [Option<u32>; 2];

/// What a queue pair has learned about the path to its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// An answer came this long after its request.
    RoundTrip {
        /// The time between both.
        rtt: Span,
        /// How long the queue pair waits for an answer.
        wait: Option<Span>,
    },
    /// An answer came that does not tell the round trip.
    Answer,
    /// A packet was repeated needlessly: the answer to its first copy was late.
    Spurious,
    /// Something is to be sent again.
    Loss {
        /// The peer has not answered for so long; `None`: it says that it misses a packet.
        waited: Option<Span>,
    },
}

/// The path to a peer, which all queue pairs to it share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathLook {
    /// Bytes that may be in flight, as a receive buffer counts them.
    pub window_bytes: u64,
    /// Bytes that are in flight.
    pub used_bytes: u64,
    /// The last round trip that was measured, ns.
    pub rtt_ns: Option<u64>,
}
