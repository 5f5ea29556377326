//! The dynamically connected transport: who is connected to this device's targets.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use ferroce_base::time::{Span, Time};
use ferroce_wire::{Dceth, Qpn};

/// Connections of all targets of a device.
pub(crate) const CONNECTIONS_MAX: usize = 4096;
/// Connections that a target has refused and whose refusal may still have to be sent.
const REFUSED_MAX: usize = 16;
/// After this silence, a connection makes room for another one. An initiator that waits for an answer
/// repeats its request sooner, unless its timeout is longer than this.
const SILENCE_MAX: Span = Span::from_secs(5);

/// An initiator of a target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Caller {
    pub(crate) target: Qpn,
    pub(crate) address: IpAddr,
    pub(crate) initiator: Qpn,
}

/// A connection of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Connected {
    /// Of the responder that answers the initiator; `None` once the initiator has left. Late copies of its packets
    /// may come, which must not be executed again.
    pub(crate) index: Option<u32>,
    /// Number of the connection among those of the initiator.
    number: u8,
    incarnation: u32,
    /// When the initiator was last heard.
    heard: Time,
}

/// What a connect request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// The first of its connection; it replaces the connection with this responder.
    New { replaces: Option<u32> },
    /// A copy of the one that the connection of this responder began with.
    Again { index: u32 },
    /// A late copy of the one that an earlier connection began with.
    Stale,
}

/// The connections of a device's targets.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    all: BTreeMap<Caller, Connected>,
    /// Those that were refused, oldest first.
    refused: Vec<Caller>,
    /// Before this time, no connection has been silent for long enough.
    full_until: Time,
    /// Initiators that the device has had.
    pub(crate) initiators: u64,
}

impl Connections {
    /// Says what a connect request is.
    pub(crate) fn call(&self, caller: Caller, dceth: Dceth, incarnation: u32) -> Call {
        let Some(known) = self.all.get(&caller) else {
            return Call::New { replaces: None };
        };
        let ahead = dceth.connection.wrapping_sub(known.number).cast_signed();
        match known.incarnation == incarnation {
            true if ahead == 0 => known
                .index
                .map_or(Call::Stale, |index| Call::Again { index }),
            true if ahead < 0 => Call::Stale,
            _ => Call::New {
                replaces: known.index,
            },
        }
    }

    /// Makes room for a connection, which may need that another one ends: of the caller it returns.
    /// `None` if there is no room.
    pub(crate) fn make_room(&mut self, now: Time) -> Option<Option<Caller>> {
        if self.all.len() < CONNECTIONS_MAX {
            return Some(None);
        }
        if now < self.full_until {
            return None;
        }
        let by_use = |(_, it): &(&Caller, &Connected)| (it.index.is_some(), it.heard);
        let (caller, oldest) = self.all.iter().min_by_key(by_use)?;
        let end = match oldest.index {
            Some(_) => oldest.heard.after(SILENCE_MAX),
            None => now,
        };
        if end <= now {
            return Some(Some(*caller));
        }
        self.full_until = end;
        None
    }

    /// Makes room for a connection that is refused; returns the caller of the one that must end.
    pub(crate) fn refuse(&mut self, caller: Caller) -> Option<Caller> {
        let oldest = match self.refused.len() {
            REFUSED_MAX => Some(self.refused.remove(0)),
            _ => None,
        };
        self.refused.push(caller);
        oldest
    }

    /// Adds a connection.
    pub(crate) fn insert(
        &mut self,
        caller: Caller,
        index: u32,
        dceth: Dceth,
        incarnation: u32,
        heard: Time,
    ) {
        let connected = Connected {
            index: Some(index),
            number: dceth.connection,
            incarnation,
            heard,
        };
        self.all.insert(caller, connected);
    }

    /// Ends a connection whose initiator has left; returns its responder.
    pub(crate) fn leave(&mut self, caller: Caller) -> Option<u32> {
        self.refused.retain(|it| *it != caller);
        self.full_until = Time::ZERO;
        self.all.get_mut(&caller)?.index.take()
    }

    /// Ends a connection and forgets it; returns its responder.
    pub(crate) fn remove(&mut self, caller: Caller) -> Option<u32> {
        let index = self.leave(caller);
        self.all.remove(&caller);
        index
    }

    /// The responder for a request of a connection, which has just been heard.
    pub(crate) fn hear(&mut self, caller: Caller, dceth: Dceth, now: Time) -> Option<u32> {
        let known = self.all.get_mut(&caller)?;
        if known.number != dceth.connection {
            return None;
        }
        known.heard = now;
        known.index
    }

    /// A caller of a target, if it has one.
    pub(crate) fn caller_of(&self, target: Qpn) -> Option<Caller> {
        let first = Caller {
            target,
            address: Ipv4Addr::UNSPECIFIED.into(),
            initiator: Qpn::new(0),
        };
        let (caller, _) = self.all.range(first..).next()?;
        (caller.target == target).then_some(*caller)
    }

    /// How many connections there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Compares the connections with the responders that there are.
    ///
    /// # Panics
    /// Panics if they do not agree, or if there are too many.
    pub(crate) fn audit(&self, mut responders: Vec<(u32, Qpn)>) {
        let listed = self
            .all
            .iter()
            .filter_map(|(caller, it)| Some((it.index?, caller.target)));
        let mut listed: Vec<_> = listed.collect();
        listed.sort_unstable();
        responders.sort_unstable();
        assert_eq!(listed, responders);
        assert!(
            self.len() <= CONNECTIONS_MAX + REFUSED_MAX,
            "{}",
            self.len()
        );
        assert!(self.refused.len() <= REFUSED_MAX);
        assert!(self.refused.iter().all(|it| self.all.contains_key(it)));
    }
}
