//! Retransmission policies on trial: how queue pairs fare in outages and under loss.
//!
//! A trial is a pair of devices on a cable of the fabric, in virtual time. One queue pair has a message
//! outstanding whenever the link goes down, and sends some more afterwards, over a link that may lose
//! packets and takes its time. Everything random comes from a seed.
//!
//! | module | does |
//! |---|---|
//! | [`times`] | distributions of times, as operators write them |
//! | [`outages`] | outages: their lengths, or links that flap |
//! | [`pair`] | one queue pair lives through one train of outages |
//! | [`figures`] | how many of them fared |
//! | [`scenario`] | the same on a whole fabric |
//! | [`fit`] | the search for the profile that loses least |
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
