//! Deadlines: when the host must call again, and what happens then.

use ferroce_transport::Time;

use super::Hca;
use super::carrier::link_of;
use super::queue_pair::Found;
use crate::queue_pair::earlier;

impl Hca {
    /// Tells the device what time it is: lets timers run out and releases packets that the
    /// impairment held back. What has arrived since then may have been taken already.
    pub fn handle_timeout(&mut self, now: Time) {
        self.common.now = self.common.now.max(now);
        self.serve_others(now);
        while let Some((at, index)) = self.scheduler.timers.pop_due(now) {
            match link_of(index) {
                Some(number) => self.handle_carrier_timeout(number, at),
                None => self.handle_qp_timeout(now, at, index),
            }
        }
    }

    /// All that has a deadline but no entry among the timers.
    fn serve_others(&mut self, now: Time) {
        self.refresh();
        self.release_received();
        self.look_for_room(now);
        if let Some(cm) = self.cm.get_mut() {
            cm.handle_timeout(now);
        }
        self.tell_cm();
    }

    /// Takes a queue pair's entry among the timers, which is due.
    fn handle_qp_timeout(&mut self, now: Time, at: Time, index: u32) {
        let (qps, common, scheduler) = (&mut self.qps, &mut self.common, &mut self.scheduler);
        let Some(mut found) = Found::at(index, qps, common, scheduler) else {
            return;
        };
        if found.entry.timer_at != at {
            return; // an earlier owner of this index, or replaced by an earlier entry
        }
        found.entry.timer_at = Time::NEVER;
        let limiter = found.entry.limiter.as_mut();
        let is_awake = limiter.is_some_and(|it| it.wake(&self.config.host, now));
        let deadline = found.entry.qp.poll_timeout();
        if deadline.is_some_and(|deadline| deadline <= now) {
            found.run(|qp, host| qp.handle_timeout(now, host));
            found.settle();
        } else {
            if is_awake {
                found.make_ready();
            }
            found.scheduler.follow_deadline(index, found.entry);
        }
        self.conclude();
    }

    /// When [`Self::handle_timeout`] wants to be called, or [`Self::poll_transmit`] again for a
    /// packet that waits for the port, or that an impairment holds back.
    pub fn poll_timeout(&self) -> Option<Time> {
        let mut link = earlier(self.first.next(), self.next_departure(1));
        if let Some(second) = &self.second {
            link = earlier(link, earlier(second.link.next(), self.next_departure(2)));
        }
        let cm = self.cm.get().and_then(|cm| cm.poll_timeout());
        let others = earlier(self.scheduler.poll_timeout(), cm);
        earlier(self.scheduler.timers.next(), earlier(link, others))
    }

    /// Whether a queue pair's timer may be due. Packets that an impairment holds back are none of
    /// these.
    pub fn timers_are_due(&self, now: Time) -> bool {
        self.scheduler.timers.next().is_some_and(|at| at <= now)
    }

    /// Drops useless timers, if there are many.
    pub(super) fn tidy_timers(&mut self) {
        let (qps, first, second) = (&self.qps, &self.first, &self.second);
        let is_good = |at, index| {
            let link = match (link_of(index), second) {
                (None, _) => return qps.get(index).is_some_and(|e| e.timer_at == at),
                (Some(2), Some(second)) => &second.link,
                (Some(_), _) => first,
            };
            let carrier = link.carrier.as_ref();
            carrier.is_some_and(|it| it.waits_until(at))
        };
        self.scheduler.timers.tidy(qps.len(), is_good);
    }
}
