//! The atomics of words that processes hand each other; in `models/`, those of loom are in their place.

pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
