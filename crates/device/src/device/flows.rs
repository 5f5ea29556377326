//! The effect of congestion control on queue pairs, for display.

use std::net::IpAddr;

use ferroce_dcqcn::Rate;
use ferroce_dcqcn::rp::{NvidiaConfig, NvidiaRp, Phase, ReactionPoint};
use ferroce_transport::Time;
use ferroce_wire::Qpn;

use super::Hca;
use crate::congestion::Limiter;

/// A queue pair whose peer has sent CNPs, to look at.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlowLook {
    /// Its number.
    pub qpn: Qpn,
    /// The peer's number.
    pub dest_qpn: Qpn,
    /// The peer's address.
    pub peer: IpAddr,
    /// The priority of its packets, 0 to 7.
    pub priority: u8,
    /// CNPs that it has handled, modulo 2^32.
    pub cnps: u32,
    /// What they have made of it; `None` if it is at full rate again.
    pub limit: Option<LimitLook>,
}

/// The state of a reaction point.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LimitLook {
    /// The rate in force.
    pub rate: Rate,
    /// The rate to which it recovers.
    pub target: Rate,
    /// The estimate of congestion, 0 to 1.
    pub alpha: f64,
    /// What its next increase is.
    pub phase: Phase,
    /// Events of the timer and of the byte counter since the last cut.
    pub stages: (u16, u16),
}

impl Hca {
    /// Whether congestion control slows a queue pair down at `now`.
    pub fn is_limited(&self, qpn: Qpn, now: Time) -> bool {
        let limiter = self.qp_entry(qpn).and_then(|it| it.limiter.as_deref());
        limiter.is_some_and(|it| limit(it, self.congestion.rp(), now).is_some())
    }

    /// The queue pairs that have handled a CNP, as they are at `now`.
    pub fn look_at_flows(&self, now: Time) -> impl Iterator<Item = FlowLook> {
        let heeded = self.qps.iter().filter(|(_, entry)| entry.cnps != 0);
        heeded.filter_map(move |(_, entry)| {
            let path = entry.path?;
            let limiter = entry.limiter.as_deref();
            Some(FlowLook {
                qpn: entry.qp.qpn(),
                dest_qpn: entry.qp.attr().dest_qpn,
                peer: path.dest,
                priority: self.config.qos.priority_of(&path),
                cnps: entry.cnps,
                limit: limiter.and_then(|it| look(it, self.congestion.rp(), now)),
            })
        })
    }

    /// Calls `tell` with the number and the rate of each of [those](Self::look_at_flows) that has a limit at `now`,
    /// in the same order. This takes time for them and for those that have recovered since the last call, and none
    /// for the others. The parameters of congestion control do not change between the calls.
    pub fn look_at_limits(&mut self, now: Time, mut tell: impl FnMut(Qpn, Rate)) {
        let qps = &self.qps;
        self.congestion.look_at_limited(|index, config| {
            let limited = qps.get(index);
            let limited =
                limited.and_then(|it| Some((it, limit(it.limiter.as_deref()?, config, now)?)));
            if let Some((entry, (_, rate))) = limited.filter(|(entry, _)| entry.cnps != 0) {
                tell(entry.qp.qpn(), rate);
            }
            limited.is_some()
        });
    }
}

/// The reaction point at `now`, with its rate, if it has a limit; the limiter itself stays at the time of its last
/// packet.
fn limit(limiter: &Limiter, config: &NvidiaConfig, now: Time) -> Option<(NvidiaRp, Rate)> {
    let mut rp = limiter.reaction();
    let rate = rp.rate(config, now);
    rp.is_limited().then_some((rp, rate))
}

fn look(limiter: &Limiter, config: &NvidiaConfig, now: Time) -> Option<LimitLook> {
    let (rp, rate) = limit(limiter, config, now)?;
    Some(LimitLook {
        rate,
        target: rp.target(config),
        alpha: rp.alpha(config, now),
        phase: rp.phase(config),
        stages: rp.stages(),
    })
}
