//! The notification point: decides when a receiver of marked packets sends a CNP, and with which
//! priority.

use ferroce_base::time::{Span, Time};

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

/// The earliest time of the next CNP: one for the port, or one in each flow.
///
/// The host defines what a flow is by where it keeps these timers: a queue pair has one. A datagram
/// queue pair has many senders; it may keep one for each of a bounded number of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CnpTimer {
    open: Time,
}

impl CnpTimer {
    fn take(&mut self, now: Time, interval: Span) -> bool {
        let is_open = now >= self.open;
        if is_open {
            self.open = now.after(interval);
        }
        is_open
    }
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

/// The notification point of a port.
///
/// ```
/// use ferroce_base::time::Time;
/// use ferroce_dcqcn::{Params, np::{Arrival, CnpTimer, NotificationPoint}};
///
/// let mut port = NotificationPoint::new(&Params::default());
/// let mut flow = CnpTimer::default();
/// let marked = Arrival { ce: true, ..Arrival::default() };
/// assert!(port.on_packet(Time::from_nanos(10_000), marked, &mut flow).is_some());
/// assert!(port.on_packet(Time::from_nanos(13_999), marked, &mut flow).is_none());
/// assert!(port.on_packet(Time::from_nanos(14_000), marked, &mut flow).is_some());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotificationPoint {
    moderation: Moderation,
    interval: Span,
    /// `None` = the received packet's.
    dscp: Option<u8>,
    pcp: Option<u8>,
    with_naks: bool,
    port: CnpTimer,
}

impl NotificationPoint {
    /// Creates a port's notification point, which has not sent a CNP yet.
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
            port: CnpTimer::default(),
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
    pub fn on_packet(&mut self, now: Time, packet: Arrival, flow: &mut CnpTimer) -> Option<Cnp> {
        if !packet.ce {
            return None;
        }
        let timer = match self.moderation {
            Moderation::Port => &mut self.port,
            Moderation::Flow => flow,
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

    #[test]
    fn an_unmarked_packet_is_not_answered() {
        let packet = Arrival {
            ce: false,
            ..MARKED
        };
        let answer = port(&[]).on_packet(Time::ZERO, packet, &mut CnpTimer::default());
        assert_eq!(answer, None);
    }

    #[test]
    fn a_port_answers_one_flow_in_an_interval_and_flows_one_each() {
        for (moderation, answered) in [(0, 1), (1, 1), (2, 3)] {
            let mut port = port(&[(Param::CnpModeration, moderation)]);
            let mut flows = [CnpTimer::default(); 3];
            let mut count = 0;
            for round in 0..4 {
                for flow in &mut flows {
                    count += usize::from(
                        port.on_packet(Time::from_nanos(round * 999), MARKED, flow)
                            .is_some(),
                    );
                }
            }
            assert_eq!(count, answered, "moderation {moderation}");
        }
    }

    #[test]
    fn without_an_interval_every_marked_packet_is_answered() {
        let mut port = port(&[(Param::MinTimeBetweenCnps, 0)]);
        let mut flow = CnpTimer::default();
        assert!((0..5).all(|_| {
            port.on_packet(Time::from_nanos(7), MARKED, &mut flow)
                .is_some()
        }));
    }

    #[test]
    fn the_priority_is_fixed_or_the_packets() {
        let flow = &mut CnpTimer::default();
        let fixed = port(&[]).on_packet(Time::ZERO, MARKED, flow);
        assert_eq!(fixed, Some(Cnp { dscp: 48, pcp: 6 }));

        *flow = CnpTimer::default();
        let copying = [(Param::CnpDscpMode, 2), (Param::CnpPrioMode, 1)];
        let copied = port(&copying).on_packet(Time::ZERO, MARKED, flow);
        assert_eq!(copied, Some(Cnp { dscp: 26, pcp: 3 }));

        *flow = CnpTimer::default();
        let chosen = [
            (Param::CnpDscpMode, 1),
            (Param::CnpDscp, 46),
            (Param::Cnp802pPrio, 5),
        ];
        let chosen = port(&chosen).on_packet(Time::ZERO, MARKED, flow);
        assert_eq!(chosen, Some(Cnp { dscp: 46, pcp: 5 }));
    }

    #[test]
    fn naks_carry_cnps_only_where_the_generation_does_that() {
        let mut port = port(&[]);
        assert_eq!(port.on_nak(MARKED), None);
        port = port.with_naks(true);
        assert!(
            port.on_packet(Time::ZERO, MARKED, &mut CnpTimer::default())
                .is_some()
        );
        assert!(port.on_nak(MARKED).is_some(), "whatever was sent before");
    }
}
