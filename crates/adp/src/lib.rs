//! Adaptive retransmission: profiles, the per-QP timeout state machine, personalities and traces.
//!
//! A reliable QP that hears nothing from its peer has to decide how long to wait before it
//! retransmits, and when to give up. This crate makes these decisions and does nothing else. Time
//! is an argument, nothing allocates while a decision is made, and a QP's state takes 32 bytes.
//!
//! - [`Policy`] is the device's setting for all of its QPs: plain InfiniBand waits, the firmware's
//!   own timeouts, or a [`Profile`] ([`PolicyKind`]).
//! - [`RetryState`] is the state of one QP. Its host calls [`start`](RetryState::start),
//!   [`on_timeout`](RetryState::on_timeout) and [`on_progress`](RetryState::on_progress), and arms
//!   its timer with [`wait`](RetryState::wait).
//! - [`trace`] replays a QP against a silent peer or a list of events.
//! - [`Endurance`] computes which outages a policy's QPs survive, how soon they resume, and when
//!   they give up; [`Demand`] searches the smallest timeout that survives a given outage.
//! - [`RawProfile`] is a profile as a register or a file holds it, valid or not.
//!   [`RawProfile::check`] finds its errors, and a [`Profile`] can only be made from a valid one.
//!
//! ```
//! use ferroce_adp::{Expiry, Policy, PolicyKind, QpTimeouts, RetryState};
//! use ferroce_base::time::Time;
//!
//! let policy = Policy::new(PolicyKind::FIRMWARE);
//! let qp = QpTimeouts { timeout: 14, retry_cnt: 7 };
//! let mut state = RetryState::new(&policy, qp, 0x11);
//! let mut now = Time::ZERO;
//! state.start(&policy, now);
//! while let Some(wait) = state.wait(&policy, now) {
//!     now = now.after(wait);
//!     if state.on_timeout(&policy, now) == Expiry::Fatal {
//!         break;
//!     }
//! }
//! assert_eq!(now, Time::from_nanos(3_758_096_384));
//! ```
//!
//! # Decisions
//!
//! The vendor's text leaves questions open. Each was decided once, and the code cites the decision
//! as `D<n>` where it implements it. `docs/adaptive-retransmission.md` lists them all.

#![no_std]
#![forbid(unsafe_code)]
#![warn(clippy::cast_possible_truncation)]

extern crate alloc;
#[cfg(any(test, feature = "file"))]
extern crate std;

mod adaptive;
#[cfg(feature = "file")]
pub mod builtin;
mod check;
mod demand;
mod endurance;
#[cfg(feature = "file")]
pub mod file;
mod firmware;
mod ib;
mod policy;
mod profile;
mod raw;
mod retry;
mod rng;
mod state;
pub mod trace;
mod violation;

pub use check::{
    FLOOD, FLOOD_OUTAGE, ROUND_TRIP_LOADED, ROUND_TRIP_MIN, Report, TOTAL_MIN, Warning,
};
pub use demand::{Answer, Demand, Owned};
pub use endurance::Endurance;
pub use policy::{
    AckTimeoutFloor, DecTrigger, FIRMWARE_EXPONENTS, INITIAL_WAIT_PERCENT, Policy, PolicyKind,
    QpTimeouts, ack_timeout,
};
pub use profile::{DecMode, Profile, Range};
pub use raw::{PROFILE_SIZE, RANGE_NUM_MAX, RawProfile, RawRange};
pub use state::{Expiry, RetryState};
pub use violation::{FieldName, InvalidProfile, Rule, Violation};
