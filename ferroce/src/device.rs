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
use dev::Dev;
pub(crate) use format::Before;
pub(crate) use hist::spelled_out;
use impair::Impair;
pub(crate) use impair::{in_force, loses_most};
use link::Link;
use res::Res;
use stat::Stat;

use clap::Subcommand;
use ferroce_udp::{DeviceSpec, Observer, PciAddress, Registry};

use crate::leftover;
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
    /// `before` is what stood in front of the object.
    pub(crate) fn run(self, before: Before, to: &mut Output<'_>) -> Result<(), Failure> {
        match self {
            Self::Dev(command) => command.run(before, to),
            Self::Link(command) => command.run(before, to),
            Self::Res(command) => command.run(before, to),
            Self::Stat(command) => command.run(before, to),
            Self::Impair(command) => command.run(before, to),
            Self::Cc(command) => command.run(before, to),
            Self::Status(command) => command.run(before, to),
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

/// The device of a name with its place among all, or all devices.
fn devices(registry: &Registry, name: Option<&str>) -> Result<Vec<(usize, DeviceSpec)>, Failure> {
    if let Some(name) = name {
        registry.device(name)?; // says which there are
    }
    let all = registry.devices()?;
    let all = all.into_iter().enumerate();
    let is_wanted = |spec: &DeviceSpec| name.is_none_or(|name| spec.name == name);
    Ok(all.filter(|(_, spec)| is_wanted(spec)).collect())
}

/// What `look` finds of the device of a name, or of each of all.
fn each<T>(
    registry: &Registry,
    name: Option<&str>,
    look: impl Fn(usize, &DeviceSpec) -> Result<T, Failure>,
) -> Result<Vec<T>, Failure> {
    let devices = devices(registry, name)?;
    let found = devices.iter().map(|(place, spec)| look(*place, spec));
    found.collect()
}

fn observe(registry: &Registry, spec: &DeviceSpec) -> Result<Observer, Failure> {
    let observer = registry.observe_device(spec.clone());
    observer.map_err(Failure::broken)
}

/// The device of `DEV` or `DEV/1`, as `rdma` names links.
fn link(text: &str) -> Result<&str, Failure> {
    match text.split_once('/') {
        None => Ok(text),
        Some((name, "1" | "-" | "")) => Ok(name),
        Some((name, port)) => Err(Failure::input(format_args!(
            "{name} has no port {port:?}; its only port is 1, write {name} or {name}/1"
        ))),
    }
}
