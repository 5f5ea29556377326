//! A thread that continues as a process of its own, to run while its program is stopped.
//!
//! The companion shares the program's memory, descriptors and signal handlers, but is not one of its
//! threads. What stops the program's threads (SIGSTOP, Ctrl-Z in a terminal, a debugger) therefore leaves it
//! running. The thread that has become the companion waits in the kernel until that one ends. Both have the
//! same thread-local storage, which only the companion uses meanwhile, so locks, thread handles, the heap
//! and panics work as they would in the thread.
//!
//! The companion ends with the program, also if that is killed or executes another one, and the program
//! ends with the companion, the same way.

use std::any::Any;
use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process;
use std::ptr::null_mut;

use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::io::Errno;
use rustix::process::{
    PTracer, Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, set_parent_process_death_signal,
    set_ptracer, setpgid, waitid,
};

use crate::program::Program;
use crate::thread::{OWN_FAULTS, STACK_SIZE};

/// Tools that do not support a second process in a program's memory, by a symbol that each brings along.
const TOOLS: [(&CStr, &str); 5] = [
    (c"_vgnU_freeres", "valgrind"),
    (c"__asan_init", "AddressSanitizer"),
    (c"__hwasan_init", "HWAddressSanitizer"),
    (c"__msan_init", "MemorySanitizer"),
    (c"__tsan_init", "ThreadSanitizer"),
];

/// Bytes below a companion's stack that are not accessible; a multiple of the page size of every machine.
const GUARD_SIZE: usize = 64 << 10;

thread_local! {
    /// The program whose companion this is; `None` in a thread of the program.
    static PROGRAM: Cell<Option<Pid>> = const { Cell::new(None) };
}

/// The process ID of the program, which in a companion is not that of the process.
pub fn program_id() -> u32 {
    match PROGRAM.get() {
        Some(program) => program.as_raw_pid().unsigned_abs(),
        None => process::id(),
    }
}

