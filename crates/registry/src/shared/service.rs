//! The owners of connection manager ports.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use ferroce_os as os;
use ferroce_wire::cm::{PortSpace, ServiceId};
use thiserror::Error;

use super::{Membership, SharedFile};

/// The ports that are never asked for by number (net.ipv4.ip_local_port_range has the same).
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32768..=60999;

/// As the tables number them, which is their order in [`PortSpace::ALL`].
fn index_of(space: PortSpace) -> usize {
    match space {
        PortSpace::Ipoib => 0,
        PortSpace::Tcp => 1,
        PortSpace::Udp => 2,
        PortSpace::Ib => 3,
    }
}

/// On which addresses a port is claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceScope {
    /// On that of the device.
    Device,
    /// On all of this host: the program has bound a wildcard.
    Host,
}

/// A cell of the table of services.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Cell(u16);

impl Cell {
    const FREE: Self = Self(0);
    const HOST: u16 = 1 << 8;

    fn new(slot: u8, scope: ServiceScope) -> Self {
        Self(match scope {
            ServiceScope::Device => slot.into(),
            ServiceScope::Host => Self::HOST | u16::from(slot),
        })
    }

    fn slot(self) -> u8 {
        self.0 as u8
    }

    fn scope(self) -> ServiceScope {
        match self.0 & Self::HOST {
            0 => ServiceScope::Device,
            _ => ServiceScope::Host,
        }
    }
}

/// A port that this process has on the device, until this is dropped or the process ends: requests
/// for it come here, whichever process they reach first.
#[derive(Debug)]
pub struct ServiceClaim {
    shared: Arc<SharedFile>,
    slot: u8,
    space: PortSpace,
    port: u16,
    scope: ServiceScope,
    /// The process that has it.
    forks: u64,
}

/// Why a port could not be claimed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// A process of the device has it (`EADDRINUSE`, or `EADDRNOTAVAIL` where either side has it on
    /// all addresses).
    #[error("{space:?} port {port} of the device is in use; choose another one, or 0 for any")]
    InUse {
        /// The port space.
        space: PortSpace,
        /// The port.
        port: u16,
        /// On which addresses the other process has it.
        scope: ServiceScope,
    },
    /// All ports for any purpose are in use (`EADDRNOTAVAIL`).
    #[error("no {space:?} port from 32768 to 60999 of the device is free")]
    NoneFree {
        /// The port space.
        space: PortSpace,
    },
    /// The device was opened without a registry.
    #[error("the device is not shared: attach to one of a registry")]
    NotShared,
    /// The device was opened by the process that this one is a child of (`ENODEV`).
    #[error("the device belongs to the parent of this process: open it again")]
    Orphaned,
    /// The kernel refused to lock the device's shared file.
    #[error("cannot lock the device's shared file: {0}")]
    Lock(#[from] io::Error),
}

