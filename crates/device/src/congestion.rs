//! The port's congestion control: DCQCN as it acts on the wire.
//!
//! The notification point answers packets marked CE with CNPs. The reaction point gives a queue
//! pair whose peer sends CNPs a [`Limiter`], and removes it when the rate has recovered.

mod datagram;
mod limiter;

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use ferroce_dcqcn::np::{Arrival, CnpTimer, NotificationPoint};
use ferroce_dcqcn::rp::NvidiaConfig;
use ferroce_dcqcn::{Rate, Switches};
use ferroce_transport::{Outgoing, Path, Time};
use ferroce_wire::{PKEY_DEFAULT, Qpn, cnp};

use self::datagram::DatagramTimers;
pub(crate) use self::limiter::Limiter;
use crate::packet::CE;
use crate::settings::Settings;

/// The most CNPs that wait to be sent. Without an interval between them, each marked packet of a
/// burst causes one, but the peer learns nothing from the later ones.
const CNPS_MAX: usize = 256;

/// ECN codepoint ECT(0): a switch marks this packet where it would drop others.
const ECT_0: u8 = 0b10;

/// What all flows of a port have in common.
#[derive(Debug)]
#[repr(C)] // what packets need stands first
pub(crate) struct Congestion {
    /// One bit for each priority whose queue pairs react to CNPs.
    enabled: u8,
    cnps: VecDeque<Cnp>,
    /// With the parameters in force.
    settings: Arc<Settings>,
    /// Speed of the port.
    line: Rate,
    switches: Switches,
    /// Made by the first CNP: most devices never get one.
    rp: OnceCell<Box<NvidiaConfig>>,
    np: NotificationPoint,
    datagrams: DatagramTimers,
}

/// A CNP that waits.
#[derive(Debug)]
struct Cnp {
    path: Path,
    dest_qp: Qpn,
}

impl Congestion {
    pub(crate) fn new(settings: Arc<Settings>, line: Rate, switches: Switches) -> Self {
        let params = settings.congestion();
        let enabled = (0..8).filter(|priority| params.heeds_cnps(*priority));
        Self {
            enabled: enabled.fold(0, |mask, priority| mask | 1 << priority),
            rp: OnceCell::new(),
            np: NotificationPoint::new(params),
            datagrams: DatagramTimers::default(),
            cnps: VecDeque::new(),
            settings,
            line,
            switches,
        }
    }

    /// Gives back the memory that CNPs took.
    pub(crate) fn shrink(&mut self) {
        self.cnps.shrink_to_fit();
    }

    /// Takes over other settings. CNPs that wait are sent as they are.
    pub(crate) fn set(&mut self, settings: &Arc<Settings>) {
        let settings = Arc::clone(settings);
        if self.settings.congestion() == settings.congestion() {
            self.settings = settings;
        } else {
            let cnps = std::mem::take(&mut self.cnps);
            *self = Self {
                cnps,
                ..Self::new(settings, self.line, self.switches)
            };
        }
    }

    pub(crate) fn rp(&self) -> &NvidiaConfig {
        self.rp.get_or_init(|| {
            let params = self.settings.congestion();
            Box::new(NvidiaConfig::new(params, &self.switches, self.line))
        })
    }

    /// Whether it is on for packets of this traffic class. Their priority is the upper three bits
    /// of the DSCP, as adapters map one to the other that trust the DSCP.
    #[inline]
    pub(crate) fn is_enabled(&self, traffic_class: u8) -> bool {
        self.enabled >> (traffic_class >> 5) & 1 != 0
    }

    /// The path of a flow's packets: ECN-capable if congestion control is on for it.
    #[inline]
    pub(crate) fn mark_capable(&self, mut path: Path) -> Path {
        if path.traffic_class & CE == 0 && self.is_enabled(path.traffic_class) {
            path.traffic_class |= ECT_0;
        }
        path
    }

