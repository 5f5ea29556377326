//! Memory that work requests and remote peers reach.
//!
//! As with a real card, the device reads and writes registered memory at its own pace, while the
//! program may touch the same bytes. What a program sees of a transfer before its completion is
//! undefined, with one exception: programs that spin on the last bytes of a packet work. Its last
//! word of 8, 4, 2 or 1 bytes, whichever is aligned, is written last and at once, and who sees it
//! sees all bytes before it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use ferroce_transport::AtomicOp;

const PAGE: usize = 4096;

/// A block of memory for work requests, zeroed and page-aligned. Clones share the block.
#[derive(Clone)]
pub struct Buffer(Arc<Block>);

struct Block {
    base: NonNull<u8>,
    len: usize,
    layout: Layout,
}

// SAFETY: the block is plain bytes that live as long as the `Arc`; all access goes through raw
// pointers under the module's contract, never through references to the bytes.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: `base` came from `alloc_zeroed` with this layout and is freed once, here.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

impl Buffer {
    /// A block of `len` zero bytes.
    ///
    /// # Panics
    /// If `len` is larger than half the address space, or memory is exhausted.
    pub fn zeroed(len: usize) -> Self {
        // A block has at least a page, so that its address is always its own.
        let layout = Layout::from_size_align(len.max(1).next_multiple_of(PAGE), PAGE)
            .expect("a buffer smaller than half the address space");
        // SAFETY: the layout's size is at least a page, so not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else {
            handle_alloc_error(layout)
        };
        Self(Arc::new(Block { base, len, layout }))
    }

    /// Address of the first byte, for scatter/gather lists.
    pub fn addr(&self) -> u64 {
        self.0.base.as_ptr() as u64
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Copies `bytes` into the block at `offset`.
    ///
    /// # Panics
    /// If the range reaches outside the block.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let at = self.range(offset, bytes.len());
        // SAFETY: `range` checked that all of it lies in the block.
        unsafe { copy_in(at, bytes) }
    }

    /// Copies from the block at `offset` into `bytes`.
    ///
    /// # Panics
    /// If the range reaches outside the block.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let at = self.range(offset, bytes.len());
        // SAFETY: `range` checked that all of it lies in the block.
        unsafe { copy_out(at, bytes) }
    }

    /// The 8 bytes at `offset`, a multiple of 8, read at once; for programs that spin on a word.
    ///
    /// # Panics
    /// If the word reaches outside the block or is not aligned.
    pub fn load(&self, offset: usize) -> u64 {
        assert!(
            offset.is_multiple_of(8),
            "offset {offset} is not a multiple of 8"
        );
        let at = self.range(offset, 8);
        // SAFETY: in the block, and aligned because the block is page-aligned.
        unsafe { AtomicU64::from_ptr(at.cast()) }.load(Ordering::Acquire)
    }

    fn range(&self, offset: usize, len: usize) -> *mut u8 {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.0.len);
        assert!(
            inside,
            "bytes {offset}..+{len} of a buffer of {}",
            self.0.len
        );
        // SAFETY: the offset lies inside the block.
        unsafe { self.0.base.as_ptr().add(offset) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:#x}+{})", self.addr(), self.len())
    }
}

/// What lies behind a memory region.
#[derive(Clone, Debug)]
pub enum Memory {
    /// A block that the device keeps alive.
    Buffer(Buffer),
    /// Memory of the program; see [`Memory::borrowed`].
    Borrowed(Borrowed),
    /// Nothing: a region of a simulated host, where packets carry no bytes. `addr` and `len`
    /// bound it.
    Phantom {
        /// Address of the first byte.
        addr: u64,
        /// Length in bytes.
        len: u64,
    },
}

/// Memory that somebody else owns.
#[derive(Clone, Debug)]
pub struct Borrowed {
    base: *mut u8,
    len: usize,
}

// SAFETY: whoever made it promised that the memory may be reached from any thread.
unsafe impl Send for Borrowed {}
// SAFETY: as above.
unsafe impl Sync for Borrowed {}

impl Memory {
    /// Memory of the program.
    ///
    /// # Safety
    /// `base..base+len` must stay mapped until the region is deregistered, must be writable if the
    /// region is registered with a write permission, and no Rust reference to it may be used in
    /// ways that the device's reads and writes from other threads would break.
    pub unsafe fn borrowed(base: *mut u8, len: usize) -> Self {
        Self::Borrowed(Borrowed { base, len })
    }

    /// Address of the first byte.
    pub fn addr(&self) -> u64 {
        match self {
            Self::Buffer(buffer) => buffer.addr(),
            Self::Borrowed(borrowed) => borrowed.base as u64,
            Self::Phantom { addr, .. } => *addr,
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Buffer(buffer) => buffer.len() as u64,
            Self::Borrowed(borrowed) => borrowed.len as u64,
            Self::Phantom { len, .. } => *len,
        }
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `bytes` to `offset`. False, and nothing written, if that reaches outside.
    #[must_use]
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> bool {
        match self.range(offset, bytes.len()) {
            // SAFETY: `range` checked that all of it lies in the memory.
            Place::At(at) => unsafe { copy_in(at, bytes) },
            Place::Nowhere => {}
            Place::Outside => return false,
        }
        true
    }

    /// Copies from `offset` into `bytes`. False if that reaches outside.
    #[must_use]
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> bool {
        match self.range(offset, bytes.len()) {
            // SAFETY: `range` checked that all of it lies in the memory.
            Place::At(at) => unsafe { copy_out(at, bytes) },
            Place::Nowhere => bytes.fill(0),
            Place::Outside => return false,
        }
        true
    }

    /// Executes an atomic on the word at `offset`; `None` if it reaches outside or is not aligned.
    pub(crate) fn atomic(&self, offset: u64, op: AtomicOp) -> Option<u64> {
        let word = match self.range(offset, 8) {
            Place::At(at) if (at as usize).is_multiple_of(8) => at,
            Place::Nowhere => return Some(0),
            Place::At(_) | Place::Outside => return None,
        };
        // SAFETY: `range` checked that the word lies in the memory, and it is aligned.
        let word = unsafe { AtomicU64::from_ptr(word.cast()) };
        Some(match op {
            AtomicOp::FetchAdd { add } => word.fetch_add(add, Ordering::SeqCst),
            AtomicOp::CompareSwap { compare, swap } => {
                match word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(found) | Err(found) => found,
                }
            }
        })
    }

