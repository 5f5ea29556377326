//! Sends packets one after the other, at the rate of the port.

use ferroce_dcqcn::Rate;
use ferroce_transport::{Outgoing, Time};

/// The serializer of a port. Without a rate it takes any number of packets at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Serializer {
    rate: Option<Rate>,
    /// Bytes of the VLAN tag of each packet.
    tag_len: usize,
    /// When the next packet may begin to leave; [`Time::ZERO`] without a rate.
    free_at: Time,
}

impl Serializer {
    pub(crate) const fn new(rate: Option<Rate>, tag_len: usize) -> Self {
        Self {
            rate,
            tag_len,
            free_at: Time::ZERO,
        }
    }

    /// Whether packets take their time.
    #[inline]
    pub(crate) fn has_rate(&self) -> bool {
        self.rate.is_some()
    }

    /// Whether a packet may begin to leave.
    #[inline]
    pub(crate) fn is_free(&self, now: Time) -> bool {
        self.free_at <= now
    }

    /// When it is free again, if it is not.
    #[inline]
    pub(crate) fn busy_until(&self, now: Time) -> Option<Time> {
        (!self.is_free(now)).then_some(self.free_at)
    }

    /// When a packet that begins to leave now has left.
    #[inline]
    pub(crate) fn departure(&self, now: Time, packet: &Outgoing) -> Time {
        match self.rate {
            Some(rate) => now.after(rate.transmission(packet.wire_bytes(self.tag_len))),
            None => now,
        }
    }

    /// A packet begins to leave now; tells when it has left.
    #[inline]
    pub(crate) fn send(&mut self, now: Time, packet: &Outgoing) -> Time {
        let departure = self.departure(now, packet);
        if self.has_rate() {
            self.free_at = departure;
        }
        departure
    }
}
