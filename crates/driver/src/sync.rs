//! The atomics of the handshake; in `models/`, those of loom are in their place.

pub(crate) use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
