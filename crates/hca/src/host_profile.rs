//! Parameters that a host sets for its devices.

use std::sync::{Arc, LazyLock};

use ferroce_dcqcn::Rate;
use ferroce_transport::Span;

/// Constants that belong to the host of a device and not to the device: how the machine around it
/// wakes up, sends and receives.
///
/// [`HostProfile::SOCKETS`] is for UDP sockets on a machine that runs other things, too;
/// [`HostProfile::card`] for a device that is a card, as in a simulated fabric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)] // what packets need stands first
pub struct HostProfile {
    /// Bytes at a peer, as its buffer counts them, that are worth a turn: nobody's share is smaller, and
    /// who waits for room waits for as much.
    pub turn_bytes: u32,
    /// Rate of the port. A packet is handed out when the one before it has left, and its timers start
    /// when it has left itself. Without a rate that is all at once.
    pub port_rate: Option<Rate>,
    /// A queue pair that congestion control slows down sleeps this much longer than until its turn, so
    /// that then a batch leaves and not a single packet.
    pub pacing_tick: Span,
    /// One that had nothing to send may send as much at once as passes in this time. More would be a
    /// burst into the very queue that the rate is to spare.
    pub pacing_credit: Span,
    /// A sleeper that the host wakes up late makes up for as much as this.
    pub lateness_max: Span,
    /// A queue pair that is slowed down keeps in flight what it may send in this time. Of that a quarter
    /// passes between two requests for an acknowledgement, which must be less than the shortest
    /// timeouts, 8 ms.
    pub paced_window: Span,
    /// Packets that one queue pair sends before the next one gets its turn.
    pub turn_packets: u32,
    /// Bytes of the responses that one READ request asks for, at most.
    pub read_bytes: u32,
    /// A full window stays shut until half of it is acknowledged: packets leave in bursts that one system
    /// call takes, not by ones and twos as acknowledgements trickle in.
    pub in_bursts: bool,
    /// Packets arrive in buffers that drop what they have no room for, here and at the peers: all queue
    /// pairs together keep what is on the wire below a bound.
    pub books_room: bool,
    /// Who waits for room at a peer looks this often whether what is on the wire is lost.
    pub write_off_after: Span,
}

impl HostProfile {
    /// UDP sockets, and threads that share a machine.
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
        turn_bytes: 64 << 10,
        // The first and the last response carry an AETH, so that fewer of a long READ's responses leave
        // in one call the shorter its pieces are; longer ones overrun the receive buffer where many
        // queue pairs read at once.
        read_bytes: 128 << 10,
        in_bursts: true,
        books_room: true,
        write_off_after: Span::from_secs(1),
    };

    /// [`Self::SOCKETS`], to be shared by devices.
    pub fn sockets() -> Arc<Self> {
        static SHARED: LazyLock<Arc<HostProfile>> =
            LazyLock::new(|| Arc::new(HostProfile::SOCKETS));
        Arc::clone(&SHARED)
    }

    /// A card with a port of this rate, at least 1 Mb/s: nothing sleeps, nothing is late, and bursts
    /// are short.
    #[must_use]
    pub const fn card(rate: Rate) -> Self {
        let rate = at_least_1_mbps(rate);
        let packet_bits = 4096 * 8;
        let packet = Span::from_picos(packet_bits * 1_000_000 / (rate.bps() / 1_000_000));
        Self {
            port_rate: Some(rate),
            pacing_tick: Span::ZERO,
            // So many others may be in front of one whose turn has come, and it still keeps its rate.
            pacing_credit: packet.times(16),
            lateness_max: Span::ZERO,
            // The port takes one packet at a time, so that nothing is won by a longer turn: it would
            // only make the others wait.
            turn_packets: 1,
            turn_bytes: 16 << 10,
            // A READ is one request, however long.
            read_bytes: u32::MAX,
            in_bursts: false,
            // It takes packets as fast as they come.
            books_room: false,
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
