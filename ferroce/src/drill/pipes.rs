//! The pipes between the drill and a host.

use std::io::{self, PipeReader, PipeWriter, pipe};
use std::process::Command;

use crate::output::Failure;

/// The drill's ends.
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) orders: PipeWriter,
    pub(super) out: PipeReader,
    pub(super) err: PipeReader,
}

/// The host's ends: standard input, output and error.
#[derive(Debug)]
pub(super) struct TheirEnds {
    pub(super) orders: PipeReader,
    pub(super) out: PipeWriter,
    pub(super) err: PipeWriter,
}

impl Pipes {
    pub(super) fn new() -> Result<(Self, TheirEnds), Failure> {
        Self::open().map_err(|error| Failure::broken(format_args!("cannot open a pipe: {error}")))
    }

    fn open() -> io::Result<(Self, TheirEnds)> {
        let (their_orders, orders) = pipe()?;
        let (out, their_out) = pipe()?;
        let (err, their_err) = pipe()?;
        let theirs = TheirEnds {
            orders: their_orders,
            out: their_out,
            err: their_err,
        };
        Ok((Self { orders, out, err }, theirs))
    }
}

impl TheirEnds {
    /// Gives them to a process that is to be started.
    pub(super) fn give(self, command: &mut Command) {
        command.stdin(self.orders).stdout(self.out).stderr(self.err);
    }
}
