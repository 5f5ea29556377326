//! Namespaces for programs that are measured.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use super::Error;

/// A network, processes and a `/dev/shm` of their own (namespaces(7)), which programs find like those
/// of the system. Nothing outside reaches their network, and nothing of them is left when this value is
/// dropped, or when its process is killed.
///
/// Makes use of `unshare` and `nsenter` of util-linux and `ip` of iproute2. Users who are not root can have
/// one as well, unless their system forbids them user namespaces.
#[derive(Debug)]
pub struct Enclosure {
    /// Keeps the namespaces while its standard input is open.
    keeper: Child,
    port: Cell<u16>,
}

/// The keeper's first process: when it ends, the kernel ends all others.
const KEEP: &str = "ip link set lo up \
    && mount -t tmpfs -o mode=0700 tmpfs /dev/shm \
    && mkdir -m 0700 \"$FERROCE_DIR\" \
    && echo ready && read -r _";

/// Of the devices in it.
const DIRECTORY: &str = "/dev/shm/ferroce";

impl Enclosure {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// The system does not let this user, or lacks the programs.
    pub fn new() -> Result<Self, Error> {
        let mut command = Command::new("unshare");
        command
            .args([
                "--user",
                "--map-root-user",
                "--net",
                "--pid",
                "--mount-proc",
            ])
            .args(["--fork", "--kill-child", "--", "sh", "-c", KEEP])
            .env("FERROCE_DIR", DIRECTORY)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let start = |source| Error::Start {
            program: "unshare".to_owned(),
            source,
        };
        let keeper = command.spawn().map_err(start)?;
        let mut this = Self {
            keeper,
            port: Cell::new(FIRST_PORT),
        };
        let mut line = String::new();
        if let Some(stdout) = this.keeper.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        if line.trim_end() == "ready" {
            return Ok(this);
        }
        let mut says = String::new();
        if let Some(stderr) = &mut this.keeper.stderr {
            stderr.read_to_string(&mut says)?;
        }
        Err(Error::Enclosure(says.trim().replace('\n', "; ")))
    }

    /// A command in it.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let pid = self.keeper.id();
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &pid.to_string()])
            .args(["--preserve-credentials", "--user", "--net", "--mount"])
            // The keeper's own is that of the system.
            .arg(format!("--pid=/proc/{pid}/ns/pid_for_children"))
            .arg("--")
            .arg(program)
            .env("FERROCE_DIR", DIRECTORY);
        command
    }

    /// A port that no program of it has had.
    pub(super) fn port(&self) -> u16 {
        self.port.replace(self.port.get() + 1)
    }

    /// Whether one of its programs listens on a TCP port (proc_net_tcp(5)).
    pub(super) fn has_listener(&self, port: u16) -> io::Result<bool> {
        let net = format!("/proc/{}/net", self.keeper.id());
        let mut tables = fs::read_to_string(format!("{net}/tcp"))?;
        tables += &fs::read_to_string(format!("{net}/tcp6")).unwrap_or_default();
        Ok(tables.lines().any(|line| is_listener(line, port)))
    }
}

/// Below those that the kernel gives to clients.
const FIRST_PORT: u16 = 10_000;

impl Drop for Enclosure {
    fn drop(&mut self) {
        // Its end of the pipe is closed, and it ends.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Whether a line of proc(5)'s `net/tcp` is a socket that listens on the port.
fn is_listener(line: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let mut cells = line.split_ascii_whitespace().skip(1);
    let local = cells.next().unwrap_or_default();
    local.ends_with(&format!(":{port:04X}")) && cells.nth(1) == Some(LISTEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_told_from_a_connection() {
        let line = "2: 0100007F:4BF7 0100007F:C350 01 00000000:00000000 00:00000000 00000000";
        assert!(!is_listener(line, 0x4bf7), "it is connected");
        let line = line.replace(" 01 ", " 0A ");
        assert!(is_listener(&line, 0x4bf7) && !is_listener(&line, 0xbf7));
    }
}
