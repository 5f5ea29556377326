//! Memory regions and the table of keys, which regions and windows share. Every access to a program's
//! memory passes through here.

mod window;

use ferroce_transport::{AccessError, AccessFlags, AtomicOp, Data, Key, MemoryRef, Segment};
use ferroce_wire::Qpn;

use crate::ids::PdId;
use crate::memory::Memory;
use crate::secret::{Draw, Secret};
use crate::table::Table;

use self::window::Window;
pub use self::window::{MwId, MwInfo, MwType};

/// A key to a memory region; lkey and rkey are the same number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct MrKey(pub u32);

impl MrKey {
    /// As local key.
    pub fn lkey(self) -> u32 {
        self.0
    }

    /// As remote key.
    pub fn rkey(self) -> u32 {
        self.0
    }
}

/// What is known about a memory region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MrInfo {
    /// Its key.
    pub key: MrKey,
    /// Its protection domain.
    pub pd: PdId,
    /// First virtual address, as work requests and peers name it.
    pub va: u64,
    /// Length in bytes.
    pub len: u64,
    /// Permissions.
    pub access: AccessFlags,
}

/// Who presents a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyHolder {
    pub(crate) pd: PdId,
    pub(crate) qpn: Qpn,
}

#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) info: MrInfo,
    memory: Memory,
    /// Memory windows that are bound to it.
    pub(crate) windows: u32,
}

#[derive(Debug)]
pub(crate) enum Entry {
    Region(Region),
    Window(Window),
}

impl Entry {
    fn key(&self) -> u32 {
        match self {
            Self::Region(region) => region.info.key.0,
            Self::Window(window) => window.rkey,
        }
    }
}

/// The keys of a device: its memory regions and memory windows.
///
/// A key is an index and, in its low byte, a tag. The first tag of an index is drawn; it changes
/// each time the index is used again: an old key does not open what comes after it. Programs choose the tags of their windows
/// themselves.
#[derive(Debug)]
#[repr(C)] // what packets need stands first
pub(crate) struct KeyTable {
    pub(crate) entries: Table<Entry>,
    /// No key opens anything any more.
    revoked: bool,
    tags: Vec<u8>,
    max_regions: u32,
    pub(crate) max_windows: u32,
    /// How many of the entries are windows; the others are regions.
    pub(crate) windows: u32,
    secret: Secret,
    /// Windows that are bound for one QP only.
    pub(crate) bound_to_qps: u32,
}

/// Index 0 is left out of keys: key 0 is never valid.
pub(crate) fn index_of(key: u32) -> Option<u32> {
    (key >> 8).checked_sub(1)
}

/// The key of an index with this tag.
pub(crate) fn key_at(index: u32, tag: u8) -> u32 {
    (index + 1) << 8 | u32::from(tag)
}

impl KeyTable {
    /// The keys there are.
    const MAX: u32 = (1 << 24) - 1;

    pub(crate) fn new(max_regions: u32, max_windows: u32, secret: Secret) -> Self {
        Self {
            entries: Table::new(max_regions.saturating_add(max_windows).min(Self::MAX)),
            tags: Vec::new(),
            max_regions,
            max_windows,
            windows: 0,
            secret,
            bound_to_qps: 0,
            revoked: false,
        }
    }

    /// From now on no key opens anything.
    pub(crate) fn revoke(&mut self) {
        self.revoked = true;
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked
    }

    /// Puts in what `make` makes for its new key.
    pub(crate) fn insert(&mut self, make: impl FnOnce(u32) -> Entry) -> Option<u32> {
        let (tags, secret) = (&mut self.tags, self.secret);
        self.entries.insert_with(|index| {
            if tags.len() <= index as usize {
                // The low byte.
                tags.push(secret.draw(Draw::KeyTag, index.into()) as u8);
            }
            let tag = &mut tags[index as usize];
            *tag = tag.wrapping_add(1);
            make(key_at(index, *tag))
        })
    }

    /// The tags of an index go on after that of `key`.
    pub(crate) fn continue_after(&mut self, index: u32, key: u32) {
        if let Some(tag) = self.tags.get_mut(index as usize) {
            *tag = key as u8; // the low byte
        }
    }

    pub(crate) fn insert_region(
        &mut self,
        pd: PdId,
        va: u64,
        access: AccessFlags,
        memory: Memory,
    ) -> Option<MrInfo> {
        if self.entries.len() - self.windows as usize >= self.max_regions as usize {
            return None;
        }
        let len = memory.len();
        let make = |key| {
            let key = MrKey(key);
            let info = MrInfo {
                key,
                pd,
                va,
                len,
                access,
            };
            Entry::Region(Region {
                info,
                memory,
                windows: 0,
            })
        };
        let index = self.insert(make)?;
        self.region_at(index).map(|region| region.info)
    }

    pub(crate) fn region(&self, key: MrKey) -> Option<&Region> {
        match self.find(key.0)? {
            Entry::Region(region) => Some(region),
            Entry::Window(_) => None,
        }
    }

    pub(crate) fn region_at(&self, index: u32) -> Option<&Region> {
        match self.entries.get(index)? {
            Entry::Region(region) => Some(region),
            Entry::Window(_) => None,
        }
    }

