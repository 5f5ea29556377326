//! The notification point: decides when a receiver of marked packets sends a CNP, and with which
//! priority.

mod timer;

use ferroce_base::time::{Span, Time};

pub use self::timer::CnpTimer;
use crate::param::Param;
use crate::params::Params;

/// The properties of an arriving packet that matter to the notification point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// Whether its ECN field is Congestion Experienced.
    pub ce: bool,
    /// Its DSCP, 0..=63.
    pub dscp: u8,
    /// Its priority (PCP of the VLAN tag), 0..=7.
    pub pcp: u8,
}

/// The header fields of a CNP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cnp {
    /// Its DSCP.
    pub dscp: u8,
    /// Its priority.
    pub pcp: u8,
}

/// The timers that may apply to a packet; the [`Moderation`] decides which one does.
#[derive(Clone, Copy, Debug)]
pub struct Timers<'a> {
    /// The port's, which all its processes share.
    pub port: &'a CnpTimer,
    /// That of the packet's flow.
    pub flow: &'a CnpTimer,
}

/// The scope of the minimum interval between CNPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Moderation {
    /// The interval applies to any two CNPs of a port. This is the device's default: the parameter
    /// is documented as the time between CNPs "from the port".
    Port,
    /// The interval applies to two CNPs of a flow.
    Flow,
}

/// The notification point of a port, or of one of the processes that share a port and its timer.
///
/// ```
/// use ferroce_base::time::Time;
/// use ferroce_dcqcn::{Params, np::{Arrival, CnpTimer, NotificationPoint, Timers}};
///
/// let processes = [(); 2].map(|()| NotificationPoint::new(&Params::default()));
/// let (port, flow) = (CnpTimer::default(), CnpTimer::default());
/// let timers = Timers { port: &port, flow: &flow };
/// let marked = Arrival { ce: true, ..Arrival::default() };
/// let [a, b] = processes;
/// assert!(a.on_packet(Time::from_nanos(10_000), marked, timers).is_some());
/// assert!(b.on_packet(Time::from_nanos(13_999), marked, timers).is_none());
/// assert!(b.on_packet(Time::from_nanos(14_000), marked, timers).is_some());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotificationPoint {
    moderation: Moderation,
    interval: Span,
    /// `None` = the received packet's.
    dscp: Option<u8>,
    pcp: Option<u8>,
    with_naks: bool,
}

impl NotificationPoint {
    /// Creates a notification point with these parameters.
    #[must_use]
    pub fn new(params: &Params) -> Self {
        Self {
            moderation: match params.get(Param::CnpModeration) {
                2 => Moderation::Flow,
                _ => Moderation::Port,
            },
            interval: params.micros(Param::MinTimeBetweenCnps),
            dscp: (params.get(Param::CnpDscpMode) != 2).then(|| byte(params, Param::CnpDscp)),
            pcp: (params.get(Param::CnpPrioMode) == 0).then(|| byte(params, Param::Cnp802pPrio)),
            with_naks: false,
        }
    }

    /// Makes it send a CNP with each NAK as well, as ConnectX-5 and ConnectX-6 do while slow
    /// restart is on; ConnectX-4 does not.
    #[must_use]
    pub const fn with_naks(mut self, with_naks: bool) -> Self {
        self.with_naks = with_naks;
        self
    }

    /// Returns the scope of the minimum interval between CNPs.
    #[must_use]
    pub const fn moderation(&self) -> Moderation {
        self.moderation
    }

    /// Handles the arrival of a queue pair's packet. Returns the CNP to answer with immediately, if
    /// any.
    #[inline]
    pub fn on_packet(&self, now: Time, packet: Arrival, timers: Timers<'_>) -> Option<Cnp> {
        if !packet.ce {
            return None;
        }
        let timer = match self.moderation {
            Moderation::Port => timers.port,
            Moderation::Flow => timers.flow,
        };
        timer.take(now, self.interval).then(|| self.answer(packet))
    }

    /// Handles a NAK in answer to `packet`. Returns the CNP to send with it, if any. The minimum
    /// interval does not apply to these.
    #[must_use]
    pub fn on_nak(&self, packet: Arrival) -> Option<Cnp> {
        self.with_naks.then(|| self.answer(packet))
    }

