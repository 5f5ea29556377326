//! The port's congestion control: DCQCN as it acts on the wire.
//!
//! The notification point answers packets marked CE with CNPs. The reaction point gives a queue
//! pair whose peer sends CNPs a [`Limiter`], and removes it when the rate has recovered.

mod limiter;

use std::cell::OnceCell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use ferroce_dcqcn::np::{Arrival, NotificationPoint, Timers};
use ferroce_dcqcn::rp::NvidiaConfig;
use ferroce_dcqcn::{Rate, Switches};
use ferroce_transport::{Outgoing, Path, Time};
use ferroce_wire::{PKEY_DEFAULT, Qpn, cnp};

pub(crate) use self::limiter::{Limiter, Pacing};
use crate::host_profile::HostProfile;
use crate::packet::{CE, Received};
use crate::qos::Qos;
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
    qos: Qos,
    /// Bytes that a queue pair with a limiter sends back to back.
    burst_bytes: u16,
    cnps: VecDeque<Cnp>,
    /// With the parameters in force.
    settings: Arc<Settings>,
    /// Speed of the port.
    line: Rate,
    switches: Switches,
    /// Made by the first CNP: most devices never get one.
    reaction: OnceCell<Box<Reaction>>,
    np: NotificationPoint,
}

/// What reaction points have in common.
#[derive(Debug)]
struct Reaction {
    config: NvidiaConfig,
    /// Queue pairs that are slowed down, and some that have recovered since: those leave when they are next
    /// looked at.
    limited: BTreeSet<u32>,
}

/// A CNP that waits.
#[derive(Debug)]
struct Cnp {
    path: Path,
    dest_qp: Qpn,
}

