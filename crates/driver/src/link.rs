//! The driver's interface to whatever carries packets.

use ferroce_device::{Event, Hca, Outgoing, Time};

/// The present, on the clock of a device.
pub trait Clock {
    /// Reads the clock.
    fn now(&self) -> Time;
}

/// What carries packets between a device and its peers: sockets, memory, or a simulated wire.
///
/// A link passes packets to the device itself, because only the link knows how long their bytes stay
/// valid. `now` is a clock and not a time: a call may take long, and each packet needs the time at which
/// it was received.
pub trait Link {
    /// Why the link has permanently stopped receiving.
    type Gone;

    /// Receives once and passes the packets to the device.
    ///
    /// # Errors
    /// The link is gone.
    fn receive(&mut self, now: impl Fn() -> Time, hca: &mut Hca) -> Result<Taken, Self::Gone>;

    /// The same for a caller that receives again soon and has read the clock at `at`. Sources that are
    /// expensive to check and rarely have packets may be skipped for some microseconds.
    ///
    /// # Errors
    /// The link is gone.
    fn glance(
        &mut self,
        _at: Time,
        now: impl Fn() -> Time,
        hca: &mut Hca,
    ) -> Result<Taken, Self::Gone> {
        self.receive(now, hca)
    }

    /// Receives from the link's other sources, if it has any; with [`Aside::Announced`], only packets that
    /// were announced. Returns the number of packets.
    fn receive_aside(&mut self, now: impl Fn() -> Time, hca: &mut Hca, which: Aside) -> usize;

    /// Accepts a packet, to be sent by the next [`Self::flush`]. A packet that can never be sent is accepted
    /// as well, and counted as lost.
    ///
    /// # Errors
    /// The packet does not fit into the current batch: flush first.
    fn push(&mut self, hca: &mut Hca, packet: &Outgoing) -> Result<(), Full>;

    /// Bytes that wait for [`Self::flush`].
    fn waiting(&self) -> usize;

    /// Sends what waits; returns whether all of it was sent.
    #[must_use]
    fn flush(&mut self, hca: &mut Hca) -> bool;

    /// When [`Self::handle_timeout`] must be called.
    fn poll_timeout(&self) -> Option<Time>;

    /// Does the link's own periodic work.
    fn handle_timeout(&mut self, now: Time, hca: &mut Hca);

    /// Frees memory that was needed in traffic.
    fn rest(&mut self) {}

    /// Handles an event of the device that concerns the link; returns events for others.
    fn handle_event(&mut self, event: Event) -> Option<Event> {
        Some(event)
    }

    /// The next event of the link itself.
    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}

/// The result of a receive call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    /// Packets.
    pub packets: usize,
    /// There may be more. If false, another call would return nothing.
    pub more: bool,
}

/// The packet was not accepted: flush first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Which packets to receive from the link's other sources.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aside {
    /// Those that their senders have announced, which is cheap to check.
    Announced,
    /// All: a sender may have exited before it announced them.
    All,
}
