//! Memory that the program unmaps or protects while it is registered, and the program's own
//! handlers for the signals of memory faults. Handlers belong to the whole process, so this is one
//! test.

mod common;

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use common::{Node, Remote, address, attr, connect};
use ferroce_device::{AccessFlags, Memory, MrInfo, SendOp, Sge, WcStatus};
use ferroce_runtime::recover_faults;
use ferroce_testing::skip;

const PAGE: usize = 4096;

/// Pages of the program, registered with a node.
struct Pages {
    base: *mut libc::c_void,
    len: usize,
    mr: MrInfo,
}

impl Pages {
    fn register(node: &Node, pages: usize) -> Self {
        assert!(recover_faults());
        let len = pages * PAGE;
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the kernel chooses the place of a new mapping, which is not memory in use.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, both, private, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        // SAFETY: nothing else knows the mapping, and faults are handled.
        let memory = unsafe { Memory::borrowed(base.cast(), len) };
        let register =
            |hca: &mut ferroce_device::Hca| hca.reg_mr(node.pd, memory, AccessFlags::all());
        let mr = node.device.with(register).unwrap();
        Self { base, len, mr }
    }

    fn unmap(&self) {
        // SAFETY: the mapping is this test's own.
        let done = unsafe { libc::munmap(self.base, self.len) };
        assert_eq!(done, 0);
    }

    fn protect(&self, protection: i32) {
        // SAFETY: as above.
        let done = unsafe { libc::mprotect(self.base, self.len, protection) };
        assert_eq!(done, 0);
    }

    fn sge(&self, length: u32) -> Sge {
        Sge {
            addr: self.mr.va,
            length,
            lkey: self.mr.key.lkey(),
        }
    }

    fn remote(&self) -> Remote {
        Remote {
            va: self.mr.va,
            rkey: self.mr.key.rkey(),
        }
    }
}

/// How often the program's handler was called, for which address, and whether it repairs the fault.
static CALLS: AtomicU32 = AtomicU32::new(0);
static ADDRESS: AtomicUsize = AtomicUsize::new(0);
static MENDS: AtomicBool = AtomicBool::new(true);

/// A write barrier, as garbage collectors have it.
extern "C" fn barrier(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's description of a memory fault.
    let address = unsafe { (*info).si_addr() } as usize;
    CALLS.fetch_add(1, Ordering::Relaxed);
    ADDRESS.store(address, Ordering::Relaxed);
    if MENDS.load(Ordering::Relaxed) {
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let page = (address & !(PAGE - 1)) as *mut libc::c_void;
        // SAFETY: a page of the test, which has protected it.
        unsafe { libc::mprotect(page, PAGE, both) };
    }
}

fn install(handler: usize) -> libc::sigaction {
    // SAFETY: all zeros is a value of the structure, and the handler lives as long as the process.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_SIGINFO;
        let done = libc::sigaction(libc::SIGSEGV, &raw const action, &raw mut before);
        assert_eq!(done, 0);
        before
    }
}

#[test]
fn unmapped_memory_is_an_error_and_write_barriers_are_called() {
    if !cfg!(target_arch = "x86_64") {
        let test = "unmapped_memory_is_an_error_and_write_barriers_are_called";
        return skip(test, "the device recovers faults on x86-64 only");
    }
    let [a, b] = [1, 2].map(|host| Node::open(address(67, 1, host), 1 << 16));
    let send = SendOp::Send { imm: None };
    let check = |op, sge, status| {
        let (qpn, _) = connect(&a, &b, &attr());
        a.post(qpn, 1, op, sge);
        assert_eq!(a.completion().status, status, "{op:?}");
    };

    // The memory is unmapped.
    let pages = Pages::register(&b, 2);
    check(pages.remote().write(), a.sge(0, 5000), WcStatus::Success);
    pages.unmap();
    for op in [
        pages.remote().write(),
        pages.remote().read(),
        pages.remote().add(1),
        pages.remote().swap(0, 1),
    ] {
        let is_long = matches!(op, SendOp::Write { .. } | SendOp::Read { .. });
        let length = if is_long { 5000 } else { 8 };
        check(op, a.sge(0, length), WcStatus::RemAccessErr);
    }
    let own = Pages::register(&a, 2);
    own.unmap();
    check(send, own.sge(5000), WcStatus::LocProtErr);
    check(b.remote(0).write(), own.sge(1), WcStatus::LocProtErr);
    check(b.remote(0).read(), own.sge(5000), WcStatus::LocProtErr);
    let (at_a, at_b) = connect(&a, &b, &attr());
    let gone = pages.sge(100);
    let receive = ferroce_device::RecvWr {
        wr_id: 7,
        sges: ferroce_device::Sges::from_slice(&[gone]),
    };
    b.device.post_recv(at_b, receive).unwrap();
    a.post(at_a, 1, send, a.sge(0, 100));
    assert_eq!(b.completion().status, WcStatus::LocProtErr);
    assert_eq!(a.completion().status, WcStatus::RemOpErr);

    // Rust's own handler, which aborts on faults that it does not know.
    let pages = Pages::register(&b, 1);
    pages.protect(libc::PROT_READ);
    for _ in 0..2 {
        check(pages.remote().write(), a.sge(0, 8), WcStatus::RemAccessErr);
    }

    // A barrier on the page, reached by the helper thread: no other thread polls `b`.
    install(barrier as *const () as usize);
    let pages = Pages::register(&b, 1);
    pages.protect(libc::PROT_READ);
    check(pages.remote().write(), a.sge(0, 4000), WcStatus::Success);
    assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    assert_eq!(
        ADDRESS.load(Ordering::Relaxed) & !(PAGE - 1),
        pages.base as usize
    );
    pages.protect(libc::PROT_NONE);
    check(pages.remote().read(), a.sge(0, 4000), WcStatus::Success);
    pages.protect(libc::PROT_READ);
    check(pages.remote().add(1), a.sge(0, 8), WcStatus::Success);
    assert_eq!(CALLS.load(Ordering::Relaxed), 3);

    // A handler that repairs nothing, and unmapped memory, for which it is not called.
    MENDS.store(false, Ordering::Relaxed);
    pages.protect(libc::PROT_READ);
    check(pages.remote().write(), a.sge(0, 8), WcStatus::RemAccessErr);
    let calls = CALLS.load(Ordering::Relaxed);
    assert!(calls > 3);
    pages.unmap();
    check(pages.remote().write(), a.sge(0, 8), WcStatus::RemAccessErr);
    assert_eq!(CALLS.load(Ordering::Relaxed), calls);

    // The program's own faults go to the program, whichever handler is installed; and restoring a
    // handler restores the previous one.
    MENDS.store(true, Ordering::Relaxed);
    let before = install(libc::SIG_DFL);
    let pages = Pages::register(&a, 1);
    pages.protect(libc::PROT_NONE);
    assert_eq!(
        install(before.sa_sigaction).sa_sigaction & 1,
        0,
        "it is in front again"
    );
    // SAFETY: the page is there; the barrier makes it accessible.
    unsafe { pages.base.cast::<u8>().write_volatile(1) };
    assert_eq!(CALLS.load(Ordering::Relaxed), calls + 1);
}
