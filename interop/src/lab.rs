//! A place where other people's programs run on Ferroce: its own device, its own state directory,
//! and no privileges.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::Permissions;
use std::io::Read;
use std::net::Ipv4Addr;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{env, fs};

use crate::TempDir;

/// How long a program may take before its test gives up on it.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long a server may take until it listens.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// Whom programs run as when the tests run as root.
const NOBODY: u32 = 65534;
/// The device every lab has.
const DEVICE: &str = "fr0";

/// A device of its own for one test, and the programs that use it.
#[derive(Debug)]
pub struct Lab {
    dir: TempDir,
    address: Ipv4Addr,
    variables: Vec<(String, String)>,
}

impl Lab {
    /// Lays out the libraries and a state directory for a device at a loopback address that no
    /// other lab has.
    ///
    /// # Panics
    ///
    /// If the program `ferroce` has not been built or cannot install itself.
    pub fn new(name: &str) -> Self {
        static LABS: AtomicU32 = AtomicU32::new(1);
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        let [_, _, high, low] = process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, 64 + (number % 128) as u8, high, low);
        let dir = TempDir::new(&format!("{name}-{number}")).expect("a temporary directory");
        let lab = Self {
            dir,
            address,
            variables: Vec::new(),
        };
        let open = Permissions::from_mode(0o755);
        fs::set_permissions(lab.path(), open).expect("own directory");
        let installed = Command::new(ferroce())
            .arg("install")
            .arg(lab.path().join("prefix"))
            .output()
            .expect("ferroce starts");
        let stderr = String::from_utf8_lossy(&installed.stderr);
        assert!(installed.status.success(), "ferroce install: {stderr}");
        let state = lab.path().join("state");
        fs::create_dir(&state).expect("own directory");
        fs::set_permissions(&state, Permissions::from_mode(0o700)).expect("own directory");
        if as_root() {
            chown(&state, Some(NOBODY), Some(NOBODY)).expect("root may");
        }
        lab
    }

    /// The address of its device.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// The lab's directory, which every user may read.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Sets an environment variable for every program.
    pub fn set(&mut self, name: &str, value: &str) -> &mut Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Compiles `programs/NAME.c` against the installed libibverbs and librdmacm.
    ///
    /// # Panics
    ///
    /// If there is no compiler, no libibverbs-dev or no librdmacm-dev.
    pub fn compile(&self, name: &str) -> PathBuf {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
        let program = self.path().join(name);
        let built = Command::new("cc")
            .args(["-O1", "-Wall", "-D_GNU_SOURCE", "-o"])
            .args([&program, &programs.join(name).with_extension("c")])
            .args(["-Wl,--as-needed", "-libverbs", "-lrdmacm"])
            .output()
            .expect("a C compiler");
        let stderr = String::from_utf8_lossy(&built.stderr);
        assert!(
            built.status.success(),
            "apt-get install libibverbs-dev librdmacm-dev?\n{stderr}"
        );
        program
    }

    /// `ferroce ARGS`.
    pub fn ferroce(&self, args: &[&str]) -> Running {
        let program = self.path().join("prefix/bin/ferroce");
        self.start(Command::new(program).args(args), args)
    }

    /// A program that does not use the device itself.
    pub fn beside(&self, program: &[&str]) -> Running {
        let mut command = Command::new(program[0]);
        self.start(command.args(&program[1..]), program)
    }

    fn start(&self, command: &mut Command, name: &[&str]) -> Running {
        command
            .env("FERROCE_DIR", self.path().join("state"))
            .env("FERROCE_DEVICES", format!("{DEVICE}@{}", self.address))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.path().join("state"));
        if as_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        Running::start(name.join(" "), command)
    }

    /// `ferroce run -- PROGRAM`.
    pub fn run(&self, program: &[&str]) -> Running {
        self.run_with(&[], program)
    }

    /// `ferroce run OPTIONS -- PROGRAM`.
    pub fn run_with(&self, options: &[&str], program: &[&str]) -> Running {
        self.ferroce(&[&["run"], options, &["--"], program].concat())
    }

    /// Runs a server, and when `ready` says that it listens, its client; both have to succeed.
    /// Returns what they printed, the server's first.
    pub fn pair(&self, server: &[&str], ready: Ready, client: &[&str]) -> [String; 2] {
        let server = self.run(server);
        let server = ready.wait(self, server);
        let client = self.run(client).success();
        [server.success(), client]
    }
}

