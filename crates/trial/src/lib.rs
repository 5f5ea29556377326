//! Trials of retransmission policies: how queue pairs perform in outages and under loss.
//!
//! A trial is a pair of devices on a simulated cable, in virtual time. One queue pair has a message
//! outstanding whenever the link goes down, and sends more messages afterwards, over a link with
//! delay and possibly loss. Everything random comes from a seed.
//!
//! | module | purpose |
//! |---|---|
//! | [`times`] | distributions of times, as operators write them |
//! | [`outages`] | outages: their lengths, or links that flap |
//! | [`pair`] | one queue pair in one train of outages |
//! | [`figures`] | statistics over many of them |
//! | [`scenario`] | the same on a whole fabric |
//! | [`fit`] | the search for the profile with the lowest cost |
//!
//! ```
//! use ferroce_adp::{Policy, PolicyKind, QpTimeouts};
//! use ferroce_trial::{Link, Outages, compare};
//!
//! let outages: Outages = "lognormal:median=300ms,p99=20s".parse()?;
//! let policy = Policy::new(PolicyKind::IB);
//! let qp = QpTimeouts { timeout: 20, retry_cnt: 7 };
//! let fared = compare(&policy, qp, &Link::default(), &outages.trains(20, 1), 1)?;
//! assert!(fared.survived > 0.9);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod figures;
pub mod fit;
pub mod outages;
pub mod pair;
mod random;
pub mod scenario;
pub mod times;

pub use figures::{Fared, compare};
pub use outages::{Outages, Train};
pub use pair::{Fate, Link, MESSAGES, TrialError, fate};
pub use times::{ReadError, Times};
