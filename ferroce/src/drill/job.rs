//! Jobs: hosts that `mpirun` starts, since processes of MPI do not come together by themselves.
//!
//! To `mpirun` a job is a list of commands, one for each rank. Its ranks have neither standard input nor
//! variables of their own, so that each command begins with a shell that takes the drill's pipes and with
//! `env`.

use std::ffi::{OsStr, OsString};
use std::io::{self, PipeReader, pipe};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::pipes::TheirEnds;
use crate::output::Failure;

/// A job that runs. It ends with it.
#[derive(Debug)]
pub(super) struct Job {
    launcher: Child,
}

/// How long the launcher may take to end after its hosts.
const ENDS: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

impl Job {
    /// Starts hosts, each by its command, and with these pipes, which must stay open until it has them.
    /// And what the launcher prints.
    pub(super) fn start<'a>(
        mut launcher: Command,
        hosts: impl Iterator<Item = (&'a Command, &'a TheirEnds)>,
    ) -> Result<(Self, PipeReader), Failure> {
        for (host, (command, pipes)) in hosts.enumerate() {
            if host > 0 {
                launcher.arg(":");
            }
            launcher.args(["-n", "1"]).args(rank(command, pipes));
        }
        let name = launcher.get_program().to_string_lossy().into_owned();
        let started = Self::spawn(launcher);
        started.map_err(|error| Failure::broken(format_args!("cannot start {name}: {error}")))
    }

    fn spawn(mut launcher: Command) -> io::Result<(Self, PipeReader)> {
        let (out, theirs) = pipe()?;
        launcher.stdin(Stdio::null()).process_group(0);
        launcher.stdout(theirs.try_clone()?).stderr(theirs);
        let launcher = launcher.spawn()?;
        Ok((Self { launcher }, out))
    }

    /// How it has ended, in words, shortly after a host has.
    pub(super) fn ending(&mut self) -> String {
        // As in a shell, a code from here on is a signal that has ended a host.
        const SIGNALS: i32 = 128;
        let status = self.wait();
        match status.and_then(|it| it.code()) {
            None => "ended".to_owned(),
            Some(code) => match Signal::try_from(code - SIGNALS) {
                Ok(signal) => format!("ended with its job ({signal})"),
                Err(_) => format!("ended with its job (code {code})"),
            },
        }
    }

    /// Waits for its end, for a while.
    fn wait(&mut self) -> Option<ExitStatus> {
        let until = Instant::now() + ENDS;
        loop {
            match self.launcher.try_wait() {
                Ok(None) if Instant::now() < until => thread::sleep(PAUSE),
                status => return status.ok().flatten(),
            }
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Its hosts have been killed, which it notices; it may have files to remove.
        if self.wait().is_none() {
            let _ = self.launcher.kill();
            let _ = self.launcher.wait();
        }
    }
}

/// What a rank runs to become the host of this command.
fn rank(command: &Command, pipes: &TheirEnds) -> Vec<OsString> {
    let of = |end: &dyn AsFd| {
        let end = end.as_fd().as_raw_fd();
        format!("/proc/{}/fd/{end}", process::id())
    };
    let (orders, out, err) = (of(&pipes.orders), of(&pipes.out), of(&pipes.err));
    let script = format!("exec \"$@\" <{orders} >{out} 2>{err}");
    let mut words: Vec<OsString> = ["sh", "-c", &script, "sh", "env"].map(Into::into).into();
    for (name, value) in command.get_envs() {
        let value = value.unwrap_or_default();
        words.push([name, OsStr::new("="), value].into_iter().collect());
    }
    words.push(command.get_program().to_owned());
    words.extend(command.get_args().map(OsStr::to_owned));
    words
}
