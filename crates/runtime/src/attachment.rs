//! A process's membership of a device, and its random numbers.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

use ferroce_device::Secret;
use ferroce_registry::{DeviceSpec, SharedFile};

/// A process's place on a device that others may share.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) spec: DeviceSpec,
    pub(crate) slot: u8,
    /// Keeps the slot of the second link, if there is one. It is dropped first: who finds the slot
    /// free at the first link finds it free at both.
    pub(crate) second: Option<Arc<SharedFile>>,
    /// Keeps the slot.
    pub(crate) shared: Option<Arc<SharedFile>>,
}

impl Attachment {
    /// Number, address and file of each link.
    pub(crate) fn links(&self) -> Vec<(u8, IpAddr, Arc<SharedFile>)> {
        let files = [(1, &self.shared), (2, &self.second)];
        let link = |(number, file): (u8, &Option<Arc<SharedFile>>)| {
            let address = self.spec.address_at(number)?;
            Some((number, address, Arc::clone(file.as_ref()?)))
        };
        files.into_iter().filter_map(link).collect()
    }

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
            second: None,
            shared: None,
        }
    }
}

/// Each device and each of its processes has randomness of its own, the same with every run.
pub(crate) fn seed(spec: &DeviceSpec, slot: u8) -> u64 {
    u64::from(spec.seed) << 32 ^ spec.guid() ^ u64::from(slot) << 56
}

/// The key of the numbers that must not be foreseen: a random one, or with a seed that the user has
/// given one that is the same for the same process of a device, counted from the first that ever
/// had it open.
pub(crate) fn secret(spec: &DeviceSpec, slot: u8, generation: u32) -> Secret {
    match spec.seed {
        0 => random_secret(),
        seed => {
            let process = u64::from(slot) << 32 | u64::from(generation);
            Secret::new(seed.into()).derive(spec.guid(), process)
        }
    }
}

/// A key that cannot be foreseen: the standard library keys its hashes from the system's randomness.
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
