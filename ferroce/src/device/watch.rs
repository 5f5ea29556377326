//! Repeated output.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use clap::Args;
use ferroce_base::units::{Decimal, Invalid, TIME};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Whether to look again, and how often.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(super) struct Again {
    /// Refresh every SECONDS, until interrupted [default: 1]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
          value_parser = interval)]
    pub(super) watch: Option<Duration>,
    /// With --watch: stop after N
    #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: Option<u64>,
}

/// Looks, with pauses between them.
pub(super) struct Looks {
    again: Again,
    /// `None` if there is one look only.
    pauses: Option<Pauses>,
    taken: u64,
}

impl Again {
    /// Both of what stood in front of a verb and behind it.
    pub(super) fn or(self, before: Self) -> Self {
        Self {
            watch: self.watch.or(before.watch),
            count: self.count.or(before.count),
        }
    }

    pub(super) fn looks(self) -> io::Result<Looks> {
        Ok(Looks {
            again: self,
            pauses: self.watch.map(|_| Pauses::new()).transpose()?,
            taken: 0,
        })
    }
}

impl Looks {
    /// Waits for the next look; `false` if there is none.
    pub(super) fn next(&mut self) -> bool {
        let is_due = match (self.taken, &self.pauses, self.again.watch) {
            (0, ..) => true,
            (_, Some(pauses), Some(interval)) => {
                self.again.count != Some(self.taken) && pauses.pass(interval)
            }
            _ => false,
        };
        self.taken += 1;
        is_due
    }

    /// What goes in front of a picture.
    pub(super) fn in_place(&self) -> &'static str {
        if self.pauses.is_some() {
            in_place()
        } else {
            ""
        }
    }
}

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

/// Goes in front of a picture, so that on a terminal it replaces the previous one.
pub(super) fn in_place() -> &'static str {
    const HOME_AND_CLEAR: &str = "\x1b[H\x1b[J";
    match io::stdout().is_terminal() {
        true => HOME_AND_CLEAR,
        false => "",
    }
}

/// The refresh interval: seconds, or a time with its unit.
pub(super) fn interval(text: &str) -> Result<Duration, Invalid> {
    let with_unit = match text.parse::<Decimal>() {
        Ok(seconds) => format!("{seconds}s"),
        Err(_) => text.to_owned(),
    };
    let ns = TIME.read_in(&with_unit, 10_000_000..=3_600_000_000_000)?;
    Ok(Duration::from_nanos(ns))
}
