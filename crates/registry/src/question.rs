//! How an observer queries a process about its objects.
//!
//! A query is one byte in the process's mailbox, with two descriptors: a file for the answer, and
//! the end of a stream that signals when it is complete. If the process dies, that end closes with
//! it. Only the user's own processes can reach a mailbox.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ferroce_os as os;
use thiserror::Error;

use crate::resource::{Query, Resource};
use crate::shared::{Asked, SharedFile};

/// How long an answer is waited for. A process answers in well under a millisecond for each
/// thousand of its objects, unless it is stopped.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Told when the answer is whole.
const DONE: u8 = 1;

/// Why a process did not report its objects.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum QueryError {
    /// No process has the slot, or the one that had it ended before it answered.
    #[error("no process has slot {slot} of the device any more")]
    Gone {
        /// The slot.
        slot: u8,
    },
    /// The process is there and silent.
    #[error(
        "the process in slot {slot} of the device does not answer; if it is stopped, resume it (SIGCONT)"
    )]
    Silent {
        /// The slot.
        slot: u8,
    },
    /// The answer makes no sense: the process is of another release.
    #[error("the process in slot {slot} of the device answers in another format: {source}")]
    Format {
        /// The slot.
        slot: u8,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A system call failed.
    #[error("cannot ask the process in slot {slot} of the device: {source}")]
    Os {
        /// The slot.
        slot: u8,
        /// What the operating system said.
        source: io::Error,
    },
}

/// A question that has arrived.
#[derive(Debug)]
pub struct Question {
    query: Query,
    answer: File,
    done: UnixStream,
}

impl Question {
    /// The question in a frame that came with descriptors, if it is one.
    pub fn parse(frame: &[u8], descriptors: Vec<OwnedFd>) -> Option<Self> {
        let [code] = *frame else { return None };
        let [answer, done] = <[OwnedFd; 2]>::try_from(descriptors).ok()?;
        let answer = File::from(answer);
        // Nothing else takes any answer without delay.
        let takes_all = answer.metadata().is_ok_and(|metadata| metadata.is_file());
        takes_all.then_some(Self {
            query: Query::from_code(code)?,
            answer,
            done: done.into(),
        })
    }

    /// What is asked for.
    pub fn query(&self) -> Query {
        self.query
    }

    /// Writes the answer down. A process that gave up meanwhile does not get it.
    pub fn answer(mut self, rows: &[Resource]) {
        let write = |file: &mut File| {
            let text = serde_json::to_vec(rows)?;
            file.write_all(&text)
        };
        if write(&mut self.answer).is_ok() && self.done.set_nonblocking(true).is_ok() {
            let _ = self.done.write_all(&[DONE]);
        }
    }
}

/// A question whose answer is not here yet.
#[derive(Debug)]
pub(crate) struct Pending {
    slot: u8,
    answer: File,
    done: UnixStream,
}

impl Pending {
    /// Asks the owner of a slot; until then there must be room in its mailbox.
    pub(crate) fn ask(
        shared: &SharedFile,
        slot: u8,
        query: Query,
        until: Instant,
    ) -> Result<Self, QueryError> {
        let os = |source| QueryError::Os { slot, source };
        let answer = os::memory_file(c"ferroce-answer").map_err(os)?;
        let (done, theirs) = UnixStream::pair().map_err(os)?;
        match shared.ask(slot, query as u8, &answer, &theirs, until) {
            Ok(Asked::Yes) => Ok(Self { slot, answer, done }),
            Ok(Asked::Vacant) => Err(QueryError::Gone { slot }),
            Ok(Asked::Full) => Err(QueryError::Silent { slot }),
            Err(error) => Err(os(error)),
        }
    }

    /// Whether there is nothing to wait for: it has been answered, or never will be.
    pub(crate) fn is_over(&self) -> bool {
        let mut done = &self.done;
        let looked = done
            .set_nonblocking(true)
            .and_then(|()| done.read(&mut [0]));
        !looked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// The answer, if it comes until then.
    pub(crate) fn answer(&mut self, until: Instant) -> Result<Vec<Resource>, QueryError> {
        let slot = self.slot;
        let os = |source| QueryError::Os { slot, source };
        match self.wait(until) {
            Ok(true) => {}
            Ok(false) => return Err(QueryError::Gone { slot }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(QueryError::Silent { slot });
            }
            Err(error) => return Err(os(error)),
        }
        self.answer.rewind().map_err(os)?;
        let mut text = Vec::new();
        self.answer.read_to_end(&mut text).map_err(os)?;
        serde_json::from_slice(&text).map_err(|source| QueryError::Format { slot, source })
    }

    /// Whether the process has answered and not ended before.
    fn wait(&mut self, until: Instant) -> io::Result<bool> {
        let left = until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            // A timeout cannot be zero.
            true => self.done.set_nonblocking(true)?,
            false => self.done.set_read_timeout(Some(left))?,
        }
        let mut byte = [0];
        Ok(self.done.read(&mut byte)? == 1 && byte == [DONE])
    }
}
