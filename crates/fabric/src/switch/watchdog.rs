//! A watchdog for priority flow control, as SONiC's: it ends storms of pauses.
//!
//! A queue whose other end wants none of its frames for the detection time is in a storm. What waits in it is
//! dropped, and so is what comes for it, or it sends in spite of the pauses. It is restored when its other end has
//! wanted frames for the restoration time. (SONiC counts pause frames, which senders repeat; here a pause lasts until
//! it is taken back.)

use std::collections::{BTreeMap, BTreeSet};

use ferroce_base::time::{Span, Time};

/// When a watchdog takes a queue for one in a storm, and what it does then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchdogConfig {
    /// How long frames wait that the other end does not want, until that is a storm.
    pub detection: Span,
    /// How long the other end must want frames again, until the storm is over.
    pub restoration: Span,
    /// What happens meanwhile.
    pub action: StormAction,
}

/// What happens to the frames of a queue in a storm.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum StormAction {
    /// They are dropped, those that wait and those that come.
    #[default]
    Drop,
    /// They are sent, whatever the other end wants.
    Forward,
}

/// The storms of one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Storms {
    /// The cable, and which of its ends the queue is at (0 or 1).
    pub port: (usize, usize),
    /// The priority of the queue.
    pub priority: u8,
    /// How many there were.
    pub count: u32,
    /// When the first one was detected.
    pub first: Time,
    /// How long all of them lasted together, from detection to restoration.
    pub lasted: Span,
    /// Frames dropped.
    pub dropped: u64,
}

/// A queue: the line that leaves its port, and its priority.
pub(crate) type QueueId = (u32, u8);

#[derive(Debug)]
struct Watched {
    /// When the storm began, if there is one; else frames wait that are not wanted.
    storm: Option<Time>,
    deadline: Option<Time>,
}

/// What to do with a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Storm,
    Restored,
}

/// The watchdog of all switches.
#[derive(Debug)]
pub(crate) struct Watchdog {
    pub(crate) config: WatchdogConfig,
    queues: BTreeMap<QueueId, Watched>,
    deadlines: BTreeSet<(Time, QueueId)>,
    storms: BTreeMap<QueueId, Storms>,
}

impl Watchdog {
    pub(crate) fn new(config: WatchdogConfig) -> Self {
        Self {
            config,
            queues: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            storms: BTreeMap::new(),
        }
    }

    /// Whether any queue may have changed that is watched.
    pub(crate) fn is_idle(&self) -> bool {
        self.queues.is_empty()
    }

    /// A queue has changed: whether frames are held in it, and whether its other end wants it paused.
    pub(crate) fn look(&mut self, now: Time, id: QueueId, is_held: bool, is_paused: bool) {
        let (storm, deadline) = match self.queues.get(&id) {
            Some(watched) => (watched.storm, watched.deadline),
            None if is_held => return self.set(id, None, Some(now.after(self.config.detection))),
            None => return,
        };
        match (storm, deadline) {
            (None, Some(at)) if !is_held => {
                self.deadlines.remove(&(at, id));
                self.queues.remove(&id);
            }
            (Some(_), Some(at)) if is_paused => {
                self.deadlines.remove(&(at, id));
                self.set(id, storm, None);
            }
            (Some(_), None) if !is_paused => {
                self.set(id, storm, Some(now.after(self.config.restoration)));
            }
            _ => {}
        }
    }

    /// The time of the next deadline.
    pub(crate) fn next(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// A queue whose deadline has come: a storm begins or ends.
    pub(crate) fn expire(&mut self, now: Time) -> Option<(QueueId, Verdict)> {
        let (_, id) = *self.deadlines.first().filter(|(at, _)| *at <= now)?;
        self.deadlines.pop_first();
        let watched = self.queues.remove(&id)?;
        let Some(since) = watched.storm else {
            let (line, priority) = id;
            let storms = self.storms.entry(id).or_insert(Storms {
                port: (line as usize / 2, line as usize % 2),
                priority,
                count: 0,
                first: now,
                lasted: Span::ZERO,
                dropped: 0,
            });
            storms.count += 1;
            self.set(id, Some(now), None);
            return Some((id, Verdict::Storm));
        };
        if let Some(storms) = self.storms.get_mut(&id) {
            storms.lasted += now.since(since);
        }
        Some((id, Verdict::Restored))
    }

    /// Frames of a queue were dropped.
    pub(crate) fn count_dropped(&mut self, id: QueueId, frames: u64) {
        if let Some(storms) = self.storms.get_mut(&id) {
            storms.dropped += frames;
        }
    }

    /// The storms of all queues that had some, up to now.
    pub(crate) fn storms(&self, now: Time) -> Vec<Storms> {
        let until_now = |(id, storms): (&QueueId, &Storms)| {
            let since = self.queues.get(id).and_then(|watched| watched.storm);
            let lasts = since.map_or(Span::ZERO, |since| now.since(since));
            Storms {
                lasted: storms.lasted + lasts,
                ..*storms
            }
        };
        self.storms.iter().map(until_now).collect()
    }

    fn set(&mut self, id: QueueId, storm: Option<Time>, deadline: Option<Time>) {
        self.queues.insert(id, Watched { storm, deadline });
        self.deadlines.extend(deadline.map(|at| (at, id)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: QueueId = (5, 3);

    fn at(millis: u64) -> Time {
        Time::ZERO.after(Span::from_millis(millis))
    }

    fn watchdog() -> Watchdog {
        Watchdog::new(WatchdogConfig {
            detection: Span::from_millis(200),
            restoration: Span::from_millis(400),
            action: StormAction::Drop,
        })
    }

    #[test]
    fn queues_that_move_are_not_in_a_storm() {
        let mut it = watchdog();
        it.look(at(0), QUEUE, true, true);
        it.look(at(100), QUEUE, true, true);
        assert_eq!(it.next(), Some(at(200)));
        assert_eq!(it.expire(at(199)), None);
        it.look(at(199), QUEUE, false, false);
        assert_eq!((it.next(), it.is_idle()), (None, true));
        it.look(at(200), QUEUE, false, true);
        assert_eq!(it.next(), None, "without frames");
        it.look(at(300), QUEUE, true, true);
        assert_eq!(it.next(), Some(at(500)), "from the beginning");
        assert_eq!(it.storms(at(400)), []);
    }

    #[test]
    fn a_storm_ends_when_pauses_have_stayed_away() {
        let mut it = watchdog();
        it.look(at(0), QUEUE, true, true);
        assert_eq!(it.expire(at(200)), Some((QUEUE, Verdict::Storm)));
        it.count_dropped(QUEUE, 7);
        it.look(at(200), QUEUE, false, true);
        assert_eq!(it.next(), None);
        it.look(at(300), QUEUE, false, false);
        assert_eq!(it.next(), Some(at(700)));
        it.look(at(350), QUEUE, false, true);
        assert_eq!(it.next(), None, "paused again");
        it.look(at(400), QUEUE, false, false);
        assert_eq!(it.expire(at(800)), Some((QUEUE, Verdict::Restored)));
        assert!(it.is_idle());
        it.look(at(1_000), QUEUE, true, true);
        assert_eq!(it.expire(at(1_200)), Some((QUEUE, Verdict::Storm)));
        let storms = it.storms(at(1_300));
        let expected = Storms {
            port: (2, 1),
            priority: 3,
            count: 2,
            first: at(200),
            lasted: Span::from_millis(700),
            dropped: 7,
        };
        assert_eq!(storms, [expected]);
    }
}
