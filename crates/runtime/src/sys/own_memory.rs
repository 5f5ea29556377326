//! This process's own memory, which may not be mapped.

use std::io::{self, IoSlice, IoSliceMut};

use ferroce_device::CheckedAccess;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

/// The memory of this process, reached by system calls: they fail where nothing is mapped.
#[derive(Debug)]
struct OwnMemory;

/// How a device reaches memory that the program may unmap, for [`ferroce_device::Memory::checked`].
///
/// # Errors
/// Returns an error if the kernel does not let the process use `process_vm_readv`, as some
/// containers' filters do.
pub fn own_memory() -> io::Result<&'static dyn CheckedAccess> {
    read(&raw const PROBE as u64, &mut [0])?;
    Ok(&OwnMemory)
}

static PROBE: u8 = 1;

impl CheckedAccess for OwnMemory {
    fn read(&self, addr: u64, out: &mut [u8]) -> bool {
        let len = out.len();
        read(addr, out) == Ok(len)
    }

    // SAFETY: the caller's promise is the trait's, and nothing more is needed.
    unsafe fn write(&self, addr: u64, bytes: &[u8]) -> bool {
        let to = [remote(addr, bytes.len())];
        process_vm_writev(Pid::this(), &[IoSlice::new(bytes)], &to) == Ok(bytes.len())
    }

    fn is_writable(&self, addr: u64) -> bool {
        can_write(addr)
    }
}

/// Whether the word around `addr` is mapped for writing. Safe in a signal handler.
pub(super) fn can_write(addr: u64) -> bool {
    // Ors 0 into a word, atomically, so that even a program at work on the word sees no difference.
    // A thread that sleeps on it may wake, which must be expected on a futex at any time.
    const OR_0: libc::c_int = libc::FUTEX_OP_OR << 28;
    let unused = 0_u32;
    // SAFETY: `unused` is a word of ours, and a second address that is not mapped for writing is
    // refused with an error.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const unused,
            libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG,
            0,
            0_usize,
            addr & !3,
            OR_0,
        )
    };
    result >= 0
}

/// Whether the word around `addr` is mapped for reading. Safe in a signal handler.
#[cfg(any(test, target_arch = "x86_64"))]
pub(super) fn can_read(addr: u64) -> bool {
    let at_once = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: reads the word and waits for nothing: either it is not 0, or the time is up. What is
    // not mapped is refused with an error.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            addr & !3,
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            0,
            &raw const at_once,
        )
    };
    result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}

fn read(addr: u64, out: &mut [u8]) -> nix::Result<usize> {
    let from = [remote(addr, out.len())];
    process_vm_readv(Pid::this(), &mut [IoSliceMut::new(out)], &from)
}

fn remote(addr: u64, len: usize) -> RemoteIoVec {
    let base = addr as usize;
    RemoteIoVec { base, len }
}

#[cfg(test)]
mod tests {
    use std::ptr;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const PAGE: usize = 4096;

    /// A page that can be written, one that can be read, and one that is not there.
    fn pages() -> u64 {
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory in use.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                3 * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        // SAFETY: both are in the mapping just made, which no other code knows.
        unsafe {
            let second = base.byte_add(PAGE);
            assert_eq!(libc::mprotect(second, PAGE, libc::PROT_READ), 0);
            assert_eq!(libc::munmap(second.byte_add(PAGE), PAGE), 0);
        }
        base as u64
    }

    #[test]
    fn unmapped_memory_is_refused() {
        let memory = own_memory().unwrap();
        let base = pages();
        let (read_only, unmapped) = (base + PAGE as u64, base + 2 * PAGE as u64);
        let mut back = [0; 10];
        // SAFETY: to the pages just mapped, or to where nothing is.
        let write = |addr, bytes: &[u8]| unsafe { memory.write(addr, bytes) };
        assert!(write(base + 5, b"ten bytes!"));
        assert!(memory.read(base + 5, &mut back));
        assert_eq!(&back, b"ten bytes!");
        assert!(!write(read_only - 5, b"ten bytes!"));
        assert!(memory.read(read_only - 5, &mut back));
        assert!(!memory.read(unmapped - 5, &mut back));
        for nowhere in [0, unmapped, 1 << 63, u64::MAX] {
            assert!(!memory.read(nowhere, &mut back));
            assert!(!write(nowhere, b"x"));
            assert!(!memory.is_writable(nowhere & !7));
            assert!(!can_read(nowhere));
        }
        assert!(can_read(base + 7) && can_read(read_only));
        assert!(memory.read(0, &mut []) && write(0, &[]), "nothing");
        assert!(memory.is_writable(base));
        assert!(!memory.is_writable(read_only));
    }

    #[test]
    fn asking_whether_a_word_can_be_written_leaves_it_alone() {
        let memory = own_memory().unwrap();
        let word = AtomicU64::new(0x0123_4567_89ab_cdef);
        assert!(memory.is_writable(word.as_ptr() as u64));
        assert_eq!(word.load(Ordering::Relaxed), 0x0123_4567_89ab_cdef);
    }
}
