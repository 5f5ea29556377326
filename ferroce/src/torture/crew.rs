//! The processes of a round.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, io};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::protocol::{Order, Report};

/// How long a process that was told to leave may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// What came from a process.
#[derive(Debug)]
pub(super) struct Said {
    /// The number of its life.
    pub(super) life: u64,
    pub(super) what: Line,
}

#[derive(Debug)]
pub(super) enum Line {
    Report(Report),
    /// A line of standard error.
    Message(String),
    /// Its standard output is closed.
    Ended,
}

/// A process, which ends with this.
#[derive(Debug)]
pub(super) struct Member {
    child: Child,
    orders: ChildStdin,
    /// Each process has a number of its own.
    pub(super) life: u64,
    /// Which of the round's devices it has open.
    pub(super) device: usize,
}

/// Starts processes, and hears what they say.
#[derive(Debug)]
pub(super) struct Crew {
    lives: u64,
    to: Sender<Said>,
    said: Receiver<Said>,
}

impl Crew {
    pub(super) fn new() -> Self {
        let (to, said) = mpsc::channel();
        Self { lives: 0, to, said }
    }

    /// Starts a process that attaches to a device.
    pub(super) fn start(
        &mut self,
        directory: &Path,
        device: usize,
        card_process: bool,
    ) -> io::Result<Member> {
        self.lives += 1;
        let mut command = Command::new(env::current_exe()?);
        command
            .args(["torture", "--program"])
            .arg(directory)
            .arg(super::round::device_name(device));
        if card_process {
            command.arg("--card-process");
        }
        // Ctrl-C is the director's, with which they end.
        let mut child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (Some(orders), Some(out), Some(err)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let life = self.lives;
        let to = self.to.clone();
        read(out, move |line| {
            let what = match line {
                Some(line) => match serde_json::from_str(line) {
                    Ok(report) => Line::Report(report),
                    Err(_) => Line::Message(line.to_owned()),
                },
                None => Line::Ended,
            };
            let _ = to.send(Said { life, what });
        });
        let to = self.to.clone();
        read(err, move |line| {
            let line = line.map(|line| Line::Message(line.to_owned()));
            let _ = line.map(|what| to.send(Said { life, what }));
        });
        Ok(Member {
            child,
            orders,
            life,
            device,
        })
    }

    /// What any process has said next; `None` if there is nothing within this time.
    pub(super) fn next(&self, patience: Duration) -> Option<Said> {
        self.said.recv_timeout(patience).ok()
    }
}

/// Hands on each line, and `None` at the end.
fn read(from: impl Read + Send + 'static, mut say: impl FnMut(Option<&str>) + Send + 'static) {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while matches!(from.read_until(b'\n', &mut line), Ok(1..)) {
            say(Some(String::from_utf8_lossy(&line).trim_end()));
            line.clear();
        }
        say(None);
    });
}

impl Member {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives it an order. One that has ended does not read it.
    pub(super) fn order(&mut self, order: Order) {
        let line = serde_json::to_string(&order).unwrap_or_default() + "\n";
        let _ = self.orders.write_all(line.as_bytes());
    }

    pub(super) fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), signal);
    }

    /// Ends it as `kill -9` does.
    pub(super) fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until it has ended by itself; whether it has, with success.
    pub(super) fn has_ended_well(mut self) -> bool {
        let until = Instant::now() + ENDS_WITHIN;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.success(),
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(1)),
                _ => return false,
            }
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
