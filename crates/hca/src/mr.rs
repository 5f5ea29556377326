use ferroce_transport::{AccessError, AccessFlags, AtomicOp, Data, Key, Segment};

use crate::limits;
use crate::memory::Memory;
use crate::table::Table;
use crate::verbs::PdId;

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

#[derive(Debug)]
struct Region {
    info: MrInfo,
    memory: Memory,
    /// Cleared by a SEND with invalidate.
    remote: bool,
}

/// The memory regions of a device.
///
/// A key is the region's index and, in its low byte, a tag that changes each time the index is
/// used again: an old key does not open a new region.
#[derive(Debug)]
pub(crate) struct MrTable {
    regions: Table<Region>,
    tags: Vec<u8>,
}

impl MrTable {
    pub(crate) fn new() -> Self {
        Self {
            regions: Table::new(limits::MAX_MR),
            tags: Vec::new(),
        }
    }

    pub(crate) fn insert(
        &mut self,
        pd: PdId,
        va: u64,
        access: AccessFlags,
        memory: Memory,
    ) -> Option<MrInfo> {
        let tags = &mut self.tags;
        let index = self.regions.insert_with(|index| {
            if tags.len() <= index as usize {
                tags.push(0);
            }
            let tag = tags[index as usize].wrapping_add(1);
            tags[index as usize] = tag;
            // Index 0 is left out of keys: key 0 opens nothing.
            let key = MrKey((index + 1) << 8 | u32::from(tag));
            let info = MrInfo {
                key,
                pd,
                va,
                len: memory.len(),
                access,
            };
            Region {
                info,
                memory,
                remote: true,
            }
        })?;
        self.regions.get(index).map(|region| region.info)
    }

