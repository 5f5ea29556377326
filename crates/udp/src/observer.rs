//! A look at a device from outside.

use std::io;
use std::time::Instant;

use ferroce_hca::DeviceState;

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
}

impl Registry {
    /// Looks at a device without opening it for traffic.
    pub fn observe(&self, name: &str) -> Result<Observer, RegistryError> {
        self.observe_device(self.device(name)?)
    }

    /// The same of one that [`Self::devices`] has told of: its file is not read again, nor those of
    /// all others.
    pub fn observe_device(&self, spec: DeviceSpec) -> Result<Observer, RegistryError> {
        let shared = self.share(&spec)?;
        let state = shared.state(0);
        Ok(Observer {
            spec,
            shared,
            state,
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

    /// The state of the card's PF, which is that of the device itself if it is no VF. All settings
    /// of the card can be changed there.
    pub fn card(&self) -> DeviceState {
        self.shared.card_state()
    }

    /// The processes that have the device open, by slot.
    pub fn processes(&self) -> io::Result<Vec<Process>> {
        self.shared.others()
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
