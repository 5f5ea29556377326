//! The processes of a drill.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use ferroce_os::Clock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::protocol::{Order, Report};
use crate::output::Failure;

/// What came from a host.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) host: usize,
    pub(super) at_ns: u64,
    pub(super) what: Line,
}

#[derive(Debug)]
pub(super) enum Line {
    Report(Report),
    /// A message of the library.
    Message(String),
    /// The host's process has ended.
    Ended,
}

/// The hosts' processes. They end with it.
#[derive(Debug)]
pub(super) struct Crew {
    members: Vec<Member>,
    to: Sender<Said>,
    said: Receiver<Said>,
}

#[derive(Debug)]
struct Member {
    child: Child,
    orders: Option<ChildStdin>,
}

impl Crew {
    /// Starts a process for each host.
    pub(super) fn start(commands: Vec<Command>) -> Result<Self, Failure> {
        let (to, said) = mpsc::channel();
        let mut crew = Self {
            members: Vec::new(),
            to,
            said,
        };
        for (host, command) in commands.into_iter().enumerate() {
            let member = Member::start(host, command, &crew.to)?;
            crew.members.push(member);
        }
        Ok(crew)
    }

    /// Starts the process of a host again, after its end.
    pub(super) fn restart(&mut self, host: usize, command: Command) -> Result<(), Failure> {
        // It has been killed, so that this is over soon.
        let _ = self.members[host].child.wait();
        self.members[host] = Member::start(host, command, &self.to)?;
        Ok(())
    }

    /// Gives a host an order. One that has ended does not read it.
    pub(super) fn order(&mut self, host: usize, order: &Order) {
        let line = serde_json::to_string(order).unwrap_or_default() + "\n";
        if let Some(orders) = &mut self.members[host].orders {
            let _ = orders.write_all(line.as_bytes());
        }
    }

    /// Sends a signal to a host's process.
    pub(super) fn signal(&self, host: usize, signal: Signal) {
        let pid = Pid::from_raw(self.members[host].child.id().cast_signed());
        // It may have ended already.
        let _ = kill(pid, signal);
    }

    /// The next line of any host; `None` if there is none within this time.
    pub(super) fn next(&self, patience: Duration) -> Option<Said> {
        self.said.recv_timeout(patience).ok()
    }

    /// How a host's process has ended, in words.
    pub(super) fn ending(&mut self, host: usize) -> String {
        match self.members[host].child.wait() {
            Ok(status) => match (status.signal(), status.code()) {
                (Some(signal), _) => match Signal::try_from(signal) {
                    Ok(signal) => format!("ended by {signal}"),
                    Err(_) => format!("ended by signal {signal}"),
                },
                (None, code) => format!("ended with code {}", code.unwrap_or(0)),
            },
            Err(error) => format!("ended: {error}"),
        }
    }
}

impl Member {
    fn start(host: usize, mut command: Command, to: &Sender<Said>) -> Result<Self, Failure> {
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C is the drill's: it ends the hosts.
        command.process_group(0);
        let mut child = command.spawn().map_err(|error| {
            Failure::broken(format_args!("cannot start a process for a host: {error}"))
        })?;
        let out = child.stdout.take().map(|out| read(host, out, to.clone()));
        if let Some(err) = child.stderr.take() {
            read(host, err, to.clone());
        }
        if let Some(out) = out {
            let to = to.clone();
            thread::spawn(move || {
                let _ = out.join();
                let _ = to.send(Said {
                    host,
                    at_ns: Clock.now_ns(),
                    what: Line::Ended,
                });
            });
        }
        let orders = child.stdin.take();
        Ok(Self { child, orders })
    }
}

/// Passes the lines of a host on, with the time.
fn read(host: usize, from: impl Read + Send + 'static, to: Sender<Said>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while matches!(from.read_until(b'\n', &mut line), Ok(1..)) {
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end();
            if text.is_empty() {
                line.clear();
                continue;
            }
            let what = match serde_json::from_str(text) {
                Ok(report) => Line::Report(report),
                Err(_) => Line::Message(text.to_owned()),
            };
            let said = Said {
                host,
                at_ns: Clock.now_ns(),
                what,
            };
            if to.send(said).is_err() {
                return;
            }
            line.clear();
        }
    })
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.child.kill();
        }
        for member in &mut self.members {
            let _ = member.child.wait();
        }
    }
}