    pub(crate) fn remove(&mut self, key: MrKey) -> Option<MrInfo> {
        self.find(key.0)?;
        self.regions
            .remove((key.0 >> 8) - 1)
            .map(|region| region.info)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &MrInfo> {
        self.regions.iter().map(|(_, region)| &region.info)
    }

    #[inline]
    fn find(&self, key: u32) -> Option<&Region> {
        let region = self.regions.get((key >> 8).checked_sub(1)?)?;
        (region.info.key.0 == key).then_some(region)
    }

    /// The region and the offset in it, if `key` opens `len` bytes at `va` for `access`.
    #[inline]
    fn open(
        &self,
        pd: PdId,
        key: Key,
        va: u64,
        len: u64,
        access: AccessFlags,
    ) -> Result<(&Region, u64), AccessError> {
        let (number, remote) = match key {
            Key::Local(number) => (number, false),
            Key::Remote(number) => (number, true),
        };
        let region = self.find(number).filter(|r| r.remote || !remote);
        let region = region.ok_or(AccessError::UnknownKey)?;
        if region.info.pd != pd {
            return Err(AccessError::WrongDomain);
        }
        if !region.info.access.contains(access) {
            return Err(AccessError::NotPermitted);
        }
        let offset = va
            .checked_sub(region.info.va)
            .ok_or(AccessError::OutOfBounds)?;
        if offset
            .checked_add(len)
            .is_none_or(|end| end > region.info.len)
        {
            return Err(AccessError::OutOfBounds);
        }
        Ok((region, offset))
    }

    pub(crate) fn check_read(&self, pd: PdId, segment: &Segment) -> Result<(), AccessError> {
        let access = match segment.key {
            Key::Local(_) => AccessFlags::empty(),
            Key::Remote(_) => AccessFlags::REMOTE_READ,
        };
        self.open(pd, segment.key, segment.va, segment.len.into(), access)
            .map(drop)
    }

    pub(crate) fn check_write(&self, pd: PdId, segment: &Segment) -> Result<(), AccessError> {
        let access = write_access(segment.key);
        self.open(pd, segment.key, segment.va, segment.len.into(), access)
            .map(drop)
    }

    /// Whether the segment lies in a region without bytes.
    pub(crate) fn is_phantom(&self, segment: &Segment) -> bool {
        let (Key::Local(key) | Key::Remote(key)) = segment.key;
        self.find(key)
            .is_some_and(|region| matches!(region.memory, Memory::Phantom { .. }))
    }

    pub(crate) fn write(
        &self,
        pd: PdId,
        key: Key,
        va: u64,
        data: Data<'_>,
    ) -> Result<(), AccessError> {
        let (region, offset) = self.open(pd, key, va, data.len().into(), write_access(key))?;
        match data {
            Data::Bytes(bytes) if !region.memory.write(offset, bytes) => {
                Err(AccessError::OutOfBounds)
            }
            Data::Bytes(_) | Data::Length(_) => Ok(()),
        }
    }

    pub(crate) fn read(
        &self,
        pd: PdId,
        segment: &Segment,
        out: &mut [u8],
    ) -> Result<(), AccessError> {
        let access = match segment.key {
            Key::Local(_) => AccessFlags::empty(),
            Key::Remote(_) => AccessFlags::REMOTE_READ,
        };
        let (region, offset) =
            self.open(pd, segment.key, segment.va, segment.len.into(), access)?;
        if region.memory.read(offset, out) {
            Ok(())
        } else {
            Err(AccessError::OutOfBounds)
        }
    }

    pub(crate) fn atomic(
        &self,
        pd: PdId,
        rkey: u32,
        va: u64,
        op: AtomicOp,
    ) -> Result<u64, AccessError> {
        let (region, offset) =
            self.open(pd, Key::Remote(rkey), va, 8, AccessFlags::REMOTE_ATOMIC)?;
        region
            .memory
            .atomic(offset, op)
            .ok_or(AccessError::OutOfBounds)
    }

    /// Takes remote access from a region until it is registered again. Local access stays.
    pub(crate) fn invalidate(&mut self, pd: PdId, rkey: u32) -> Result<(), AccessError> {
        let region = self.find(rkey).filter(|region| region.remote);
        if region.ok_or(AccessError::UnknownKey)?.info.pd != pd {
            return Err(AccessError::WrongDomain);
        }
        if let Some(region) = self.regions.get_mut((rkey >> 8) - 1) {
            region.remote = false;
        }
        Ok(())
    }
}

fn write_access(key: Key) -> AccessFlags {
    match key {
        Key::Local(_) => AccessFlags::LOCAL_WRITE,
        Key::Remote(_) => AccessFlags::REMOTE_WRITE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffer;

    const PD: PdId = PdId(0);

    fn table(access: AccessFlags) -> (MrTable, MrKey) {
        let mut table = MrTable::new();
        let memory = Memory::Buffer(Buffer::zeroed(100));
        let key = table.insert(PD, 0x1000, access, memory).unwrap().key;
        (table, key)
    }

    fn remote(key: MrKey, va: u64, len: u32) -> Segment {
        Segment {
            key: Key::Remote(key.0),
            va,
            len,
        }
    }

    #[test]
    fn a_key_opens_its_range_for_its_permissions_in_its_domain() {
        let (table, key) = table(AccessFlags::REMOTE_READ);
        assert_eq!(table.check_read(PD, &remote(key, 0x1000, 100)), Ok(()));
        assert_eq!(
            table.check_read(PD, &remote(key, 0x0fff, 1)),
            Err(AccessError::OutOfBounds)
        );
        assert_eq!(
            table.check_read(PD, &remote(key, 0x1064, 1)),
            Err(AccessError::OutOfBounds)
        );
        assert_eq!(
            table.check_read(PD, &remote(key, u64::MAX, 2)),
            Err(AccessError::OutOfBounds)
        );
        assert_eq!(
            table.check_write(PD, &remote(key, 0x1000, 1)),
            Err(AccessError::NotPermitted)
        );
        assert_eq!(
            table.check_read(PdId(1), &remote(key, 0x1000, 1)),
            Err(AccessError::WrongDomain)
        );
        for forged in [0, key.0 ^ 1, key.0 ^ 0x100, u32::MAX] {
            let segment = remote(MrKey(forged), 0x1000, 1);
            assert_eq!(table.check_read(PD, &segment), Err(AccessError::UnknownKey));
        }
    }

    #[test]
    fn an_old_key_does_not_open_what_comes_after_it() {
        let (mut table, key) = table(AccessFlags::REMOTE_READ);
        assert!(table.remove(key).is_some());
        assert!(table.remove(key).is_none());
        assert_eq!(
            table.check_read(PD, &remote(key, 0x1000, 1)),
            Err(AccessError::UnknownKey)
        );
    }

    #[test]
    fn an_invalidated_key_still_serves_its_owner() {
        let (mut table, key) = table(AccessFlags::REMOTE_READ);
        assert_eq!(
            table.invalidate(PdId(1), key.0),
            Err(AccessError::WrongDomain)
        );
        assert_eq!(table.invalidate(PD, key.0), Ok(()));
        assert_eq!(
            table.check_read(PD, &remote(key, 0x1000, 1)),
            Err(AccessError::UnknownKey)
        );
        let local = Segment {
            key: Key::Local(key.0),
            va: 0x1000,
            len: 1,
        };
        assert_eq!(table.check_read(PD, &local), Ok(()));
    }
}
