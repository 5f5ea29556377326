//! DCQCN, the congestion control of RoCE networks, without clock, socket or thread.
//!
//! Three parties take part. The congestion point is a switch that marks packets when its queue
//! grows. The notification point is a receiver, which answers marked packets with a limited number
//! of CNPs. The reaction point, one for each flow, is a sender that slows down when it gets CNPs
//! and recovers afterwards.
//!
//! - [`Params`] are the parameters of NVIDIA adapters, read and printed with the names of four
//!   tools ([`Param`], [`Vocabulary`]); [`presets`] has published sets. [`Params::encode`] and
//!   [`Params::decode`] convert them to and from configuration records and commands
//!   ([`ferroce_prm::cong`]).
//! - [`Switches`] select answers to the questions on which the sources disagree.
//! - [`rp`] has two reaction points: NVIDIA's and the one published by the algorithm's authors.
//! - [`np`] and [`CongestionPoint`] are the other two parties.
//! - `fluid` (feature `model`) predicts the queue that N flows share; simulations of the fabric are
//!   compared with it.
//!
//! An idle flow costs nothing: elapsed periods are made up for when the rate is requested, with the
//! same result as if each had been processed on time.
//!
//! # Bad input
//!
//! Reading text or setting a value refuses unknown names and values out of range, with a suggestion
//! ([`ParamError`]). [`Params::set_clipped`] instead takes the nearest valid value, as the device
//! does. Rates above the port's speed are clipped to it when they are used.

#![no_std]
#![forbid(unsafe_code)]
#![warn(clippy::cast_possible_truncation)]

extern crate alloc;
#[cfg(any(test, feature = "model"))]
extern crate std;

mod alpha;
mod codec;
mod cp;
mod error;
#[cfg(feature = "model")]
pub mod fluid;
pub mod np;
mod param;
mod params;
pub mod presets;
mod rate;
pub mod rp;
mod switches;
mod sync;
mod target;

pub use codec::DecodeError;
pub use cp::{CongestionPoint, RedError};
pub use error::RangeError;
pub use param::{Param, Unit, Vocabulary};
pub use params::{ParamError, Params};
pub use rate::Rate;
pub use switches::{
    AlphaPrecision, AlphaWeight, ByteResetUnit, FirstCnp, FullRate, HyperIncrease, MinDecFac,
    QUESTIONS, Question, StageComparison, SwitchError, Switches, Tie,
};
pub use target::Target;
