//! Completion queues: bounded, and armed for one announcement at a time.

use std::collections::VecDeque;

use ferroce_transport::{Completion, WorkQueue};
use ferroce_wire::Qpn;

/// Handle of a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct CqId(pub u32);

/// What a completion queue announces next (`ibv_req_notify_cq`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notify {
    /// Only completions that the peer solicited, and errors.
    Solicited,
    /// The next completion of any kind.
    Any,
}

impl Notify {
    fn includes(self, completion: &Completion) -> bool {
        self == Self::Any || completion.solicited
    }
}

/// What a completion queue is created with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CqInit {
    /// Entries.
    pub capacity: u32,
    /// Completions without room are lost and nothing is in error
    /// (`IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`): the program knows that it never has more.
    pub ignore_overrun: bool,
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    entries: VecDeque<Completion>,
    capacity: u32,
    ignore_overrun: bool,
    armed: Option<Notify>,
    /// What the queue was armed for when completions were already waiting, which was announced at
    /// once. Cleared when another completion comes, or when those have been polled
    /// ([`Cq::take_polled_early`]).
    announced_early: Option<Notify>,
    overrun: bool,
    /// QPs that complete here.
    pub(crate) users: u32,
}

/// The result of adding a completion to a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pushed {
    Quietly,
    /// The queue was armed for it.
    Announce,
    /// There was no room, and the program has chosen to ignore overruns.
    Dropped,
    /// There was no room: the queue is in error from now on, and so is the QP.
    Overrun,
    /// The queue was already in error, and now the QP is too.
    Lost,
}

/// Completions of a queue pair that wait to be polled. Until then their requests take room in its
/// work queues (IBA vol 1, 10.8.5.1), so that a completion queue as large as these never overruns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Unpolled {
    pub(crate) sends: u32,
    pub(crate) receives: u32,
}

impl Unpolled {
    pub(crate) fn add(&mut self, queue: WorkQueue) {
        let count = self.count(queue);
        *count = count.saturating_add(1);
    }

    pub(crate) fn take(&mut self, queue: WorkQueue) {
        let count = self.count(queue);
        *count = count.saturating_sub(1);
    }

    fn count(&mut self, queue: WorkQueue) -> &mut u32 {
        match queue {
            WorkQueue::Send => &mut self.sends,
            WorkQueue::Recv => &mut self.receives,
        }
    }
}

impl Cq {
    pub(crate) fn new(init: CqInit) -> Self {
        Self {
            entries: VecDeque::new(),
            capacity: init.capacity,
            ignore_overrun: init.ignore_overrun,
            armed: None,
            announced_early: None,
            overrun: false,
            users: 0,
        }
    }

