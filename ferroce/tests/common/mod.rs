//! Runs the program inside the test.

pub(crate) mod schema;

use std::ffi::OsString;
use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::Deref;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use ferroce_registry::Registry;
use ferroce_testing::said;
pub(crate) use ferroce_testing::{Words, has};
use serde_json::Value;
use tempfile::TempPath;

/// Exit code, standard output and standard error. All JSON is checked against its schema, here and
/// below.
#[track_caller]
pub(crate) fn run(args: impl Words) -> (u8, String, String) {
    let args = ["ferroce"].into_iter().chain(args.words());
    let args = args.map(OsString::from);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = ferroce::execute(args, &mut out, &mut err);
    let out = String::from_utf8(out).unwrap();
    schema::check_output(&out);
    (code, out, String::from_utf8(err).unwrap())
}

/// Standard output of a command that succeeds without a remark.
#[track_caller]
pub(crate) fn good(args: impl Words) -> String {
    let (code, out, err) = run(&args);
    assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
    out
}

/// The same as JSON, which is one line.
#[track_caller]
pub(crate) fn good_json(args: impl Words) -> Value {
    let out = good(args);
    assert_eq!(out.lines().count(), 1);
    serde_json::from_str(&out).unwrap()
}

/// Standard error of a command that is refused and prints nothing else.
#[track_caller]
pub(crate) fn bad(args: impl Words) -> String {
    let (code, out, err) = run(&args);
    assert_eq!((code, out.as_str()), (2, ""), "{args:?}");
    err
}

/// Devices of a single test, for the program in a process of its own.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    /// With fr0 only.
    pub(crate) fn empty() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// With a device in addition to fr0.
    pub(crate) fn with(name: &str, address: &str) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        assert_eq!(place.good(["dev", "add", name, address]), "");
        place
    }

    /// A directory of the test's own.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Its devices as this process sees them.
    pub(crate) fn registry(&self) -> Registry {
        registry(&self.0.path().join("registry"))
    }

    /// The program, with its devices.
    pub(crate) fn command(&self, args: impl Words) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
        command
            .args(args.words())
            .env("FERROCE_DIR", self.0.path().join("registry"))
            .env_remove("FERROCE_DEVICES");
        command
    }

    /// Exit code, standard output and standard error, with an answer typed in.
    pub(crate) fn answer(&self, args: impl Words, typed: &str) -> (i32, String, String) {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A program that does not ask may have ended already.
        let _ = child.stdin.take().unwrap().write_all(typed.as_bytes());
        let (code, out, err) = said(child.wait_with_output().unwrap());
        schema::check_output(&out);
        (code.unwrap(), out, err)
    }

    /// Exit code, standard output and standard error.
    pub(crate) fn run(&self, args: impl Words) -> (i32, String, String) {
        self.answer(args, "")
    }

    /// Standard output of a command that succeeds without a remark.
    #[track_caller]
    pub(crate) fn good(&self, args: impl Words) -> String {
        let (code, out, err) = self.run(&args);
        assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
        out
    }

    /// Standard error of a command that ends with a code.
    #[track_caller]
    pub(crate) fn bad(&self, expected: i32, args: impl Words) -> String {
        let (code, _, err) = self.run(&args);
        assert_eq!(code, expected, "{args:?}: {err}");
        err
    }
}

/// `ferroce serve` on a port of its own, until it is dropped.
pub(crate) struct Exporter {
    pub(crate) server: Child,
    /// Where it listens.
    pub(crate) address: String,
    /// Kept open as long as it may print something.
    _said: BufReader<ChildStderr>,
}

impl Exporter {
    pub(crate) fn start(place: &Place) -> Self {
        let mut server = place.command(["serve", "--metrics", "127.0.0.1:0"]);
        let mut server = server.stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(server.stderr.take().unwrap());
        said.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("metrics at http://").unwrap();
        let address = address.strip_suffix("/metrics").unwrap().to_owned();
        Self {
            server,
            address,
            _said: said,
        }
    }

    /// The metrics, after the header of the answer.
    pub(crate) fn page(&self) -> String {
        self.answer(b"GET /metrics HTTP/1.0\r\n\r\n")
    }

    /// Everything that it sends for these bytes until it closes the connection, or cuts it off.
    pub(crate) fn answer(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        // It may answer before it has read everything.
        let _ = stream.write_all(request);
        let mut page = Vec::new();
        let _ = stream.read_to_end(&mut page);
        String::from_utf8(page).unwrap()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

/// The value of a metric with its labels.
#[track_caller]
pub(crate) fn metric(page: &str, name: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("{name} is missing in\n{page}"))
        .trim()
        .parse()
        .unwrap()
}

/// An address for a single test: `test`, below 64, is a number of its own among all files, and the process adds
/// another, so that two concurrent runs do not collide. `host` is below 16.
pub(crate) fn address(test: u8, host: u8) -> Ipv4Addr {
    assert!(test < 64 && host < 16);
    let run = std::process::id() % (1 << 13);
    let number = 1 << 23 | run << 10 | u32::from(test) << 4 | u32::from(host);
    Ipv4Addr::from_bits(127 << 24 | number)
}

/// The devices in `directory` that programs see in this network namespace.
pub(crate) fn registry(directory: &Path) -> Registry {
    Registry::within(directory).unwrap()
}

/// Path of a file that is removed after the test.
#[derive(Debug)]
pub(crate) struct Scratch(TempPath);

impl Deref for Scratch {
    type Target = str;

    fn deref(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl fmt::Display for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// A new file with this text.
pub(crate) fn scratch(name: &str, text: &str) -> Scratch {
    let prefix = format!("{name}-");
    let mut builder = tempfile::Builder::new();
    let mut file = builder.prefix(&prefix).suffix(".toml").tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    Scratch(file.into_temp_path())
}
