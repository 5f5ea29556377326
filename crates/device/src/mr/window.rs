//! Memory windows: parts of a region with their own key, for a protection domain or for one queue
//! pair.

use ferroce_transport::{AccessError, AccessFlags, MwBind};
use ferroce_wire::Qpn;

use super::{Entry, KeyHolder, KeyTable, MrKey, index_of, key_at, offset_in};
use crate::ids::PdId;

/// Handle of a memory window. Its keys come and go, this stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct MwId(pub u32);

impl MwId {
    /// The window that a key, present or future, belongs to.
    pub fn of_key(rkey: u32) -> Option<Self> {
        index_of(rkey).map(Self)
    }

    /// The key of the window with this tag, whether it has it or is to have it.
    pub fn key(self, tag: u8) -> u32 {
        key_at(self.0, tag)
    }
}

/// Type of a memory window; the values of `ibv_mw_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum MwType {
    /// For every QP of its protection domain; bound by [`crate::Hca::bind_mw`], with keys that
    /// the device chooses.
    Type1 = 1,
    /// Type 2B: for the QP that bound it with a BIND_MW work request, with tags that the program
    /// chooses; invalidated by either side.
    Type2 = 2,
}

/// What is known about a memory window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MwInfo {
    /// Its handle.
    pub id: MwId,
    /// Its present key, which is not valid while it is not bound.
    pub rkey: u32,
    /// Its protection domain.
    pub pd: PdId,
    /// Its type.
    pub kind: MwType,
    /// Whether it opens memory.
    pub bound: bool,
}

#[derive(Debug)]
pub(crate) struct Window {
    pd: PdId,
    kind: MwType,
    pub(crate) rkey: u32,
    /// Last key told to the program. It is ahead of `rkey` while a bind waits on a send queue.
    announced: u32,
    bound: Option<Bound>,
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    /// Index of the region.
    region: u32,
    /// Where the window starts in it.
    offset: u64,
    /// How the peer calls that place.
    va: u64,
    len: u64,
    access: AccessFlags,
    /// Type 2: the QP that it is for.
    qpn: Option<Qpn>,
}

impl Window {
    /// Index of the region and offset in it, if `len` bytes at `va` may be accessed.
    pub(crate) fn open(
        &self,
        who: KeyHolder,
        va: u64,
        len: u64,
        access: AccessFlags,
    ) -> Result<(u32, u64), AccessError> {
        let bound = self.bound.as_ref().ok_or(AccessError::UnknownKey)?;
        if self.pd != who.pd {
            return Err(AccessError::WrongDomain);
        }
        if bound.qpn.is_some_and(|qpn| qpn != who.qpn) {
            return Err(AccessError::WrongQp);
        }
        if !bound.access.contains(access) {
            return Err(AccessError::NotPermitted);
        }
        let inside = offset_in(bound.va, bound.len, va, len).ok_or(AccessError::OutOfBounds)?;
        // The window is inside the region.
        Ok((bound.region, bound.offset + inside))
    }

    fn info(&self, index: u32) -> MwInfo {
        MwInfo {
            id: MwId(index),
            rkey: self.rkey,
            pd: self.pd,
            kind: self.kind,
            bound: self.bound.is_some(),
        }
    }
}

impl KeyTable {
    pub(crate) fn insert_window(&mut self, pd: PdId, kind: MwType) -> Option<MwInfo> {
        let make = |rkey| {
            Entry::Window(Window {
                pd,
                kind,
                rkey,
                announced: rkey,
                bound: None,
            })
        };
        if self.windows >= self.max_windows {
            return None;
        }
        let index = self.insert(make)?;
        self.windows += 1;
        self.window(MwId(index))
    }

    pub(crate) fn window(&self, id: MwId) -> Option<MwInfo> {
        match self.entries.get(id.0)? {
            Entry::Window(window) => Some(window.info(id.0)),
            Entry::Region(_) => None,
        }
    }

    fn window_mut(&mut self, id: MwId) -> Option<&mut Window> {
        match self.entries.get_mut(id.0)? {
            Entry::Window(window) => Some(window),
            Entry::Region(_) => None,
        }
    }

    pub(crate) fn windows(&self) -> impl Iterator<Item = MwInfo> {
        self.entries
            .iter()
            .filter_map(|(index, entry)| match entry {
                Entry::Window(window) => Some(window.info(index)),
                Entry::Region(_) => None,
            })
    }

    /// Takes a window out, and from the region it is bound to.
    pub(crate) fn remove_window(&mut self, id: MwId) {
        if let Some(window) = self.window_mut(id) {
            let last = window.announced;
            self.unbind(id);
            self.entries.remove(id.0);
            self.windows -= 1;
            self.continue_after(id.0, last);
        }
    }

    /// The key after the one the program knows: only the tag changes, as with `ibv_inc_rkey`.
    pub(crate) fn next_rkey(&mut self, id: MwId) -> Option<u32> {
        self.window_mut(id).map(|window| next_tag(window.announced))
    }

    /// The program knows this key of a window from now on.
    pub(crate) fn announce(&mut self, id: MwId, rkey: u32) {
        if let Some(window) = self.window_mut(id) {
            window.announced = rkey;
        }
    }