    fn range(&self, offset: u64, len: usize) -> Place {
        let inside = offset
            .checked_add(len as u64)
            .is_some_and(|end| end <= self.len());
        if !inside {
            return Place::Outside;
        }
        let base = match self {
            Self::Buffer(buffer) => buffer.0.base.as_ptr(),
            Self::Borrowed(borrowed) => borrowed.base,
            Self::Phantom { .. } => return Place::Nowhere,
        };
        // SAFETY: the offset lies inside the memory, whose length fits a usize.
        Place::At(unsafe { base.add(offset as usize) })
    }
}

enum Place {
    At(*mut u8),
    Nowhere,
    Outside,
}

/// Writes `bytes` to `at`.
///
/// # Safety
/// `at..at+bytes.len()` is mapped and writable.
unsafe fn copy_in(at: *mut u8, bytes: &[u8]) {
    let end = at as usize + bytes.len();
    let fits = |word: &usize| *word <= bytes.len() && end.is_multiple_of(*word);
    let word = [8, 4, 2, 1].into_iter().find(fits).unwrap_or(0);
    let (body, tail) = bytes.split_at(bytes.len() - word);
    if !body.is_empty() {
        // SAFETY: by the contract; the source is a reference to other memory.
        unsafe { ptr::copy(body.as_ptr(), at, body.len()) }
    }
    // SAFETY: the tail lies behind the body, in the same range.
    let at = unsafe { at.add(body.len()) };
    // The last word may be what a program spins on: it is written at once, and publishes the rest.
    macro_rules! publish {
        ($atomic:ty, $word:ty) => {{
            let mut word = [0; size_of::<$word>()];
            word.copy_from_slice(tail);
            // SAFETY: as many bytes as the word has, aligned to it, by the choice of `word`.
            unsafe { <$atomic>::from_ptr(at.cast()) }
                .store(<$word>::from_ne_bytes(word), Ordering::Release);
        }};
    }
    match word {
        8 => publish!(AtomicU64, u64),
        4 => publish!(AtomicU32, u32),
        2 => publish!(AtomicU16, u16),
        1 => publish!(AtomicU8, u8),
        _ => {}
    }
}

/// Reads `bytes` from `at`.
///
/// # Safety
/// `at..at+bytes.len()` is mapped and readable.
unsafe fn copy_out(at: *const u8, bytes: &mut [u8]) {
    // SAFETY: by the contract.
    unsafe { ptr::copy(at, bytes.as_mut_ptr(), bytes.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked_to_the_byte() {
        let memory = Memory::Buffer(Buffer::zeroed(100));
        assert!(memory.write(96, &[1, 2, 3, 4]));
        assert!(!memory.write(97, &[1, 2, 3, 4]));
        assert!(!memory.write(u64::MAX, &[1]));
        let mut back = [0; 4];
        assert!(memory.read(96, &mut back));
        assert_eq!(back, [1, 2, 3, 4]);
        assert!(memory.read(100, &mut []));
        assert!(!memory.read(101, &mut []));
    }

    #[test]
    fn copies_of_any_length_and_alignment_are_exact() {
        let bytes: Vec<u8> = (1..=40).collect();
        for offset in 0..9 {
            for len in 0..bytes.len() {
                let buffer = Buffer::zeroed(64);
                buffer.write(offset, &bytes[..len]);
                let mut back = [0; 64];
                buffer.read(0, &mut back);
                let (before, rest) = back.split_at(offset);
                assert_eq!(rest[..len], bytes[..len]);
                assert!(before.iter().chain(&rest[len..]).all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn atomics_return_what_they_found() {
        let memory = Memory::Buffer(Buffer::zeroed(16));
        assert_eq!(memory.atomic(8, AtomicOp::FetchAdd { add: 5 }), Some(0));
        assert_eq!(
            memory.atomic(
                8,
                AtomicOp::CompareSwap {
                    compare: 5,
                    swap: 9
                }
            ),
            Some(5)
        );
        assert_eq!(
            memory.atomic(
                8,
                AtomicOp::CompareSwap {
                    compare: 5,
                    swap: 1
                }
            ),
            Some(9)
        );
        assert_eq!(
            memory.atomic(8, AtomicOp::FetchAdd { add: u64::MAX }),
            Some(9)
        );
        assert_eq!(
            memory.atomic(4, AtomicOp::FetchAdd { add: 1 }),
            None,
            "not aligned"
        );
        assert_eq!(
            memory.atomic(16, AtomicOp::FetchAdd { add: 1 }),
            None,
            "outside"
        );
    }

    #[test]
    fn phantom_memory_has_bounds_but_no_bytes() {
        let memory = Memory::Phantom {
            addr: 0x1000,
            len: 10,
        };
        assert!(memory.write(6, &[1, 2, 3, 4]));
        assert!(!memory.write(7, &[1, 2, 3, 4]));
    }
}
