//! `ferroce dev`, `link`, `stat`, `res`, `impair`, `cc` and `status`: show and change devices while
//! programs run, like iproute2's `rdma`.
//!
//! | module | purpose |
//! |---|---|
//! | `format` | lines as `rdma` prints them, and how to print |
//! | `dev` | the devices themselves |
//! | `res` | programs' objects |
//! | `stat` | counters |
//! | `hist` | the timeout histogram |
//! | `status` | all of these on one screen |
//! | `ask` | queries programs for `res`, `cc` and `status` |
//! | `link` | the state of ports |
//! | `impair` | link impairments |
//! | `cc` | congestion control |
//! | `watch` | repeated output |

mod ask;
mod cc;
mod dev;
mod format;
mod hist;
pub(crate) mod impair;
pub(crate) mod link;
mod res;
mod stat;
mod status;
mod watch;

use cc::Cc;
use clap::Subcommand;
use dev::Dev;
use ferroce_registry::{DeviceSpec, Observer, PciAddress, Registry};
use impair::Impair;
pub(crate) use impair::{in_force, loses_most};
use link::Link;
use res::Res;
pub(crate) use res::is_kind;
use stat::Stat;

use crate::leftover;
use crate::naming;
use crate::output::{Failure, Output};

/// Devices and what is in them.
#[derive(Debug, Subcommand)]
pub(crate) enum Object {
    Dev(Dev),
    Link(Link),
    Res(Res),
    Stat(Stat),
    Impair(Impair),
    Cc(Cc),
    Status(status::Command),
}

impl Object {
    /// `details` is whether -d stood in front of the noun.
    pub(crate) fn run(self, details: bool, to: &mut Output<'_>) -> Result<(), Failure> {
        match self {
            Self::Dev(command) => command.run(details, to),
            Self::Link(command) => command.run(to),
            Self::Res(command) => command.run(details, to),
            Self::Stat(command) => command.run(details, to),
            Self::Impair(command) => command.run(to),
            Self::Cc(command) => command.run(to),
            Self::Status(command) => command.run(details, to),
        }
    }
}

/// The only port of a device.
const PORT: u32 = 1;

/// The user's devices, without what a run that was killed has left on them.
pub(crate) fn registry(to: &mut Output<'_>) -> Result<Registry, Failure> {
    let registry = Registry::open().map_err(Failure::broken)?;
    for remark in leftover::put_back(&registry) {
        to.remark(remark)?;
    }
    Ok(registry)
}

/// The device that has a PCI address, if the text is one.
pub(crate) fn at_pci(registry: &Registry, text: &str) -> Result<Option<DeviceSpec>, Failure> {
    let Ok(address) = text.parse::<PciAddress>() else {
        return Ok(None);
    };
    let devices = registry.devices()?;
    let mut devices = devices.into_iter().enumerate();
    let found = devices.find(|(place, spec)| spec.pci_at(*place) == address);
    Ok(found.map(|(_, spec)| spec))
}

/// The device that is named with its place among all, or all devices.
fn devices(registry: &Registry, name: Option<&str>) -> Result<Vec<(usize, DeviceSpec)>, Failure> {
    // Says which there are.
    let wanted = name.map(|name| naming::named(registry, name)).transpose()?;
    let all = registry.devices()?;
    let all = all.into_iter().enumerate();
    let is_wanted = |spec: &DeviceSpec| wanted.as_ref().is_none_or(|it| spec.name == it.name);
    Ok(all.filter(|(_, spec)| is_wanted(spec)).collect())
}

/// What `look` finds of the device that is named, or of each of all.
fn each<T>(
    registry: &Registry,
    name: Option<&str>,
    look: impl Fn(usize, &DeviceSpec) -> Result<T, Failure>,
) -> Result<Vec<T>, Failure> {
    let devices = devices(registry, name)?;
    let found = devices.iter().map(|(place, spec)| look(*place, spec));
    found.collect()
}

pub(crate) fn observe(registry: &Registry, spec: &DeviceSpec) -> Result<Observer, Failure> {
    let observer = registry.observe_device(spec.clone());
    observer.map_err(Failure::broken)
}
