//! The processes of a drill.

use std::io::{BufRead, BufReader, PipeWriter, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use ferroce_os::Clock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::job::Job;
use super::pipes::{Pipes, TheirEnds};
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
    /// The launcher of all hosts has ended.
    JobEnded,
}

/// The hosts' processes. They end with it.
#[derive(Debug)]
pub(super) struct Crew {
    members: Vec<Member>,
    /// What has started them, if the drill has not. It ends after their pipes, by which they do.
    job: Option<Job>,
    to: Sender<Said>,
    said: Receiver<Said>,
}

#[derive(Debug)]
struct Member {
    /// `None` if the job has started it.
    child: Option<Child>,
    /// The process, once it is known, and until it has ended.
    pid: Option<Pid>,
    orders: PipeWriter,
    /// Of a process that has not yet taken them. Until they go, the host has not ended.
    theirs: Option<TheirEnds>,
}

impl Crew {
    /// Starts a process for each host, or has the launcher do so.
    pub(super) fn start(
        commands: Vec<Command>,
        launcher: Option<Command>,
    ) -> Result<Self, Failure> {
        let (to, said) = mpsc::channel();
        let mut crew = Self {
            members: Vec::new(),
            job: None,
            to,
            said,
        };
        match launcher {
            None => {
                for (host, command) in commands.into_iter().enumerate() {
                    let member = Member::start(host, command, &crew.to)?;
                    crew.members.push(member);
                }
            }
            Some(launcher) => crew.launch(launcher, &commands)?,
        }
        Ok(crew)
    }

    fn launch(&mut self, launcher: Command, commands: &[Command]) -> Result<(), Failure> {
        let mut theirs = Vec::new();
        for host in 0..commands.len() {
            let (pipes, ends) = Pipes::new()?;
            theirs.push(ends);
            self.members.push(Member::new(host, pipes, &self.to));
        }
        let (job, out) = Job::start(launcher, commands.iter().zip(&theirs))?;
        self.job = Some(job);
        for (member, theirs) in self.members.iter_mut().zip(theirs) {
            member.theirs = Some(theirs);
        }
        // It runs on the first host.
        read(0, out, self.to.clone(), Some(Line::JobEnded));
        Ok(())
    }

    /// Starts the process of a host again, after its end.
    pub(super) fn restart(&mut self, host: usize, command: Command) -> Result<(), Failure> {
        // It has been killed, so that this is over soon.
        self.members[host].wait();
        self.members[host] = Member::start(host, command, &self.to)?;
        Ok(())
    }

    /// Gives a host an order. One that has ended does not read it.
    pub(super) fn order(&mut self, host: usize, order: &Order) {
        let line = serde_json::to_string(order).unwrap_or_default() + "\n";
        let _ = self.members[host].orders.write_all(line.as_bytes());
    }

    /// Sends a signal to a host's process.
    pub(super) fn signal(&self, host: usize, signal: Signal) {
        self.members[host].signal(signal);
    }

    /// The next line of any host; `None` if there is none within this time.
    pub(super) fn next(&mut self, patience: Duration) -> Option<Said> {
        let said = self.said.recv_timeout(patience).ok()?;
        let member = &mut self.members[said.host];
        match said.what {
            Line::Report(Report::Loaded { pid, .. }) => {
                member.pid = Some(Pid::from_raw(pid));
                member.theirs = None;
            }
            Line::Ended if member.child.is_none() => member.pid = None,
            Line::JobEnded => self.members.iter_mut().for_each(|it| it.theirs = None),
            _ => {}
        }
        Some(said)
    }

    /// How a host's process has ended, in words.
    pub(super) fn ending(&mut self, host: usize) -> String {
        match (&mut self.members[host].child, &mut self.job) {
            (Some(child), _) => match child.wait() {
                Ok(status) => match signal_of(status) {
                    Some(signal) => format!("ended by {signal}"),
                    None => format!("ended with code {}", status.code().unwrap_or(0)),
                },
                Err(error) => format!("ended: {error}"),
            },
            (None, Some(job)) => job.ending(),
            (None, None) => "ended".to_owned(),
        }
    }
}

fn signal_of(status: ExitStatus) -> Option<String> {
    let signal = status.signal()?;
    Some(match Signal::try_from(signal) {
        Ok(signal) => signal.to_string(),
        Err(_) => format!("signal {signal}"),
    })
}

impl Member {
    fn start(host: usize, mut command: Command, to: &Sender<Said>) -> Result<Self, Failure> {
        let (pipes, theirs) = Pipes::new()?;
        theirs.give(&mut command);
        // Ctrl-C is the drill's: it ends the hosts.
        command.process_group(0);
        let child = command.spawn().map_err(|error| {
            Failure::broken(format_args!("cannot start a process for a host: {error}"))
        })?;
        Ok(Self {
            pid: Some(Pid::from_raw(child.id().cast_signed())),
            child: Some(child),
            ..Self::new(host, pipes, to)
        })
    }

    /// A host whose process is not known.
    fn new(host: usize, pipes: Pipes, to: &Sender<Said>) -> Self {
        read(host, pipes.out, to.clone(), Some(Line::Ended));
        read(host, pipes.err, to.clone(), None);
        Self {
            child: None,
            pid: None,
            orders: pipes.orders,
            theirs: None,
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            // It may have ended already.
            let _ = kill(pid, signal);
        }
    }

    fn wait(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        }
    }
}

/// Passes the lines of a host on, with the time, and at the end the last line.
fn read(host: usize, from: impl Read + Send + 'static, to: Sender<Said>, last: Option<Line>) {
    let say = move |what| {
        let at_ns = Clock.now_ns();
        to.send(Said { host, at_ns, what })
    };
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while matches!(from.read_until(b'\n', &mut line), Ok(1..)) {
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end();
            let what = match serde_json::from_str(text) {
                Ok(report) => Line::Report(report),
                Err(_) => Line::Message(text.to_owned()),
            };
            if !text.is_empty() && say(what).is_err() {
                return;
            }
            line.clear();
        }
        if let Some(last) = last {
            let _ = say(last);
        }
    });
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &self.members {
            member.signal(Signal::SIGKILL);
        }
        for member in &mut self.members {
            member.wait();
        }
    }
}