impl Congestion {
    pub(crate) fn new(settings: Arc<Settings>, qos: Qos, line: Rate, switches: Switches) -> Self {
        let params = settings.congestion();
        let enabled = (0..8).filter(|priority| params.heeds_cnps(*priority));
        Self {
            enabled: enabled.fold(0, |mask, priority| mask | 1 << priority),
            qos,
            burst_bytes: 0,
            reaction: OnceCell::new(),
            np: NotificationPoint::new(params),
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

    /// Takes over other settings, and the size of the bursts that a limiter makes. CNPs that wait are
    /// sent as they are.
    pub(crate) fn set(&mut self, settings: &Arc<Settings>, burst_bytes: u16) {
        let settings = Arc::clone(settings);
        if self.settings.congestion() == settings.congestion() {
            self.settings = settings;
        } else {
            let limited = self.reaction.take().map(|it| it.limited);
            let cnps = std::mem::take(&mut self.cnps);
            *self = Self {
                cnps,
                ..Self::new(settings, self.qos, self.line, self.switches)
            };
            if let Some(limited) = limited {
                *self.limited() = limited;
            }
        }
        self.burst_bytes = burst_bytes;
    }

    /// How packets get their priority, and the VLAN of the port.
    pub(crate) fn qos(&self) -> Qos {
        self.qos
    }

    /// One bit for each priority whose queue pairs react to CNPs.
    pub(crate) fn enabled(&self) -> u8 {
        self.enabled
    }

    /// The settings of limiters.
    pub(crate) fn pacing<'a>(&'a self, host: &'a HostProfile) -> Pacing<'a> {
        Pacing {
            config: self.rp(),
            host,
            burst_bytes: self.burst_bytes,
        }
    }

    pub(crate) fn rp(&self) -> &NvidiaConfig {
        &self.reaction.get_or_init(|| self.new_reaction()).config
    }

    fn new_reaction(&self) -> Box<Reaction> {
        let params = self.settings.congestion();
        Box::new(Reaction {
            config: NvidiaConfig::new(params, &self.switches, self.line),
            limited: BTreeSet::new(),
        })
    }

    fn limited(&mut self) -> &mut BTreeSet<u32> {
        self.rp();
        &mut self.reaction.get_mut().expect("it was made").limited
    }

    /// Notes that a queue pair is slowed down.
    pub(crate) fn note_limited(&mut self, index: u32) {
        self.limited().insert(index);
    }

    /// Forgets a queue pair that is gone.
    pub(crate) fn forget(&mut self, index: u32) {
        if let Some(reaction) = self.reaction.get_mut() {
            reaction.limited.remove(&index);
        }
    }

    /// Looks at the queue pairs that are slowed down, in the order of their indexes, and forgets those of which
    /// `look` says that they have recovered.
    pub(crate) fn look_at_limited(&mut self, mut look: impl FnMut(u32, &NvidiaConfig) -> bool) {
        if let Some(Reaction { config, limited }) = self.reaction.get_mut().map(Box::as_mut) {
            limited.retain(|index| look(*index, config));
        }
    }

    /// Whether it is on for the packets of a path, that is, for their priority.
    #[inline]
    pub(crate) fn is_enabled(&self, path: &Path) -> bool {
        self.enabled >> self.qos.priority_of(path) & 1 != 0
    }

    /// The path of a flow's packets: ECN-capable if congestion control is on for it.
    #[inline]
    pub(crate) fn mark_capable(&self, mut path: Path) -> Path {
        if path.traffic_class & CE == 0 && self.is_enabled(&path) {
            path.traffic_class |= ECT_0;
        }
        path
    }

    /// A marked packet has arrived from `peer` at a queue pair: a CNP for it waits to be sent,
    /// unless one was sent just before.
    pub(crate) fn notify(
        &mut self,
        now: Time,
        packet: &Received<'_>,
        peer: (Path, Qpn),
        timers: Timers<'_>,
    ) {
        let priority = self.qos.priority(packet.traffic_class, packet.sl);
        if !self.settings.congestion().answers_marks(priority) || self.cnps.len() >= CNPS_MAX {
            return;
        }
        let arrival = Arrival {
            ce: true,
            dscp: packet.traffic_class >> 2,
            pcp: packet.sl,
        };
        let (path, dest_qp) = peer;
        if let Some(cnp) = self.np.on_packet(now, arrival, timers) {
            // Not ECN-capable: no peer reacts to a mark on a CNP.
            let path = Path {
                traffic_class: cnp.dscp << 2,
                sl: cnp.pcp,
                ..path
            };
            self.cnps.push_back(Cnp { path, dest_qp });
        }
    }

    /// A marked datagram has arrived: a CNP to its sender waits to be sent, unless one was sent just
    /// before.
    pub(crate) fn notify_sender(
        &mut self,
        now: Time,
        packet: &Received<'_>,
        source_qp: Qpn,
        timers: Timers<'_>,
    ) {
        self.notify(now, packet, (packet.way_back(), source_qp), timers);
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

    /// The path of the next one.
    pub(crate) fn next_path(&self) -> Option<&Path> {
        self.cnps.front().map(|cnp| &cnp.path)
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
    use ferroce_dcqcn::np::CnpTimer;
    use ferroce_dcqcn::{Param, Params};
    use ferroce_transport::Data;

    use super::*;
    use crate::settings::Personality;

    fn port(params: Params) -> Congestion {
        let mut settings = Settings::new(Personality::default());
        settings.congestion = params;
        Congestion::new(
            Arc::new(settings),
            Qos::default(),
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
        let path = Outgoing::empty().path;
        let marked = Received {
            source: path.dest,
            dest: path.dest,
            traffic_class: CE,
            sl: 0,
            headers: &cnp::headers(Qpn::new(2), PKEY_DEFAULT),
            data: Data::Length(0),
            port: 1,
        };
        let peer = (path, Qpn::new(2));
        let timer = CnpTimer::default();
        let timers = Timers {
            port: &timer,
            flow: &timer,
        };
        for now_ns in 0..1_000 {
            port.notify(Time::from_nanos(now_ns), &marked, peer, timers);
        }
        assert_eq!(port.cnps.len(), CNPS_MAX);
    }
}
