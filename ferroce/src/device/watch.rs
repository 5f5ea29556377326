//! Repeated output.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use ferroce_units::{Decimal, Invalid, TIME};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Pauses that SIGINT and SIGTERM end.
pub(super) struct Pauses(Receiver<()>);

impl Pauses {
    /// From now on these signals end pauses, and no longer the process.
    pub(super) fn new() -> io::Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let (ended, wait) = channel();
        thread::spawn(move || {
            signals.forever().next();
            drop(ended);
        });
        Ok(Self(wait))
    }

    /// Whether the time has passed without a signal.
    pub(super) fn pass(&self, time: Duration) -> bool {
        self.0.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
    }
}

/// What goes in front of a picture, so that on a terminal it takes the place of the one before.
pub(super) fn in_place() -> &'static str {
    const HOME_AND_CLEAR: &str = "\x1b[H\x1b[J";
    match io::stdout().is_terminal() {
        true => HOME_AND_CLEAR,
        false => "",
    }
}

/// The time between two looks: seconds, or a time with its unit.
pub(super) fn interval(text: &str) -> Result<Duration, Invalid> {
    let with_unit = match text.parse::<Decimal>() {
        Ok(seconds) => format!("{seconds}s"),
        Err(_) => text.to_owned(),
    };
    let ns = TIME.read_in(&with_unit, 10_000_000..=3_600_000_000_000)?;
    Ok(Duration::from_nanos(ns))
}
