//! An environment in which other projects' programs run on Ferroce: its own device, its own state
//! directory, and no privileges.

mod running;

use std::ffi::OsStr;
use std::fs::Permissions;
use std::net::Ipv4Addr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use ferroce_testing::Words;
use ferroce_testkit::listens;
use tempfile::TempDir;

pub use self::running::{Finished, Running};

/// How long a server may take until it listens.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// What a program may take beyond that under a tool that makes it many times slower.
const UNDER_PATIENCE: Duration = Duration::from_secs(600);
/// How often a busy machine may disturb an observation.
const OBSERVATIONS_MAX: u32 = 5;
/// The addresses of a lab: 127.64.0.0 to 127.247.0.0, and what the process adds, are those of labs.
const ADDRESSES: u8 = 4;
/// Labs of a process that have addresses of their own. Few are there at a time.
const LABS_AT_A_TIME: u32 = 46;
/// The ports of [`free_port`].
const PORT_FIRST: u16 = 12_000;
const PORT_COUNT: u16 = 18_000;
/// The user that programs run as when the tests run as root.
const NOBODY: u32 = 65534;
/// The device every lab has.
const DEVICE: &str = "fr0";

/// A device of its own for one test, and the programs that use it.
#[derive(Debug)]
pub struct Lab {
    dir: TempDir,
    /// Has the files of `prefix`, too.
    installation: Arc<TempDir>,
    address: Ipv4Addr,
    variables: Vec<(String, String)>,
}

impl Lab {
    /// Installs the libraries and a state directory for a device at a loopback address that no
    /// other lab has.
    ///
    /// # Panics
    ///
    /// Panics if the program `ferroce` has not been built or cannot install itself.
    pub fn new(name: &str) -> Self {
        static LABS: AtomicU32 = AtomicU32::new(1);
        let number = LABS.fetch_add(1, Ordering::Relaxed) % LABS_AT_A_TIME;
        let [_, _, high, low] = process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, 64 + number as u8 * ADDRESSES, high, low);
        let dir = TempDir::with_prefix(format!("ferroce-{name}-")).expect("a temporary directory");
        let lab = Self {
            dir,
            installation: installation(),
            address,
            variables: Vec::new(),
        };
        let open = Permissions::from_mode(0o755);
        fs::set_permissions(lab.path(), open).expect("own directory");
        link_all(lab.installation.path(), &lab.path().join("prefix")).expect("own directories");
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

    /// The address of its device, and those of further devices, which no other lab has either.
    pub fn addresses(&self) -> [String; ADDRESSES as usize] {
        let [net, number, high, low] = self.address.octets();
        [0, 1, 2, 3].map(|it| Ipv4Addr::new(net, number + it, high, low).to_string())
    }

