//! Memory that work requests and remote peers access.
//!
//! As with a real card, the device reads and writes registered memory at any time, while the
//! program may access the same bytes. The state of a transfer before its completion is undefined,
//! with one exception: programs that spin on the last bytes of a packet work. Its last word of 8,
//! 4, 2 or 1 bytes, whichever is aligned, is written last and atomically, and a program that sees
//! it sees all bytes before it.

mod access;

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_transport::{AccessError, AtomicOp};

pub use self::access::{RECOVERS, landing};

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
    /// Panics if `len` is larger than half the address space, or memory is exhausted.
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
    /// Panics if the range reaches outside the block.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let at = self.range(offset, bytes.len());
        // SAFETY: `range` checked that all of it is in the block, which is alive.
        let _ = unsafe { copy_in(at, bytes) };
    }

    /// Copies from the block at `offset` into `bytes`.
    ///
    /// # Panics
    /// Panics if the range reaches outside the block.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let at = self.range(offset, bytes.len());
        // SAFETY: `range` checked that all of it is in the block, which is alive.
        let _ = unsafe { copy_out(at, bytes) };
    }

    /// The 8 bytes at `offset`, a multiple of 8, read at once; for programs that spin on a word.
    ///
    /// # Panics
    /// Panics if the word reaches outside the block or is not aligned.
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
    /// Memory of the program that may go away; see [`Memory::checked`].
    Checked(Checked),
    /// Nothing: it reads as zeros and forgets what is written. A region of a simulated host, where
    /// packets carry no bytes, or a null region. `addr` and `len` bound it.
    Phantom {
        /// Address of the first byte.
        addr: u64,
        /// Length in bytes.
        len: u64,
    },
}

/// Memory that the program owns.
#[derive(Clone, Debug)]
pub struct Borrowed {
    base: *mut u8,
    len: usize,
}

/// Reaches memory of the program as a system call does: it fails where a plain access would end
/// the process. The device makes none; its host supplies this.
pub trait CheckedAccess: fmt::Debug + Sync {
    /// Copies the bytes at `addr` into `out`; false if not all of them are mapped for reading.
    fn read(&self, addr: u64, out: &mut [u8]) -> bool;

    /// Copies `bytes` to `addr`; false if not all of it is mapped for writing. What lies on the
    /// mapped pages may be written all the same.
    ///
    /// # Safety
    /// As for [`Memory::checked`]: what is mapped there is the program's to be written.
    unsafe fn write(&self, addr: u64, bytes: &[u8]) -> bool;

    /// Whether the word at `addr`, a multiple of 8, is mapped for writing.
    fn is_writable(&self, addr: u64) -> bool;
}

/// Memory that the program owns and may unmap.
#[derive(Clone, Debug)]
pub struct Checked {
    addr: u64,
    len: u64,
    access: &'static dyn CheckedAccess,
}

// SAFETY: the caller of `Memory::borrowed` promised that any thread may access the memory.
unsafe impl Send for Borrowed {}
// SAFETY: as above.
unsafe impl Sync for Borrowed {}

impl Memory {
    /// Memory of the program. Accesses to what is not mapped are refused, if the host handles memory
    /// faults as [`landing`] says; otherwise they end the process.
    ///
    /// # Safety
    /// What is mapped at `base..base+len` until the region is deregistered is the program's to be
    /// read, and to be written if the region is registered with a write permission; and no Rust
    /// reference to it may be used in ways that the device's reads and writes from other threads
    /// would break. Unless faults are handled, it stays mapped.
    pub unsafe fn borrowed(base: *mut u8, len: usize) -> Self {
        Self::Borrowed(Borrowed { base, len })
    }

    /// Memory of the program that it may unmap at any time, as the memory of a region that is
    /// paged on demand: accesses to what is not mapped are refused. `0..u64::MAX` is the whole
    /// address space (implicit ODP, ibv_reg_mr(3)). Each access costs a system call or two.
    ///
    /// # Safety
    /// As for [`Self::borrowed`], except that the memory may be unmapped or mapped otherwise, only
    /// not in the very moment of an atomic.
    pub unsafe fn checked(addr: u64, len: u64, access: &'static dyn CheckedAccess) -> Self {
        Self::Checked(Checked { addr, len, access })
    }

