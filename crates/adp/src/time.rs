//! Durations for people.

use core::fmt;

use crate::policy::NEVER_NS;

/// A duration in nanoseconds that prints itself in the largest unit it reaches, exactly.
///
/// ```
/// use ferroce_adp::Ns;
/// assert_eq!(Ns(268_435_456).to_string(), "268.435456 ms");
/// assert_eq!(Ns(4_000).to_string(), "4 us");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ns(pub u64);

impl fmt::Display for Ns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= NEVER_NS {
            return f.pad("never");
        }
        let (unit_ns, digits, unit) = match self.0 {
            1_000_000_000.. => (1_000_000_000, 9, "s"),
            1_000_000.. => (1_000_000, 6, "ms"),
            1_000.. => (1_000, 3, "us"),
            _ => (1, 0, "ns"),
        };
        let (whole, rest) = (self.0 / unit_ns, self.0 % unit_ns);
        if rest == 0 {
            return f.pad(&alloc::format!("{whole} {unit}"));
        }
        let rest = alloc::format!("{rest:0digits$}");
        f.pad(&alloc::format!(
            "{whole}.{} {unit}",
            rest.trim_end_matches('0')
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn prints_exactly_in_the_largest_unit() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1 us"),
            (1_050, "1.05 us"),
            (4_294_967_296, "4.294967296 s"),
            (60_000_000_000, "60 s"),
            (NEVER_NS, "never"),
        ] {
            assert_eq!(Ns(ns).to_string(), text);
        }
    }
}