/// Waits until `done` has an answer.
///
/// # Panics
///
/// If it has none for a while.
pub fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(done) = done() {
            return done;
        }
        let waited = started.elapsed();
        assert!(waited < START_PATIENCE, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A TCP port for a program that exchanges addresses over one.
pub fn free_port() -> u16 {
    static PORTS: AtomicU16 = AtomicU16::new(0);
    // Below the ports that the system hands out by itself.
    let base = 12_000 + (process::id() % 180) as u16 * 100;
    base + PORTS.fetch_add(1, Ordering::Relaxed) % 100
}

/// How to see that a server is ready for its client.
#[derive(Clone, Copy, Debug)]
pub enum Ready {
    /// It listens on a TCP port.
    Tcp(u16),
    /// It listens for connections on a port of the connection manager.
    Cm(u16),
}

impl Ready {
    /// Waits for it.
    ///
    /// # Panics
    ///
    /// If the server ends or does not become ready in time.
    pub fn wait(self, lab: &Lab, mut server: Running) -> Running {
        let started = Instant::now();
        while !self.is_ready(lab) {
            if server.has_ended() {
                panic!("the server ended early: {}", server.finish());
            }
            assert!(
                started.elapsed() < START_PATIENCE,
                "no {self:?}: {}",
                server.abandon()
            );
            thread::sleep(Duration::from_millis(5));
        }
        server
    }

    fn is_ready(self, lab: &Lab) -> bool {
        match self {
            Self::Tcp(port) => {
                let listens = |line: &str| {
                    let mut fields = line.split_whitespace().skip(1);
                    let local = fields.next().unwrap_or_default();
                    let state = fields.nth(1).unwrap_or_default();
                    local.ends_with(&format!(":{port:04X}")) && state == "0A"
                };
                ["/proc/net/tcp", "/proc/net/tcp6"]
                    .iter()
                    .filter_map(|path| fs::read_to_string(path).ok())
                    .any(|table| table.lines().any(listens))
            }
            Self::Cm(port) => {
                let shown = lab.ferroce(&["-j", "res", "show", "cm_id"]).success();
                let rows: serde_json::Value = serde_json::from_str(&shown).unwrap_or_default();
                let listens =
                    |row: &serde_json::Value| row["state"] == "LISTEN" && row["src-port"] == port;
                rows.as_array().is_some_and(|rows| rows.iter().any(listens))
            }
        }
    }
}

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
    fn start(name: String, command: &mut Command) -> Self {
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
    /// If it takes longer than a minute and a half, and what [`Self::patiently`] adds.
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
    /// If it fails or takes too long.
    pub fn success(self) -> String {
        let finished = self.finish();
        assert!(finished.status.success(), "{finished}");
        finished.stdout
    }

    fn abandon(mut self) -> Finished {
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

fn as_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt as _;
        own.uid() == 0
    })
}

/// A shared object that was built with the program under test.
///
/// # Panics
///
/// If the program has not been built.
pub fn library(name: &str) -> PathBuf {
    ferroce().with_file_name(name)
}

/// The program under test: `$FERROCE_BIN`, or what lies where cargo put this test.
fn ferroce() -> PathBuf {
    if let Some(path) = env::var_os("FERROCE_BIN") {
        return path.into();
    }
    // A program of this crate lies beside it, a test one directory further down.
    let own = env::current_exe().expect("a program has a file");
    let mut directories = own.ancestors().skip(1);
    let beside = directories.find(|dir| dir.file_name() != Some(OsStr::new("deps")));
    let built = beside.map(|dir| dir.join("ferroce"));
    built
        .filter(|path| path.exists())
        .expect("build it first: cargo build, or say where it is: FERROCE_BIN")
}