impl ServiceClaim {
    /// The service.
    pub fn service(&self) -> ServiceId {
        ServiceId::new(self.space, self.port)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Lets all processes know that requests for the port are expected;
    /// `Device::expect_requests` then has them come straight here.
    pub fn publish(&self) {
        let Ok(_held) = self.shared.membership() else {
            return; // they come all the same
        };
        let entry = listener(self.space, self.slot, self.port);
        let cells = self.shared.layout.listeners();
        if cells
            .iter()
            .any(|cell| cell.load(Ordering::Relaxed) == entry)
        {
            return;
        }
        let is_free = |cell: &&AtomicU32| match cell.load(Ordering::Relaxed) {
            0 => true,
            other => {
                let slot = (other >> 16) as u8;
                slot != self.slot && !self.shared.is_alive(slot)
            }
        };
        if let Some(cell) = cells.iter().find(is_free) {
            cell.store(entry, Ordering::Relaxed);
        }
    }
}

/// An entry of the list of those.
fn listener(space: PortSpace, slot: u8, port: u16) -> u32 {
    (index_of(space) as u32) << 24 | u32::from(slot) << 16 | u32::from(port)
}

impl Drop for ServiceClaim {
    fn drop(&mut self) {
        if self.forks != os::forks() {
            return; // it is the parent's
        }
        let entry = listener(self.space, self.slot, self.port);
        for cell in self.shared.layout.listeners() {
            let _ = cell.compare_exchange(entry, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        let cell = self.shared.service_cell(self.space, self.port);
        let (own, free) = (Cell::new(self.slot, self.scope), Cell::FREE);
        let _ = cell.compare_exchange(own.0, free.0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The ports for any purpose, each once, in an order that begins elsewhere with each number.
fn candidates(start: u32) -> impl Iterator<Item = u16> {
    let (first, count) = (*EPHEMERAL.start(), EPHEMERAL.len() as u32);
    (0..count).map(move |n| first + ((start % count + n) % count) as u16)
}

impl SharedFile {
    /// Claims a port for the owner of a slot; 0 stands for any that is free.
    pub fn claim_service(
        self: &Arc<Self>,
        slot: u8,
        space: PortSpace,
        port: u16,
        scope: ServiceScope,
    ) -> Result<ServiceClaim, ServiceError> {
        // Slots keep their owners meanwhile.
        let _held = self.membership()?;
        let claim = |port| ServiceClaim {
            shared: Arc::clone(self),
            slot,
            space,
            port,
            scope,
            forks: os::forks(),
        };
        let cell = Cell::new(slot, scope);
        if port != 0 {
            let taken = self.take_service(cell, space, port);
            return taken.map(|()| claim(port)).map_err(|owner| {
                let scope = owner.scope();
                ServiceError::InUse { space, port, scope }
            });
        }
        candidates(self.layout.next_port())
            .find(|port| self.take_service(cell, space, *port).is_ok())
            .map(claim)
            .ok_or(ServiceError::NoneFree { space })
    }

    /// Takes a port, or says whose it is.
    fn take_service(&self, new: Cell, space: PortSpace, port: u16) -> Result<(), Cell> {
        let cell = self.service_cell(space, port);
        let owner = Cell(cell.load(Ordering::Relaxed));
        let (own, other) = (new.slot(), owner.slot());
        let free = other == 0 || other != own && !self.is_alive(other);
        if !free {
            return Err(owner);
        }
        self.layout.member(own).note_service();
        cell.compare_exchange(owner.0, new.0, Ordering::Relaxed, Ordering::Relaxed)
            .map(|_| ())
            .map_err(Cell)
    }

    /// The slot that serves a port, if one does or did when its owner died.
    pub fn service_owner(&self, service: ServiceId) -> Option<u8> {
        let cell = self.service_cell(service.space()?, service.port());
        Some(Cell(cell.load(Ordering::Relaxed)).slot()).filter(|slot| *slot != 0)
    }

    /// Forgets what the last owner of a slot served.
    pub(super) fn clear_services(&self, _held: &Membership<'_>, slot: u8) {
        // Most serve nothing, and a process that joins has others wait for it.
        if !self.layout.member(slot).take_serves() {
            return;
        }
        for cell in self.layout.listeners() {
            let entry = cell.load(Ordering::Relaxed);
            if (entry >> 16) as u8 == slot {
                cell.store(0, Ordering::Relaxed);
            }
        }
        for cell in self.layout.services().iter().flatten() {
            if Cell(cell.load(Ordering::Relaxed)).slot() == slot {
                cell.store(Cell::FREE.0, Ordering::Relaxed);
            }
        }
    }

    /// The services with a listener, each with its slot.
    pub fn listeners(&self) -> impl Iterator<Item = (ServiceId, u8)> {
        self.layout.listeners().iter().filter_map(|cell| {
            let entry = cell.load(Ordering::Relaxed);
            let space = PortSpace::ALL.get((entry >> 24) as usize)?;
            let slot = (entry >> 16) as u8;
            (slot != 0).then(|| (ServiceId::new(*space, entry as u16), slot))
        })
    }

    fn service_cell(&self, space: PortSpace, port: u16) -> &AtomicU16 {
        &self.layout.services()[index_of(space)][usize::from(port)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number at which a search begins wraps one day.
    #[test]
    fn every_search_looks_at_each_port_once() {
        for start in [0, 1, 28_231, u32::MAX - 1, u32::MAX] {
            let mut ports: Vec<u16> = candidates(start).collect();
            ports.sort_unstable();
            assert!(ports.iter().copied().eq(EPHEMERAL), "{start}");
        }
    }
}
