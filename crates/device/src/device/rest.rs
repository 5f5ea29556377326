//! Releases memory that traffic used and an idle device does not need.

use super::Hca;

/// Queue pairs looked after in one call: a few microseconds.
const QPS: usize = 64;

impl Hca {
    /// Gives memory back that queues took in traffic; tells whether there is more to give back.
    ///
    /// For hosts that have nothing to do for a while: a busy queue that shrinks only grows again. A
    /// queue pair that was used and rests then takes no more than 1 KiB with its queues.
    pub fn rest(&mut self) -> bool {
        for _ in 0..QPS {
            let Some(index) = self.scheduler.used.pop() else {
                break;
            };
            let Some(entry) = self.qps.get_mut(index) else {
                continue;
            };
            entry.used = false;
            entry.qp.shrink();
            let objects = entry.objects;
            for cq in [objects.send_cq, objects.recv_cq].into_iter().flatten() {
                if let Some(cq) = self.common.cqs.get_mut(cq.0) {
                    cq.shrink();
                }
            }
            if let Some(srq) = objects.srq.and_then(|srq| self.common.srqs.get_mut(srq.0)) {
                srq.shrink();
            }
        }
        if !self.scheduler.used.is_empty() {
            return true;
        }
        self.scheduler.used.shrink_to_fit();
        self.scheduler.port.shrink();
        self.scheduler.timers.shrink();
        self.common.events.shrink_to_fit();
        self.congestion.shrink();
        for number in self.link_numbers() {
            self.link_mut(number).0.shrink();
        }
        false
    }
}
