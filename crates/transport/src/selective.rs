//! Whether a requester repeats selectively, and what it knows of its peer.
//!
//! Two queue pairs that have agreed on it use reports: NAKs that say which packets behind the missing one the
//! peer keeps. One that was merely told to (`selective_repeat_forced_en`) does not know its peer. It finds
//! out with the first loss: it repeats the missing packet alone, and if the answer to that acknowledges more,
//! the peer keeps what comes early. From then on its packets ask for reports. Until then, and with a peer
//! that keeps nothing, everything on the wire is as the standard has it. One whose packets take many paths
//! (`adaptive_routing_forced_en`) asks for reports at once: the peer is on the same network.

use std::collections::VecDeque;

use ferroce_base::time::Span;
use ferroce_wire::Psn;

use crate::kept::KEPT_MAX;
use crate::reorder::Tolerance;
use crate::repair::Repair;

/// Whether a requester repeats selectively, and what it knows then. Most do not.
#[derive(Debug)]
pub(crate) struct Selective(Option<Box<State>>);

#[derive(Debug)]
struct State {
    how: How,
    /// How often the peer seemed to keep nothing.
    doubts: u8,
    /// If packets take many paths.
    tolerance: Option<Tolerance>,
    /// What is known of single packets in flight, if anything.
    repair: Option<Repair>,
}

/// A peer that has kept nothing so often never will.
const DOUBTS_MAX: u8 = 4;

/// How it repeats, as far as it knows its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// The peer keeps nothing: it goes back to what is missing, and repeats all from there.
    GoingBack,
    /// It is not known whether the peer keeps packets that come early.
    Unknown,
    /// The missing packet goes again alone, to find that out; its last PSN when it has.
    Asking(Option<Psn>),
    /// Selectively, and its packets ask for reports.
    On(Asked),
}

/// Whether the peer has seen a packet that asks for reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    /// None has left.
    No,
    /// The first one has this PSN.
    At(Psn),
    /// It has.
    Heard,
}

impl Selective {
    /// It goes back, as others do.
    pub(crate) const OFF: Self = Self(None);

    pub(crate) fn new(how: Option<How>, many_paths: bool) -> Self {
        Self(how.map(|how| {
            Box::new(State {
                how,
                doubts: 0,
                tolerance: many_paths.then_some(Tolerance::FIRST),
                repair: None,
            })
        }))
    }

    pub(crate) fn how(&self) -> How {
        self.0.as_ref().map_or(How::GoingBack, |state| state.how)
    }

    pub(crate) fn set(&mut self, how: How) {
        if let Some(state) = &mut self.0 {
            state.how = how;
        }
    }

    /// The peer has kept nothing, or there was nothing left to keep.
    pub(crate) fn doubt(&mut self) -> How {
        let Some(state) = &mut self.0 else {
            return How::GoingBack;
        };
        state.doubts += 1;
        match state.doubts < DOUBTS_MAX {
            true => How::Unknown,
            false => How::GoingBack,
        }
    }

    /// Whether it goes back.
    #[inline]
    pub(crate) fn is_off(&self) -> bool {
        self.0.is_none() || self.how() == How::GoingBack
    }

    /// Whether it may have asked for a part of a READ again. The answer may come when it goes back since.
    pub(crate) fn may_split_reads(&self) -> bool {
        self.0.is_some()
    }

    /// Whether packets ask for reports.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some() && matches!(self.how(), How::On(_))
    }

    /// Whether packets take many paths. With a peer that goes back they must not.
    #[inline]
    pub(crate) fn uses_many_paths(&self) -> bool {
        let state = self.0.as_ref();
        state.is_some_and(|state| state.tolerance.is_some() && state.how != How::GoingBack)
    }

    /// How long a packet may be overtaken.
    pub(crate) fn tolerance(&self) -> Span {
        let tolerance = self.0.as_ref().and_then(|state| state.tolerance);
        tolerance.map_or(Span::ZERO, |tolerance| tolerance.span())
    }

    /// An answer has come this long after the request that asked for it.
    #[inline]
    pub(crate) fn note_round_trip(&mut self, rtt: Span) {
        if let Some(state) = &mut self.0
            && let Some(tolerance) = &mut state.tolerance
        {
            tolerance.note(rtt);
        }
    }

    /// A report has come, so the peer keeps packets. False if this side never asks for any.
    pub(crate) fn hear_report(&mut self) -> bool {
        if !self.is_on() {
            self.set(How::On(Asked::Heard));
        }
        self.0.is_some()
    }

    /// Whether the next packet goes alone, and must be answered.
    pub(crate) fn asks_next(&self) -> bool {
        self.how() == How::Asking(None)
    }

    /// Whether everything waits for the answer to that.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.is_some() && matches!(self.how(), How::Asking(Some(_)))
    }

    /// What was to be found out stays open.
    pub(crate) fn stop_asking(&mut self) {
        if let How::Asking(_) = self.how() {
            self.set(How::Unknown);
        }
    }

    /// Everything before `una` has been acknowledged.
    #[inline]
    pub(crate) fn note_heard(&mut self, una: Psn) {
        if let Some(state) = &mut self.0
            && let How::On(Asked::At(first)) = state.how
            && first.is_before(una)
        {
            state.how = How::On(Asked::Heard);
        }
    }

    /// Responses that one READ request asks for, at most: as many as are noted one by one.
    pub(crate) fn read_packets_max(&self) -> u32 {
        match self.0 {
            Some(_) => KEPT_MAX,
            None => u32::MAX,
        }
    }

    /// Whether anything is known of single packets in flight.
    #[inline]
    pub(crate) fn is_repairing(&self) -> bool {
        self.repair().is_some()
    }

    #[inline]
    pub(crate) fn repair(&self) -> Option<&Repair> {
        self.0.as_ref()?.repair.as_ref()
    }

    #[inline]
    pub(crate) fn repair_mut(&mut self) -> Option<&mut Repair> {
        self.0.as_mut()?.repair.as_mut()
    }

    /// How many PSNs in flight are not on the wire any more.
    #[inline]
    pub(crate) fn arrived(&self) -> u32 {
        self.repair().map_or(0, Repair::arrived)
    }

    /// Begins to note what is known of single packets.
    pub(crate) fn begin(&mut self, repair: Repair) {
        if let Some(state) = &mut self.0 {
            state.repair = Some(repair);
        }
    }

    /// Forgets what is known of single packets.
    pub(crate) fn forget(&mut self) {
        if let Some(state) = &mut self.0 {
            state.repair = None;
        }
    }
}

/// Notes a READ or atomic request that is on its way and ends at `last`.
pub(crate) fn insert_due(due: &mut VecDeque<Psn>, last: Psn) {
    let at = due.partition_point(|other| other.is_before(last));
    if due.get(at) != Some(&last) {
        due.insert(at, last);
    }
}
