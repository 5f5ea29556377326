//! Accesses to program memory that may not be mapped: they fail instead of ending the process.
//!
//! All loads and stores are in one stretch of assembly. A handler of memory faults that finds the
//! faulting instruction in it ([`landing`]) continues the thread at the end of the stretch, which
//! returns "failed"; an access that succeeds therefore costs nothing extra. On architectures other
//! than x86-64, and under Miri, these are plain accesses, as [`RECOVERS`] shows, and hosts give the
//! device memory that is [checked](super::Memory::checked).
//!
//! The copy is as fast as the C library's from a few bytes to megabytes, as measured by
//! `benches/memory.rs`. It uses vectors of 32 bytes if the processor has them, and the processor's
//! copy instruction for sizes beyond that of any packet.

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use plain as chosen;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use recovering as chosen;

pub use chosen::{RECOVERS, landing};
pub(super) use chosen::{
    are_readable, compare_swap, copy, fetch_add, store_1, store_2, store_4, store_8,
};

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod recovering {
    use core::arch::global_asm;

    /// Whether an access to memory that is not there can be made to fail.
    pub const RECOVERS: bool = true;

    /// Where a thread goes on that faulted at the instruction `pc`, if that is one of those by which
    /// the device reaches memory of programs: the access then fails. All registers but the program
    /// counter stay as they are.
    pub fn landing(pc: usize) -> Option<usize> {
        let begin = &raw const ferroce_memory_begin as usize;
        let end = &raw const ferroce_memory_end as usize;
        let landing = &raw const ferroce_memory_landing as usize;
        (begin..end).contains(&pc).then_some(landing)
    }

    /// In RAX and RDX.
    #[repr(C)]
    struct Found {
        value: u64,
        done: u64,
    }

    // SAFETY: this is what the assembly below defines.
    unsafe extern "C" {
        static ferroce_memory_begin: u8;
        static ferroce_memory_end: u8;
        static ferroce_memory_landing: u8;
        fn ferroce_memory_copy(to: *mut u8, from: *const u8, len: usize, wide: u32) -> u32;
        fn ferroce_memory_load(first: *const u8, last: *const u8) -> u32;
        fn ferroce_memory_store_1(at: *mut u8, value: u8) -> u32;
        fn ferroce_memory_store_2(at: *mut u8, value: u16) -> u32;
        fn ferroce_memory_store_4(at: *mut u8, value: u32) -> u32;
        fn ferroce_memory_store_8(at: *mut u8, value: u64) -> u32;
        fn ferroce_memory_fetch_add(at: *mut u8, add: u64) -> Found;
        fn ferroce_memory_compare_swap(at: *mut u8, compare: u64, swap: u64) -> Found;
    }

    /// Copies `len` bytes; false if not all of them could be copied. The two ranges do not overlap.
    ///
    /// # Safety
    /// Both ranges may be read and written as asked, or are not mapped for it and the host handles
    /// the fault as [`landing`] says.
    #[inline]
    pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> bool {
        let wide = std::arch::is_x86_feature_detected!("avx");
        // SAFETY: as the caller promises; the processor has the instructions.
        unsafe { ferroce_memory_copy(to, from, len, wide.into()) != 0 }
    }

    /// Whether both bytes can be read.
    ///
    /// # Safety
    /// As for [`copy`].
    #[inline]
    pub(crate) unsafe fn are_readable(first: *const u8, last: *const u8) -> bool {
        // SAFETY: as the caller promises.
        unsafe { ferroce_memory_load(first, last) != 0 }
    }

    macro_rules! store {
        ($name:ident, $assembly:ident, $word:ty) => {
            /// Stores a word at once, behind all that was stored before; false if it could not be.
            ///
            /// # Safety
            /// As for [`copy`]; the word is aligned.
            #[inline]
            pub(crate) unsafe fn $name(at: *mut u8, value: $word) -> bool {
                // SAFETY: as the caller promises. The processor keeps stores in order, those of its
                // copy instruction before those of later instructions.
                unsafe { $assembly(at, value) != 0 }
            }
        };
    }

    store!(store_1, ferroce_memory_store_1, u8);
    store!(store_2, ferroce_memory_store_2, u16);
    store!(store_4, ferroce_memory_store_4, u32);
    store!(store_8, ferroce_memory_store_8, u64);

    /// Adds to a word and returns what was there; `None` if it could not be reached.
    ///
    /// # Safety
    /// As for [`copy`]; the word is aligned.
    pub(crate) unsafe fn fetch_add(at: *mut u8, add: u64) -> Option<u64> {
        // SAFETY: as the caller promises.
        let found = unsafe { ferroce_memory_fetch_add(at, add) };
        (found.done != 0).then_some(found.value)
    }

    /// Replaces a word if it is `compare`, and returns what was there; `None` if it could not be
    /// reached.
    ///
    /// # Safety
    /// As for [`copy`]; the word is aligned.
    pub(crate) unsafe fn compare_swap(at: *mut u8, compare: u64, swap: u64) -> Option<u64> {
        // SAFETY: as the caller promises.
        let found = unsafe { ferroce_memory_compare_swap(at, compare, swap) };
        (found.done != 0).then_some(found.value)
    }

    // Arguments come in RDI, RSI, RDX and RCX, results go in RAX and RDX, and nothing else is kept
    // for the caller; no instruction moves the stack pointer. So the exit serves all of them,
    // wherever they were.
    global_asm!(
        ".macro ferroce_function name",
        ".p2align 4",
        ".hidden \\name",
        ".globl \\name",
        ".type \\name,@function",
        "\\name:",
        ".cfi_startproc",
        ".endm",
        ".macro ferroce_function_end name",
        ".cfi_endproc",
        ".size \\name, . - \\name",
        ".endm",
        ".text",
        ".p2align 5",
        ".hidden ferroce_memory_begin",
        ".globl ferroce_memory_begin",
        "ferroce_memory_begin:",
        // copy: to, from, length, whether there are vectors of 32 bytes.
        "ferroce_function ferroce_memory_copy",
        "    cmp rdx, 16",
        "    ja 40f",
        "    cmp edx, 8",
        "    jae 30f",
        "    cmp edx, 4",
        "    jae 20f",
        "    test edx, edx",
        "    je 39f",
        // 1 to 3 bytes: the first, the middle, and the last.
        "    movzx eax, byte ptr [rsi]",
        "    movzx r8d, byte ptr [rsi + rdx - 1]",
        "    mov r9, rdx",
        "    shr r9",
        "    movzx r10d, byte ptr [rsi + r9]",
        "    mov [rdi], al",
        "    mov [rdi + r9], r10b",
        "    mov [rdi + rdx - 1], r8b",
        "    jmp 39f",
        // From here on each length is covered by pieces that overlap in the middle.
        "20: mov eax, [rsi]",
        "    mov r8d, [rsi + rdx - 4]",
        "    mov [rdi], eax",
        "    mov [rdi + rdx - 4], r8d",
        "    jmp 39f",
        "30: mov rax, [rsi]",
        "    mov r8, [rsi + rdx - 8]",
        "    mov [rdi], rax",
        "    mov [rdi + rdx - 8], r8",
        "39: mov eax, 1",
        "    ret",
        "40: cmp rdx, 32",
        "    ja 50f",
        "    movups xmm0, [rsi]",
        "    movups xmm1, [rsi + rdx - 16]",
        "    movups [rdi], xmm0",
        "    movups [rdi + rdx - 16], xmm1",
        "    jmp 39b",
        "50: cmp rdx, {long}",
        "    jae 90f",
        "    test ecx, ecx",
        "    jnz 70f",
        // Vectors of 16 bytes, four at a time to aligned addresses; the last four are read first.
        "    cmp rdx, 64",
        "    ja 60f",
        "    movups xmm0, [rsi]",
        "    movups xmm1, [rsi + 16]",
        "    movups xmm2, [rsi + rdx - 32]",
        "    movups xmm3, [rsi + rdx - 16]",
        "    movups [rdi], xmm0",
        "    movups [rdi + 16], xmm1",
        "    movups [rdi + rdx - 32], xmm2",
        "    movups [rdi + rdx - 16], xmm3",
        "    jmp 39b",
        "60: movups xmm4, [rsi + rdx - 64]",
        "    movups xmm5, [rsi + rdx - 48]",
        "    movups xmm6, [rsi + rdx - 32]",
        "    movups xmm7, [rsi + rdx - 16]",
        "    movups xmm0, [rsi]",
        "    movups [rdi], xmm0",
        "    lea r8, [rdi + rdx - 64]",
        "    lea rax, [rdi + 16]",
        "    and rax, -16",
        "    sub rsi, rdi",
        "    add rsi, rax",
        "    mov rdi, rax",
        "    cmp rdi, r8",
        "    jae 62f",
        ".p2align 4",
        "61: movups xmm0, [rsi]",
        "    movups xmm1, [rsi + 16]",
        "    movups xmm2, [rsi + 32]",
        "    movups xmm3, [rsi + 48]",
        "    movaps [rdi], xmm0",
        "    movaps [rdi + 16], xmm1",
        "    movaps [rdi + 32], xmm2",
        "    movaps [rdi + 48], xmm3",
        "    add rsi, 64",
        "    add rdi, 64",
        "    cmp rdi, r8",
        "    jb 61b",
        "62: movups [r8], xmm4",
        "    movups [r8 + 16], xmm5",
        "    movups [r8 + 32], xmm6",
        "    movups [r8 + 48], xmm7",
        "    jmp 39b",
        // The same with vectors of 32 bytes.
        "70: cmp rdx, 64",
        "    ja 71f",
        "    vmovdqu ymm0, [rsi]",
        "    vmovdqu ymm1, [rsi + rdx - 32]",
        "    vmovdqu [rdi], ymm0",
        "    vmovdqu [rdi + rdx - 32], ymm1",
        "    vzeroupper",
        "    jmp 39b",
        "71: cmp rdx, 128",
        "    ja 72f",
        "    vmovdqu ymm0, [rsi]",
        "    vmovdqu ymm1, [rsi + 32]",
        "    vmovdqu ymm2, [rsi + rdx - 64]",
        "    vmovdqu ymm3, [rsi + rdx - 32]",
        "    vmovdqu [rdi], ymm0",
        "    vmovdqu [rdi + 32], ymm1",
        "    vmovdqu [rdi + rdx - 64], ymm2",
        "    vmovdqu [rdi + rdx - 32], ymm3",
        "    vzeroupper",
        "    jmp 39b",
        "72: vmovdqu ymm4, [rsi + rdx - 128]",
        "    vmovdqu ymm5, [rsi + rdx - 96]",
        "    vmovdqu ymm6, [rsi + rdx - 64]",
        "    vmovdqu ymm7, [rsi + rdx - 32]",
        "    vmovdqu ymm0, [rsi]",
        "    vmovdqu [rdi], ymm0",
        "    lea r8, [rdi + rdx - 128]",
        "    lea rax, [rdi + 32]",
        "    and rax, -32",
        "    sub rsi, rdi",
        "    add rsi, rax",
        "    mov rdi, rax",
        "    cmp rdi, r8",
        "    jae 74f",
        ".p2align 4",
        "73: vmovdqu ymm0, [rsi]",
        "    vmovdqu ymm1, [rsi + 32]",
        "    vmovdqu ymm2, [rsi + 64]",
        "    vmovdqu ymm3, [rsi + 96]",
        "    vmovdqa [rdi], ymm0",
        "    vmovdqa [rdi + 32], ymm1",
        "    vmovdqa [rdi + 64], ymm2",
        "    vmovdqa [rdi + 96], ymm3",
        "    sub rsi, -128",
        "    sub rdi, -128",
        "    cmp rdi, r8",
        "    jb 73b",
        "74: vmovdqu [r8], ymm4",
        "    vmovdqu [r8 + 32], ymm5",
        "    vmovdqu [r8 + 64], ymm6",
        "    vmovdqu [r8 + 96], ymm7",
        "    vzeroupper",
        "    jmp 39b",
        "90: mov rcx, rdx",
        "    rep movsb",
        "    jmp 39b",
        "ferroce_function_end ferroce_memory_copy",
        "ferroce_function ferroce_memory_load",
        "    movzx eax, byte ptr [rdi]",
        "    movzx eax, byte ptr [rsi]",
        "    mov eax, 1",
        "    ret",
        "ferroce_function_end ferroce_memory_load",
        "ferroce_function ferroce_memory_store_1",
        "    mov [rdi], sil",
        "    mov eax, 1",
        "    ret",
        "ferroce_function_end ferroce_memory_store_1",
        "ferroce_function ferroce_memory_store_2",
        "    mov [rdi], si",
        "    mov eax, 1",
        "    ret",
        "ferroce_function_end ferroce_memory_store_2",
        "ferroce_function ferroce_memory_store_4",
        "    mov [rdi], esi",
        "    mov eax, 1",
        "    ret",
        "ferroce_function_end ferroce_memory_store_4",
        "ferroce_function ferroce_memory_store_8",
        "    mov [rdi], rsi",
        "    mov eax, 1",
        "    ret",
        "ferroce_function_end ferroce_memory_store_8",
        "ferroce_function ferroce_memory_fetch_add",
        "    mov rax, rsi",
        "    lock xadd [rdi], rax",
        "    mov edx, 1",
        "    ret",
        "ferroce_function_end ferroce_memory_fetch_add",
        "ferroce_function ferroce_memory_compare_swap",
        "    mov rax, rsi",
        "    lock cmpxchg [rdi], rdx",
        "    mov edx, 1",
        "    ret",
        "ferroce_function_end ferroce_memory_compare_swap",
        ".hidden ferroce_memory_end",
        ".globl ferroce_memory_end",
        "ferroce_memory_end:",
        // The exit: failed.
        "ferroce_function ferroce_memory_landing",
        "    xor eax, eax",
        "    xor edx, edx",
        "    ret",
        "ferroce_function_end ferroce_memory_landing",
        ".purgem ferroce_function",
        ".purgem ferroce_function_end",
        long = const LONG,
    );

    /// From here on the processor's copy instruction is faster.
    const LONG: usize = 16 << 10;
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod plain {
    use std::ptr;
    use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

    /// Whether an access to memory that is not there can be made to fail.
    pub const RECOVERS: bool = false;

    /// Where a thread goes on that faulted at `pc`: nowhere.
    pub fn landing(_pc: usize) -> Option<usize> {
        None
    }

    /// # Safety
    /// Both can be accessed so and do not overlap.
    #[inline]
    pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> bool {
        // SAFETY: as the caller promises.
        unsafe { ptr::copy(from, to, len) }
        true
    }

    /// # Safety
    /// Both bytes can be read.
    #[inline]
    pub(crate) unsafe fn are_readable(_first: *const u8, _last: *const u8) -> bool {
        true
    }

    macro_rules! store {
        ($name:ident, $atomic:ty, $word:ty) => {
            /// # Safety
            /// The word can be written and is aligned.
            #[inline]
            pub(crate) unsafe fn $name(at: *mut u8, value: $word) -> bool {
                // SAFETY: as the caller promises.
                unsafe { <$atomic>::from_ptr(at.cast()) }.store(value, Ordering::Release);
                true
            }
        };
    }

    store!(store_1, AtomicU8, u8);
    store!(store_2, AtomicU16, u16);
    store!(store_4, AtomicU32, u32);
    store!(store_8, AtomicU64, u64);

    /// # Safety
    /// The word can be written and is aligned.
    pub(crate) unsafe fn fetch_add(at: *mut u8, add: u64) -> Option<u64> {
        // SAFETY: as the caller promises.
        let word = unsafe { AtomicU64::from_ptr(at.cast()) };
        Some(word.fetch_add(add, Ordering::SeqCst))
    }

    /// # Safety
    /// The word can be written and is aligned.
    pub(crate) unsafe fn compare_swap(at: *mut u8, compare: u64, swap: u64) -> Option<u64> {
        // SAFETY: as the caller promises.
        let word = unsafe { AtomicU64::from_ptr(at.cast()) };
        match word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(found) | Err(found) => Some(found),
        }
    }
}
