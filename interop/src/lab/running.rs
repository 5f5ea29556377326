//! Running programs and their output.

use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a program may take before its test gives up on it.
const PATIENCE: Duration = Duration::from_secs(90);

/// A program at work.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
    started: Instant,
    patience: Duration,
}

impl Running {
    pub(super) fn start(name: String, command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        Self {
            name,
            child,
            stdout,
            stderr,
            started: Instant::now(),
            patience: PATIENCE,
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Ends it with SIGKILL and waits until it is gone.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Gives it more time than others have, for a program that is told how long to run.
    #[must_use]
    pub fn patiently(mut self, more: Duration) -> Self {
        self.patience += more;
        self
    }

    /// Waits for the end, whatever it is.
    ///
    /// # Panics
    ///
    /// Panics if it takes longer than a minute and a half, and what [`Self::patiently`] adds.
    pub fn finish(mut self) -> Finished {
        while !self.has_ended() {
            assert!(
                self.started.elapsed() < self.patience,
                "takes too long: {}",
                self.abandon()
            );
            thread::sleep(Duration::from_millis(2));
        }
        self.collect()
    }

    /// Waits for the end and returns standard output.
    ///
    /// # Panics
    ///
    /// Panics if it fails or takes too long.
    pub fn success(self) -> String {
        let finished = self.finish();
        assert!(finished.status.success(), "{finished}");
        finished.stdout
    }

    /// Ends it, and returns what it has printed.
    pub fn abandon(mut self) -> Finished {
        let _ = self.child.kill();
        self.collect()
    }

    fn collect(&mut self) -> Finished {
        let status = self.child.wait().expect("a child");
        let text = |thread: Option<JoinHandle<String>>| {
            thread
                .and_then(|thread| thread.join().ok())
                .unwrap_or_default()
        };
        Finished {
            name: self.name.clone(),
            status,
            stdout: text(self.stdout.take()),
            stderr: text(self.stderr.take()),
            elapsed: self.started.elapsed(),
        }
    }
}

/// What a program left behind.
#[derive(Debug)]
pub struct Finished {
    name: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// From start to end.
    pub elapsed: Duration,
}

impl Finished {
    /// Asserts that it succeeded and printed these lines, which are `CASE: ANSWER`.
    ///
    /// # Panics
    /// Panics if it did not; with the cases whose answers differ.
    pub fn answers(&self, expected: &str) {
        assert!(self.status.success(), "{self}");
        let pairs = self.stdout.lines().zip(expected.lines());
        let differing: Vec<_> = pairs.filter(|(got, wanted)| got != wanted).collect();
        assert!(
            differing.is_empty(),
            "(answer, expected): {differing:#?}\n{self}"
        );
        let (got, wanted) = (self.stdout.lines().count(), expected.lines().count());
        assert_eq!(got, wanted, "cases\n{self}");
    }
}

impl std::fmt::Display for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut how = String::new();
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => write!(how, "exit code {code}")?,
            (_, Some(signal)) => write!(how, "signal {signal}")?,
            _ => how.push_str("unknown end"),
        }
        let Self {
            name,
            stdout,
            stderr,
            elapsed,
            ..
        } = self;
        write!(f, "{name}: {how} after {elapsed:?}\n{stdout}\n{stderr}")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.stdout.is_some() {
            // The test failed elsewhere; nothing of it may stay behind.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
