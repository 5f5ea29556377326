//! Buffers that the library sends from and receives into.
#![allow(unsafe_code)]

use std::alloc::{self, Layout};
use std::fmt;
use std::ptr::NonNull;

const PAGE: usize = 4096;

/// Words in a row of memory that begins at a page. The device writes into it at any time, so it is
/// never borrowed as a slice.
pub struct Buffer {
    start: NonNull<u64>,
    words: usize,
}

impl Buffer {
    /// A buffer of zeroes with this number of words of 64 bits.
    ///
    /// # Panics
    ///
    /// Panics if `words` is zero or too large for memory.
    #[must_use]
    pub fn zeroed(words: usize) -> Self {
        let layout = Self::layout(words);
        assert!(layout.size() > 0, "a buffer has words");
        // SAFETY: the size is not zero.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start.cast()) else {
            alloc::handle_alloc_error(layout)
        };
        Self { start, words }
    }

    fn layout(words: usize) -> Layout {
        Layout::from_size_align(words * size_of::<u64>(), PAGE)
            .expect("a size that memory can have")
    }

    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.words * size_of::<u64>()
    }

    /// Where it begins.
    #[must_use]
    pub fn address(&self) -> *mut u8 {
        self.start.as_ptr().cast()
    }

    /// Writes the word of each index.
    pub fn fill(&mut self, word: impl Fn(u64) -> u64) {
        for at in 0..self.words {
            // SAFETY: within the allocation, and only this thread writes a buffer that is not received
            // into.
            unsafe { self.start.add(at).write_volatile(word(at as u64)) }
        }
    }

    /// How many of the words from one index up to another differ from those that are expected.
    #[must_use]
    pub fn differing(&self, words: std::ops::Range<usize>, word: impl Fn(u64) -> u64) -> u64 {
        let words = words.start..words.end.min(self.words);
        let differs = |at: &usize| {
            // SAFETY: within the allocation; volatile, because the device may write at any time.
            unsafe { self.start.add(*at).read_volatile() != word(*at as u64) }
        };
        words.filter(differs).count() as u64
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { alloc::dealloc(self.start.as_ptr().cast(), Self::layout(self.words)) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("words", &self.words)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_word_is_found() {
        let mut buffer = Buffer::zeroed(1000);
        assert_eq!(buffer.bytes(), 8000);
        buffer.fill(|at| at * 3);
        assert_eq!(buffer.differing(0..1000, |at| at * 3), 0);
        assert_eq!(
            buffer.differing(0..1000, |at| at * 3 + u64::from(at == 7)),
            1
        );
        assert_eq!(
            buffer.differing(8..5000, |at| at * 3 + u64::from(at == 7)),
            0
        );
    }
}
