//! The devices at the other ends.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ferroce_device::Signal;
use ferroce_transport::{Mtu, Time};

use crate::path::PathWindow;
use crate::room::Room;

/// A device that queue pairs of this one are connected to.
#[derive(Debug)]
#[repr(align(64))] // three cache lines, and not four
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// Queue pairs whose requests go there.
    users: u32,
    /// How many of them have something on the wire.
    pub(crate) busy: u32,
    pub(crate) room: Room,
    /// How much may be on the wire.
    pub(crate) window: PathWindow,
    /// When an answer came from there, for the last time.
    heard: Time,
    /// A timer has run out there for which nobody's answer came while it ran, and none has come since.
    is_silent: bool,
    /// How much of what all processes of the device may have there this one has leased.
    pub(crate) leased: u64,
}

const _: () = assert!(size_of::<Peer>() <= 3 * 64, "three cache lines");

/// All of them: no more than there are queue pairs.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// By index.
    table: Vec<Option<Box<Peer>>>,
    by_address: BTreeMap<IpAddr, u32>,
    /// Indices without a peer.
    free: Vec<u32>,
}

impl Peers {
    /// The peer at an address, which has one user more. `window` is that of a path about which
    /// nothing is known.
    pub(crate) fn join(&mut self, now: Time, address: IpAddr, window: PathWindow) -> u32 {
        let index = match self.by_address.get(&address) {
            Some(index) => *index,
            None => self.insert(now, address, window),
        };
        if let Some(peer) = self.get_mut(index) {
            peer.users += 1;
        }
        index
    }

    fn insert(&mut self, now: Time, address: IpAddr, window: PathWindow) -> u32 {
        let index = self.free.pop().unwrap_or(self.table.len() as u32);
        let peer = Some(Box::new(Peer {
            address,
            users: 0,
            busy: 0,
            room: Room::default(),
            window,
            heard: now,
            is_silent: false,
            leased: 0,
        }));
        match self.table.get_mut(index as usize) {
            Some(place) => *place = peer,
            None => self.table.push(peer),
        }
        self.by_address.insert(address, index);
        index
    }

    /// A user goes, which neither has anything in flight nor waits.
    pub(crate) fn leave(&mut self, index: u32) {
        let Some(place) = self.table.get_mut(index as usize) else {
            return;
        };
        if let Some(peer) = place {
            peer.users -= 1;
            if peer.users == 0 {
                self.by_address.remove(&peer.address);
                self.free.push(index);
                *place = None;
            }
        }
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Peer> {
        self.table.get(index as usize)?.as_deref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Peer> {
        self.table.get_mut(index as usize)?.as_deref_mut()
    }

    pub(crate) fn rooms(&mut self) -> impl Iterator<Item = &mut Room> {
        self.table.iter_mut().flatten().map(|peer| &mut peer.room)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Peer)> {
        let peers = (0..).zip(&self.table);
        peers.filter_map(|(index, peer)| Some((index, peer.as_deref()?)))
    }
}

impl Peer {
    /// Queue pairs whose requests go there.
    pub(crate) fn users(&self) -> u32 {
        self.users
    }

    /// Whether nobody there answers: a timer has run out, and nothing came while it ran or since.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// What all queue pairs together may have on the wire there: while nobody answers, no window is
    /// left to keep to, but the buffer is as large as ever.
    pub(crate) fn bound(&self) -> u64 {
        match self.is_silent {
            true => self.window.max(),
            false => self.window.bytes(),
        }
    }

    /// A queue pair whose packets are of this size has learned something. Tells whether there may be
    /// more room now.
    pub(crate) fn signal(&mut self, now: Time, signal: Signal, mtu: Mtu) -> bool {
        let before = self.bound();
        self.window.signal(now, signal, mtu);
        match signal {
            Signal::Loss {
                waited: Some(waited),
            } => self.is_silent |= self.heard.after(waited) <= now,
            _ => (self.heard, self.is_silent) = (now, false),
        }
        self.bound() > before
    }
}