    /// Address of the first byte.
    pub fn addr(&self) -> u64 {
        match self {
            Self::Buffer(buffer) => buffer.addr(),
            Self::Borrowed(borrowed) => borrowed.base as u64,
            Self::Checked(checked) => checked.addr,
            Self::Phantom { addr, .. } => *addr,
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Buffer(buffer) => buffer.len() as u64,
            Self::Borrowed(borrowed) => borrowed.len as u64,
            Self::Checked(checked) => checked.len,
            Self::Phantom { len, .. } => *len,
        }
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `bytes` to `offset`.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        match self.range(offset, bytes.len())? {
            // SAFETY: `range` checked that all of it is in the memory.
            Place::At(at) => mapped(unsafe { copy_in(at, bytes) })?,
            Place::Unsure(addr, access) => {
                let (body, tail) = split_tail(addr, bytes);
                let behind = addr.wrapping_add(body.len() as u64);
                // SAFETY: `range` checked that all of it is in the memory, which is the program's
                // by the contract of `checked`.
                let written = unsafe { access.write(addr, body) && access.write(behind, tail) };
                mapped(written)?;
            }
            Place::Nowhere => {}
        }
        Ok(())
    }

    /// Copies from `offset` into `bytes`.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), AccessError> {
        match self.range(offset, bytes.len())? {
            // SAFETY: `range` checked that all of it is in the memory.
            Place::At(at) => mapped(unsafe { copy_out(at, bytes) })?,
            Place::Unsure(addr, access) => mapped(access.read(addr, bytes))?,
            Place::Nowhere => bytes.fill(0),
        }
        Ok(())
    }

    /// Whether the first and the last of `len` bytes from `offset` can be read at this moment: a
    /// packet's payload lies on two pages at most.
    pub(crate) fn check_read(&self, offset: u64, len: u32) -> Result<(), AccessError> {
        let place = self.range(offset, len as usize)?;
        if len == 0 {
            return Ok(());
        }
        let last = len as usize - 1;
        match place {
            Place::At(at) => {
                let end = at.wrapping_add(last);
                // SAFETY: `range` checked that both bytes are in the memory.
                let are_there = unsafe { access::are_readable(at, end) };
                mapped(are_there)
            }
            Place::Unsure(addr, access) => {
                let is_readable = |at| access.read(at, &mut [0]);
                mapped(is_readable(addr) && is_readable(addr.wrapping_add(last as u64)))
            }
            Place::Nowhere => Ok(()),
        }
    }

    /// Executes an atomic on the word at `offset`, which must be aligned.
    pub(crate) fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, AccessError> {
        let (word, checked) = match self.range(offset, 8)? {
            Place::At(at) => (at, None),
            Place::Unsure(addr, access) => (addr as *mut u8, Some(access)),
            Place::Nowhere => return Ok(0),
        };
        if !(word as usize).is_multiple_of(8) {
            return Err(AccessError::OutOfBounds);
        }
        if checked.is_some_and(|access| !access.is_writable(word as u64)) {
            return Err(AccessError::Unmapped);
        }
        // SAFETY: `range` checked that the word is in the memory, and it is aligned. If the memory
        // may be unmapped, it was mapped just now, and by the contract it stays so during this
        // operation.
        let found = unsafe {
            match op {
                AtomicOp::FetchAdd { add } => access::fetch_add(word, add),
                AtomicOp::CompareSwap { compare, swap } => {
                    access::compare_swap(word, compare, swap)
                }
            }
        };
        found.ok_or(AccessError::Unmapped)
    }

    fn range(&self, offset: u64, len: usize) -> Result<Place, AccessError> {
        let inside = offset
            .checked_add(len as u64)
            .is_some_and(|end| end <= self.len());
        if !inside {
            return Err(AccessError::OutOfBounds);
        }
        let base = match self {
            Self::Buffer(buffer) => buffer.0.base.as_ptr(),
            Self::Borrowed(borrowed) => borrowed.base,
            Self::Checked(checked) => {
                let addr = checked.addr.wrapping_add(offset);
                return Ok(Place::Unsure(addr, checked.access));
            }
            Self::Phantom { .. } => return Ok(Place::Nowhere),
        };
        // SAFETY: the offset lies inside the memory, whose length fits a usize.
        Ok(Place::At(unsafe { base.add(offset as usize) }))
    }
}

