//! The place of a drill: devices that only its processes see.

use std::fs::Permissions;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process;

use ferroce_adp::Profile;
use ferroce_designer::command;
use ferroce_device::{Counter, Method};
use ferroce_prm::roce_accl::ROCE_ACCL;
use ferroce_registry::{DeviceSpec, Observer, Registry};
use tempfile::TempDir;

use super::plan::Rail;
use super::record::Look;
use crate::output::Failure;
use crate::run;

/// A directory of devices that goes with the drill. The user's own devices do not come into it.
#[derive(Debug)]
pub(super) struct Site {
    directory: TempDir,
    registry: Registry,
    /// Of each host, its rails.
    hosts: Vec<Vec<Observer>>,
}

impl Site {
    /// Adds a device for each rail of each host.
    pub(super) fn new(hosts: usize, rails: usize) -> Result<Self, Failure> {
        let base = match Path::new("/dev/shm") {
            memory if memory.is_dir() => memory.to_owned(),
            _ => std::env::temp_dir(),
        };
        let directory = tempfile::Builder::new()
            .prefix("ferroce-drill-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(&base);
        let directory = directory.map_err(|error| {
            Failure::broken(format_args!(
                "cannot make a directory in {}: {error}",
                base.display()
            ))
        })?;
        let registry = Registry::within(directory.path())?;
        let hosts = (0..hosts).map(|host| {
            let rails = (0..rails).map(|rail| {
                let rail = Rail { host, rail };
                let spec = DeviceSpec::new(&rail.to_string(), address(rail));
                registry.add(&spec)?;
                registry.observe_device(spec)
            });
            rails.collect::<Result<Vec<_>, _>>()
        });
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            directory,
            registry,
            hosts,
        })
    }

    /// Writes a profile into all devices.
    pub(super) fn set_profile(&self, profile: &Profile) -> Result<(), Failure> {
        for observer in self.hosts.iter().flatten() {
            let mut payload = command::payload(profile);
            let state = observer.state();
            state
                .access_register(ROCE_ACCL.id(), Method::Write, &mut payload)
                .map_err(|error| {
                    Failure::input(format_args!("{}: {error}", observer.spec().name))
                })?;
        }
        Ok(())
    }

    /// The variables of a host's process.
    pub(super) fn variables(&self, host: usize) -> Result<Vec<(&'static str, String)>, Failure> {
        let own = self.hosts[host].iter().map(|it| it.spec().clone());
        let mut variables = run::variables(&self.registry, &own.collect::<Vec<_>>())?;
        let directory = self.directory.path().display().to_string();
        variables.push(("FERROCE_DIR", directory));
        Ok(variables)
    }

    pub(super) fn rail(&self, rail: Rail) -> &Observer {
        &self.hosts[rail.host][rail.rail]
    }

    pub(super) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// All rails, those of each host together.
    pub(super) fn rails(&self) -> impl Iterator<Item = Rail> + use<> {
        let rails = self.hosts[0].len();
        (0..self.hosts.len()).flat_map(move |host| (0..rails).map(move |rail| Rail { host, rail }))
    }

    /// What each rail has done so far.
    pub(super) fn look(&self) -> Vec<Look> {
        self.hosts.iter().flatten().map(look).collect()
    }
}

fn look(observer: &Observer) -> Look {
    let counter = |counter| observer.state().counter(counter);
    let timeouts = [
        Counter::TimeoutsIb,
        Counter::TimeoutsFirmware,
        Counter::TimeoutsProfile,
    ];
    Look {
        sent: counter(Counter::RdmaTxBytes),
        timeouts: timeouts.into_iter().map(counter).sum(),
        retransmitted: counter(Counter::RetransmittedPackets),
        failures: counter(Counter::ReqTransportRetriesExceeded),
        is_up: !observer.is_set_down(),
    }
}

/// A loopback address that no other drill of this machine has at the same time.
fn address(rail: Rail) -> IpAddr {
    let [_, _, high, low] = process::id().to_be_bytes();
    let last = 16 * rail.host + rail.rail + 1;
    Ipv4Addr::new(127, 128 | high, low, u8::try_from(last).unwrap_or(u8::MAX)).into()
}