    pub(crate) fn push(&mut self, completion: Completion) -> Pushed {
        if self.overrun {
            return Pushed::Lost;
        }
        if self.entries.len() >= self.capacity as usize {
            if self.ignore_overrun {
                return Pushed::Dropped;
            }
            self.overrun = true;
            return Pushed::Overrun;
        }
        let wanted = self.armed.take_if(|armed| armed.includes(&completion));
        self.announced_early
            .take_if(|early| early.includes(&completion));
        self.entries.push_back(completion);
        match wanted {
            Some(_) => Pushed::Announce,
            None => Pushed::Quietly,
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Completion> {
        let oldest = self.entries.pop_front();
        if self.entries.is_empty() {
            self.entries.clear(); // the next one comes to the place that caches know
        }
        oldest
    }

    /// Completions that wait to be polled.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Changes the capacity, to no less than what waits.
    pub(crate) fn resize(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.entries.shrink_to(capacity as usize);
    }

    /// Gives back the memory that it took and needs no more.
    pub(crate) fn shrink(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// Drops the completions of a queue pair that is gone: its work requests mean nothing any more.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        self.entries.retain(|completion| completion.qpn != qpn);
    }

    /// Arms the queue for one announcement, and answers whether it is due at once: a card's arm has the
    /// index of the next entry to poll, so an entry that waits there is news. Programs arm without
    /// polling again. Asking for any completion includes asking for solicited ones.
    #[must_use]
    pub(crate) fn arm(&mut self, notify: Notify) -> bool {
        if self.armed != Some(Notify::Any) {
            self.armed = Some(notify);
        }
        self.announced_early = self.armed.take_if(|armed| waits(&self.entries, *armed));
        self.announced_early.is_some()
    }

    /// What the queue was armed for, if completions waited already, that was announced, and all of them
    /// have been polled since: the announcement is for nothing. Answers once for each arming.
    pub(crate) fn take_polled_early(&mut self) -> Option<Notify> {
        let entries = &self.entries;
        self.announced_early
            .take_if(|early| !waits(entries, *early))
    }
}

fn waits(entries: &VecDeque<Completion>, notify: Notify) -> bool {
    entries.iter().any(|entry| notify.includes(entry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroce_transport::WcOpcode;

    fn queue(capacity: u32) -> Cq {
        Cq::new(CqInit {
            capacity,
            ignore_overrun: false,
        })
    }

    fn entry(solicited: bool) -> Completion {
        Completion {
            solicited,
            ..Completion::success(1, WcOpcode::Recv, Qpn::new(2))
        }
    }

    #[test]
    fn one_announcement_for_each_arming() {
        let mut cq = queue(10);
        assert!(!cq.arm(Notify::Solicited));
        assert_eq!(cq.push(entry(false)), Pushed::Quietly);
        assert_eq!(cq.push(entry(true)), Pushed::Announce);
        assert_eq!(cq.push(entry(true)), Pushed::Quietly);
        while cq.pop().is_some() {}
        assert!(!cq.arm(Notify::Any));
        assert!(!cq.arm(Notify::Solicited));
        assert_eq!(cq.push(entry(false)), Pushed::Announce);
    }

    #[test]
    fn arming_the_queue_announces_what_waits() {
        let mut cq = queue(10);
        assert_eq!(cq.push(entry(false)), Pushed::Quietly);
        assert!(!cq.arm(Notify::Solicited), "the peer did not ask for it");
        assert!(cq.arm(Notify::Any));
        assert_eq!(cq.push(entry(true)), Pushed::Quietly, "announced once");
        assert!(cq.arm(Notify::Solicited), "behind another one");
        while cq.pop().is_some() {}
        assert!(!cq.arm(Notify::Any), "all of it was polled");
        assert_eq!(cq.push(entry(false)), Pushed::Announce);
    }

    #[test]
    fn an_announcement_of_what_was_polled_since_is_for_nothing() {
        let mut cq = queue(10);
        cq.push(entry(false));
        assert!(cq.arm(Notify::Any));
        assert_eq!(cq.take_polled_early(), None, "it waits");
        cq.pop();
        assert_eq!(cq.take_polled_early(), Some(Notify::Any));
        assert_eq!(cq.take_polled_early(), None, "once");
        cq.push(entry(false));
        assert!(cq.arm(Notify::Any));
        cq.push(entry(false));
        while cq.pop().is_some() {}
        assert_eq!(
            cq.take_polled_early(),
            None,
            "one has come after the arming"
        );
        cq.push(entry(true));
        assert!(cq.arm(Notify::Solicited));
        cq.pop();
        cq.push(entry(false));
        assert_eq!(cq.take_polled_early(), Some(Notify::Solicited));
    }

    #[test]
    fn an_overrun_queue_stays_in_error() {
        let mut cq = queue(1);
        assert_eq!(cq.push(entry(false)), Pushed::Quietly);
        assert_eq!(cq.push(entry(false)), Pushed::Overrun);
        assert!(cq.pop().is_some());
        assert_eq!(cq.push(entry(false)), Pushed::Lost);
    }

    #[test]
    fn a_queue_that_ignores_overruns_loses_what_has_no_room() {
        let mut cq = Cq::new(CqInit {
            capacity: 1,
            ignore_overrun: true,
        });
        assert_eq!(cq.push(entry(false)), Pushed::Quietly);
        for _ in 0..2 {
            assert_eq!(cq.push(entry(false)), Pushed::Dropped);
        }
        assert!(cq.pop().is_some());
        assert!(cq.pop().is_none());
        assert_eq!(cq.push(entry(false)), Pushed::Quietly);
        assert!(cq.pop().is_some());
    }
}
