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
    /// When the last answer from the peer arrived.
    heard: Time,
    /// A timer has expired without any answer from the peer while it ran, and none has come since.
    is_silent: bool,
    /// The bytes that this process has leased of the device's total at this peer.
    pub(crate) leased: u64,
}

const _: () = assert!(size_of::<Peer>() <= 3 * 64, "three cache lines");

/// All peers: at most one for each queue pair.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// By index.
    table: Vec<Option<Box<Peer>>>,
    by_address: BTreeMap<IpAddr, u32>,
    /// Indices without a peer.
    free: Vec<u32>,
}

impl Peers {
    /// The peer at an address, which gains a user. `window` is the window of a path that has not
    /// been measured.
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

    /// Removes a user that has nothing in flight and does not wait.
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

    /// Whether the peer does not answer: a timer has expired, and nothing came while it ran or
    /// since.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// What all queue pairs together may have on the wire to the peer. A silent peer confirms no
    /// window, so the size of its receive buffer is the limit.
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
