//! Handles memory that a program unmaps while its device may access it.
//!
//! A device's accesses to program memory can be made to fail ([`ferroce_device::landing`]). This needs
//! a handler for the signals by which the kernel reports unmapped memory (SIGSEGV, SIGBUS). These
//! signals belong to the program: it may have a handler for them, for a write barrier (mprotect(2)
//! and a handler that makes the page writable), or one that prints a stack and ends the process.
//! The handler here therefore follows these rules:
//!
//! - A fault outside the device's accesses is passed on to the previous handler, with the flags and
//!   the mask that it asked for.
//! - A fault in these accesses on a page that is mapped, but not for this access, is first passed
//!   to the program's handler. If the access is possible afterwards, it is repeated.
//! - Otherwise the access fails, and no other handler is called.
//!
//! A program that installs its handler later finds this one as the previous handler, as with any
//! library that has a handler. The program's stays in front until memory is registered again.

use std::ffi::{c_int, c_void};
use std::mem::{self, MaybeUninit};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use ferroce_device::RECOVERS;
#[cfg(target_arch = "x86_64")]
use ferroce_device::landing;

/// The signals of memory faults.
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// How many handlers of the program this one gets in front of. A program that has replaced it so
/// often keeps its own.
const LEVELS: usize = 8;
/// How often in a row the program's handler is shown a fault that it does not mend, as another
/// thread may protect the page again each time.
const SHOWN_MAX: u32 = 16;
/// `si_code` of a page that is mapped, but not for the access.
const SEGV_ACCERR: c_int = 2;

/// Has accesses of devices to memory that is not mapped fail from now on instead of ending the
/// process. To be called before memory is registered, each time: it gets in front of a handler that
/// the program has installed meanwhile.
///
/// False where it is not possible; then all memory must be [`ferroce_device::Memory::checked`].
pub fn recover_faults() -> bool {
    static INSTALLER: Mutex<[usize; SIGNALS.len()]> = Mutex::new([0; SIGNALS.len()]);
    if !RECOVERS {
        return false;
    }
    let mut installed = INSTALLER.lock().unwrap_or_else(PoisonError::into_inner);
    for (index, signal) in SIGNALS.into_iter().enumerate() {
        let before = action(signal);
        let is_ours = HANDLERS
            .iter()
            .any(|handler| *handler as usize == before.sa_sigaction);
        let level = installed[index];
        if is_ours || level == LEVELS {
            continue;
        }
        NEXT[level][index].set(&before);
        let mut ours = before;
        ours.sa_sigaction = HANDLERS[level] as usize;
        // Whatever is next runs as if the kernel had called it: with its mask and on its stack. The
        // kernel's own actions have neither, and the stack of an overflow is not a place for a handler.
        ours.sa_flags &= !libc::SA_RESETHAND;
        ours.sa_flags |= libc::SA_SIGINFO;
        if is_default(before.sa_sigaction) {
            ours.sa_flags |= libc::SA_ONSTACK;
        }
        let mut replaced = before;
        // SAFETY: the handler lives as long as the process: the library is never unloaded.
        let done = unsafe { libc::sigaction(signal, &raw const ours, &raw mut replaced) };
        if done == 0 {
            // Another thread may have been faster.
            NEXT[level][index].set(&replaced);
            installed[index] += 1;
        }
    }
    installed.iter().all(|levels| *levels > 0)
}

/// What the kernel does with a signal.
fn action(signal: c_int) -> libc::sigaction {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the signal exists, so the call fills the structure; and all zeros is a value of it.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    }
}

fn is_default(handler: usize) -> bool {
    handler == libc::SIG_DFL || handler == libc::SIG_IGN
}

/// What a handler has replaced.
struct Next {
    handler: AtomicUsize,
    /// It takes three arguments.
    takes_info: AtomicBool,
    /// It serves once.
    once: AtomicBool,
}

static NEXT: [[Next; SIGNALS.len()]; LEVELS] =
    [const { [const { Next::none() }; SIGNALS.len()] }; LEVELS];

impl Next {
    const fn none() -> Self {
        Self {
            handler: AtomicUsize::new(libc::SIG_DFL),
            takes_info: AtomicBool::new(false),
            once: AtomicBool::new(false),
        }
    }

    /// To be called before the handler in front can be.
    fn set(&self, action: &libc::sigaction) {
        let flag = |flag| action.sa_flags & flag != 0;
        self.takes_info
            .store(flag(libc::SA_SIGINFO), Ordering::Relaxed);
        self.once.store(flag(libc::SA_RESETHAND), Ordering::Relaxed);
        self.handler.store(action.sa_sigaction, Ordering::Release);
    }

    /// Shown a fault that it does not know, the program's handler has put the kernel's own action in
    /// place, for the fault to end the process when it comes again, as Rust's does. It does not come
    /// again; but the next one of the device must not end the process either.
    fn gives_up(&self, signal: c_int, front: Handler) {
        self.handler.store(libc::SIG_DFL, Ordering::Relaxed);
        // SAFETY: all zeros is a value of the structure; the handler lives as long as the process.
        unsafe {
            let mut ours: libc::sigaction = mem::zeroed();
            ours.sa_sigaction = front as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(signal, &raw const ours, ptr::null_mut());
        }
    }

    fn has_handler(&self) -> bool {
        !is_default(self.handler.load(Ordering::Relaxed))
    }

