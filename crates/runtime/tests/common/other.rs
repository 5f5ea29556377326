//! Copies of the test program that run a test in a role of their own.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use ferroce_device::{Completion, QpAttr, WcStatus};
use ferroce_registry::Registry;
use ferroce_runtime::Endpoint;
use ferroce_testing::skip;
use ferroce_wire::{Psn, Qpn};

use super::echo::echo;
use super::{Node, Remote, attr, nothing_was_missed, patient_attr};

const ROLE: &str = "FERROCE_TEST_ROLE";

/// Distinguishes the other process's lines from those of the test harness.
const MARK: &str = "@ ";

/// The role of this process, if it was started by [`Other::start`]; its arguments come after it.
pub fn role() -> Option<Vec<String>> {
    let role = env::var(ROLE).ok()?;
    Some(role.split(' ').map(str::to_string).collect())
}

/// Does the task of the test that started this process with [`Other::at`].
#[test]
fn beside_a_test() {
    let Some(role) = role() else { return };
    let (task, len) = (role[0].as_str(), role[1].parse().unwrap());
    let node = match &role[2..] {
        [directory, device] => {
            Node::attach(&Registry::at(directory.as_ref()).unwrap(), device, len)
        }
        [address] => Node::open(address.parse().unwrap(), len),
        other => panic!("device {other:?}"),
    };
    match task {
        "echo" => echo(&node, &patient_attr()),
        "echo-and-stay" => {
            echo(&node, &patient_attr());
            nothing_was_missed(&node);
            tell("done");
            while hear().is_some() {}
        }
        "target" => {
            let qpn = connect_back(&node, &attr()).qpn;
            node.post_recv(qpn, 0, 0, 64);
            tell("connected");
            while hear().is_some() {}
        }
        other => panic!("task {other}"),
    }
}

/// Sends a line to the process that started this one.
pub fn tell(text: impl std::fmt::Display) {
    // The harness leaves its line about the running test unfinished.
    println!("\n{MARK}{text}");
    std::io::stdout().flush().unwrap();
}

/// Receives a line from the process that started this one; `None` when that has ended.
pub fn hear() -> Option<String> {
    let mut line = String::new();
    let len = std::io::stdin().read_line(&mut line).unwrap();
    (len > 0).then(|| line.trim_end().to_string())
}

/// A queue pair that is connected to one of another process.
#[derive(Debug)]
pub struct Link {
    pub qpn: Qpn,
    /// Its peer.
    pub peer: Endpoint,
    /// The memory that the peer's process lets others write and read.
    pub memory: Remote,
}

impl Link {
    fn new(node: &Node, qpn: Qpn, told: &str, attr: &QpAttr) -> Self {
        let (peer, memory) = parse(told);
        let own = node.endpoint(qpn);
        node.device.connect(own, peer, attr).unwrap();
        Self { qpn, peer, memory }
    }
}

/// Connects to the process that started this one, which calls [`Other::connect`].
pub fn connect_back(node: &Node, attr: &QpAttr) -> Link {
    let qpn = node.qp();
    tell(describe(node, qpn));
    Link::new(node, qpn, &hear().unwrap(), attr)
}

/// A copy of the test program that runs one test in a role of its own.
#[derive(Debug)]
pub struct Other {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Other {
    /// Starts a process that opens a device, named by its address or by a directory and a name, and
    /// does a task: `echo` answers [`exchange`](super::echo::exchange) and ends, `echo-and-stay`
    /// does so until this process drops it, and `target` does nothing once it has met a node.
    pub fn at(device: &str, len: usize, task: &str) -> Self {
        let role = format!("{task} {len} {device}");
        Self::start("common::other::beside_a_test", &role)
    }

    /// Connects a node with a `target`.
    pub fn meet(&mut self, node: &Node, attr: &QpAttr) -> Link {
        let link = self.connect(node, attr);
        assert_eq!(self.hear(), "connected");
        link
    }

    /// Connects a node with a `target` and kills it during WRITEs of `len` bytes; the node's queue pair
    /// must fail.
    pub fn meet_and_die(&mut self, node: &Node, attr: &QpAttr, len: u32, between: impl FnOnce()) {
        let Link { qpn, memory, .. } = self.meet(node, attr);
        // Enough that the kill happens during them.
        const WRITES: usize = 1000;
        let write = |id| node.post(qpn, id, memory.write(), node.sge(0, len));
        (0..WRITES as u64).for_each(write);
        node.succeed(3);
        between();
        self.kill();
        // In case all of them completed before.
        write(WRITES as u64);
        let completions = node.completions(WRITES - 3 + 1);
        let is_failed = |it: &Completion| it.status != WcStatus::Success;
        let failed = completions.iter().position(is_failed);
        let (first, rest) = completions[failed.expect("the last one at least")..]
            .split_first()
            .unwrap();
        let status = (first.status, first.vendor_err);
        assert_eq!(status, (WcStatus::RetryExcErr, 129));
        assert!(rest.iter().all(|it| it.status == WcStatus::WrFlushErr));
    }

