//! Polls while a device is idle.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ferroce_device::CqId;
use ferroce_driver::patience::IDLE_WINDOW;
use ferroce_os::{Clock, ticks};

/// A stretch of time in which a poll need not look at a device, since a thread has looked just now, in
/// vain, and nothing has happened there for long. Any thread that takes the device ends it.
#[derive(Debug, Default)]
#[repr(align(64))] // each poll looks here
pub(super) struct IdleWindow {
    /// When it began, by [`ticks`].
    since: AtomicU64,
    /// How long it lasts; 0: there is none.
    ticks: AtomicU64,
    /// The completion queue that was empty.
    cq: AtomicU32,
}

impl IdleWindow {
    /// Begins one, as this queue is empty. To be called by a thread that has the device.
    pub(super) fn begin(&self, cq: CqId) {
        self.since.store(ticks(), Ordering::Relaxed);
        self.go_on(cq);
    }

    /// Goes on with one that was there when the thread took the device.
    pub(super) fn go_on(&self, cq: CqId) {
        self.cq.store(cq.0, Ordering::Relaxed);
        self.ticks.store(LOOK_TICKS.get(), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn end(&self) {
        if self.ticks.load(Ordering::Relaxed) != 0 {
            self.ticks.store(0, Ordering::Relaxed);
        }
    }

    /// The queue that is empty as long as there is one.
    #[inline]
    pub(super) fn empty(&self) -> Option<CqId> {
        let lasts = self.ticks.load(Ordering::Relaxed);
        let cq = CqId(self.cq.load(Ordering::Relaxed));
        // A counter that has been set back is far ahead of itself.
        let passed = || ticks().wrapping_sub(self.since.load(Ordering::Relaxed));
        (lasts != 0 && passed() < lasts).then_some(cq)
    }
}

/// [`IDLE_WINDOW`] in ticks.
static LOOK_TICKS: Rate = Rate {
    began: LazyLock::new(|| (Clock.now_ns(), ticks())),
    look: AtomicU64::new(0),
};

struct Rate {
    /// When a thread asked first: by the clock, and by the counter.
    began: LazyLock<(u64, u64)>,
    look: AtomicU64,
}

impl Rate {
    /// Nanoseconds that must have passed to know how fast the counter runs.
    const KNOWN_AFTER_NS: u64 = 1_000_000;

    /// 0 as long as it is not known.
    fn get(&self) -> u64 {
        match self.look.load(Ordering::Relaxed) {
            0 => self.measure(),
            known => known,
        }
    }

    #[cold]
    fn measure(&self) -> u64 {
        let (began_ns, began) = *self.began;
        let ns = Clock.now_ns() - began_ns;
        if ns < Self::KNOWN_AFTER_NS {
            return 0;
        }
        let passed = u128::from(ticks().wrapping_sub(began));
        let look = passed * u128::from(IDLE_WINDOW.as_nanos()) / u128::from(ns);
        let look = u64::try_from(look).unwrap_or(0);
        self.look.store(look, Ordering::Relaxed);
        look
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_ends_by_itself_and_when_it_is_told_to() {
        let (window, cq) = (IdleWindow::default(), CqId(7));
        assert_eq!(window.empty(), None);
        window.begin(cq);
        thread::sleep(Duration::from_nanos(2 * Rate::KNOWN_AFTER_NS));
        window.begin(cq);
        assert_ne!(window.ticks.load(Ordering::Relaxed), 0);
        // As long as it lasts until a thread says so.
        window.ticks.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(window.empty(), Some(cq));
        window.end();
        assert_eq!(window.empty(), None);
        window.begin(cq);
        thread::sleep(Duration::from_millis(1));
        assert_eq!(window.empty(), None);
        window.go_on(cq);
        assert_eq!(window.empty(), None, "it is over");
    }
}