    /// Does what the kernel would have done without the handler in front.
    fn run(&self, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        let handler = match self.once.load(Ordering::Relaxed) {
            true => self.handler.swap(libc::SIG_DFL, Ordering::Relaxed),
            false => self.handler.load(Ordering::Relaxed),
        };
        if is_default(handler) {
            default(signal, handler, info);
        } else if self.takes_info.load(Ordering::Relaxed) {
            // SAFETY: the program's handler, which it has installed as one of three arguments.
            let handler: Handler = unsafe { mem::transmute(handler) };
            handler(signal, info, context);
        } else {
            // SAFETY: the program's handler, which it has installed as one of one argument.
            let handler: extern "C" fn(c_int) = unsafe { mem::transmute(handler) };
            handler(signal);
        }
    }
}

/// The kernel's own action for a signal. Safe in a signal handler.
fn default(signal: c_int, action: usize, info: *mut libc::siginfo_t) {
    // SAFETY: the kernel's description of the signal.
    let is_fault = unsafe { (*info).si_code } > 0;
    if !is_fault && action == libc::SIG_IGN {
        return;
    }
    // SAFETY: a value of all zeros is the default action with no flags and an empty mask.
    unsafe {
        let default: libc::sigaction = mem::zeroed();
        libc::sigaction(signal, &raw const default, ptr::null_mut());
        if !is_fault {
            // A process has sent it. A fault happens again as soon as the handler returns, and the
            // kernel ends the process with the address in its core.
            libc::raise(signal);
        }
    }
}

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// One for each level. A program that has replaced one of them and puts it back later finds behind
/// it what was there at first.
static HANDLERS: [Handler; LEVELS] = [
    handle::<0>,
    handle::<1>,
    handle::<2>,
    handle::<3>,
    handle::<4>,
    handle::<5>,
    handle::<6>,
    handle::<7>,
];

extern "C" fn handle<const LEVEL: usize>(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    let errno = Errno::save();
    let next = &NEXT[LEVEL][usize::from(signal == libc::SIGBUS)];
    // SAFETY: the kernel's description of the signal.
    let code = unsafe { (*info).si_code };
    let fault = (code > 0).then(|| Fault::of(context)).flatten();
    let Some(mut fault) = fault else {
        drop(errno);
        next.run(signal, info, context);
        return;
    };
    if signal == libc::SIGSEGV && code == SEGV_ACCERR && next.has_handler() {
        for _ in 0..SHOWN_MAX {
            next.run(signal, info, context);
            // SAFETY: of a fault this is the member that is set.
            if fault.has_moved() || fault.is_mended(unsafe { (*info).si_addr() } as usize) {
                return;
            }
        }
        if action(signal).sa_sigaction == libc::SIG_DFL {
            next.gives_up(signal, HANDLERS[LEVEL]);
        }
    }
    fault.fail();
}

/// A fault in one of the device's accesses to memory of programs.
#[cfg(target_arch = "x86_64")]
struct Fault {
    registers: *mut libc::ucontext_t,
    pc: usize,
    landing: usize,
}

/// The thread's `errno`, which an interrupted program keeps.
struct Errno(c_int);

impl Errno {
    fn save() -> Self {
        // SAFETY: the location is this thread's own.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 }
    }
}

#[cfg(target_arch = "x86_64")]
impl Fault {
    const PC: usize = libc::REG_RIP as usize;
    const ERROR: usize = libc::REG_ERR as usize;
    /// Bit of a page fault's error code: the access was to write.
    const WRITE: i64 = 1 << 1;

    fn of(context: *mut c_void) -> Option<Self> {
        let registers: *mut libc::ucontext_t = context.cast();
        // SAFETY: the kernel's copy of the interrupted thread's registers.
        let pc = unsafe { (*registers).uc_mcontext.gregs[Self::PC] } as usize;
        Some(Self {
            registers,
            pc,
            landing: landing(pc)?,
        })
    }

    /// Another handler has decided where the thread goes on.
    fn has_moved(&self) -> bool {
        // SAFETY: as above.
        let pc = unsafe { (*self.registers).uc_mcontext.gregs[Self::PC] } as usize;
        pc != self.pc
    }

    fn is_mended(&self, address: usize) -> bool {
        // SAFETY: as above.
        let error = unsafe { (*self.registers).uc_mcontext.gregs[Self::ERROR] };
        match error & Self::WRITE {
            0 => super::own_memory::can_read(address as u64),
            _ => super::own_memory::can_write(address as u64),
        }
    }

    fn fail(&mut self) {
        // SAFETY: as above. The thread goes on at the exit of the accesses with registers as they
        // were, which is what the exit expects.
        unsafe { (*self.registers).uc_mcontext.gregs[Self::PC] = self.landing as i64 };
    }
}

/// Elsewhere no access of the device can be made to fail, so there is none.
#[cfg(not(target_arch = "x86_64"))]
enum Fault {}

#[cfg(not(target_arch = "x86_64"))]
impl Fault {
    fn of(_context: *mut c_void) -> Option<Self> {
        None
    }

    fn has_moved(&self) -> bool {
        match *self {}
    }

    fn is_mended(&self, _address: usize) -> bool {
        match *self {}
    }

    fn fail(&mut self) {
        match *self {}
    }
}
