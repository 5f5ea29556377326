//! Memory windows: which key may have opened what at which time, as far as it can be known.
//!
//! A bind and an invalidation take effect between the time at which they were posted and that of their completion.

use ferroce_device::{AccessFlags, MwId, MwType, PdId, Qpn, Time};

use crate::model::{Region, Verdict};

/// A memory window.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) id: MwId,
    pub(crate) kind: MwType,
    pub(crate) pd: PdId,
    /// Its bindings that were posted, as places among all.
    pub(crate) bindings: Vec<usize>,
}

/// A bind of a window.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    /// The window's place among all, and its type and protection domain.
    pub(crate) window: usize,
    pub(crate) kind: MwType,
    pub(crate) pd: PdId,
    pub(crate) rkey: u32,
    /// The region's place in the model, and what of it; `None` for a region that does not exist.
    pub(crate) region: Option<usize>,
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) access: AccessFlags,
    pub(crate) zero_based: bool,
    /// The queue pair that binds it, and its protection domain.
    pub(crate) qpn: Qpn,
    pub(crate) qp_pd: PdId,
    pub(crate) posted: Time,
    /// When it was known to be in force.
    pub(crate) sure: Option<Time>,
    /// When it was posted, binds of other queue pairs may have waited: they may come before it or after it.
    pub(crate) contested: bool,
    /// It was refused.
    pub(crate) refused: bool,
    /// From when on something may have ended it.
    pub(crate) may_end: Time,
    /// When it was known to be over.
    pub(crate) over: Option<Time>,
}

impl Binding {
    /// Whether it may have been in force at some time from `from` on.
    pub(crate) fn may_hold(&self, from: Time) -> bool {
        !self.refused && self.len > 0 && self.over.is_none_or(|over| over > from)
    }

    /// Whether it is not known yet whether it has come into force.
    pub(crate) fn waits(&self) -> bool {
        self.sure.is_none() && !self.refused && self.over.is_none()
    }

    /// It is over at the latest now.
    pub(crate) fn end(&mut self, now: Time) {
        self.may_end = self.may_end.min(now);
        self.over = self.over.or(Some(now));
    }

    /// Whether it was in force all the time.
    pub(crate) fn holds(&self, from: Time, to: Time) -> bool {
        let is_sure = self.sure.is_some_and(|sure| sure <= from);
        is_sure && self.may_hold(from) && self.may_end > to
    }

    /// Whether its key opened memory for an operation that a queue pair executes, at a time from `from` to `to`; the
    /// range apart.
    pub(crate) fn opens(
        &self,
        (pd, qpn): (PdId, Qpn),
        needs: AccessFlags,
        from: Time,
        to: Time,
    ) -> Verdict {
        let is_for = self.kind == MwType::Type1 || self.qpn == qpn;
        if self.pd != pd || !is_for || !self.access.contains(needs) || !self.may_hold(from) {
            return Verdict::Never;
        }
        match self.holds(from, to) {
            true => Verdict::Always,
            false => Verdict::Sometimes,
        }
    }

    /// Whether a range from the start of the region on is within the window.
    pub(crate) fn covers(&self, at: u64, len: u64) -> bool {
        let end = at.checked_add(len);
        at >= self.at && end.is_some_and(|end| end <= self.at + self.len)
    }

    /// Whether its bind could succeed from when it was posted until now, given its region and the other bindings of its
    /// window.
    pub(crate) fn could_bind<'a>(
        &self,
        region: Option<&Region>,
        others: impl Iterator<Item = &'a Self>,
        now: Time,
    ) -> Verdict {
        let is_second = self.kind == MwType::Type2;
        if self.pd != self.qp_pd || is_second && self.len == 0 {
            return Verdict::Never;
        }
        if self.len == 0 {
            return Verdict::Always;
        }
        let Some(region) = region.filter(|region| {
            let end = self.at.checked_add(self.len);
            end.is_some_and(|end| end <= region.info.len)
        }) else {
            return Verdict::Never;
        };
        let writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let needs = match self.access.intersects(writes) {
            true => AccessFlags::MW_BIND | AccessFlags::LOCAL_WRITE,
            false => AccessFlags::MW_BIND,
        };
        let permits = region.permits(self.qp_pd, needs, self.posted, now);
        // A window of type 2 is invalidated first.
        let others: Vec<_> = others.filter(|_| is_second).collect();
        if others.iter().any(|it| it.holds(self.posted, now)) {
            return Verdict::Never;
        }
        let may_be_bound = others.iter().any(|it| it.may_hold(self.posted));
        match permits {
            Verdict::Always if may_be_bound => Verdict::Sometimes,
            permits => permits,
        }
    }

    /// Whether an invalidation of its key, by its own program (`true`) or by the peer, could succeed at a queue pair
    /// from a time until now. `is_last` is whether no bind of the window was posted after it.
    pub(crate) fn could_invalidate(
        &self,
        is_local: bool,
        (pd, qpn): (PdId, Qpn),
        from: Time,
        is_last: bool,
        now: Time,
    ) -> Verdict {
        if self.kind == MwType::Type1 || self.pd != pd || self.refused {
            return Verdict::Never;
        }
        let is_sure = self.sure.is_some_and(|sure| sure <= from);
        let is_for = self.qpn == qpn;
        match is_local {
            // One that is over can be invalidated again, by any queue pair.
            true if is_for && is_sure && is_last && !self.contested => Verdict::Always,
            true if !is_for && self.holds(from, now) => Verdict::Never,
            false if !is_for || !self.may_hold(from) => Verdict::Never,
            false if self.holds(from, now) => Verdict::Always,
            _ => Verdict::Sometimes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    fn binding() -> Binding {
        Binding {
            window: 0,
            kind: MwType::Type2,
            pd: PdId(1),
            rkey: 0x100,
            region: Some(0),
            at: 64,
            len: 32,
            access: AccessFlags::REMOTE_READ,
            zero_based: false,
            qpn: Qpn::new(5),
            qp_pd: PdId(1),
            posted: at(10),
            sure: Some(at(20)),
            contested: false,
            refused: false,
            may_end: at(50),
            over: Some(at(60)),
        }
    }

    #[test]
    fn a_key_opens_from_its_bind_to_its_invalidation() {
        let (it, who) = (binding(), (PdId(1), Qpn::new(5)));
        let opens = |from, to| it.opens(who, AccessFlags::REMOTE_READ, at(from), at(to));
        assert_eq!(opens(20, 40), Verdict::Always);
        assert_eq!(opens(15, 40), Verdict::Sometimes);
        assert_eq!(opens(30, 55), Verdict::Sometimes);
        assert_eq!(opens(60, 70), Verdict::Never);
        let other = (PdId(1), Qpn::new(6));
        let needs = AccessFlags::REMOTE_READ;
        assert_eq!(it.opens(other, needs, at(20), at(40)), Verdict::Never);
        assert!(it.covers(64, 32) && !it.covers(64, 33) && !it.covers(63, 1));
    }

    #[test]
    fn a_peer_invalidates_only_what_is_bound_to_its_queue_pair() {
        let it = binding();
        let peer = |qpn, from, to| {
            let who = (PdId(1), Qpn::new(qpn));
            it.could_invalidate(false, who, at(from), true, at(to))
        };
        assert_eq!(peer(5, 20, 40), Verdict::Always);
        assert_eq!(peer(6, 20, 40), Verdict::Never);
        assert_eq!(peer(5, 60, 70), Verdict::Never);
    }
}
