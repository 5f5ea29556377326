//! What a host makes of the device.

use ferroce_dcqcn::Rate;
use ferroce_transport::Span;

/// Constants that belong to the host of a device and not to the device: how the machine around it
/// wakes up, sends and receives. All devices of a host share one.
///
/// [`HostProfile::SOCKETS`] is for UDP sockets on a machine that runs other things, too;
/// [`HostProfile::card`] for a device that is a card, as in a simulated fabric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostProfile {
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
    /// Bytes at a peer, as its buffer counts them, that are worth a turn: nobody's share is smaller, and
    /// who waits for room waits for as much.
    pub turn_bytes: u64,
    /// Bytes of the responses that one READ request asks for, at most.
    pub read_bytes: u32,
    /// Who waits for room at a peer looks this often whether what is on the wire is lost.
    pub write_off_after: Span,
}

impl HostProfile {
    /// UDP sockets, and threads that share a machine.
    pub const SOCKETS: Self = Self {
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
        write_off_after: Span::from_secs(1),
    };

    /// A card with a port of this rate: nothing sleeps, nothing is late, and bursts are short.
    #[must_use]
    pub const fn card(rate: Rate) -> Self {
        let turn_packets = 4;
        let turn_bytes = turn_packets as u64 * 4096;
        Self {
            pacing_tick: Span::ZERO,
            // What leaves in one turn.
            pacing_credit: Span::from_picos(turn_bytes * 8 * 1_000_000 / mbps_at_least_1(rate)),
            lateness_max: Span::ZERO,
            turn_packets,
            turn_bytes,
            // A READ is one request, however long.
            read_bytes: u32::MAX,
            ..Self::SOCKETS
        }
    }
}

const fn mbps_at_least_1(rate: Rate) -> u64 {
    match rate.bps() / 1_000_000 {
        0 => 1,
        mbps => mbps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_sends_a_turn_at_once_and_no_more() {
        static CARD: HostProfile = HostProfile::card(Rate::from_mbps(400_000));
        assert_eq!(
            CARD.pacing_credit,
            Span::from_nanos(327) + Span::from_picos(680)
        );
        let slowest = HostProfile::card(Rate::default());
        assert_eq!(slowest.pacing_credit, Span::from_nanos(131_072_000));
    }
}
