//! What has been seen of the packets of one end of a connection.

use ferroce_device::Time;
use ferroce_wire::Psn;

/// One end of a connection: its number, and which end.
pub(crate) type Place = (usize, usize);

/// What an end of a connection has just been told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// Something that it has sent is missing.
    Gap,
    /// A SEND or a WRITE that it has executed before.
    Duplicate(Psn),
}

/// What has been seen of one end.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// One past the last PSN that it has sent requests with.
    pub(crate) high: Option<Psn>,
    /// READs and atomics that it has sent, and whose answers have not come.
    pub(crate) open: Vec<Asked>,
    /// The last PSN that it has answered as executed.
    pub(crate) executed: Option<Psn>,
    /// READs and atomics that have reached it.
    pub(crate) taken: Vec<Taken>,
    /// What a receiver was not ready for, and when it may be sent again.
    pub(crate) not_ready: Option<(Psn, Time)>,
    /// When it last went back because of a NAK, which starts its timer anew.
    pub(crate) went_back: Option<Time>,
}

/// The PSNs of a READ or an atomic.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) first: Psn,
    pub(crate) last: Psn,
}

/// A READ or an atomic that has reached its responder. Times are numbers of events.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) first: Psn,
    pub(crate) last: Psn,
    pub(crate) arrived: u64,
    /// When the last packet of its answer first left.
    pub(crate) answered: Option<u64>,
}

impl Seen {
    /// How many answers were owed when that which begins here arrived.
    pub(crate) fn owed_before(&self, first: Psn) -> usize {
        let Some(this) = self.taken.iter().find(|it| it.first == first) else {
            return 0;
        };
        let is_owed = |it: &&Taken| {
            it.arrived < this.arrived && it.answered.is_some_and(|at| at >= this.arrived)
        };
        self.taken.iter().filter(is_owed).count()
    }
}
