//! DCQCN, the congestion control of RoCE networks, without clock, socket or thread.
//!
//! Three parties take part. A switch whose queue grows marks packets: the congestion point. A
//! receiver of marked packets answers with CNPs, not too many: the notification point. A sender that
//! gets CNPs slows down and recovers: the reaction point, one for each flow.
//!
//! - [`Params`] are the parameters of NVIDIA adapters, read and printed in the words of four tools
//!   ([`Param`], [`Vocabulary`]); [`presets`] has published sets.
//!   [`Params::encode`] and [`Params::decode`] move them to and from configuration records and
//!   commands ([`ferroce_prm::cong`]).
//! - [`Switches`] are the questions about which the sources disagree.
//! - [`rp`] holds two reaction points: NVIDIA's and that of the algorithm's authors.
//! - [`np`] and [`CongestionPoint`] are the other two parties.
//! - `fluid` (feature `model`) predicts the queue that N flows share; simulations of the fabric are
//!   held against it.
//!
//! A flow that nothing happens to costs nothing: periods that passed are made up for when somebody
//! asks for the rate, with the same result as if they had been ticked through.
//!
//! # Bad input
//!
//! Reading text or setting a value refuses what is unknown or out of range and says what would be
//! right ([`ParamError`]). [`Params::set_clipped`] is the way of the device, which takes the nearest
//! valid value instead. Rates above the port's speed are clipped to it when they are used.

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
mod target;

pub use codec::DecodeError;
pub use cp::{CongestionPoint, RedError};
pub use error::RangeError;
pub use param::{Param, Unit, Vocabulary};
pub use params::{ParamError, Params};
pub use rate::Rate;
pub use switches::{
    AlphaPrecision, AlphaWeight, ByteResetUnit, FirstCnp, FullRate, HyperIncrease, MinDecFac,
    StageComparison, Switches, Tie,
};
pub use target::Target;
