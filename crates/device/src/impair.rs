//! Deliberate degradation of a link.
//!
//! An [`Impairment`] describes it; one applies to the packets that the device sends, another to
//! those that it receives. All randomness comes from the device's seed.

mod queue;

use ferroce_transport::{Span, Time};
use thiserror::Error;

pub use queue::Bottleneck;
pub(crate) use queue::{Backlog, Service};

/// The packets that an impairment applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Those the device sends.
    Egress,
    /// Those the device receives.
    Ingress,
}

/// A time during which nothing passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blackout {
    /// When it begins.
    pub from: Time,
    /// How long it lasts.
    pub length: Span,
}

/// Losses that come in bursts: a two-state chain that enters the lossy state with probability
/// `enter` for each packet and leaves it with probability `1 / mean_length`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BurstLoss {
    /// Probability, for each packet, that a burst begins.
    pub enter: f64,
    /// Mean number of packets lost in a burst, at least 1.
    pub mean_length: f64,
}

/// The effect of the link on packets in one direction. Probabilities are for each packet, 0 to 1.
///
/// A packet that is not lost at random first goes through the bottleneck's queue. All other effects
/// follow, so a delay is added to the time in the queue.
///
/// The link holds at most [`Self::HELD_MAX`] packets; further ones are lost.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Impairment {
    /// Probability of a loss.
    pub loss: f64,
    /// Additional losses in bursts.
    pub burst: Option<BurstLoss>,
    /// Probability of a second copy.
    pub duplicate: f64,
    /// Probability that a bit is flipped.
    pub corrupt: f64,
    /// Probability of a congestion mark (CE), for packets of any ECN codepoint.
    pub ecn_mark: f64,
    /// A queue that all packets of this direction share, in all processes of the device.
    pub bottleneck: Option<Bottleneck>,
    /// Constant delay.
    pub delay: Span,
    /// Maximum random extra delay. Packets keep their order.
    pub jitter: Span,
    /// Probability that a packet is held back by a further `reorder_by`, so that later ones
    /// overtake it.
    pub reorder: f64,
    /// The delay of such packets.
    pub reorder_by: Span,
    /// Times during which nothing passes.
    pub blackouts: Vec<Blackout>,
    /// Whether the port goes down during blackouts. Otherwise they are behind the port.
    pub carrier: bool,
}

/// The error for an invalid value.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[error("invalid {field} {value}: must be {allowed}")]
pub struct ImpairmentError {
    /// Name of the field.
    pub field: &'static str,
    /// Value given.
    pub value: f64,
    /// The valid values.
    pub allowed: &'static str,
}

impl Impairment {
    /// Maximum number of packets that a link holds back in one direction.
    pub const HELD_MAX: usize = 1 << 16;
    /// Maximum number of blackouts of a link in one direction.
    pub const BLACKOUTS_MAX: usize = 32;

    /// Checks whether all values are valid.
    pub fn check(&self) -> Result<(), ImpairmentError> {
        let burst = self.burst.unwrap_or(BurstLoss {
            enter: 0.0,
            mean_length: 1.0,
        });
        let probabilities = [
            ("loss", self.loss),
            ("burst.enter", burst.enter),
            ("duplicate", self.duplicate),
            ("corrupt", self.corrupt),
            ("ecn_mark", self.ecn_mark),
            ("reorder", self.reorder),
        ];
        for (field, value) in probabilities {
            if !(0.0..=1.0).contains(&value) {
                return Err(ImpairmentError {
                    field,
                    value,
                    allowed: "a probability, 0 to 1",
                });
            }
        }
        if !(burst.mean_length >= 1.0 && burst.mean_length.is_finite()) {
            let value = burst.mean_length;
            let allowed = "a number of packets, 1 or more";
            return Err(ImpairmentError {
                field: "burst.mean_length",
                value,
                allowed,
            });
        }
        if let Some(queue) = &self.bottleneck
            && queue.rate < Bottleneck::RATE_MIN
        {
            return Err(ImpairmentError {
                field: "rate",
                value: queue.rate.bps() as f64,
                allowed: "1000 bit/s or more",
            });
        }
        if self.blackouts.len() > Self::BLACKOUTS_MAX {
            return Err(ImpairmentError {
                field: "number of blackouts (down)",
                value: self.blackouts.len() as f64,
                allowed: "32 at most",
            });
        }
        Ok(())
    }

    /// Makes the times of blackouts relative to `start` instead of the host's epoch.
    #[must_use]
    pub fn beginning_at(mut self, start: Time) -> Self {
        for blackout in &mut self.blackouts {
            blackout.from = start.after(blackout.from.since(Time::ZERO));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_by_name() {
        let error = Impairment {
            loss: 1.5,
            ..Impairment::default()
        }
        .check()
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid loss 1.5: must be a probability, 0 to 1"
        );
        assert!(
            Impairment {
                loss: f64::NAN,
                ..Impairment::default()
            }
            .check()
            .is_err()
        );
        let error = Impairment {
            bottleneck: Some(Bottleneck::new(ferroce_dcqcn::Rate::from_bps(999))),
            ..Impairment::default()
        }
        .check()
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid rate 999: must be 1000 bit/s or more"
        );
        let blackout = Blackout {
            from: Time::ZERO,
            length: Span::from_nanos(1),
        };
        let error = Impairment {
            blackouts: vec![blackout; Impairment::BLACKOUTS_MAX + 1],
            ..Impairment::default()
        }
        .check()
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid number of blackouts (down) 33: must be 32 at most"
        );
    }
}
