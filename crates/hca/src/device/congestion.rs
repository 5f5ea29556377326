//! Congestion control as a part of the device.

use ferroce_dcqcn::Rate;
use ferroce_transport::{Counter, Outgoing, Path, Time};
use ferroce_wire::{BthFlags, PKEY_DEFAULT, Qpn};

use super::Hca;
use crate::congestion::Limiter;
use crate::packet::Received;

impl Hca {
    /// Takes a CNP: it slows its queue pair down if it comes from the peer of one.
    #[cold]
    pub(crate) fn deliver_cnp(&mut self, packet: &Received<'_>) {
        let counter = match self.slow_down(packet) {
            Some(()) => Counter::RpCnpHandled,
            None => Counter::RpCnpIgnored,
        };
        self.common.state.count(counter, 1);
    }

    /// `None` if the CNP is not for a queue pair that has this peer and congestion control.
    fn slow_down(&mut self, packet: &Received<'_>) -> Option<()> {
        let headers = packet.headers;
        let index = self.qp_index(headers.dest_qp)?;
        let entry = self.qps.get_mut(index)?;
        let path = entry.path?;
        let is_peers = entry.qp.takes_packets()
            && path.dest == packet.source
            && headers.flags.contains(BthFlags::BECN)
            && headers.pkey | 0x8000 == PKEY_DEFAULT;
        if !is_peers || !self.congestion.is_enabled(path.traffic_class) {
            return None;
        }
        let (config, now) = (self.congestion.rp(), self.common.now);
        entry.cnps = entry.cnps.wrapping_add(1);
        match &mut entry.limiter {
            Some(limiter) => limiter.on_cnp(config, now),
            None => entry.limiter = Some(Box::new(Limiter::new(config, now))),
        }
        Some(())
    }

    /// A packet marked CE has arrived at a queue pair.
    #[cold]
    pub(crate) fn answer_mark(&mut self, index: u32, packet: &Received<'_>) {
        self.common.state.count(Counter::NpEcnMarkedRocePackets, 1);
        let Some(entry) = self.qps.get_mut(index) else {
            return;
        };
        let (now, traffic_class) = (self.common.now, packet.traffic_class);
        if let Some(path) = entry.path {
            let peer = (path, entry.qp.attr().dest_qpn);
            let flow = &mut entry.cnp_timer;
            self.congestion.notify(now, traffic_class, peer, flow);
        } else if let Some(deth) = packet.headers.deth()
            && deth.qkey == entry.qp.attr().qkey
            && !packet.dest.is_multicast()
        {
            // From somebody who may write to the queue pair, and a group sends no flood of answers.
            let sender = (packet.source, deth.src_qp);
            self.congestion.notify_sender(now, traffic_class, sender);
        }
    }

    /// Writes the next CNP to `out`; false if there is none.
    pub(crate) fn poll_cnp(&mut self, out: &mut Outgoing) -> bool {
        let made = self.congestion.poll_cnp(out);
        if made {
            self.common.state.count(Counter::NpCnpSent, 1);
        }
        made
    }

    /// The window of a queue pair with a limiter, at most `share`; `None` if its turn has not come.
    pub(crate) fn limited_window(&mut self, index: u32, now: Time, share: u32) -> Option<u32> {
        let entry = self.qps.get_mut(index)?;
        let enabled = |path: Path| self.congestion.is_enabled(path.traffic_class);
        if !entry.path.is_some_and(enabled) {
            entry.limiter = None;
            return Some(share);
        }
        let limiter = entry.limiter.as_mut()?;
        let (config, host) = (self.congestion.rp(), &self.config.host);
        if !limiter.admits(config, host, now) {
            self.settle(index);
            return None;
        }
        let window = limiter.window_bytes(config, host, now);
        Some(u32::try_from(window).unwrap_or(u32::MAX).min(share))
    }

    /// Books a packet of a queue pair with a limiter, which is dropped at full rate.
    pub(crate) fn charge(&mut self, index: u32, now: Time, packet: &Outgoing) {
        let bytes = packet.frame_bytes();
        if let Some(entry) = self.qps.get_mut(index)
            && let Some(limiter) = &mut entry.limiter
        {
            limiter.on_sent(self.congestion.rp(), &self.config.host, now, bytes);
            if !limiter.is_limited() {
                entry.limiter = None;
            }
        }
    }

    /// The rate to which congestion control limits a queue pair now; `None` if it does not.
    pub fn rate_limit(&mut self, qpn: Qpn, now: Time) -> Option<Rate> {
        let index = self.qp_index(qpn)?;
        let limiter = self.qps.get_mut(index)?.limiter.as_mut()?;
        let rate = limiter.rate(self.congestion.rp(), now);
        limiter.is_limited().then_some(rate)
    }
}
