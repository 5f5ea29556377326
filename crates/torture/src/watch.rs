//! Notices a device that does not return from a call: a run that makes no step for long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::script::Script;

/// How far the runs of a thread have come, for another thread to see.
#[derive(Debug, Default)]
pub struct Progress {
    steps: AtomicU64,
    /// What is being played; `None` between runs.
    script: Mutex<Option<Script>>,
}

impl Progress {
    pub(crate) fn begin(&self, script: &Script) {
        self.set(Some(script.clone()));
    }

    pub(crate) fn end(&self) {
        self.set(None);
    }

    fn set(&self, script: Option<Script>) {
        *self.script.lock().unwrap_or_else(PoisonError::into_inner) = script;
        self.step();
    }

    pub(crate) fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }
}

/// Watches a thread that plays scripts.
#[derive(Debug)]
pub struct Watch {
    progress: Arc<Progress>,
    steps: u64,
    since: Instant,
}

impl Watch {
    /// Watches from now on.
    pub fn new(now: Instant) -> Self {
        Self {
            progress: Arc::default(),
            steps: 0,
            since: now,
        }
    }

    /// What the thread must play with.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// The script that is being played, if no step has been made between two looks at least `patience` apart.
    pub fn look(&mut self, now: Instant, patience: Duration) -> Option<Script> {
        let steps = self.progress.steps.load(Ordering::Relaxed);
        if steps != self.steps {
            (self.steps, self.since) = (steps, now);
        }
        if now.duration_since(self.since) < patience {
            return None;
        }
        let script = self.progress.script.lock();
        script.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_a_step_is_noticed() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let patience = Duration::from_secs(30);
        let mut watch = Watch::new(start);
        let progress = watch.progress();
        assert_eq!(watch.look(after(60), patience), None, "nothing is played");
        let script = Script {
            seed: 7,
            lines: Vec::new(),
        };
        progress.begin(&script);
        assert_eq!(watch.look(after(60), patience), None);
        assert_eq!(watch.look(after(89), patience), None);
        progress.step();
        assert_eq!(watch.look(after(90), patience), None);
        assert_eq!(watch.look(after(119), patience), None);
        assert_eq!(watch.look(after(120), patience), Some(script));
        progress.end();
        assert_eq!(watch.look(after(200), patience), None);
    }
}