/// Where a range of memory is.
enum Place {
    At(*mut u8),
    /// At this address, if anything is mapped there.
    Unsure(u64, &'static dyn CheckedAccess),
    Nowhere,
}

/// Cuts off the last word, of 8, 4, 2 or 1 bytes, whichever is aligned: a program may spin on it.
fn split_tail(at: u64, bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = at.wrapping_add(bytes.len() as u64);
    let fits = |word: &usize| *word <= bytes.len() && end.is_multiple_of(*word as u64);
    let word = [8, 4, 2, 1].into_iter().find(fits).unwrap_or(0);
    bytes.split_at(bytes.len() - word)
}

fn mapped(done: bool) -> Result<(), AccessError> {
    done.then_some(()).ok_or(AccessError::Unmapped)
}

/// Writes `bytes` to `at`; false if not all of them could be.
///
/// # Safety
/// `at..at+bytes.len()` may be written where it is mapped.
#[must_use]
unsafe fn copy_in(at: *mut u8, bytes: &[u8]) -> bool {
    let (body, tail) = split_tail(at as u64, bytes);
    let behind = at.wrapping_add(body.len());
    // SAFETY: by the contract; the source is a reference to other memory.
    if !body.is_empty() && !unsafe { access::copy(at, body.as_ptr(), body.len()) } {
        return false;
    }
    // The last word may be what a program spins on: it is written at once, and publishes the rest.
    macro_rules! publish {
        ($store:ident, $word:ty) => {{
            let mut word = [0; size_of::<$word>()];
            word.copy_from_slice(tail);
            // SAFETY: as many bytes as the word has, aligned to it, by the choice of `tail`.
            unsafe { access::$store(behind, <$word>::from_ne_bytes(word)) }
        }};
    }
    match tail.len() {
        8 => publish!(store_8, u64),
        4 => publish!(store_4, u32),
        2 => publish!(store_2, u16),
        1 => publish!(store_1, u8),
        _ => true,
    }
}

/// Reads `bytes` from `at`; false if not all of them could be.
///
/// # Safety
/// `at..at+bytes.len()` may be read where it is mapped.
#[must_use]
unsafe fn copy_out(at: *const u8, bytes: &mut [u8]) -> bool {
    // SAFETY: by the contract; the target is a reference to other memory.
    unsafe { access::copy(bytes.as_mut_ptr(), at, bytes.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTSIDE: Result<(), AccessError> = Err(AccessError::OutOfBounds);

    #[test]
    fn ranges_are_checked_to_the_byte() {
        let memory = Memory::Buffer(Buffer::zeroed(100));
        assert_eq!(memory.write(96, &[1, 2, 3, 4]), Ok(()));
        assert_eq!(memory.write(97, &[1, 2, 3, 4]), OUTSIDE);
        assert_eq!(memory.write(u64::MAX, &[1]), OUTSIDE);
        let mut back = [0; 4];
        assert_eq!(memory.read(96, &mut back), Ok(()));
        assert_eq!(back, [1, 2, 3, 4]);
        assert_eq!(memory.read(100, &mut []), Ok(()));
        assert_eq!(memory.read(101, &mut []), OUTSIDE);
    }

    #[test]
    fn copies_of_any_length_and_alignment_are_exact() {
        const LONGEST: usize = 20_000;
        let bytes: Vec<u8> = (0..LONGEST).map(|i| 1 + (i % 251) as u8).collect();
        let short = if cfg!(miri) { 20 } else { 420 };
        let lengths = (0..short).chain([1023, 1024, 4088, 4096, 16_383, 16_384, LONGEST]);
        for len in lengths {
            for offset in [0, 1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 31, 32] {
                let buffer = Buffer::zeroed(len + 80);
                buffer.write(offset, &bytes[..len]);
                let mut back = vec![0; len + 80];
                buffer.read(0, &mut back);
                let (before, rest) = back.split_at(offset);
                assert_eq!(rest[..len], bytes[..len]);
                assert!(before.iter().chain(&rest[len..]).all(|byte| *byte == 0));
            }
        }
    }

    /// A word of each size is the last that is written, and is not written before the rest.
    #[test]
    fn the_last_word_publishes_the_bytes_before_it() {
        let buffer = Buffer::zeroed(64);
        for len in [8, 16, 24, 40] {
            let (writer, bytes) = (buffer.clone(), vec![len as u8; len]);
            let thread = std::thread::spawn(move || writer.write(0, &bytes));
            let last = u64::from_ne_bytes([len as u8; 8]);
            while buffer.load(len - 8) != last {
                std::hint::spin_loop();
            }
            let mut back = vec![0; len];
            buffer.read(0, &mut back);
            assert_eq!(back, vec![len as u8; len]);
            thread.join().unwrap();
        }
    }

    #[test]
    fn atomics_return_what_they_found() {
        let memory = Memory::Buffer(Buffer::zeroed(16));
        let add = |offset, add| memory.atomic(offset, AtomicOp::FetchAdd { add });
        let swap = |compare, swap| memory.atomic(8, AtomicOp::CompareSwap { compare, swap });
        assert_eq!(add(8, 5), Ok(0));
        assert_eq!(swap(5, 9), Ok(5));
        assert_eq!(swap(5, 1), Ok(9));
        assert_eq!(add(8, u64::MAX), Ok(9));
        assert_eq!(add(4, 1), Err(AccessError::OutOfBounds), "not aligned");
        assert_eq!(add(16, 1), Err(AccessError::OutOfBounds), "outside");
    }

    #[test]
    fn phantom_memory_has_bounds_but_no_bytes() {
        let memory = Memory::Phantom {
            addr: 0x1000,
            len: 10,
        };
        assert_eq!(memory.write(6, &[1, 2, 3, 4]), Ok(()));
        assert_eq!(memory.write(7, &[1, 2, 3, 4]), OUTSIDE);
    }

    /// A program with one page.
    #[derive(Debug)]
    struct OnePage;

    static PAGE_BYTES: [AtomicU64; PAGE / 8] = [const { AtomicU64::new(0) }; PAGE / 8];

    impl OnePage {
        fn offset(addr: u64, len: usize) -> Option<usize> {
            let offset = addr.checked_sub(&raw const PAGE_BYTES as u64)?;
            (offset + len as u64 <= PAGE as u64).then_some(offset as usize)
        }
    }

    impl CheckedAccess for OnePage {
        fn read(&self, addr: u64, out: &mut [u8]) -> bool {
            let offset = Self::offset(addr, out.len());
            for (at, byte) in (offset.unwrap_or(0)..).zip(&mut *out) {
                *byte = PAGE_BYTES[at / 8].load(Ordering::Relaxed).to_ne_bytes()[at % 8];
            }
            offset.is_some()
        }

        // SAFETY: writes to its own page only, whatever the caller asks.
        unsafe fn write(&self, addr: u64, bytes: &[u8]) -> bool {
            let Some(offset) = Self::offset(addr, bytes.len()) else {
                return false;
            };
            for (at, byte) in (offset..).zip(bytes) {
                let mut word = PAGE_BYTES[at / 8].load(Ordering::Relaxed).to_ne_bytes();
                word[at % 8] = *byte;
                PAGE_BYTES[at / 8].store(u64::from_ne_bytes(word), Ordering::Relaxed);
            }
            true
        }

        fn is_writable(&self, addr: u64) -> bool {
            Self::offset(addr, 1).is_some()
        }
    }

    #[test]
    fn the_whole_address_space_is_refused_where_nothing_is_mapped() {
        // SAFETY: the page is static, reached through atomics alone, and `OnePage` touches
        // nothing else.
        let memory = unsafe { Memory::checked(0, u64::MAX, &OnePage) };
        let page = &raw const PAGE_BYTES as u64;
        let unmapped = Err(AccessError::Unmapped);
        let mut back = [0; 13];
        assert_eq!(memory.write(page + 3, b"thirteen byte"), Ok(()));
        assert_eq!(memory.read(page + 3, &mut back), Ok(()));
        assert_eq!(&back, b"thirteen byte");
        let end = page + PAGE as u64;
        assert_eq!(memory.check_read(end - 100, 100), Ok(()));
        assert_eq!(memory.check_read(end - 100, 101), unmapped);
        assert_eq!(memory.check_read(page - 1, 2), unmapped);
        assert_eq!(memory.read(end - 1, &mut [0; 2]), unmapped);
        assert_eq!(memory.write(0, b"null"), unmapped);
        assert_eq!(memory.write(u64::MAX, b"x"), OUTSIDE);
        let add = AtomicOp::FetchAdd { add: 2 };
        assert_eq!(memory.atomic(end - 8, add), Ok(0));
        assert_eq!(memory.atomic(end - 8, add), Ok(2));
        assert_eq!(memory.atomic(end, add), Err(AccessError::Unmapped));
    }
}
