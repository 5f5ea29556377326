//! How a process joins a device.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ferroce_admission::Bounds;
use ferroce_device::{Hca, HcaConfig, HostProfile, Mtu, Pairing};
use ferroce_os::{Interface, Tap, Waiter};
use ferroce_registry::{DeviceSpec, Registry, RegistryError, SLOT_MAX, SharedFile};
use ferroce_sockets::{Options, Socket};

use crate::attachment::{Attachment, secret, seed};
use crate::berth::Mooring;
use crate::device::Device;
use crate::neighbours::Neighbours;
use crate::open_error::OpenError;
use crate::port::Port;

/// How a process attaches to a device.
#[derive(Clone, Debug, Default)]
pub struct AttachOptions {
    /// Records this process's packets.
    pub tap: Option<Tap>,
    /// Socket options. The port is shared whatever they say.
    pub socket: Options,
    /// Report every timer expiry as [`ferroce_device::Event::TimerExpired`].
    pub trace_timers: bool,
    /// The process has the device open, and shares it with itself from now on. Half of the slots are left
    /// to processes that have none.
    pub once_more: bool,
    /// The device's helper is a process of its own, which goes on while the program is stopped.
    pub card_process: bool,
}

impl Device {
    /// Attaches to a device of the registry, which other processes may have open.
    pub fn attach(
        registry: &Registry,
        name: &str,
        options: AttachOptions,
    ) -> Result<Self, OpenError> {
        let card_process = options.card_process;
        let (mut device, waiter) = Self::attach_unserved(registry, name, options)?;
        device.serve(waiter, card_process)?;
        Ok(device)
    }

    /// The same without the threads that serve the device, and what its helper would wait by.
    pub(crate) fn attach_unserved(
        registry: &Registry,
        name: &str,
        options: AttachOptions,
    ) -> Result<(Self, Waiter), OpenError> {
        let spec = registry.device(name)?;
        let shared = registry.share(&spec)?;
        let failed = |source| RegistryError::state(shared.path(), source);
        shared.keep_card().map_err(failed)?;
        let membership = shared.membership().map_err(failed)?;
        let max = match options.once_more {
            true => SLOT_MAX / 2,
            false => SLOT_MAX,
        };
        if options.once_more && shared.others().map_err(failed)?.len() >= max.into() {
            return Err(OpenError::Full { max });
        }
        let slot = shared.claim_slot(&membership).map_err(failed)?;
        let slot = slot.ok_or(OpenError::Full { max })?;
        let mailbox = shared.mailbox(slot).map_err(failed)?;
        // What is wrong with the port is said now, though it is shared later.
        let address = SocketAddr::new(spec.address, spec.port);
        Port::check(&shared, address)?;
        drop(membership);
        let socket = Socket::unbound(address, &shared_port(&options))?;

        let config = HcaConfig {
            seed: seed(&spec, slot),
            slot,
            secret: Some(secret(&spec, slot, shared.generation())),
            trace_timers: options.trace_timers,
            speed: spec.speed.rate(),
            qos: spec.qos(),
            host: HostProfile::sockets(),
            port_mtu: Interface::of(spec.address).map_or(Mtu::Mtu1024, path_mtu),
            ..HcaConfig::default()
        };
        let bounds = Bounds {
            window: spec.window.get(),
            ..Bounds::default()
        };
        let state = shared.state(slot);
        let shared = Arc::new(shared);
        let second = SecondLink::claim(registry, &spec, slot)?;
        let second_mooring = match &second {
            Some(second) if spec.ports() == 2 => Some(second.moor(&shared, slot, &options)?),
            _ => None,
        };
        let neighbours = Neighbours::new(Arc::clone(&shared), Arc::clone(&shared), slot, mailbox);
        let first_mooring = Mooring {
            socket,
            shared: Some((Arc::clone(&shared), neighbours)),
        };
        let pairing = match spec.bond {
            true => Pairing::Bond,
            false => Pairing::Ports,
        };
        let second_file = second.map(|it| it.shared);
        let second_state = second_file.as_ref().map(|it| it.state(slot));
        let hca = |config| {
            let hca = Hca::with_state(config, state);
            match second_state {
                Some(state) => hca.with_second_link(pairing, state),
                None => hca,
            }
        };
        let attachment = Attachment {
            spec,
            slot,
            second: second_file,
            shared: Some(shared),
        };
        let moorings = (first_mooring, second_mooring);
        Self::build(moorings, config, bounds, hca, options.tap, attachment)
    }
}

