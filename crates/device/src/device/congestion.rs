//! Congestion control as a part of the device.

use ferroce_dcqcn::Rate;
use ferroce_dcqcn::np::Timers;
use ferroce_transport::{Counter, Outgoing, Path, Time};
use ferroce_wire::{BthFlags, PKEY_DEFAULT, Qpn};

use super::Hca;
use super::queue_pair::Found;
use crate::congestion::Congestion;
use crate::host_profile::HostProfile;
use crate::packet::Received;

impl Hca {
    /// Takes a CNP: it slows its queue pair down if it comes from the peer of one.
    #[cold]
    pub(crate) fn deliver_cnp(&mut self, packet: &Received<'_>) {
        let counter = match self.slow_down(packet) {
            Some(()) => Counter::RpCnpHandled,
            None => Counter::RpCnpIgnored,
        };
        self.common.count(counter, 1);
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
        if !is_peers || !self.congestion.is_enabled(&path) {
            return None;
        }
        entry.cnps = entry.cnps.wrapping_add(1);
        entry.slow_down(self.congestion.rp(), self.common.now);
        self.congestion.note_limited(index);
        Some(())
    }

    /// Writes the next CNP to `out`; false if there is none.
    pub(crate) fn poll_cnp(&mut self, out: &mut Outgoing) -> bool {
        let made = self.congestion.poll_cnp(out);
        if made {
            self.common.count(Counter::NpCnpSent, 1);
        }
        made
    }

    /// The rate to which congestion control limits a queue pair now; `None` if it does not.
    pub fn rate_limit(&mut self, qpn: Qpn, now: Time) -> Option<Rate> {
        let index = self.qp_index(qpn)?;
        let limiter = self.qps.get_mut(index)?.limiter.as_mut()?;
        let rate = limiter.rate(self.congestion.rp(), now);
        limiter.is_limited().then_some(rate)
    }
}

impl Found<'_> {
    /// A packet marked CE has arrived.
    #[cold]
    pub(super) fn answer_mark(&mut self, congestion: &mut Congestion, packet: &Received<'_>) {
        let state = self.common.port_state();
        state.count(Counter::NpEcnMarkedRocePackets, 1);
        let port = state.cnp_timer();
        let (now, entry) = (self.common.now, &mut *self.entry);
        if let Some(path) = entry.path {
            let peer = (path, entry.qp.attr().dest_qpn);
            let flow = &entry.cnp_timer;
            congestion.notify(now, packet, peer, Timers { port, flow });
        } else if let Some(deth) = packet.headers.deth()
            && deth.qkey == entry.qp.attr().qkey
            && !packet.dest.is_multicast()
        {
            // From a sender that may write to the queue pair. A group causes no flood of answers.
            let flow = state.datagram_timers().of((packet.source, deth.src_qp));
            congestion.notify_sender(now, packet, deth.src_qp, Timers { port, flow });
        }
    }

    /// Something has to be sent again, which slow restart takes for a CNP: it counts as one at once, and
    /// slows the queue pair down when that goes on.
    //= F13: though no CNP has come.
    #[cold]
    pub(super) fn restart_after_loss(&mut self) {
        if self.is_among(self.common.slow_restart.lost) {
            self.common.count(Counter::RpCnpHandled, 1);
            self.common.count(Counter::RoceSlowRestartCnps, 1);
            self.entry.restarts = true;
        }
    }

    /// A queue pair that has been silent begins again: slow restart takes this for a CNP, too, unless an
    /// earlier one still slows it down.
    #[cold]
    pub(super) fn restart_after_silence(&mut self, congestion: &Congestion, now: Time) {
        let limiter = self.entry.limiter.as_mut();
        let is_limited = limiter.is_some_and(|it| {
            it.rate(congestion.rp(), now);
            it.is_limited()
        });
        if !is_limited && self.is_among(self.common.slow_restart.silent) {
            self.common.count(Counter::RoceSlowRestart, 1);
            self.common.count(Counter::RoceSlowRestartTrans, 1);
            self.entry.restarts = true;
        }
    }

    /// Whether the queue pair has one of these priorities.
    fn is_among(&self, priorities: u8) -> bool {
        let priority_of = |path: Path| self.scheduler.port.priority_of(&path);
        let priority = self.entry.path.map(priority_of);
        priority.is_some_and(|priority| priorities >> priority & 1 != 0)
    }

    /// Has a queue pair with a limiter, or one that restarts slowly, keep to its window; false if it has
    /// to wait.
    pub(super) fn limit(
        &mut self,
        congestion: &mut Congestion,
        host: &HostProfile,
        now: Time,
    ) -> bool {
        if std::mem::take(&mut self.entry.restarts) {
            self.entry.slow_down(congestion.rp(), now);
            congestion.note_limited(self.index);
        }
        let share = self.scheduler.share(self.index, self.entry);
        let enabled = |path: Path| congestion.is_enabled(&path);
        let window = if !self.entry.path.is_some_and(enabled) {
            self.entry.limiter = None;
            share
        } else if let Some(limiter) = &mut self.entry.limiter {
            let pacing = congestion.pacing(host);
            if !limiter.admits(&pacing, now) {
                self.scheduler.follow_deadline(self.index, self.entry);
                return false;
            }
            let window = limiter.window_bytes(&pacing, now);
            u32::try_from(window).unwrap_or(u32::MAX).min(share)
        } else {
            share
        };
        self.entry.qp.share_window(window);
        true
    }

    /// Charges a packet to a queue pair with a limiter, which is dropped at full rate.
    pub(super) fn charge(
        &mut self,
        congestion: &Congestion,
        host: &HostProfile,
        now: Time,
        packet: &Outgoing,
    ) {
        if let Some(limiter) = &mut self.entry.limiter {
            let bytes = match host.port_rate {
                Some(_) => packet.wire_bytes(congestion.qos().tag_len()),
                None => packet.frame_bytes(),
            };
            limiter.on_sent(&congestion.pacing(host), now, bytes);
            if !limiter.is_limited() {
                self.entry.limiter = None;
            }
        }
    }
}
