//! The waits of a queue pair that hears nothing.

use ferroce_base::time::Span;
use ferroce_wire::Psn;

/// Waits kept of one ladder: more than any policy has before it gives up, except profiles of
/// hundreds of retries.
const WAITS_MAX: usize = 1024;

/// One packet sent repeatedly, and how long the queue pair waited each time.
#[derive(Clone, Debug, PartialEq)]
pub struct Ladder {
    /// The first packet of each round.
    pub psn: Psn,
    /// Whether the first wait is known.
    pub start: Start,
    /// Whether the capture may have begun in the midst of it: there may have been waits before.
    pub is_midway: bool,
    /// When its timer began to run, in nanoseconds since the epoch of the file.
    pub since: u64,
    /// The waits, each from one round to the next.
    pub waits: Vec<Span>,
    /// How it ended.
    pub end: End,
    last: u64,
}

/// What is known about the start of the first wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The timer started at this time.
    Known,
    /// The timer started at this time or later: an acknowledgement that was not captured may have
    /// restarted it.
    NotBefore,
    /// Nothing.
    Unknown,
}

/// How a sequence of waits ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The packet was acknowledged, or the queue pair continued.
    Answered {
        /// When this was first seen, in nanoseconds since the epoch of the file.
        at: u64,
    },
    /// Nothing more of the queue pair was captured, and it may have been answered: no answer of its peer
    /// was captured at any time, or one that did not arrive.
    Unknown {
        /// For how long, in nanoseconds.
        for_ns: u64,
    },
    /// Nothing more of the queue pair was captured, nor an answer.
    Silent {
        /// For how long, in nanoseconds.
        for_ns: u64,
    },
    /// It failed with `IBV_WC_RETRY_EXC_ERR`; the last wait is the fatal one.
    Failed,
}

impl Ladder {
    /// Creates a sequence with one wait: a timer that ran from `since` and expired at `at`.
    #[must_use]
    pub fn new(psn: Psn, start: Start, since: u64, at: u64) -> Self {
        Self {
            psn,
            start,
            is_midway: false,
            since,
            waits: vec![Span::from_nanos(at.saturating_sub(since))],
            end: End::Silent { for_ns: 0 },
            last: at,
        }
    }

    /// Creates a sequence from times in nanoseconds; the first is the start of the timer.
    #[must_use]
    pub fn of_times(times: &[u64], end: End) -> Option<Self> {
        let [since, first, rest @ ..] = times else {
            return None;
        };
        let mut ladder = Self::new(Psn::default(), Start::Known, *since, *first);
        rest.iter().for_each(|at| ladder.push(*at));
        ladder.end = end;
        Some(ladder)
    }

    /// Returns how many of its waits are of a known length.
    #[must_use]
    pub fn known(&self) -> usize {
        self.waits.len() - usize::from(self.start != Start::Known)
    }

    /// Returns it with a first wait that may have been shorter.
    pub(crate) fn at_most(self) -> Self {
        Self {
            start: Start::NotBefore,
            ..self
        }
    }

    /// Returns when it began and when its last wait ended, in nanoseconds since the epoch of the file.
    #[must_use]
    pub fn time(&self) -> (u64, u64) {
        (self.since, self.last)
    }

    /// Returns how much it says about a policy: many waits do, and next to that long ones.
    #[must_use]
    pub fn weight(&self) -> (usize, Span) {
        let waits = if self.waits.len() > 1 {
            self.known()
        } else {
            0
        };
        (waits, self.waits.iter().copied().sum())
    }

    /// Adds the next expiry.
    pub fn push(&mut self, at: u64) {
        if self.waits.len() < WAITS_MAX {
            self.waits
                .push(Span::from_nanos(at.saturating_sub(self.last)));
        }
        self.last = at;
    }
}
