//! The state of a stream socket.

use std::collections::HashMap;
use std::ffi::c_int;

use super::flow::{End, Sizes};
use super::link::Link;
use super::result::Errno;

/// How far a socket has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Idle,
    Bound,
    Listening,
    Connecting,
    Connected,
    /// The peer is done, or this side is.
    Disconnected,
    Failed,
}

pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) link: Option<Link>,
    /// Why it failed, until the program has asked.
    pub(super) error: Errno,
    /// Halves that are not shut.
    pub(super) reads: bool,
    pub(super) writes: bool,
    /// A thread sleeps on the descriptors.
    pub(super) is_awaited: bool,
    pub(super) is_nonblocking: bool,
    pub(super) sizes: Sizes,
    /// Options that have no effect but to be there.
    pub(super) options: HashMap<(c_int, c_int), Vec<u8>>,
}

/// What a wait is for.
pub(super) type Test = fn(&State) -> bool;

impl State {
    pub(super) fn new(sizes: Sizes) -> Self {
        Self {
            phase: Phase::Idle,
            link: None,
            error: 0,
            reads: true,
            writes: true,
            is_awaited: false,
            is_nonblocking: false,
            sizes,
            options: HashMap::new(),
        }
    }

    pub(super) fn take_error(&mut self) -> Errno {
        std::mem::take(&mut self.error)
    }

    /// Takes what has happened and gives the peer its due.
    pub(super) fn progress(&mut self) {
        if self.phase != Phase::Connected {
            return;
        }
        let Some(link) = &mut self.link else { return };
        let ended = link.progress();
        let told = match ended {
            None => link.give_credit(),
            Some(_) => Ok(()),
        };
        match ended {
            Some(End::Shutdown) => {
                self.reads = false;
                if !self.writes {
                    self.phase = Phase::Disconnected;
                }
            }
            Some(End::Disconnected) => self.phase = Phase::Disconnected,
            Some(End::Broken) => self.fail(libc::ECONNRESET),
            None => {}
        }
        if let Err(errno) = told {
            self.fail(errno);
        }
    }

    pub(super) fn is_sent(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.flow.is_sent())
    }

    pub(super) fn fail(&mut self, errno: Errno) {
        self.phase = Phase::Failed;
        self.error = errno;
    }

    pub(super) fn can_send(&self) -> bool {
        let can = |link: &Link| link.flow.can_send();
        self.phase == Phase::Connected && self.link.as_ref().is_some_and(can)
    }

    pub(super) fn has_data(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.flow.has_data())
    }

    pub(super) fn sends_or_ended(&self) -> bool {
        self.can_send() || self.phase != Phase::Connected || !self.writes
    }

    pub(super) fn has_data_or_ended(&self) -> bool {
        self.has_data() || self.phase != Phase::Connected || !self.reads
    }

    pub(super) fn has_control_or_ended(&self) -> bool {
        let has = |link: &Link| link.flow.has_control_slot();
        self.phase != Phase::Connected || self.link.as_ref().is_some_and(has)
    }

    pub(super) fn is_sent_or_ended(&self) -> bool {
        self.phase != Phase::Connected || self.is_sent()
    }

    /// The events that poll(2) reports, of those that are wanted. The end of a connection is not told
    /// before everything is read: programs take POLLHUP for the end of the data.
    pub(super) fn events(&self, wanted: i16) -> i16 {
        let ended = match self.phase {
            Phase::Failed => libc::POLLERR,
            Phase::Disconnected if !self.has_data() => libc::POLLHUP,
            _ => 0,
        };
        let can_read = self.has_data_or_ended();
        let can_write = self.can_send() || self.phase != Phase::Connected;
        ended
            | (wanted & if can_read { libc::POLLIN } else { 0 })
            | (wanted & if can_write { libc::POLLOUT } else { 0 })
    }

    pub(super) fn is_not_connecting(&self) -> bool {
        self.phase != Phase::Connecting
    }
}