    /// Executes a bind of `who` (IBA vol 1, 10.6.6.2).
    pub(crate) fn bind(&mut self, who: KeyHolder, bind: &MwBind) -> Result<(), AccessError> {
        let id = MwId::of_key(bind.rkey).ok_or(AccessError::UnknownKey)?;
        let window = self.window(id).ok_or(AccessError::UnknownKey)?;
        if window.pd != who.pd {
            return Err(AccessError::WrongDomain);
        }
        if window.kind == MwType::Type2 && window.bound {
            return Err(AccessError::Bound);
        }
        let bound = if bind.length > 0 {
            Some(self.check_bind(who, bind, window.kind)?)
        } else if window.kind == MwType::Type1 {
            None
        } else {
            return Err(AccessError::OutOfBounds);
        };
        self.unbind(id);
        if let Some(bound) = bound {
            self.bound_to_qps += u32::from(bound.qpn.is_some());
            if let Some(region) = self.region_at_mut(bound.region) {
                region.windows += 1;
            }
        }
        if let Some(window) = self.window_mut(id) {
            window.rkey = bind.rkey;
            if window.kind == MwType::Type2 {
                window.announced = bind.rkey;
            }
            window.bound = bound;
        }
        Ok(())
    }

    fn check_bind(
        &self,
        who: KeyHolder,
        bind: &MwBind,
        kind: MwType,
    ) -> Result<Bound, AccessError> {
        let key = MrKey(bind.lkey);
        let info = self.region(key).ok_or(AccessError::UnknownKey)?.info;
        if info.pd != who.pd {
            return Err(AccessError::WrongDomain);
        }
        let access = bind.access & AccessFlags::REMOTE;
        let writes = access.intersects(AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC);
        if !info.access.contains(AccessFlags::MW_BIND)
            || (writes && !info.access.contains(AccessFlags::LOCAL_WRITE))
        {
            return Err(AccessError::NotPermitted);
        }
        Ok(Bound {
            region: index_of(bind.lkey).ok_or(AccessError::UnknownKey)?,
            offset: info
                .offset(bind.va, bind.length)
                .ok_or(AccessError::OutOfBounds)?,
            va: if bind.zero_based { 0 } else { bind.va },
            len: bind.length,
            access,
            qpn: (kind == MwType::Type2).then_some(who.qpn),
        })
    }

    /// Takes the memory from a type 2 window, at the wish of the peer. What is not bound to the
    /// peer's QP is not its to invalidate; nor is a memory region.
    pub(crate) fn invalidate(&mut self, who: KeyHolder, rkey: u32) -> Result<(), AccessError> {
        let window = self.invalidatable(who, rkey)?;
        if !window.bound {
            return Err(AccessError::UnknownKey);
        }
        self.unbind(window.id);
        Ok(())
    }

    /// The same at the wish of this side, which may find that the peer was faster.
    pub(crate) fn invalidate_local(
        &mut self,
        who: KeyHolder,
        rkey: u32,
    ) -> Result<(), AccessError> {
        let window = self.invalidatable(who, rkey)?;
        self.unbind(window.id);
        Ok(())
    }

    fn invalidatable(&self, who: KeyHolder, rkey: u32) -> Result<MwInfo, AccessError> {
        let Some(Entry::Window(window)) = self.find(rkey) else {
            let known = self.find(rkey).is_some();
            return Err(if known {
                AccessError::NotPermitted
            } else {
                AccessError::UnknownKey
            });
        };
        if window.pd != who.pd {
            return Err(AccessError::WrongDomain);
        }
        if window.kind == MwType::Type1 {
            return Err(AccessError::NotPermitted);
        }
        let qpn = window.bound.and_then(|bound| bound.qpn);
        if qpn.is_some_and(|qpn| qpn != who.qpn) {
            return Err(AccessError::WrongQp);
        }
        let index = index_of(rkey).ok_or(AccessError::UnknownKey)?;
        Ok(window.info(index))
    }

    fn unbind(&mut self, id: MwId) {
        let Some(bound) = self.window_mut(id).and_then(|window| window.bound.take()) else {
            return;
        };
        self.bound_to_qps -= u32::from(bound.qpn.is_some());
        if let Some(region) = self.region_at_mut(bound.region) {
            region.windows -= 1;
        }
    }

    /// Takes the memory from all windows that were for a QP which is gone: the next one with its
    /// number has another peer.
    pub(crate) fn unbind_all_of(&mut self, qpn: Qpn) {
        if self.bound_to_qps == 0 {
            return;
        }
        let is_for = |entry: &Entry| match entry {
            Entry::Window(Window { bound, .. }) => bound.is_some_and(|b| b.qpn == Some(qpn)),
            Entry::Region(_) => false,
        };
        let entries = self.entries.iter();
        let ids: Vec<_> = entries
            .filter_map(|(index, entry)| is_for(entry).then_some(MwId(index)))
            .collect();
        for id in ids {
            self.unbind(id);
        }
    }
}

impl KeyTable {
    /// Compares the windows with what the regions know of them.
    ///
    /// # Panics
    /// Panics if they do not agree.
    pub(crate) fn audit(&self) {
        let bounds = || {
            self.entries.iter().filter_map(|(_, entry)| match entry {
                Entry::Window(window) => window.bound,
                Entry::Region(_) => None,
            })
        };
        assert_eq!(self.windows().count(), self.windows as usize, "windows");
        for (index, entry) in self.entries.iter() {
            if let Entry::Region(region) = entry {
                let windows = bounds().filter(|bound| bound.region == index).count();
                assert_eq!(region.windows as usize, windows, "region {index}");
            }
        }
        let orphans = bounds().filter(|bound| self.region_at(bound.region).is_none());
        assert_eq!(orphans.count(), 0, "windows whose region is gone");
        let for_qps = bounds().filter(|bound| bound.qpn.is_some()).count();
        assert_eq!(self.bound_to_qps as usize, for_qps);
    }
}

/// The same key with the next tag.
fn next_tag(rkey: u32) -> u32 {
    (rkey & !0xff) | (rkey.wrapping_add(1) & 0xff)
}

#[cfg(test)]
mod tests;
