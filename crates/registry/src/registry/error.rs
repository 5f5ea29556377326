//! Errors of the registry.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ferroce_device::CardError;
use ferroce_os::{self as os, after};
use ferroce_prm::PciAddress;
use thiserror::Error;

use crate::spec::SpecError;

/// Why the registry could not do something. Nothing was changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The directory cannot be used.
    #[error("{path}: {source}; {next}", path = path.display(), next = next_step(source))]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        source: io::Error,
    },
    /// A file cannot be used.
    #[error("{path}: {source}{next}", path = path.display(), next = after(source))]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: io::Error,
    },
    /// A device's file says something that cannot be.
    #[error("{path}: {source}", path = path.display())]
    Spec {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: SpecError,
    },
    /// A device cannot be like this.
    #[error(transparent)]
    BadSpec(#[from] SpecError),
    /// `FERROCE_DEVICES` says something that cannot be.
    #[error(
        "FERROCE_DEVICES: {part:?} is not a device; write NAME or NAME@ADDRESS, comma-separated; \
         for example fr0,fr1@127.0.0.2"
    )]
    BadVariable {
        /// The part that is wrong.
        part: String,
    },
    /// `FERROCE_AS` names no hardware.
    #[error("FERROCE_AS: unknown hardware {name:?}; expected one of: mlx5, rxe")]
    BadEmulation {
        /// The name given.
        name: String,
    },
    /// `FERROCE_CARD` names no card.
    #[error("FERROCE_CARD: {0}")]
    BadCard(CardError),
    /// `FERROCE_LINK` names no link.
    #[error("FERROCE_LINK: unknown link {name:?}; expected one of: auto, udp, shm")]
    BadLink {
        /// The name given.
        name: String,
    },
    /// There is no such device.
    #[error("no device {name:?}; available: {known}. `ferroce dev add NAME ADDRESS` makes one")]
    NoSuchDevice {
        /// The name given.
        name: String,
        /// The names of those that are.
        known: String,
    },
    /// The device has no such link.
    #[error(
        "no link {name:?}: {device} has {count}; `ferroce dev add NAME ADDRESS --ports 2` makes a \
             device with two"
    )]
    NoSuchLink {
        /// The name given.
        name: String,
        /// The device.
        device: String,
        /// How many it has.
        count: usize,
    },
    /// The name is taken.
    #[error("the device {name} exists already")]
    Exists {
        /// The name given.
        name: String,
    },
    /// Another device has the address and port.
    #[error(
        "{device} cannot have the address {address}: the device {name} has it, and the same port; \
         choose another one (vf_address is that of the first VF)"
    )]
    AddressTaken {
        /// The device that is to have it: the one given, or a VF of it.
        device: String,
        /// The address.
        address: IpAddr,
        /// The device that has it.
        name: String,
    },
    /// Another device has the PCI address.
    #[error(
        "{device} cannot have the PCI address {pci}: the device {name} has it; choose another one"
    )]
    PciTaken {
        /// The device that is to have it: the one given, or a VF of it.
        device: String,
        /// The PCI address.
        pci: PciAddress,
        /// The device that has it.
        name: String,
    },
    /// A VF cannot be removed or changed by itself.
    #[error(
        "{name} is a VF of {pf} and uses its settings: change those with `ferroce dev set {pf}`, \
         how many VFs there are with `ferroce dev set {pf} vfs N`"
    )]
    IsVf {
        /// The VF.
        name: String,
        /// Its PF.
        pf: String,
    },
    /// Processes have the device open.
    #[error("the device {name} is in use; end the programs that `ferroce res show` names")]
    InUse {
        /// The device.
        name: String,
    },
}

impl RegistryError {
    /// The shared file at `path` cannot be used.
    pub fn state(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        Self::File { path, source }
    }
}

/// What to do about a directory that cannot be used.
fn next_step(error: &io::Error) -> &'static str {
    os::remedy(error).unwrap_or(
        "set FERROCE_DIR to a directory you own: an absolute path, of mode 0700 or not there yet",
    )
}