    /// A marked packet has arrived from `peer` at a queue pair: a CNP for it waits to be sent,
    /// unless one was sent just before.
    pub(crate) fn notify(
        &mut self,
        now: Time,
        traffic_class: u8,
        peer: (Path, Qpn),
        flow: &mut CnpTimer,
    ) {
        if !self.settings.congestion().answers_marks(traffic_class >> 5)
            || self.cnps.len() >= CNPS_MAX
        {
            return;
        }
        let arrival = Arrival {
            ce: true,
            dscp: traffic_class >> 2,
            pcp: traffic_class >> 5,
        };
        let (path, dest_qp) = peer;
        if let Some(cnp) = self.np.on_packet(now, arrival, flow) {
            // Not ECN-capable: no peer reacts to a mark on a CNP.
            let path = Path {
                traffic_class: cnp.dscp << 2,
                ..path
            };
            self.cnps.push_back(Cnp { path, dest_qp });
        }
    }

    /// A marked datagram has arrived: a CNP to its sender waits to be sent, unless one was sent just
    /// before.
    pub(crate) fn notify_sender(&mut self, now: Time, traffic_class: u8, sender: (IpAddr, Qpn)) {
        let (dest, source_qp) = sender;
        let path = Path {
            dest,
            traffic_class,
        };
        let mut flow = *self.datagrams.of(dest, source_qp);
        self.notify(now, traffic_class, (path, source_qp), &mut flow);
        *self.datagrams.of(dest, source_qp) = flow;
    }

    /// Checks that no more CNPs wait than may.
    ///
    /// # Panics
    /// Panics if more do.
    pub(crate) fn audit(&self) {
        assert!(self.cnps.len() <= CNPS_MAX, "{} CNPs", self.cnps.len());
    }

    /// Whether CNPs wait to be sent.
    #[inline]
    pub(crate) fn wants_transmit(&self) -> bool {
        !self.cnps.is_empty()
    }

    /// The traffic class of the next one.
    pub(crate) fn next_traffic_class(&self) -> Option<u8> {
        self.cnps.front().map(|cnp| cnp.path.traffic_class)
    }

    /// Writes the next CNP to `out`; false if there is none.
    pub(crate) fn poll_cnp(&mut self, out: &mut Outgoing) -> bool {
        let Some(Cnp { path, dest_qp }) = self.cnps.pop_front() else {
            return false;
        };
        *out = Outgoing::empty();
        (out.headers, out.path) = (cnp::headers(dest_qp, PKEY_DEFAULT), path);
        true
    }
}

#[cfg(test)]
mod tests {
    use ferroce_dcqcn::{Param, Params};

    use super::*;
    use crate::settings::Personality;

    fn port(params: Params) -> Congestion {
        let mut settings = Settings::new(Personality::default());
        settings.congestion = params;
        Congestion::new(
            Arc::new(settings),
            Rate::from_mbps(100_000),
            Switches::default(),
        )
    }

    #[test]
    fn packets_leave_ecn_capable_where_it_is_on() {
        let port = port(Params::default().with(Param::PrioMask, 1 << 3));
        let leaves_with = |traffic_class| {
            let path = Path {
                traffic_class,
                ..Outgoing::empty().path
            };
            port.mark_capable(path).traffic_class
        };
        let priority_3 = 26 << 2;
        assert_eq!(leaves_with(priority_3), priority_3 | ECT_0);
        assert_eq!(leaves_with(0), 0);
        for chosen in [0b01, 0b10, 0b11] {
            assert_eq!(leaves_with(priority_3 | chosen), priority_3 | chosen);
        }
    }

    #[test]
    fn cnps_that_nobody_takes_do_not_pile_up() {
        let mut port = port(Params::default().with(Param::MinTimeBetweenCnps, 0));
        let peer = (Outgoing::empty().path, Qpn::new(2));
        for now_ns in 0..1_000 {
            port.notify(Time::from_nanos(now_ns), CE, peer, &mut CnpTimer::default());
        }
        assert_eq!(port.cnps.len(), CNPS_MAX);
    }
}
