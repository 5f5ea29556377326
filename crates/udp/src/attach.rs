//! How a process takes its place on a device.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ferroce_hca::{Hca, HcaConfig, HostProfile, Mtu, Secret};

use crate::device::{Device, OpenError};
use crate::neighbours::Neighbours;
use crate::port::Port;
use crate::registry::{Registry, RegistryError};
use crate::shared::{SLOT_MAX, SharedFile};
use crate::socket::{Options, Socket};
use crate::spec::DeviceSpec;
use crate::sys::Interface;
use crate::tap::Tap;

/// How a process attaches to a device.
#[derive(Clone, Debug, Default)]
pub struct AttachOptions {
    /// Records this process's packets.
    pub tap: Option<Tap>,
    /// Socket options. The port is shared whatever they say.
    pub socket: Options,
    /// Report every timer expiry as [`ferroce_hca::Event::TimerExpired`].
    pub trace_timers: bool,
}

/// A process's place on a device that others may share.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) spec: DeviceSpec,
    pub(crate) slot: u8,
    /// Keeps the slot.
    pub(crate) shared: Option<Arc<SharedFile>>,
}

impl Attachment {
    /// The place of a process that has a device to itself.
    pub(crate) fn alone(address: IpAddr, port: u16) -> Self {
        let name = DeviceSpec::DEFAULT_NAME;
        let spec = DeviceSpec {
            port,
            ..DeviceSpec::new(name, address)
        };
        Self {
            spec,
            slot: 0,
            shared: None,
        }
    }
}

impl Device {
    /// Attaches to a device of the registry, which other processes may have open.
    pub fn attach(
        registry: &Registry,
        name: &str,
        options: AttachOptions,
    ) -> Result<Self, OpenError> {
        let spec = registry.device(name)?;
        let shared = SharedFile::open(registry, &spec)?;
        let failed = |source| RegistryError::state(shared.path(), source);
        shared.keep_card().map_err(failed)?;
        let membership = shared.membership().map_err(failed)?;
        let slot = shared.claim_slot(&membership).map_err(failed)?;
        let slot = slot.ok_or(OpenError::Full { max: SLOT_MAX })?;
        let mailbox = shared.mailbox(slot).map_err(failed)?;
        // What is wrong with the port is said now, though it is shared later.
        let address = SocketAddr::new(spec.address, spec.port);
        Port::check(&shared, address)?;
        drop(membership);
        let socket = Options {
            share_port: true,
            ..options.socket
        };
        let socket = Socket::unbound(address, &socket)?;

        let config = HcaConfig {
            seed: seed(&spec, slot),
            slot,
            secret: Some(secret(&spec, slot, shared.generation())),
            trace_timers: options.trace_timers,
            speed: spec.speed.rate(),
            host: &HostProfile::SOCKETS,
            window: spec.window.get(),
            port_mtu: Interface::of(spec.address).map_or(Mtu::Mtu1024, |on| on.path_mtu()),
            ..HcaConfig::default()
        };
        let state = shared.state(slot);
        let shared = Arc::new(shared);
        let neighbours = Neighbours::new(Arc::clone(&shared), slot, mailbox);
        let attachment = Attachment {
            spec,
            slot,
            shared: Some(shared),
        };
        let hca = |config| Hca::with_state(config, state);
        Self::start(
            socket,
            config,
            hca,
            options.tap,
            attachment,
            Some(neighbours),
        )
    }
}

/// Each device and each of its processes has randomness of its own, the same with every run.
fn seed(spec: &DeviceSpec, slot: u8) -> u64 {
    u64::from(spec.seed) << 32 ^ spec.guid() ^ u64::from(slot) << 56
}

/// The key of the numbers that nobody shall foresee: a random one, or with a seed that the user has
/// given one that is the same for the same process of a device, counted from the first that ever
/// had it open.
fn secret(spec: &DeviceSpec, slot: u8, generation: u32) -> Secret {
    match spec.seed {
        0 => random_secret(),
        seed => {
            let process = u64::from(slot) << 32 | u64::from(generation);
            Secret::new(seed.into()).derive(spec.guid(), process)
        }
    }
}

/// A key that nobody can foresee: the standard library keys its hashes from the system's randomness.
pub(crate) fn random_secret() -> Secret {
    let random = RandomState::new();
    let [high, low] = [0, 1].map(|n: u8| u128::from(random.hash_one(n)));
    Secret::new(high << 64 | low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_numbers_again_and_without_one_they_are_random() {
        let with_seed = |seed, address: [u8; 4]| DeviceSpec {
            seed,
            ..DeviceSpec::new("fr0", address.into())
        };
        let own = with_seed(7, [127, 0, 0, 2]);
        assert_eq!(secret(&own, 1, 1), secret(&own, 1, 1));
        let others = [
            secret(&own, 2, 1),
            secret(&own, 1, 2),
            secret(&with_seed(8, [127, 0, 0, 2]), 1, 1),
            secret(&with_seed(7, [127, 0, 0, 3]), 1, 1),
        ];
        assert!(others.iter().all(|other| *other != secret(&own, 1, 1)));
        let random = with_seed(0, [127, 0, 0, 2]);
        assert_ne!(secret(&random, 1, 1), secret(&random, 1, 1));
    }
}
