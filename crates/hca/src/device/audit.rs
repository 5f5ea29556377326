use super::Hca;

impl Hca {
    /// Compares the books of the device with each other, in time proportional to the number of its
    /// objects; for tests and simulators.
    ///
    /// # Panics
    /// If they do not agree, which is a bug in the device.
    pub fn audit(&self) {
        let mut ready = 0;
        for (index, entry) in self.qps.iter() {
            ready += usize::from(entry.ready);
            let (deadline, timer_at) = (entry.deadline(), entry.timer_at);
            assert!(
                deadline.is_none_or(|deadline| timer_at.is_some_and(|at| at <= deadline)),
                "queue pair {index} waits until {deadline:?}, its timer runs until {timer_at:?}"
            );
            assert_eq!(self.qp_index(entry.qp.qpn()), Some(index));
        }
        self.audit_credit();
        assert_eq!(self.ready.len(), ready, "queue pairs on the ready list");
        let listed = |index: &u32| self.qps.get(*index).is_some_and(|entry| entry.ready);
        assert!(self.ready.iter().all(listed), "{:?}", self.ready);
        assert!(!self.timers.are_stale(self.qps.len()), "{:?}", self.timers);
        self.audit_users();
        self.cm.audit(self.now);
    }
}