    pub(crate) fn region_at_mut(&mut self, index: u32) -> Option<&mut Region> {
        match self.entries.get_mut(index)? {
            Entry::Region(region) => Some(region),
            Entry::Window(_) => None,
        }
    }

    /// Takes a region out that no window is bound to.
    pub(crate) fn remove_region(&mut self, key: MrKey) {
        if self.region(key).is_some_and(|region| region.windows == 0)
            && let Some(index) = index_of(key.0)
        {
            self.entries.remove(index);
        }
    }

    /// Gives a region other properties, and other memory if there is some. Its key stays.
    pub(crate) fn change_region(&mut self, info: MrInfo, memory: Option<Memory>) {
        if let Some(region) = index_of(info.key.0).and_then(|index| self.region_at_mut(index)) {
            region.info = info;
            if let Some(memory) = memory {
                region.memory = memory;
            }
        }
    }

    pub(crate) fn regions(&self) -> impl Iterator<Item = &Region> {
        self.entries.iter().filter_map(|(_, entry)| match entry {
            Entry::Region(region) => Some(region),
            Entry::Window(_) => None,
        })
    }

    #[inline]
    pub(crate) fn find(&self, key: u32) -> Option<&Entry> {
        let entry = self.entries.get(index_of(key)?)?;
        (entry.key() == key).then_some(entry)
    }

    /// The region and the offset in it, if `key` opens `len` bytes at `va` for `access`.
    #[inline]
    fn open(
        &self,
        who: KeyHolder,
        key: Key,
        va: u64,
        len: u64,
        access: AccessFlags,
    ) -> Result<(&Region, u64), AccessError> {
        if self.revoked {
            return Err(AccessError::Unmapped);
        }
        match (self.find(key.number()), key) {
            (Some(Entry::Region(region)), _) => {
                let offset = region.open(who.pd, va, len, access)?;
                Ok((region, offset))
            }
            (Some(Entry::Window(window)), Key::Remote(_)) => {
                let (index, offset) = window.open(who, va, len, access)?;
                // A region stays as long as a window is bound to it.
                let region = self.region_at(index).ok_or(AccessError::UnknownKey)?;
                Ok((region, offset))
            }
            _ => Err(AccessError::UnknownKey),
        }
    }

    /// Where a segment lies that its key opens for reading.
    #[inline]
    pub(crate) fn open_read(
        &self,
        who: KeyHolder,
        segment: &Segment,
    ) -> Result<MemoryRef, AccessError> {
        let Segment { key, va, len } = *segment;
        let (region, offset) = self.open(who, key, va, len.into(), read_access(key))?;
        region.memory.check_read(offset, len)?;
        let region = region.info.key.0;
        Ok(MemoryRef { offset, region })
    }

    /// Whether it is in a region without bytes.
    pub(crate) fn is_phantom(&self, at: MemoryRef) -> bool {
        let region = self.region(MrKey(at.region));
        region.is_some_and(|region| matches!(region.memory, Memory::Phantom { .. }))
    }

    pub(crate) fn write(
        &self,
        who: KeyHolder,
        key: Key,
        va: u64,
        data: Data<'_>,
    ) -> Result<(), AccessError> {
        let (region, offset) = self.open(who, key, va, data.len().into(), write_access(key))?;
        match data {
            Data::Bytes(bytes) => region.memory.write(offset, bytes),
            Data::Length(_) => Ok(()),
        }
    }

    /// Reads what was opened for it, if the region is still there.
    #[inline]
    pub(crate) fn read(&self, at: MemoryRef, out: &mut [u8]) -> Result<(), AccessError> {
        if self.revoked {
            return Err(AccessError::Unmapped);
        }
        let region = self.region(MrKey(at.region));
        let region = region.ok_or(AccessError::UnknownKey)?;
        region.memory.read(at.offset, out)
    }

    pub(crate) fn atomic(
        &self,
        who: KeyHolder,
        rkey: u32,
        va: u64,
        op: AtomicOp,
    ) -> Result<u64, AccessError> {
        let key = Key::Remote(rkey);
        let (region, offset) = self.open(who, key, va, 8, AccessFlags::REMOTE_ATOMIC)?;
        region.memory.atomic(offset, op)
    }
}

impl Region {
    /// The offset of `va`, if `len` bytes from there may be accessed.
    #[inline]
    fn open(&self, pd: PdId, va: u64, len: u64, access: AccessFlags) -> Result<u64, AccessError> {
        if self.info.pd != pd {
            return Err(AccessError::WrongDomain);
        }
        if !self.info.access.contains(access) {
            return Err(AccessError::NotPermitted);
        }
        self.info.offset(va, len).ok_or(AccessError::OutOfBounds)
    }
}

impl MrInfo {
    /// The offset of `va`, if `len` bytes from there are in the region.
    #[inline]
    pub(crate) fn offset(&self, va: u64, len: u64) -> Option<u64> {
        offset_in(self.va, self.len, va, len)
    }
}

