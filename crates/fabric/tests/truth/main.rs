//! The engine compared with arithmetic, shares, pauses, models, and other simulators' runs.
//!
//! Where a band is asserted, the comment beside it or docs/validation.md explains its width.

mod arithmetic;
mod chaos;
mod clusters;
mod lossless;
mod max_min;
mod net;
mod published;
mod queue_pairs;
mod reaction;
mod repeats;
mod restarts;
mod routing;
mod selective;
mod sharing;
mod two_links;
mod tx_window;
