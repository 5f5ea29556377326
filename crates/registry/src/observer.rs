//! A view of a device from outside.

use std::io;
use std::time::Instant;

use ferroce_device::{Counter, DeviceState, Span, WriteLockError, carrier::Schedule};
use ferroce_os::{Clock, Interface};

use crate::gids::GidTable;
use crate::netlink::addresses;
use crate::question::{self, Pending, QueryError};
use crate::registry::{Registry, RegistryError};
use crate::resource::{Query, Resource};
use crate::shared::{Process, SharedFile};
use crate::spec::DeviceSpec;

/// A look at a device from outside: it takes no slot and no packets.
#[derive(Debug)]
pub struct Observer {
    spec: DeviceSpec,
    shared: SharedFile,
    state: DeviceState,
    /// Of a second link: the file of the first, whose processes have both.
    first: Option<SharedFile>,
    /// Of a bond: its second link.
    second: Option<Box<Self>>,
}

/// How the port of a device is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortLook {
    /// It has a carrier.
    pub is_up: bool,
    /// How long until that is set to change; `None` if it is not.
    pub changes_in: Option<Span>,
    /// How often it went down.
    pub downed: u64,
}

impl Registry {
    /// Looks at a device without opening it for traffic, or as `DEVICE/2` at its second link.
    pub fn observe(&self, name: &str) -> Result<Observer, RegistryError> {
        self.observe_device(self.link(name)?)
    }

    /// The same of one that [`Self::devices`] has told of: its file is not read again, nor those of
    /// all others.
    pub fn observe_device(&self, spec: DeviceSpec) -> Result<Observer, RegistryError> {
        let shared = self.share(&spec)?;
        let state = shared.state(0);
        let first = match spec.name.split_once('/') {
            Some((device, _)) => Some(self.share(&self.device(device)?)?),
            None => None,
        };
        let second = match spec.second_link().filter(|_| spec.bond) {
            Some(second) => Some(Box::new(self.observe_device(second)?)),
            None => None,
        };
        Ok(Observer {
            second,
            spec,
            shared,
            state,
            first,
        })
    }
}

impl Observer {
    /// The device.
    pub fn spec(&self) -> &DeviceSpec {
        &self.spec
    }

    /// Registers, personality, impairments, histogram and counters. What is set acts in every
    /// process that has the card open, and in those to come.
    pub fn state(&self) -> &DeviceState {
        &self.state
    }

    /// The counters of the device's first port, summed over both links of a bond and over all processes
    /// that have or had it open; each at its number (`counter as usize`).
    pub fn counters(&self) -> [u64; Counter::COUNT] {
        let mut sums = self.state.counters();
        if let Some(second) = &self.second {
            for (sum, more) in sums.iter_mut().zip(second.state.counters()) {
                *sum += more;
            }
        }
        sums
    }

    /// The state of the card's PF, which is that of the device itself unless it is a VF. All settings
    /// of the card can be changed there.
    pub fn card(&self) -> DeviceState {
        self.shared.card_state()
    }

    /// How the device's first port is. That of a bond is up while one of its links is; when that changes
    /// is not said, and it counts how often a link went down.
    pub fn port(&self) -> PortLook {
        let first = self.link();
        match &self.second {
            None => first,
            Some(second) => {
                let second = second.link();
                PortLook {
                    is_up: first.is_up || second.is_up,
                    changes_in: None,
                    downed: first.downed + second.downed,
                }
            }
        }
    }

    fn link(&self) -> PortLook {
        let now = Clock.now();
        let outlook = self.state.outlook(now);
        PortLook {
            is_up: outlook.is_up && Interface::has_carrier(self.spec.address),
            changes_in: outlook.until.map(|until| until.since(now)),
            downed: self.state.link_downed(now),
        }
    }

    /// Whether the port is down because that was set, and not because the host's interface is.
    pub fn is_set_down(&self) -> bool {
        !self.state.outlook(Clock.now()).is_up
    }

    /// The port's GIDs: as the processes that have it open know them, or else as the host has its
    /// addresses.
    pub fn gids(&self) -> GidTable {
        let own = self.spec.address;
        match self.shared.others() {
            Ok(none) if none.is_empty() => {
                let index = Interface::of(own).map(|interface| interface.index);
                GidTable::new(&addresses(own, index))
            }
            _ => self.shared.gids(),
        }
    }

    /// Sets when the card's port is down. The processes that have it open see to it at once.
    pub fn set_schedule(&self, schedule: Schedule) -> Result<(), WriteLockError> {
        self.state.set_schedule(Clock.now(), schedule)?;
        self.call_attention();
        Ok(())
    }

    /// Has the processes that have the device open look at its settings at once. Otherwise they do
    /// at their next packet.
    pub fn call_attention(&self) {
        // Of the VFs of a card each has a file, and processes, of its own; they wait.
        let shared = self.first.as_ref().unwrap_or(&self.shared);
        for process in shared.others().into_iter().flatten() {
            shared.call_attention(process.slot);
        }
    }

    /// The processes that have the device open, by slot. Of a second link none: who has the first has
    /// both.
    pub fn processes(&self) -> io::Result<Vec<Process>> {
        match &self.first {
            Some(_) => Ok(Vec::new()),
            None => self.shared.others(),
        }
    }

    /// What the process in a slot has made on the device. It answers by itself, whatever its program
    /// does; one that is stopped is waited for 5 s. [`Inquiry`](crate::Inquiry) asks many.
    pub fn query(&self, slot: u8, query: Query) -> Result<Vec<Resource>, QueryError> {
        let until = Instant::now() + question::PATIENCE;
        self.ask(slot, query, until)?.answer(until)
    }

    pub(crate) fn ask(
        &self,
        slot: u8,
        query: Query,
        until: Instant,
    ) -> Result<Pending, QueryError> {
        Pending::ask(&self.shared, slot, query, until)
    }
}
