//! Changes to the device's address and interface on this host.

use std::net::IpAddr;

use ferroce_device::Hca;
use ferroce_os::{Clock, Interface, Waiter};
use ferroce_registry::{Address, News, SharedFile, Subscription, addresses};

use super::progress::Shared;

/// A device's place on the host, and how it was when last looked at.
#[derive(Debug)]
pub(super) struct HostView {
    news: Subscription,
    /// The number of the link, from 1.
    link: u8,
    own: IpAddr,
    /// The interface that has, or had last, the address.
    index: Option<u32>,
    /// Since when the address is there.
    born: Option<u32>,
    /// Which GID table the program knows.
    generation: u64,
}

impl HostView {
    /// Looks for the first time, before the program knows the device. `None` if the kernel tells no
    /// news.
    pub(super) fn begin(link: u8, own: IpAddr, shared: &SharedFile, hca: &mut Hca) -> Option<Self> {
        // News come from before the first look on.
        let news = Subscription::new().ok()?;
        let index = Interface::of(own).map(|interface| interface.index);
        hca.begin_with_host_carrier(Clock.now(), link, Interface::has_carrier(own));
        let all = addresses(own, index);
        // The first process that has the device open finds the table as new.
        let generation = shared.begin_gids(own, &all).unwrap_or(0);
        Some(Self {
            news,
            link,
            own,
            index,
            born: born(&all, own),
            generation,
        })
    }

    /// Takes over what is new.
    fn take(&mut self, shared: &SharedFile, hca: &mut Hca) {
        let (mut is_lost, mut is_other) = (false, false);
        for news in self.news.take() {
            match news {
                News::Link { index, is_up } if Some(index) == self.index => {
                    hca.set_host_carrier(Clock.now(), self.link, is_up);
                }
                News::Gone { index } if Some(index) == self.index => {
                    hca.set_host_carrier(Clock.now(), self.link, false);
                    is_other = true;
                }
                News::Address {
                    index,
                    address: (ip, _),
                    is_there,
                } => {
                    is_lost |= ip == self.own && !is_there;
                    is_other |= ip == self.own || Some(index) == self.index;
                }
                News::Missed => is_other = true,
                _ => {}
            }
        }
        if is_other {
            self.look(is_lost, shared, hca);
        }
    }

    /// Looks which addresses there are now.
    fn look(&mut self, is_lost: bool, shared: &SharedFile, hca: &mut Hca) {
        if let Some(interface) = Interface::of(self.own) {
            self.index = Some(interface.index);
            hca.set_host_carrier(Clock.now(), self.link, Interface::has_carrier(self.own));
        }
        let all = addresses(self.own, self.index);
        let born = born(&all, self.own);
        let is_lost = is_lost && self.born.is_some() || self.born.is_some() && born != self.born;
        self.born = born;
        // If the file cannot be locked, the next news bring it up to date.
        let generation = shared.follow_gids(self.own, &all);
        let generation = generation.unwrap_or(self.generation);
        if generation != self.generation || is_lost {
            self.generation = generation;
            // The links of a bond have one address, that of its port.
            if self.link <= hca.ports() {
                hca.handle_gid_change(self.link, is_lost);
            }
        }
    }
}

fn born(all: &[Address], own: IpAddr) -> Option<u32> {
    let found = all.iter().find(|(ip, _)| *ip == own);
    found.map(|(_, born)| *born)
}

impl Shared {
    /// The thread that hears of the host's interfaces: programs that poll, and a helper that stands
    /// back for them, do not listen.
    pub(super) fn watch_host(&self, mut view: HostView, file: &SharedFile, mut waiter: Waiter) {
        while !self.helper.is_stopped() {
            match waiter.wait(&view.news, None, false) {
                Ok(wake) if wake.readable => {
                    let mut engine = self.lock();
                    view.take(file, &mut engine.hca);
                    self.send(&mut engine);
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
}
