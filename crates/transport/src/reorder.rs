//! How long a packet may be overtaken by others before it counts as lost: adaptive routing.

use ferroce_base::time::Span;

/// The time that packets of many paths may be apart. It follows the round trips, much as the timeouts of TCP
/// do (RFC 6298): a path that is longer, or has a queue, shows in them. Few packets ask for an answer, so it
/// allows for another round trip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tolerance {
    round_trip: Span,
    variation: Span,
    /// The shortest of the last round trips: it rises slowly to longer ones.
    least: Span,
}

impl Tolerance {
    /// Before anything is known of the paths.
    pub(crate) const FIRST: Self = Self {
        round_trip: Span::from_micros(250),
        variation: Span::from_micros(125),
        least: Span::from_micros(250),
    };
    /// Clocks of hosts and switches do not tell less apart.
    const MIN: Span = Span::from_micros(1);
    /// A few of the largest adaptive timeouts.
    const MAX: Span = Span::from_millis(100);
    /// In shortest round trips. A packet that a slow path holds for longer arrives sooner if it goes again by
    /// another one, and those behind it need not wait.
    const LEAST_MAX: u64 = 4;

    /// An answer has come this long after the request that asked for it.
    pub(crate) fn note(&mut self, rtt: Span) {
        let rtt = rtt.min(Self::MAX);
        *self = match *self == Self::FIRST {
            true => Self {
                round_trip: rtt,
                variation: rtt / 2,
                least: rtt,
            },
            false => {
                let off = rtt.max(self.round_trip) - rtt.min(self.round_trip);
                Self {
                    round_trip: self.round_trip * 7 / 8 + rtt / 8,
                    variation: self.variation * 3 / 4 + off / 4,
                    least: match rtt < self.least {
                        true => rtt,
                        false => self.least + (rtt - self.least) / 64,
                    },
                }
            }
        };
    }

    pub(crate) fn span(&self) -> Span {
        let span = self.round_trip * 2 + self.variation * 4;

        span.min(self.least * Self::LEAST_MAX)
            .clamp(Self::MIN, Self::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: Span = Span::from_micros(1);

    #[test]
    fn it_follows_round_trips() {
        let mut tolerance = Tolerance::FIRST;
        assert_eq!(tolerance.span(), MICROSECOND * 1000);
        tolerance.note(MICROSECOND * 10);
        assert_eq!(tolerance.span(), MICROSECOND * 40);
        for _ in 0..50 {
            tolerance.note(MICROSECOND * 10);
        }
        assert!(tolerance.span() < MICROSECOND * 21, "{tolerance:?}");
        // One of two paths has a queue.
        for _ in 0..50 {
            tolerance.note(MICROSECOND * 10);
            tolerance.note(MICROSECOND * 50);
        }
        let four = MICROSECOND * 10 * Tolerance::LEAST_MAX;
        assert!(tolerance.span() >= four, "{tolerance:?}");
        assert!(tolerance.span() < four + four / 8, "{tolerance:?}");
        // Both have one.
        for _ in 0..500 {
            tolerance.note(MICROSECOND * 50);
        }
        assert!(tolerance.span() > MICROSECOND * 99, "{tolerance:?}");
        tolerance.note(Span::from_secs(100));
        assert!(tolerance.span() <= Tolerance::MAX);
    }
}
