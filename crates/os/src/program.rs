//! A program as its companion sees it: whether it is stopped, and running it on for a moment.
//!
//! Nothing here allocates: a thread of the program may have been stopped in the allocator.

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::ptr;
use std::thread;
use std::time::Duration;

use rustix::fs::{RawDir, SeekFrom, seek};
use rustix::process::{Pid, getpid};
use rustix::thread::gettid;

use crate::fork::NotInherited;
use crate::wait::Clock;

/// How long a program may run on while it is stopped.
const RUN_MAX: Duration = Duration::from_millis(20);

/// How many threads of it may run then.
const THREADS_MAX: usize = 256;

/// The program of a companion.
#[derive(Debug)]
pub struct Program {
    id: Pid,
    /// The thread that waits for the companion.
    waiting: Pid,
    /// Of that thread (proc_pid_stat(5)).
    stat: NotInherited<File>,
    /// All threads (proc_pid_task(5)).
    tasks: NotInherited<File>,
}

impl Program {
    /// The program of a thread that is to wait for a companion.
    pub(crate) fn of_this_thread() -> io::Result<Self> {
        Ok(Self {
            id: getpid(),
            waiting: gettid(),
            stat: NotInherited::new(File::open("/proc/thread-self/stat")?),
            tasks: NotInherited::new(File::open("/proc/self/task")?),
        })
    }

    pub(crate) fn id(&self) -> Pid {
        self.id
    }

    /// Whether the program is there that the companion belongs to. The kernel ends the companion with it,
    /// unless the program has become another user's. Takes a system call.
    pub fn is_there(&self) -> bool {
        let (program, thread) = (self.id.as_raw_pid(), self.waiting.as_raw_pid());
        // SAFETY: signal 0 only asks.
        let asked = unsafe { libc::syscall(libc::SYS_tgkill, program, thread, 0) };
        asked == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
    }

    /// Whether a signal or a debugger has stopped the program. Takes a system call.
    pub fn is_stopped(&self) -> bool {
        let mut text = [0; 64];
        let length = self.stat.read_at(&mut text, 0).unwrap_or(0);
        is_stopped(&text[..length])
    }

    /// Lets a stopped program run until `done` returns something, at most for 20 ms, and stops it again: the
    /// stop takes effect a little later. Its parent does not notice. `done` is called repeatedly.
    ///
    /// Returns `None` if the time is up, and if no thread can run: a debugger has stopped them, or the system
    /// forbids tracing (ptrace(2)). Of more than 256 threads, some remain stopped.
    pub fn run_on<T>(&self, mut done: impl FnMut() -> Option<T>) -> Option<T> {
        let mut tracees = [const { None::<Tracee> }; THREADS_MAX];
        self.seize(&mut tracees);
        if tracees.iter().all(Option::is_none) {
            return None;
        }
        let began_ns = Clock.now_ns();
        while u128::from(Clock.now_ns() - began_ns) < RUN_MAX.as_nanos() {
            tracees.iter_mut().flatten().for_each(Tracee::run_on);
            if let Some(result) = done() {
                return Some(result);
            }
            thread::yield_now();
        }
        None
    }

    fn seize(&self, tracees: &mut [Option<Tracee>]) {
        // If this fails, the list is empty.
        let _ = seek(&*self.tasks, SeekFrom::Start(0));
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut tasks = RawDir::new(&*self.tasks, &mut buffer);
        let mut free = tracees.iter_mut();
        while let Some(Ok(task)) = tasks.next() {
            let name = task.file_name().to_str();
            let thread = name.ok().and_then(|name| name.parse().ok());
            let Some(thread) = thread.filter(|thread| *thread != self.waiting.as_raw_pid()) else {
                continue;
            };
            let Some(place) = free.next() else { return };
            *place = Tracee::seize(thread);
        }
    }
}

/// Whether the line begins as that of a stopped thread: `4711 (name) T`.
fn is_stopped(line: &[u8]) -> bool {
    let name_end = line.iter().rposition(|byte| *byte == b')');
    let state = name_end.and_then(|end| line.get(end + 2));
    state.is_some_and(|state| b"Tt".contains(state))
}

/// A thread that this one traces until the value is dropped.
struct Tracee {
    thread: libc::pid_t,
    /// A signal that has arrived for it and is to be passed on; 0: none.
    signal: c_int,
}

impl Tracee {
    /// A stopped thread reports that it has stopped as soon as it is traced.
    fn seize(thread: libc::pid_t) -> Option<Self> {
        let tracee = Self { thread, signal: 0 };
        // The drop would wait for a thread that is not traced.
        match tracee.ask(libc::PTRACE_SEIZE, 0) {
            true => Some(tracee),
            false => {
                std::mem::forget(tracee);
                None
            }
        }
    }

    /// Lets it run if it has stopped. Signals that have stopped it take effect, and a stop of the program
    /// does not.
    fn run_on(&mut self) {
        if self.has_stopped(libc::WNOHANG) {
            self.ask(libc::PTRACE_CONT, self.signal);
            self.signal = 0;
        }
    }

    /// Whether it has stopped since it was let run.
    fn has_stopped(&mut self, flags: c_int) -> bool {
        let mut status = 0;
        // SAFETY: the status is this function's.
        let stopped = unsafe { libc::waitpid(self.thread, &raw mut status, libc::__WALL | flags) };
        if stopped != self.thread || !libc::WIFSTOPPED(status) {
            return false;
        }
        // With an event it is a stop of the program or of this tracer, without one a signal's arrival.
        let is_event = status >> 16 != 0;
        self.signal = if is_event { 0 } else { libc::WSTOPSIG(status) };
        true
    }

    fn ask(&self, request: libc::c_uint, data: c_int) -> bool {
        // SAFETY: none of the requests made here reads or writes memory of either process.
        unsafe { libc::ptrace(request, self.thread, ptr::null_mut::<u8>(), i64::from(data)) == 0 }
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // Only a stopped thread can be let go. It stops again if its program is still stopped.
        if self.ask(libc::PTRACE_INTERRUPT, 0) && self.has_stopped(0) {
            self.ask(libc::PTRACE_DETACH, self.signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_follows_the_name_whatever_that_contains() {
        assert!(is_stopped(b"4711 (a program) T 1 4711"));
        assert!(is_stopped(b"4711 (t) R) S) t 1"));
        assert!(!is_stopped(b"4711 (T) S 1 4711"));
        assert!(!is_stopped(b"4711 () T) R 1"));
        assert!(!is_stopped(b"4711 (cut"));
        assert!(!is_stopped(b""));
    }
}
