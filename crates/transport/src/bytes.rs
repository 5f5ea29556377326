//! Bytes inside a packet or a work request: a few in place, more in shared memory.

use std::fmt;
use std::iter::repeat_n;
use std::ops::Deref;
use std::sync::Arc;

/// Bytes that are kept without an allocation.
const SHORT: usize = 22;

/// Immutable bytes. Copies and parts share the memory.
#[derive(Clone)]
pub struct Bytes(Repr);

#[derive(Clone)]
enum Repr {
    Short {
        len: u8,
        bytes: [u8; SHORT],
    },
    /// This number from there on.
    Shared {
        start: u32,
        len: u16,
        all: Arc<[u8]>,
    },
}

const _: () = assert!(size_of::<Bytes>() <= 24, "a part of each packet");

impl Bytes {
    /// The maximum length: no packet and no inline request is longer.
    pub const LEN_MAX: usize = u16::MAX as usize;

    /// Creates `len` bytes, at most [`Self::LEN_MAX`], written in place by `fill`. They are zero
    /// before.
    #[inline]
    pub fn filled(len: usize, fill: impl FnOnce(&mut [u8])) -> Self {
        let mut bytes = Self::zeroed(len);
        bytes.fill(fill);
        bytes
    }

    /// Creates `len` zeros, at most [`Self::LEN_MAX`].
    #[inline]
    pub fn zeroed(len: usize) -> Self {
        let len = len.min(Self::LEN_MAX) as u16;
        Self(match usize::from(len) <= SHORT {
            true => Repr::Short {
                len: len as u8, // at most SHORT
                bytes: [0; SHORT],
            },
            false => Repr::Shared {
                start: 0,
                len,
                all: repeat_n(0, len.into()).collect(),
            },
        })
    }

    /// Lets `fill` overwrite them, if there is no copy of them.
    #[inline]
    pub fn fill(&mut self, fill: impl FnOnce(&mut [u8])) {
        match &mut self.0 {
            Repr::Short { len, bytes } => fill(&mut bytes[..usize::from(*len)]),
            Repr::Shared { start, len, all } => {
                if let Some(all) = Arc::get_mut(all) {
                    fill(&mut all[*start as usize..][..usize::from(*len)]);
                }
            }
        }
    }

    /// Returns the `len` bytes from `offset` on, or fewer at the end.
    #[must_use]
    pub fn part(&self, offset: u32, len: u32) -> Self {
        let have = self.len() as u32; // at most LEN_MAX
        let offset = offset.min(have);
        let part = len.min(have - offset) as u16;
        match &self.0 {
            Repr::Short { bytes, .. } => {
                let bytes = &bytes[offset as usize..][..part.into()];
                Self::from(bytes)
            }
            Repr::Shared { start, all, .. } => Self(Repr::Shared {
                start: start + offset,
                len: part,
                all: Arc::clone(all),
            }),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Short { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Shared { start, len, all } => &all[*start as usize..][..usize::from(*len)],
        }
    }
}

impl From<&[u8]> for Bytes {
    /// As far as they are not too many.
    fn from(bytes: &[u8]) -> Self {
        let len = bytes.len().min(Self::LEN_MAX);
        Self::filled(len, |out| out.copy_from_slice(&bytes[..len]))
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(&bytes[..])
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_what_was_filled_in_whatever_their_number() {
        let longest = if cfg!(miri) { 600 } else { Bytes::LEN_MAX };
        for len in [0, 1, SHORT, SHORT + 1, 4096.min(longest), longest] {
            let number = |at: usize| (at % 251) as u8;
            let all: Vec<u8> = (0..len).map(number).collect();
            let bytes = Bytes::from(all.clone());
            assert_eq!(*bytes, all);
            let same = Bytes::filled(len, |out| {
                assert!(out.iter().all(|byte| *byte == 0) && out.len() == len);
                out.copy_from_slice(&all);
            });
            assert_eq!(same, bytes);
            for (offset, part) in [(0, len), (len / 2, len - len / 2), (len / 3, len / 3)] {
                let cut = bytes.part(offset as u32, part as u32);
                assert_eq!(*cut, all[offset..offset + part]);
                assert_eq!(
                    *cut.part(1, u32::MAX),
                    all[offset..offset + part][part.min(1)..]
                );
            }
        }
    }

    #[test]
    fn more_than_fits_is_cut() {
        assert_eq!(Bytes::from(vec![7; 70_000]).len(), Bytes::LEN_MAX);
        assert!(Bytes::from(vec![7; 30]).part(31, 5).is_empty());
    }
}
