//! Programs that a test starts.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::{Error, PERIOD};

/// How long a program may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(5);

/// A running program and its children. It ends when this is dropped.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    /// Its output: a full pipe would stop it.
    output: File,
}

impl Program {
    pub(crate) fn start(name: String, command: &mut Command) -> Result<Self, Error> {
        let files = || -> io::Result<(File, File, File)> {
            let output = tempfile::tempfile()?;
            Ok((output.try_clone()?, output.try_clone()?, output))
        };
        let (out, err, output) = files().map_err(Error::system("make a file for output"))?;
        let command = command.stdin(Stdio::null()).stdout(out).stderr(err);
        // A group of its own, so that it ends with its children.
        let child = command.process_group(0).spawn();
        let child = child.map_err(Error::system(format!("start {name}")))?;
        Ok(Self {
            name,
            child,
            output,
        })
    }

    /// What it has printed so far, on both streams.
    pub fn output(&self) -> String {
        let length = self.output.metadata().map_or(0, |file| file.len());
        let mut bytes = vec![0; length as usize];
        let read = self.output.read_at(&mut bytes, 0).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it has ended, and returns its output.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if it fails, and [`Error::TooLong`] after `limit`: then it is killed.
    pub fn wait(mut self, limit: Duration) -> Result<String, Error> {
        let Some(status) = self.ends_within(limit) else {
            return Err(Error::TooLong {
                command: self.name.clone(),
                limit,
                output: self.output(),
            });
        };
        match status.success() {
            true => Ok(self.output()),
            false => Err(Error::Failed {
                command: self.name.clone(),
                status,
                output: self.output(),
            }),
        }
    }

    /// Sends it and its children a signal, such as SIGSTOP and SIGCONT.
    pub fn signal(&self, signal: Signal) {
        // A program that has already ended needs no signal.
        let _ = killpg(Pid::from_raw(self.child.id() as i32), signal);
    }

    /// Ends it at once, as a crash does.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.signal(Signal::SIGKILL);
        let _ = self.child.wait();
    }

    fn ends_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let begun = Instant::now();
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if begun.elapsed() >= limit {
                return None;
            }
            thread::sleep(PERIOD);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.is_running() {
            self.signal(Signal::SIGTERM);
            // A stopped process ends when it goes on.
            self.signal(Signal::SIGCONT);
            self.ends_within(GRACE);
        }
        // Children may be left.
        self.end();
    }
}
