//! A program's bytes to send.

use libc::iovec;

use super::region::Region;

/// Pieces of memory, of which some were taken.
pub(super) struct Source<'a> {
    pieces: &'a [iovec],
    /// Bytes of the first piece that were taken.
    taken: usize,
}

impl<'a> Source<'a> {
    pub(super) fn new(pieces: &'a [iovec]) -> Self {
        Self { pieces, taken: 0 }
    }

    pub(super) fn left(&self) -> usize {
        let all: usize = self.pieces.iter().map(|piece| piece.iov_len).sum();
        all - self.taken
    }

    /// As [`Source::left`], of which at most `u32::MAX` bytes are looked at.
    pub(super) fn left_u32(&self) -> u32 {
        u32::try_from(self.left()).unwrap_or(u32::MAX)
    }

    /// Takes all of it.
    ///
    /// # Safety
    /// The pieces are there.
    pub(super) unsafe fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.left());
        let mut skip = self.taken;
        for piece in self.pieces {
            let (start, length) = (piece.iov_base.cast::<u8>(), piece.iov_len);
            // One of no bytes may have no address.
            if length > 0 {
                // SAFETY: as the caller promises.
                let piece = unsafe { std::slice::from_raw_parts(start, length) };
                bytes.extend(&piece[skip..]);
            }
            skip = 0;
        }
        bytes
    }

    /// Takes bytes into a region.
    ///
    /// # Safety
    /// The pieces are there and hold so much, and so does the region.
    pub(super) unsafe fn copy_to(&mut self, to: &Region, mut offset: u32, mut length: usize) {
        while length > 0 {
            let Some((piece, rest)) = self.pieces.split_first() else {
                return;
            };
            let count = length.min(piece.iov_len - self.taken);
            let from = piece.iov_base.cast::<u8>().wrapping_add(self.taken);
            // SAFETY: as the caller promises.
            unsafe { to.write(offset, from, count) };
            offset += count as u32;
            length -= count;
            self.taken += count;
            if self.taken == piece.iov_len {
                (self.pieces, self.taken) = (rest, 0);
            }
        }
    }
}