    fn answer(&self, packet: Arrival) -> Cnp {
        Cnp {
            dscp: self.dscp.unwrap_or(packet.dscp),
            pcp: self.pcp.unwrap_or(packet.pcp),
        }
    }
}

fn byte(params: &Params, param: Param) -> u8 {
    u8::try_from(params.get(param)).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKED: Arrival = Arrival {
        ce: true,
        dscp: 26,
        pcp: 3,
    };

    fn port(changes: &[(Param, u32)]) -> NotificationPoint {
        let mut params = Params::default();
        for &(param, value) in changes {
            params.set(param, value).unwrap();
        }
        NotificationPoint::new(&params)
    }

    /// Answers packets that have just arrived for the first time.
    fn answer(port: &NotificationPoint, packet: Arrival) -> Option<Cnp> {
        let timers = [(); 2].map(|()| CnpTimer::default());
        port.on_packet(Time::ZERO, packet, of(&timers))
    }

    fn of([port, flow]: &[CnpTimer; 2]) -> Timers<'_> {
        Timers { port, flow }
    }

    #[test]
    fn an_unmarked_packet_is_not_answered() {
        let packet = Arrival {
            ce: false,
            ..MARKED
        };
        assert_eq!(answer(&port(&[]), packet), None);
    }

    #[test]
    fn a_port_answers_one_flow_in_an_interval_and_flows_one_each() {
        for (moderation, answered) in [(0, 1), (1, 1), (2, 3)] {
            let np = port(&[(Param::CnpModeration, moderation)]);
            let (port, flows) = (CnpTimer::default(), [(); 3].map(|()| CnpTimer::default()));
            let mut count = 0;
            for round in 0..4 {
                for flow in &flows {
                    let timers = Timers { port: &port, flow };
                    let answer = np.on_packet(Time::from_nanos(round * 999), MARKED, timers);
                    count += usize::from(answer.is_some());
                }
            }
            assert_eq!(count, answered, "moderation {moderation}");
        }
    }

    #[test]
    fn processes_with_different_intervals_share_a_port() {
        let of_micros = |us| port(&[(Param::MinTimeBetweenCnps, us)]);
        let (short, long) = (of_micros(4), of_micros(50));
        let timers = [(); 2].map(|()| CnpTimer::default());
        let sends = |np: &NotificationPoint, us: u64| {
            let now = Time::from_nanos(us * 1_000);
            np.on_packet(now, MARKED, of(&timers)).is_some()
        };
        assert!(sends(&long, 0));
        assert!(!sends(&short, 3));
        assert!(sends(&short, 4));
        assert!(!sends(&long, 53));
        assert!(sends(&long, 54));
    }

    #[test]
    fn without_an_interval_every_marked_packet_is_answered() {
        let port = port(&[(Param::MinTimeBetweenCnps, 0)]);
        let timers = [(); 2].map(|()| CnpTimer::default());
        let now = Time::from_nanos(7);
        assert!((0..5).all(|_| port.on_packet(now, MARKED, of(&timers)).is_some()));
    }

    #[test]
    fn the_priority_is_fixed_or_the_packets() {
        let fixed = answer(&port(&[]), MARKED);
        assert_eq!(fixed, Some(Cnp { dscp: 48, pcp: 6 }));

        let copying = [(Param::CnpDscpMode, 2), (Param::CnpPrioMode, 1)];
        let copied = answer(&port(&copying), MARKED);
        assert_eq!(copied, Some(Cnp { dscp: 26, pcp: 3 }));

        let chosen = [
            (Param::CnpDscpMode, 1),
            (Param::CnpDscp, 46),
            (Param::Cnp802pPrio, 5),
        ];
        let chosen = answer(&port(&chosen), MARKED);
        assert_eq!(chosen, Some(Cnp { dscp: 46, pcp: 5 }));
    }

    #[test]
    fn naks_carry_cnps_only_where_the_generation_does_that() {
        let mut port = port(&[]);
        assert_eq!(port.on_nak(MARKED), None);
        port = port.with_naks(true);
        assert!(answer(&port, MARKED).is_some());
        assert!(port.on_nak(MARKED).is_some(), "whatever was sent before");
    }
}