/// Runs a function as a companion in place of the calling thread, and waits until it has returned. The
/// companion blocks all signals except those of its own faults.
///
/// If the companion is killed, or exits in a handler of the program, the program ends the same way.
///
/// # Panics
/// Continues a panic of the function.
///
/// # Errors
/// Returns an error if the program runs under valgrind or a sanitizer, if there is no `/proc`, and if the
/// kernel or a sandbox forbids another process. The function is not called then.
pub fn run_as_companion<T>(run: impl FnOnce(&Program) -> T) -> io::Result<T> {
    if let Some(tool) = unsupported_tool() {
        let text = format!("{tool} does not support a second process in the program's memory");
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let stack = Stack::new()?;
    let mut start = Start {
        program: Program::of_this_thread()?,
        run: Some(run),
        outcome: None,
    };
    // The waiting thread must run no handler: that would use the companion's thread-local storage.
    let before = SigSet::all()
        .thread_swap_mask(SigmaskHow::SIG_SETMASK)
        .expect("the request is valid");
    let started = launch(&stack, &raw mut start);
    let status = started.map(|companion| {
        // On systems where only ancestors may trace, for `Program::resume_thread`. Others refuse this.
        let _ = set_ptracer(PTracer::ProcessID(companion));
        wait(companion)
    });
    PROGRAM.set(None);
    let restored = before.thread_set_mask();
    debug_assert!(restored.is_ok(), "a valid request, too");
    let status = status?;
    match start.outcome {
        Some(Ok(result)) => Ok(result),
        Some(Err(payload)) => resume_unwind(payload),
        None if start.run.is_some() => Err(io::ErrorKind::PermissionDenied.into()),
        None => end_as(status),
    }
}

/// What the companion begins with, and what it leaves behind.
struct Start<F, T> {
    program: Program,
    run: Option<F>,
    outcome: Option<Result<T, Box<dyn Any + Send>>>,
}

fn launch<F: FnOnce(&Program) -> T, T>(stack: &Stack, start: *mut Start<F, T>) -> io::Result<Pid> {
    // Without CLONE_THREAD it is not stopped with the program, without CLONE_FS a program can still gain
    // privileges by executing another one, and with CLONE_UNTRACED a debugger that follows new threads does
    // not take it for one. The signal at its end is none: the program's calls of wait(2) do not see it.
    let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_SIGHAND | libc::CLONE_UNTRACED;
    // SAFETY: the stack is large enough and, like `start`, outlives the companion, whose end the caller
    // awaits. Until then the calling thread uses neither of them nor its thread-local storage.
    let companion = unsafe { libc::clone(enter::<F, T>, stack.top(), flags, start.cast()) };
    match Pid::from_raw(companion) {
        Some(companion) if companion.as_raw_pid() > 0 => Ok(companion),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The companion's first function.
extern "C" fn enter<F: FnOnce(&Program) -> T, T>(start: *mut c_void) -> c_int {
    // SAFETY: from `launch`; the thread that made it does not touch it until the companion has ended.
    let start = unsafe { &mut *start.cast::<Start<F, T>>() };
    let program = &start.program;
    // It is sent when the thread that waits ends, and that one ends only with the program, by exit, a
    // signal or exec.
    let is_bound = set_parent_process_death_signal(Some(Signal::KILL)).is_ok();
    if !is_bound || !program.is_there() {
        return 1;
    }
    // Out of the reach of Ctrl-Z and of `kill` with a job. If it is refused, those stop it as well.
    let _ = setpgid(None, None);
    let faults = SigSet::from_iter(OWN_FAULTS);
    let unblocked = faults.thread_unblock();
    debug_assert!(unblocked.is_ok(), "a valid request");
    PROGRAM.set(Some(program.id()));
    if let Some(run) = start.run.take() {
        start.outcome = Some(catch_unwind(AssertUnwindSafe(|| run(program))));
    }
    0
}

/// Waits for the end of the companion by bare system calls. The C library's functions would write `errno`,
/// which is the companion's.
fn wait(companion: Pid) -> WaitIdStatus {
    let all_kinds = WaitIdOptions::from_bits_retain(libc::__WALL.cast_unsigned());
    loop {
        match waitid(WaitId::Pid(companion), WaitIdOptions::EXITED | all_kinds) {
            Ok(Some(status)) => return status,
            Ok(None) | Err(Errno::INTR) => {}
            Err(error) => unreachable!("the companion is this thread's own child: {error}"),
        }
    }
}

/// Ends the program as its companion has ended: memory that both use may be left in any state.
fn end_as(status: WaitIdStatus) -> ! {
    if let Some(signal) = status.terminating_signal() {
        // SAFETY: all zeros is the default action of a signal, with no flags and an empty mask.
        unsafe {
            let default: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, &raw const default, null_mut());
            let unblocked = SigSet::empty().thread_set_mask();
            debug_assert!(unblocked.is_ok(), "a valid request");
            libc::raise(signal);
        }
    }
    // SAFETY: ends the process without its exit handlers, which may wait for what the companion held.
    unsafe { libc::_exit(status.exit_status().unwrap_or(1)) }
}

fn unsupported_tool() -> Option<&'static str> {
    // SAFETY: looks a name up; the result is only compared with null.
    let is_loaded =
        |symbol: &CStr| unsafe { !libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()).is_null() };
    let found = TOOLS.iter().find(|(symbol, _)| is_loaded(symbol));
    found.map(|(_, tool)| *tool)
}

/// Memory for a companion's stack, with a guard below.
struct Stack(*mut c_void);

impl Stack {
    const MAPPED: usize = GUARD_SIZE + STACK_SIZE;

    fn new() -> io::Result<Self> {
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory in use, and the guard
        // is a part of it.
        unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
            let memory = libc::mmap(null_mut(), Self::MAPPED, access, kind, -1, 0);
            if memory == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let stack = Self(memory);
            match libc::mprotect(memory, GUARD_SIZE, libc::PROT_NONE) {
                0 => Ok(stack),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    fn top(&self) -> *mut c_void {
        self.0.wrapping_byte_add(Self::MAPPED)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and the companion that used it has ended.
        unsafe { libc::munmap(self.0, Self::MAPPED) };
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    thread_local!(static KEPT: Cell<u32> = const { Cell::new(0) });

    #[test]
    fn a_companion_is_another_process_and_the_same_thread() {
        KEPT.set(1);
        let mut buffer = vec![0];
        let me = thread::current().id();
        let ids = run_as_companion(|program| {
            buffer.extend([1; 4096]);
            KEPT.set(KEPT.get() + 1);
            assert_eq!(thread::current().id(), me);
            assert!(!program.is_stopped());
            (process::id(), program_id())
        });
        let (own, of_program) = ids.unwrap();
        assert_ne!(own, process::id());
        assert_eq!(of_program, process::id());
        assert_eq!((KEPT.get(), buffer.len()), (2, 4097));
        assert_eq!(program_id(), process::id());
    }

    #[test]
    fn its_panic_continues_in_the_thread() {
        let run = || run_as_companion(|_| -> () { panic!("on purpose") });
        let payload = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"on purpose"));
    }
}
