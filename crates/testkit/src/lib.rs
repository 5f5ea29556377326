//! RDMA devices for the tests of programs that use verbs, with the means to make trouble.
//!
//! A [`Device`] has a name and a loopback address that no other process has, so tests may run side by side. It
//! starts programs that see it alone, takes its port down, impairs its link, injects faults, and counts. When it
//! is dropped, its programs end and it is gone.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use ferroce_testkit::{Device, Error, free_port, listens, wait_for};
//!
//! # fn main() -> Result<(), Error> {
//! let device = Device::new()?;
//! let port = free_port()?;
//! let server = device.start(["ib_write_bw", "-p", &port.to_string()])?;
//! wait_for("the server", Duration::from_secs(30), || listens(port))?;
//! device.impair("loss 1%")?;
//! device.run(["ib_write_bw", "-p", &port.to_string(), "127.0.0.1"])?;
//! server.wait(Duration::from_secs(30))?;
//! assert!(device.counters()?["packet_seq_err"] > 0);
//! # Ok(())
//! # }
//! ```
//!
//! The kit runs the program `ferroce`: `$FERROCE_BIN`, or what is on the path. A test that opens the device in its
//! own process needs `ferroce run -- cargo test`.

#![forbid(unsafe_code)]

mod device;
mod ports;
mod program;

use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{env, io, thread};

pub use self::device::{Device, Fault};
pub use self::ports::{free_port, listens};
pub use self::program::Program;

/// How often [`wait_for`] looks.
const PERIOD: Duration = Duration::from_millis(20);

/// Why a test could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program `ferroce`, or a file of the kit, is not there.
    #[error("cannot {what}: {source}")]
    System {
        /// What was attempted.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// `ferroce` refused a command.
    #[error("ferroce {command}: {text}")]
    Refused {
        /// Its arguments.
        command: String,
        /// What it printed.
        text: String,
    },
    /// `ferroce` printed something that this version of the kit does not understand.
    #[error("cannot read what ferroce {command} printed; use a kit of the same version")]
    Unknown {
        /// Its arguments.
        command: String,
    },
    /// All addresses for devices of this process are in use.
    #[error("all 62 addresses for the devices of this process are in use; drop some")]
    NoAddress,
    /// A program failed.
    #[error("{command} ended with {status}:\n{output}")]
    Failed {
        /// Its command line.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// What it printed on both streams.
        output: String,
    },
    /// A program did not end in time, and was killed.
    #[error("{command} did not end within {limit:?}:\n{output}")]
    TooLong {
        /// Its command line.
        command: String,
        /// How long it had.
        limit: Duration,
        /// What it printed on both streams.
        output: String,
    },
    /// A condition did not come true in time.
    #[error("waited {limit:?} in vain for {what}")]
    InVain {
        /// What was awaited.
        what: String,
        /// For how long.
        limit: Duration,
    },
    /// A rule is no longer in force.
    #[error("fault rule {0} has been cleared")]
    Cleared(u64),
}

impl Error {
    fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}

/// Waits until `condition` holds, and looks every 20 ms.
///
/// # Errors
///
/// After `limit`.
pub fn wait_for(
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> bool,
) -> Result<(), Error> {
    let begun = Instant::now();
    while !condition() {
        if begun.elapsed() >= limit {
            let what = what.to_owned();
            return Err(Error::InVain { what, limit });
        }
        thread::sleep(PERIOD);
    }
    Ok(())
}

/// The program `ferroce`.
fn ferroce() -> Command {
    Command::new(env::var_os("FERROCE_BIN").unwrap_or_else(|| "ferroce".into()))
}

/// Runs a command of `ferroce`, and returns what it printed.
fn command(words: &[&str]) -> Result<String, Error> {
    let ended = ferroce().args(words).stdin(Stdio::null()).output();
    let ended = ended.map_err(Error::system(
        "run ferroce; put it on the path or set FERROCE_BIN",
    ))?;
    match ended.status.success() {
        true => Ok(String::from_utf8_lossy(&ended.stdout).into_owned()),
        false => Err(Error::Refused {
            command: words.join(" "),
            text: String::from_utf8_lossy(&ended.stderr).trim().to_owned(),
        }),
    }
}

/// Runs a command that prints JSON.
fn document<T: serde::de::DeserializeOwned>(words: &[&str]) -> Result<T, Error> {
    let printed = command(&[&["-j"], words].concat())?;
    serde_json::from_str(&printed).map_err(|_| Error::Unknown {
        command: words.join(" "),
    })
}
