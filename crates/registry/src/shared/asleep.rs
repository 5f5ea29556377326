//! Whether the reader of rings sleeps.

use super::map::shareable;
use crate::sync::{AtomicU64, Ordering, fence};

shareable! {
    /// Set while the reader of rings sleeps, so that writers wake it and do so only then.
    ///
    /// The reader says that it sleeps and then looks once more whether something is there; the writer
    /// writes and then looks whether the reader sleeps. Each has a fence between the two, so at least
    /// one of them sees what the other has done.
    #[derive(Debug, Default)]
    pub(super) struct Asleep {
        is: AtomicU64,
    }
}

impl Asleep {
    /// The reader is about to sleep; then it looks once more.
    pub(super) fn set(&self) {
        self.is.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// It is awake, or gone.
    pub(super) fn clear(&self) {
        self.is.store(0, Ordering::Relaxed);
    }

    /// To be asked after something was written: whether the reader is to be woken. Of several who ask,
    /// one is told so.
    #[inline]
    pub(super) fn is_to_be_woken(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is.load(Ordering::Relaxed) != 0 && self.is.swap(0, Ordering::Relaxed) != 0
    }
}
