//! Executes the program in this process, or watches it as a child.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgrp, tcgetpgrp};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::Signals;

use super::program::{NOT_EXECUTABLE, NOT_FOUND};
use crate::output::Failure;

/// Signals that a terminal sends to all processes in the foreground, including the program.
const FROM_TERMINAL: [i32; 3] = [SIGINT, SIGQUIT, SIGWINCH];

/// Runs the program in place of this one; returns only if that fails.
pub(super) fn replace(mut command: Command) -> Failure {
    let error = command.exec();
    cannot_run(&command, &error)
}

/// A program that is running, with the signals that end or concern it.
pub(super) struct Running {
    child: Child,
    signals: Signals,
}

impl Running {
    /// Starts the program.
    pub(super) fn start(mut command: Command) -> Result<Self, Failure> {
        // Before the program starts, so that no signal ends this process and leaves the program
        // running.
        let wanted = [
            SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH,
        ];
        let signals = Signals::new(wanted)
            .map_err(|error| Failure::broken(format_args!("cannot watch signals: {error}")))?;
        let child = command
            .spawn()
            .map_err(|error| cannot_run(&command, &error))?;
        Ok(Self { child, signals })
    }

    /// Waits for the end of the program and forwards signals to it. Calls `tick` once in each
    /// interval, from another thread.
    pub(super) fn wait(mut self, every: Duration, mut tick: impl FnMut() + Send) -> io::Result<u8> {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let ticker = scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    tick();
                    thread::park_timeout(every);
                }
            });
            let code = self.until_end();
            done.store(true, Ordering::Release);
            ticker.thread().unpark();
            code
        })
    }

    fn until_end(&mut self) -> io::Result<u8> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(exit_code(status));
            }
            let signals: Vec<_> = self.signals.wait().collect();
            for signal in signals {
                self.pass_on(signal);
            }
        }
    }

    fn pass_on(&self, signal: i32) {
        let has_it = FROM_TERMINAL.contains(&signal) && is_in_front();
        if signal == SIGCHLD || has_it {
            return;
        }
        let pid = Pid::from_raw(self.child.id().cast_signed());
        if let Ok(signal) = Signal::try_from(signal) {
            // The program may have ended already.
            let _ = kill(pid, signal);
        }
    }
}

/// Whether this process and the program are in the terminal's foreground.
fn is_in_front() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
}

/// The code that a shell shows of it.
fn exit_code(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(signal).unwrap_or(i32::MAX);
    u8::try_from(code).unwrap_or(u8::MAX)
}

fn cannot_run(command: &Command, error: &io::Error) -> Failure {
    let program = command.get_program().display();
    let code = match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    };
    Failure::Program(code, format!("error: cannot run {program}: {error}\n"))
}
