//! The atomics of words that processes share; in `models/`, those of loom are in their place.

pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