/// How long the slot of a process that has just died may seem taken at the second link.
const DEATH_MAX: Duration = Duration::from_millis(500);

/// A process's slot at the second link of a device.
struct SecondLink {
    address: SocketAddr,
    shared: Arc<SharedFile>,
}

impl SecondLink {
    /// Claims the slot there that the process has at the first link; `None` if there is one link.
    fn claim(registry: &Registry, spec: &DeviceSpec, slot: u8) -> Result<Option<Self>, OpenError> {
        let Some(spec) = spec.second_link() else {
            return Ok(None);
        };
        let shared = registry.share(&spec)?;
        let failed = |source| RegistryError::state(shared.path(), source);
        let started = Instant::now();
        loop {
            let membership = shared.membership().map_err(failed)?;
            if shared.claim_this_slot(&membership, slot).map_err(failed)? {
                break;
            }
            drop(membership);
            if started.elapsed() >= DEATH_MAX {
                return Err(OpenError::Full { max: SLOT_MAX });
            }
            thread::sleep(DEATH_MAX / 100);
        }
        let address = SocketAddr::new(spec.address, spec.port);
        let shared = Arc::new(shared);
        Ok(Some(Self { address, shared }))
    }

    /// The process's place at the second port. `services` is the file of the first.
    fn moor(
        &self,
        services: &Arc<SharedFile>,
        slot: u8,
        options: &AttachOptions,
    ) -> Result<Mooring, OpenError> {
        let shared = &self.shared;
        let failed = |source| RegistryError::state(shared.path(), source);
        let mailbox = shared.mailbox(slot).map_err(failed)?;
        {
            let _held = shared.membership().map_err(failed)?;
            Port::check(shared, self.address)?;
        }
        let socket = Socket::unbound(self.address, &shared_port(options))?;
        let neighbours = Neighbours::new(Arc::clone(shared), Arc::clone(services), slot, mailbox);
        let shared = Some((Arc::clone(shared), neighbours));
        Ok(Mooring { socket, shared })
    }
}

/// The socket's options: all processes share the UDP port.
fn shared_port(options: &AttachOptions) -> Options {
    Options {
        share_port: true,
        ..options.socket
    }
}

/// The largest path MTU whose packets fit an interface.
fn path_mtu(interface: Interface) -> Mtu {
    // IPv6, UDP, the longest headers of a first packet, ICRC and pad.
    const AROUND: u32 = 40 + 8 + 40 + 4 + 3;
    let fits = |mtu: &Mtu| mtu.bytes() + AROUND <= interface.mtu;
    let largest = Mtu::ALL.into_iter().rev().find(fits);
    largest.unwrap_or(Mtu::Mtu256)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::tests::pair;

    #[test]
    fn packets_of_the_path_mtu_fit_the_interface() {
        let mtu = |mtu| path_mtu(Interface { index: 1, mtu });
        assert_eq!(mtu(65536), Mtu::Mtu4096);
        assert_eq!(mtu(9000), Mtu::Mtu4096);
        assert_eq!(mtu(4200), Mtu::Mtu4096);
        assert_eq!(mtu(4096), Mtu::Mtu2048);
        assert_eq!(mtu(1500), Mtu::Mtu1024);
        assert_eq!(mtu(576), Mtu::Mtu256);
        assert_eq!(mtu(68), Mtu::Mtu256);
    }

    #[test]
    fn a_process_that_has_a_slot_leaves_half_of_them_to_others() {
        let (side, _, place) = pair(9);
        let registry = Registry::at(place.path()).unwrap();
        let spec = side.device.spec();
        let others = || {
            let shared = registry.share(spec).unwrap();
            shared.claim_slot(&shared.membership().unwrap()).unwrap();
            shared
        };
        let once_more = || {
            let options = AttachOptions {
                once_more: true,
                ..AttachOptions::default()
            };
            Device::attach_unserved(&registry, &spec.name, options)
        };
        let mut held: Vec<_> = (2..SLOT_MAX / 2).map(|_| others()).collect();
        drop(once_more().unwrap());
        held.push(others());
        assert!(matches!(once_more(), Err(OpenError::Full { max: 127 })));
        let first = Device::attach_unserved(&registry, &spec.name, AttachOptions::default());
        assert!(first.is_ok());
    }
}