    /// Has programs see a second device, `fr1`.
    pub fn two_devices(&mut self) -> &mut Self {
        let [own, second, ..] = self.addresses();
        self.set("FERROCE_DEVICES", &format!("{DEVICE}@{own},fr1@{second}"))
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
    /// Panics if there is no compiler, no libibverbs-dev or no librdmacm-dev.
    pub fn compile(&self, name: &str) -> PathBuf {
        self.compile_with(name, "")
    }

    /// The same with further options of the compiler.
    ///
    /// # Panics
    ///
    /// As [`compile`](Self::compile), or if the compiler refuses an option.
    pub fn compile_with(&self, name: &str, options: impl Words) -> PathBuf {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
        let program = self.path().join(name);
        let built = Command::new("cc")
            .args(["-O1", "-Wall", "-D_GNU_SOURCE"])
            .args(options.words())
            .arg("-o")
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
    pub fn ferroce(&self, args: impl Words) -> Running {
        let (program, args) = (self.path().join("prefix/bin/ferroce"), args.words());
        self.start(Command::new(program).args(&args), &args)
    }

    /// A program that does not use the device itself.
    pub fn beside(&self, program: impl Words) -> Running {
        let program = program.words();
        let mut command = Command::new(program[0]);
        self.start(command.args(&program[1..]), &program)
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
    pub fn run(&self, program: impl Words) -> Running {
        self.run_with("", program)
    }

    /// `ferroce run OPTIONS -- PROGRAM`; behind the words of `FERROCE_UNDER`, which start it for example with the
    /// library of a sanitizer.
    pub fn run_with(&self, options: impl Words, program: impl Words) -> Running {
        let words = [vec!["run"], options.words(), vec!["--"], program.words()].concat();
        let Ok(under) = env::var("FERROCE_UNDER") else {
            return self.ferroce(words);
        };
        let ferroce = self.path().join("prefix/bin/ferroce");
        let ferroce = ferroce.to_str().expect("a temporary directory in UTF-8");
        let command = [under.words(), vec![ferroce], words].concat();
        self.beside(command).patiently(UNDER_PATIENCE)
    }

    /// Lets its device have exact timers in place of a card's coarse ones, so that each wait can be
    /// predicted.
    ///
    /// # Panics
    ///
    /// Panics if the device is in use.
    pub fn exact_timers(&self) {
        let set = ["dev", "set", DEVICE, "personality.quantiser", "off"];
        self.ferroce(set).success();
    }

    /// The first process that has the lab's device open, if there is one.
    pub fn process(&self) -> Option<u64> {
        let shown = self.ferroce("-j res show ctx").success();
        let rows: serde_json::Value = serde_json::from_str(&shown).unwrap_or_default();
        rows["objects"][0]["pid"].as_u64()
    }

    /// The number of files of its devices, and the bytes of those that processes share.
    ///
    /// # Panics
    ///
    /// Panics if they cannot be read.
    pub fn shared_state(&self) -> (usize, u64) {
        files(&self.path().join("state"))
    }

    /// Runs a server, and when `ready` says that it listens, its client; both have to succeed.
    /// Returns what they printed, the server's first.
    pub fn pair(&self, server: impl Words, ready: Ready, client: impl Words) -> [String; 2] {
        let server = self.run(server);
        let server = ready.wait(self, server);
        let client = self.run(client).success();
        [server.success(), client]
    }
}

/// The number of files below a directory, and the bytes of those that processes share. Sockets are not counted: a
/// killed program leaves one that is replaced when another gets its slot.
fn files(directory: &Path) -> (usize, u64) {
    let mut sum = (0, 0);
    let entries = fs::read_dir(directory).expect("a directory");
    for entry in entries.map(|entry| entry.expect("an entry")) {
        // A file of a program that ends may go meanwhile.
        let Ok(meta) = entry.metadata() else { continue };
        let (count, bytes) = match meta.is_dir() {
            true => files(&entry.path()),
            false if meta.file_type().is_socket() => (0, 0),
            // The files in /sys hold counters as text, which may grow.
            false if entry.path().extension().is_some_and(|end| end == "state") => (1, meta.len()),
            false => (1, 0),
        };
        sum = (sum.0 + count, sum.1 + bytes);
    }
    sum
}

/// Sends a signal, such as `-STOP`, to a process, or to a group if its number is negative. Returns whether there is one.
///
/// # Panics
///
/// Panics if there is no `kill`.
pub fn signal(name: &str, target: &str) -> bool {
    let sent = Command::new("kill").args([name, "--", target]).output();
    sent.expect("a kill").status.success()
}

/// Waits until `done` has an answer.
///
/// # Panics
///
/// Panics if it has none for a while.
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

/// What `observe` sees of timers, once it is as predicted: where a busy machine was in the way, it is
/// looked at again. `strays` says what is not as predicted.
///
/// # Panics
///
/// Panics if it is not for several times.
pub fn undisturbed<T>(mut observe: impl FnMut() -> T, strays: impl Fn(&T) -> Option<String>) -> T {
    let mut told = String::new();
    for _ in 0..OBSERVATIONS_MAX {
        let seen = observe();
        match strays(&seen) {
            None => return seen,
            Some(text) => told = text,
        }
        eprintln!("not as predicted: {told}");
    }
    panic!("not as predicted in any of {OBSERVATIONS_MAX} observations: {told}");
}

/// A TCP port for a program that exchanges addresses over one.
///
/// # Panics
///
/// Panics if none is free.
pub fn free_port() -> u16 {
    static PORTS: AtomicU16 = AtomicU16::new(0);
    // Below the ports that the system hands out by itself, and apart from those of other tests.
    let first = (process::id() % 180) as u16 * 100;
    let mut ports = (0..PORT_COUNT).map(|_| {
        let next = first + PORTS.fetch_add(1, Ordering::Relaxed);
        PORT_FIRST + next % PORT_COUNT
    });
    ports.find(|port| !listens(*port)).expect("a free port")
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
    /// Panics if the server ends or does not become ready in time.
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
            // To read the tables of sockets takes the kernel several milliseconds.
            thread::sleep(Duration::from_millis(25));
        }
        server
    }

    /// Whether a client finds it.
    pub fn is_ready(self, lab: &Lab) -> bool {
        match self {
            Self::Tcp(port) => listens(port),
            Self::Cm(port) => {
                let shown = lab.ferroce("-j res show cm_id").success();
                let rows: serde_json::Value = serde_json::from_str(&shown).unwrap_or_default();
                let listens =
                    |row: &serde_json::Value| row["state"] == "LISTEN" && row["src_port"] == port;
                rows["objects"]
                    .as_array()
                    .is_some_and(|rows| rows.iter().any(listens))
            }
        }
    }
}

/// What `ferroce install` writes. Labs that are there at a time share its files, which no test may change: to install
/// takes longer than many a test.
fn installation() -> Arc<TempDir> {
    static SHARED: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let new = Arc::new(TempDir::with_prefix("ferroce-prefix-").expect("a temporary directory"));
        let mut install = Command::new(program());
        let installed = install.arg("install").arg(new.path()).output();
        let installed = installed.expect("ferroce starts");
        let stderr = String::from_utf8_lossy(&installed.stderr);
        assert!(installed.status.success(), "ferroce install: {stderr}");
        *shared = Arc::downgrade(&new);
        new
    })
}

/// Makes a directory with the same files as another one.
fn link_all(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            link_all(&from, &to)?;
        } else {
            fs::hard_link(from, to)?;
        }
    }
    Ok(())
}

/// Whether the tests run as root.
pub fn as_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt as _;
        own.uid() == 0
    })
}

/// A shared object that was built with the program under test.
///
/// # Panics
///
/// Panics if the program has not been built.
pub fn library(name: &str) -> PathBuf {
    program().with_file_name(name)
}

/// The program under test: `$FERROCE_BIN`, or what lies where cargo put this test.
///
/// # Panics
///
/// Panics if it has not been built.
pub fn program() -> PathBuf {
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