/// The offset of `va`, if `len` bytes from there lie within `room` bytes from `first`.
#[inline]
pub(crate) fn offset_in(first: u64, room: u64, va: u64, len: u64) -> Option<u64> {
    let offset = va.checked_sub(first)?;
    (offset.checked_add(len)? <= room).then_some(offset)
}

fn read_access(key: Key) -> AccessFlags {
    match key {
        Key::Local(_) | Key::Receive(_) => AccessFlags::empty(),
        Key::Remote(_) => AccessFlags::REMOTE_READ,
    }
}

fn write_access(key: Key) -> AccessFlags {
    match key {
        Key::Local(_) | Key::Receive(_) => AccessFlags::LOCAL_WRITE,
        Key::Remote(_) => AccessFlags::REMOTE_WRITE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffer;
    use std::collections::HashSet;

    const WHO: KeyHolder = KeyHolder {
        pd: PdId(0),
        qpn: Qpn::new(2),
    };

    fn table(access: AccessFlags) -> (KeyTable, MrKey) {
        let mut table = KeyTable::new(4, 0, Secret::default());
        let memory = Memory::Buffer(Buffer::zeroed(100));
        let info = table.insert_region(WHO.pd, 0x1000, access, memory);
        (table, info.unwrap().key)
    }

    fn remote(key: u32, va: u64, len: u32) -> Segment {
        Segment {
            key: Key::Remote(key),
            va,
            len,
        }
    }

    #[test]
    fn a_key_opens_its_range_for_its_permissions_in_its_domain() {
        let (table, MrKey(key)) = table(AccessFlags::REMOTE_READ);
        let read = |key, va, len| table.open_read(WHO, &remote(key, va, len));
        let start = MemoryRef {
            offset: 0,
            region: key,
        };
        assert_eq!(read(key, 0x1000, 100), Ok(start));
        for (va, len) in [(0x0fff, 1), (0x1064, 1), (0x1063, 2), (u64::MAX, 2)] {
            assert_eq!(read(key, va, len), Err(AccessError::OutOfBounds));
        }
        assert_eq!(
            table.write(WHO, Key::Remote(key), 0x1000, Data::Length(1)),
            Err(AccessError::NotPermitted)
        );
        let stranger = KeyHolder { pd: PdId(1), ..WHO };
        assert_eq!(
            table.open_read(stranger, &remote(key, 0x1000, 1)),
            Err(AccessError::WrongDomain)
        );
        for forged in [0, key ^ 1, key ^ 0x100, u32::MAX] {
            assert_eq!(read(forged, 0x1000, 1), Err(AccessError::UnknownKey));
        }
    }

    #[test]
    fn no_key_opens_anything_once_the_memory_is_revoked() {
        let (mut table, MrKey(key)) = table(AccessFlags::REMOTE_READ | AccessFlags::LOCAL_WRITE);
        let at = table.open_read(WHO, &remote(key, 0x1000, 1)).unwrap();
        table.revoke();
        let unmapped = Err(AccessError::Unmapped);
        let read = table.open_read(WHO, &remote(key, 0x1000, 1)).map(drop);
        assert_eq!(read, unmapped);
        assert_eq!(table.read(at, &mut [0]), unmapped);
        let local = Key::Local(key);
        assert_eq!(table.write(WHO, local, 0x1000, Data::Bytes(&[1])), unmapped);
        assert!(table.region(MrKey(key)).is_some(), "it can be deregistered");
    }

    /// First tags are drawn, and each of the 256 has its turn before one comes again.
    #[test]
    fn a_tag_comes_again_after_256_lives() {
        let tags = |key| {
            let mut table = KeyTable::new(1 << 10, 0, Secret::new(key));
            for _ in 0..256 {
                table.insert(region_of).unwrap();
            }
            table.tags
        };
        let (one, two) = (tags(1), tags(2));
        assert_eq!(one, tags(1));
        assert!(one.iter().zip(&two).filter(|(a, b)| a == b).count() < 16);
        assert!(one.iter().collect::<HashSet<_>>().len() > 100);

        let mut table = KeyTable::new(1 << 10, 0, Secret::new(1));
        let mut keys = Vec::new();
        table.entries = Table::new(1);
        for _ in 0..=256 {
            let index = table.insert(region_of).unwrap();
            keys.push(table.entries.remove(index).unwrap().key());
        }
        let different: HashSet<u32> = keys[..256].iter().copied().collect();
        assert_eq!(different.len(), 256);
        assert_eq!(keys[0], keys[256]);
    }

    fn region_of(key: u32) -> Entry {
        let info = MrInfo {
            key: MrKey(key),
            pd: WHO.pd,
            va: 0,
            len: 100,
            access: AccessFlags::empty(),
        };
        Entry::Region(Region {
            info,
            memory: Memory::Buffer(Buffer::zeroed(100)),
            windows: 0,
        })
    }

    #[test]
    fn an_old_key_does_not_open_what_comes_after_it() {
        let (mut table, key) = table(AccessFlags::REMOTE_READ);
        table.remove_region(key);
        assert!(table.region(key).is_none());
        assert_eq!(
            table.open_read(WHO, &remote(key.0, 0x1000, 1)),
            Err(AccessError::UnknownKey)
        );
    }
}
