//! Parameters that a host sets for its devices.

use std::num::NonZeroU8;
use std::sync::{Arc, LazyLock};

use ferroce_dcqcn::Rate;
use ferroce_transport::Span;

/// Constants that belong to a device's host and not to the device: how the machine around it wakes
/// up, sends and receives.
///
/// [`HostProfile::SOCKETS`] is for UDP sockets on a shared machine; [`HostProfile::card`] is for a
/// device that is a card, as in a simulated fabric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)] // what packets need stands first
pub struct HostProfile {
    /// Rate of the port. A packet is returned when the one before it has left, and its timers start
    /// when it has left itself. Without a rate, all of this happens immediately.
    pub port_rate: Option<Rate>,
    /// A queue pair that congestion control slows down sleeps this much longer than necessary, so
    /// that a batch leaves and not a single packet.
    pub pacing_tick: Span,
    /// A queue pair that had nothing to send may immediately send as much as its rate allows in
    /// this time. More would be a burst into the very queue that the rate limit protects.
    pub pacing_credit: Span,
    /// If the host wakes up late, a queue pair makes up for at most this much.
    pub lateness_max: Span,
    /// A queue pair that is slowed down keeps in flight what it may send in this time. A quarter of
    /// that is the time between two requests for an acknowledgement, which must be less than the
    /// shortest timeouts, 8 ms.
    pub paced_window: Span,
    /// Maximum packets that one queue pair sends before the next one gets its turn.
    pub turn_packets: u32,
    /// Packets in a row that take the same path, of queue pairs whose packets take many (adaptive routing).
    pub path_packets: u16,
    /// Maximum bytes of responses that one READ request asks for.
    pub read_bytes: u32,
    /// Packets of a message after which an acknowledgement is requested, besides the last one; as
    /// `log_ack_req_freq` of a card's queue pairs. `None`: a quarter of the window.
    pub ack_every: Option<NonZeroU8>,
    /// A full window stays closed until half of it is acknowledged: packets leave in bursts that
    /// one system call takes, and not one or two at a time as acknowledgements arrive.
    pub in_bursts: bool,
    /// While the host's own interface has no carrier, the device loses what would leave or arrive
    /// by it. The cables of a simulated fabric lose packets themselves, and count them.
    pub loses_without_carrier: bool,
}

impl HostProfile {
    /// The profile for UDP sockets and threads on a shared machine.
    pub const SOCKETS: Self = Self {
        // The machine's own port is behind them.
        port_rate: None,
        // At 10 Gb/s a wake-up for each packet would take a core.
        pacing_tick: Span::from_micros(50),
        pacing_credit: Span::from_micros(500),
        // With more threads than cores one waits for some milliseconds, and the rate is to be held
        // there, too.
        lateness_max: Span::from_millis(10),
        paced_window: Span::from_millis(20),
        // A GSO burst.
        turn_packets: 64,
        // One system call sends them.
        path_packets: 16,
        // The first and the last response carry an AETH, so that fewer of a long READ's responses leave
        // in one call the shorter its pieces are; longer ones overrun the receive buffer where many
        // queue pairs read at once.
        read_bytes: 128 << 10,
        ack_every: None,
        in_bursts: true,
        // The kernel would deliver them to its own addresses.
        loses_without_carrier: true,
    };

    /// Returns [`Self::SOCKETS`], shared by devices.
    pub fn sockets() -> Arc<Self> {
        static SHARED: LazyLock<Arc<HostProfile>> =
            LazyLock::new(|| Arc::new(HostProfile::SOCKETS));
        Arc::clone(&SHARED)
    }

    /// Returns the profile of a card with a port of this rate, at least 1 Mb/s: nothing sleeps,
    /// nothing is late, and bursts are short.
    #[must_use]
    pub const fn card(rate: Rate) -> Self {
        let rate = at_least_1_mbps(rate);
        let packet_bits = 4096 * 8;
        let packet = Span::from_picos(packet_bits * 1_000_000 / (rate.bps() / 1_000_000));
        Self {
            port_rate: Some(rate),
            pacing_tick: Span::ZERO,
            // A queue pair whose turn has come keeps its rate with this number of others in front
            // of it.
            pacing_credit: packet.times(16),
            lateness_max: Span::ZERO,
            // The port takes one packet at a time: a longer turn gains nothing and only makes the
            // others wait.
            turn_packets: 1,
            path_packets: 1,
            // A READ is one request, however long.
            read_bytes: u32::MAX,
            in_bursts: false,
            loses_without_carrier: false,
            ..Self::SOCKETS
        }
    }
}

const fn at_least_1_mbps(rate: Rate) -> Rate {
    match rate.bps() < 1_000_000 {
        true => Rate::from_mbps(1),
        false => rate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_makes_up_for_the_packets_of_sixteen_others() {
        let card = HostProfile::card(Rate::from_mbps(400_000));
        let packet = Span::from_picos(81_920);
        assert_eq!(card.pacing_credit, 16 * packet);
        let slowest = HostProfile::card(Rate::default());
        assert_eq!(slowest.port_rate, Some(Rate::from_mbps(1)));
        assert_eq!(slowest.pacing_credit, 16 * Span::from_micros(32_768));
    }
}