    /// Starts the test called `test` as `role`.
    pub fn start(test: &str, role: &str) -> Self {
        Self::under(&[], test, role)
    }

    /// The same through another program that takes a command to run.
    pub fn under(wrapper: &[&str], test: &str, role: &str) -> Self {
        let own = env::current_exe().unwrap();
        let own = own.to_str().unwrap();
        let args = ["--exact", test, "--nocapture", "--test-threads=1"];
        let line: Vec<&str> = wrapper.iter().copied().chain([own]).chain(args).collect();
        let mut child = Command::new(line[0])
            .args(&line[1..])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    pub fn tell(&mut self, text: impl std::fmt::Display) {
        writeln!(self.stdin.as_mut().unwrap(), "{text}").unwrap();
    }

    /// The next line of the other process; `None` when it has ended.
    pub fn try_hear(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.stdout.read_line(&mut line).unwrap() > 0 {
            if let Some(text) = line.trim_end().strip_prefix(MARK) {
                return Some(text.to_string());
            }
            line.clear();
        }
        None
    }

    pub fn hear(&mut self) -> String {
        self.try_hear().expect("the other process has ended")
    }

    /// Connects to the process, which calls [`connect_back`].
    pub fn connect(&mut self, node: &Node, attr: &QpAttr) -> Link {
        let link = Link::new(node, node.qp(), &self.hear(), attr);
        self.tell(describe(node, link.qpn));
        link
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it as a debugger does; returns when no thread of it runs any more.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        let is_stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat"));
            // proc(5): the letter after the name.
            stat.is_ok_and(|stat| {
                let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
                rest.starts_with('T')
            })
        };
        let started = std::time::Instant::now();
        while !std::fs::read_dir(&tasks)
            .unwrap()
            .all(|task| is_stopped(task.unwrap()))
        {
            assert!(started.elapsed() < super::PATIENCE, "it does not stop");
            std::thread::yield_now();
        }
    }

    /// Resumes it.
    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: i32) {
        // SAFETY: takes two numbers; the process is a child that has not been waited for.
        let sent = unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
        assert_eq!(sent, 0);
    }

    /// Ends it as `kill -9` does.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets it end by itself, which must be with success.
    pub fn finish(mut self) {
        drop(self.stdin.take());
        while self.try_hear().is_some() {}
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text that describes a queue pair to another process.
fn describe(node: &Node, qpn: Qpn) -> String {
    let Endpoint { address, qpn, psn } = node.endpoint(qpn);
    let Remote { va, rkey } = node.remote(0);
    format!("{address} {} {} {va} {rkey}", qpn.value(), psn.value())
}

fn parse(text: &str) -> (Endpoint, Remote) {
    let words: Vec<&str> = text.split(' ').collect();
    let number = |at: usize| -> u64 { words[at].parse().unwrap() };
    let endpoint = Endpoint {
        address: words[0].parse().unwrap(),
        qpn: Qpn::new(number(1) as u32),
        psn: Psn::new(number(2) as u32),
    };
    let remote = Remote {
        va: number(3),
        rkey: number(4) as u32,
    };
    (endpoint, remote)
}

/// Runs the test called `test` in a network namespace of its own, whose loopback interface `setup`
/// prepares. True in that namespace; elsewhere the test has already run, or cannot.
pub fn in_namespace(test: &str, setup: &str) -> bool {
    if role().is_some() {
        return true;
    }
    let script = format!("ip link set lo up && {setup} && exec \"$@\"");
    let wrapper = ["unshare", "-rn", "sh", "-c", &script, "sh"];
    let possible = Command::new(wrapper[0])
        .args(&wrapper[1..])
        .arg("true")
        .stdin(Stdio::null())
        .output();
    match possible {
        Ok(output) if output.status.success() => Other::under(&wrapper, test, "alone").finish(),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            let why = why.trim().replace('\n', "; ");
            skip(
                test,
                &format!("no network namespace with {setup:?} here ({why})"),
            );
        }
        Err(error) => skip(test, &format!("no unshare here ({error})")),
    }
    false
}
