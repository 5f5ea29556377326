//! Time as all of Ferroce represents it: whole picoseconds in a `u64`.
//!
//! A [`Time`] is a point on a host's clock, and a [`Span`] is a length of time. A 64-byte packet at
//! 400 Gb/s takes 1.28 ns, so nanoseconds would be too coarse for a port; picoseconds represent it
//! exactly.
//!
//! Both types saturate at about 213 days (2^64 ps). Their last value is called *never*
//! ([`Time::NEVER`], [`Span::NEVER`]): a deadline further ahead is never reached. A host therefore
//! counts from its own start, not from the start of its machine.
//!
//! Nanoseconds and [`core::time::Duration`] are only used at the edges: clocks, files, registers,
//! programs. Conversions to them round down; conversions from them saturate.
//!
//! ```
//! use ferroce_base::time::{Span, Time};
//!
//! let sent = Time::ZERO.after(Span::from_micros(20));
//! let timeout = Span::from_nanos(4096) * (1 << 16);
//! assert_eq!(timeout.to_string(), "268.435456 ms");
//! assert_eq!(sent.after(timeout).since(sent), timeout);
//! assert_eq!(sent.after(Span::NEVER), Time::NEVER);
//! ```

mod point;
mod print;
mod span;

pub use point::Time;
pub use print::Rounded;
pub use span::Span;

const PS_PER_NS: u64 = 1_000;

/// Picoseconds of a number of units. The last nanosecond is part of never, so that never stays never in
/// whole nanoseconds and back.
const fn picos(n: u64, ps_per_unit: u64) -> u64 {
    let ps = n.saturating_mul(ps_per_unit);
    if ps / PS_PER_NS == u64::MAX / PS_PER_NS {
        u64::MAX
    } else {
        ps
    }
}
