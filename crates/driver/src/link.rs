//! The driver's interface to whatever carries packets.

use ferroce_hca::{Event, Hca, Outgoing, Time};

/// What carries packets between a device and its peers: sockets, memory, or a simulated wire.
///
/// A link hands packets to the device itself, since it alone knows how long their bytes stay where
/// they are. Where a call takes `now`, it takes the clock: a call may last, and what arrives late is to
/// be taken late.
pub trait Link {
    /// Why nothing arrives any more, for good.
    type Gone;

    /// Takes what one call brings and hands it to the device.
    ///
    /// # Errors
    /// The link is gone.
    fn receive(&mut self, now: impl Fn() -> Time, hca: &mut Hca) -> Result<Taken, Self::Gone>;

    /// The same for one that looks again at once, and that has looked at the clock at `at`: what costs
    /// much to ask and seldom has something may be left out for some microseconds.
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

    /// Takes what has come by other ways, of which a link may have some, as far as it is
    /// [`Aside::Announced`]; returns the number of packets.
    fn receive_aside(&mut self, now: impl Fn() -> Time, hca: &mut Hca, which: Aside) -> usize;

    /// Takes a packet, to be sent by the next [`Self::flush`]. One that can never be sent is taken,
    /// too, and counted as lost.
    ///
    /// # Errors
    /// It does not fit what waits.
    fn push(&mut self, hca: &mut Hca, packet: &Outgoing) -> Result<(), Full>;

    /// Bytes that wait for [`Self::flush`].
    fn waiting(&self) -> usize;

    /// Sends what waits; returns whether the link has taken all of it.
    #[must_use]
    fn flush(&mut self, hca: &mut Hca) -> bool;

    /// When [`Self::handle_timeout`] wants to be called.
    fn poll_timeout(&self) -> Option<Time>;

    /// Does what the link itself has to do at times.
    fn handle_timeout(&mut self, now: Time, hca: &mut Hca);

    /// The device has found nothing to lease: others have all of it, or had when they died.
    fn lacks_lease(&mut self, _now: Time) {}

    /// What the device wants of its link; returns what others should know of.
    fn handle_event(&mut self, event: Event) -> Option<Event> {
        Some(event)
    }

    /// The next thing about the link itself that somebody should know.
    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}

/// What a receive call has brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    /// Packets.
    pub packets: usize,
    /// Something may still lie there. If not, another call would bring nothing.
    pub more: bool,
}

/// A packet was not taken: what waits must be sent first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Which of the packets that come by other ways than the link's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aside {
    /// Those that their senders have announced, which is cheap to ask.
    Announced,
    /// All: who brought them may have died before he could announce them.
    All,
}
